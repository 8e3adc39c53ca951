package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// unit is one transaction's work on the conversations of a Company.
type unit struct {
	store.Tx
	app       *App
	scope     tenancy.Scope
	now       time.Time
	committed func()                // told of the commit, before anybody is rung for
	changed   []*store.Conversation // those with new events, in the order of the first one
	said      map[conversation.Role]int
}

// write runs work in a transaction and rings for what it changed. work may run again,
// so it has no effect outside of the unit.
func (a *App) write(ctx context.Context, scope tenancy.Scope, work func(context.Context, *unit) error) error {
	var u *unit
	err := a.store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		u = &unit{Tx: tx, app: a, scope: scope, now: a.now(), said: map[conversation.Role]int{}}
		return work(ctx, u)
	})
	if err != nil {
		return err
	}
	if u.committed != nil {
		u.committed()
	}
	a.usage.Add(scope, usage.MessagesFromAgents, u.said[conversation.RoleUser])
	a.usage.Add(scope, usage.MessagesToAgents, u.said[conversation.RoleCompany])
	for _, c := range u.changed {
		a.bells.Ring(ctx, scope, c.ID, c.LastSequence)
	}
	return nil
}

// effects are what an input means for a conversation besides its events.
type effects struct {
	// due is when the agent is told that no answer came, should the backend owe one.
	due time.Time
	// by is who closes it, should it close.
	by string
	// person handles it, should a person do so.
	person string
	// reason is why a person is asked for.
	reason string
	// identity is what the retries of the agent's message are recognised by.
	identity *store.Identity
	// create inserts the conversation instead of saving it.
	create bool
}

// happen applies an input to a locked conversation and writes its head, its events and
// what a change of hands means for open turns. It returns the new events.
func (u *unit) happen(ctx context.Context, c *store.Conversation, in conversation.Input, e effects) ([]store.Event, error) {
	before := *c
	state, payloads, err := conversation.Step(c.State(), in)
	if err != nil {
		return nil, err
	}
	if before.ChildID != "" && state.Status == conversation.Closed {
		// The child closes first: poppy-0.1/7.10#d22. Who has the parent's lock may take the child's.
		if err := u.closeChild(ctx, before.ChildID); err != nil {
			return nil, err
		}
	}
	c.Status, c.Responder, c.ChildID = state.Status, state.Responder, state.Child
	if err := u.follow(ctx, &before, c, e); err != nil {
		return nil, err
	}
	if queues(payloads) {
		c.HandoffReason, c.HadHandoff = e.reason, true
	}
	events := store.Append(c, u.now, payloads...)
	if len(events) == 0 && !e.create && c.AnswerDueAt.Equal(before.AnswerDueAt) && c.Person == before.Person && c.Assignee == before.Assignee {
		return nil, nil
	}
	if e.create {
		err = u.Create(ctx, c)
	} else {
		err = u.Save(ctx, c, u.now)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range payloads {
		if m, ok := p.(conversation.MessagePayload); ok {
			u.said[m.Role]++
		}
	}
	if len(events) > 0 {
		u.changed = append(u.changed, c)
		if err := u.Insert(ctx, c, e.identity, events); err != nil {
			return nil, err
		}
	}
	return events, u.announce(ctx, &before, c, events, e)
}

// queues reports whether a person is asked for, also where it turns out at once that nobody is there.
func queues(payloads []conversation.Payload) bool {
	for _, p := range payloads {
		if s, ok := p.(conversation.StatePayload); ok && s.Status == conversation.Queued {
			return true
		}
	}
	return false
}

// follow sets what depends on who handles the conversation now: deadlines, the person,
// and the turns that a person took over.
func (u *unit) follow(ctx context.Context, before, c *store.Conversation, e effects) error {
	byPerson := c.Responder == conversation.ResponderHuman && c.Status != conversation.Closed
	c.AnswerDueAt = time.Time{}
	switch {
	case c.Status == conversation.Closed:
		if before.Status != conversation.Closed {
			c.ClosedBy = e.by
		}
	case c.Status == conversation.Queued:
		if c.AnswerDueAt = before.AnswerDueAt; before.Status != conversation.Queued {
			times, err := u.deskTimes(ctx)
			if err != nil {
				return err
			}
			c.AnswerDueAt = u.now.Add(times.queue)
		}
	case c.Status == conversation.Working && byPerson:
		if c.AnswerDueAt = before.AnswerDueAt; before.Status != conversation.Working || before.Responder != c.Responder {
			times, err := u.deskTimes(ctx)
			if err != nil {
				return err
			}
			c.AnswerDueAt = u.now.Add(times.answer)
		}
	case c.Status == conversation.Working:
		c.AnswerDueAt = e.due
	}
	switch {
	case !byPerson:
		c.Person = ""
	case before.Person == "" || e.person != "":
		c.Person = e.person
	}
	waits := c.Status == conversation.Queued || c.Status == conversation.Working && byPerson
	switch {
	case !waits:
		c.WaitingSince = time.Time{}
	case c.WaitingSince.IsZero():
		c.WaitingSince = u.now
	}
	if c.Status == conversation.Closed || c.Status == conversation.Queued || byPerson {
		c.Assignee = assigneeOf(before, c, byPerson)
	}
	switch {
	case byPerson && before.Responder == conversation.ResponderAgent:
		return u.HandOff(ctx, c.ID, true, u.now)
	case c.Status == conversation.Queued && before.Status != conversation.Queued && before.Responder == conversation.ResponderAgent:
		return u.HandOff(ctx, c.ID, false, u.now)
	}
	return nil
}

// assigneeOf is who should handle the conversation: whoever does, or who was told to.
func assigneeOf(before, c *store.Conversation, byPerson bool) string {
	switch {
	case c.Status == conversation.Closed:
		return ""
	case byPerson:
		return c.Person
	}
	return before.Assignee
}

func (u *unit) closeChild(ctx context.Context, id string) error {
	child, err := u.Lock(ctx, id)
	if err != nil {
		return err
	}
	_, err = u.happen(ctx, child, conversation.CompanyCloses(), effects{by: byParent})
	return err
}

// lockWithParent locks a conversation that may close, and before it the parent of a
// Direct one, to which its close is an event: locks are taken from parent to child.
func (u *unit) lockWithParent(ctx context.Context, id string) (c, parent *store.Conversation, err error) {
	seen, err := u.Conversation(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if seen.ParentID != "" {
		if parent, err = u.Lock(ctx, seen.ParentID); err != nil {
			return nil, nil, err
		}
	}
	c, err = u.Lock(ctx, id)
	return c, parent, err
}

// tellParent adds to the parent of a Direct Conversation that it closed, if it did.
func (u *unit) tellParent(ctx context.Context, c, parent *store.Conversation) error {
	if parent == nil || c.Status != conversation.Closed {
		return nil
	}
	_, err := u.happen(ctx, parent, conversation.DirectCloses(c.ID), effects{due: parent.AnswerDueAt})
	return err
}
