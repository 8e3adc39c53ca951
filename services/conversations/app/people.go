package app

import (
	"context"
	"strings"
	"unicode"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Assign says who should take a conversation; "" is nobody in particular. Who handles
// it is changed by TransferConversation alone.
func (a *App) Assign(ctx context.Context, scope tenancy.Scope, id, person string) (*store.Conversation, error) {
	if person != "" {
		if err := checkPerson("person", person); err != nil {
			return nil, err
		}
	}
	return a.locked(ctx, scope, id, func(ctx context.Context, u *unit, c *store.Conversation) error {
		switch {
		case c.Assignee == person:
			return nil
		case c.Status == conversation.Closed:
			return problem.New(problem.Conflict, problem.FailedPrecondition, "", "the conversation is closed")
		case c.Person != "":
			return problem.New(problem.Conflict, problem.FailedPrecondition, "", "%s handles the conversation: transfer it", c.Person)
		}
		c.Assignee = person
		if err := u.Save(ctx, c, u.now); err != nil {
			return err
		}
		u.touch(c)
		return nil
	})
}

// touch rings for a change without an event: the inbox shows it, the agent doesn't.
func (u *unit) touch(c *store.Conversation) { u.changed = append(u.changed, c) }

// Join has a person take a conversation over. One person handles it at a time: another
// one may join only once it is known that the owner has gone. Joining again is harmless.
func (a *App) Join(ctx context.Context, scope tenancy.Scope, id, person string) (*store.Conversation, error) {
	if err := checkPerson("person", person); err != nil {
		return nil, err
	}
	return a.locked(ctx, scope, id, func(ctx context.Context, u *unit, c *store.Conversation) error {
		if c.Person == person && c.InInbox() {
			return nil
		}
		if c.Person != "" {
			gone, err := u.gone(ctx, c.Person)
			if err != nil {
				return err
			}
			if !gone {
				return notYours(c)
			}
		}
		return u.take(ctx, c, person)
	})
}

// gone reports that a person said how long they would be there, and that it is over.
// Of who never said so nothing is known.
func (u *unit) gone(ctx context.Context, person string) (bool, error) {
	p, known, err := u.LockPresence(ctx, person)
	return known && !p.Until.After(u.now), err
}

// take gives a conversation to a person who has room for it.
func (u *unit) take(ctx context.Context, c *store.Conversation, person string) error {
	s, err := u.inbox(ctx)
	if err != nil {
		return err
	}
	if s.MaxPerPerson > 0 {
		// The lock has two joins of the same person count one after the other.
		if _, _, err := u.LockPresence(ctx, person); err != nil {
			return err
		}
		n, err := u.HandledBy(ctx, person)
		if err != nil {
			return err
		}
		if n >= s.MaxPerPerson {
			return problem.New(problem.Conflict, problem.FailedPrecondition, "", "%s handles %d conversations already, as many as one person may", person, n)
		}
	}
	events, err := u.happen(ctx, c, conversation.PersonJoins(), effects{person: person})
	if err == nil && len(events) == 0 {
		u.touch(c)
	}
	return err
}

// SendAsPerson adds what the person who handles a conversation says and does.
func (a *App) SendAsPerson(ctx context.Context, scope tenancy.Scope, id, person string, r conversation.Reply) (*store.Conversation, []store.Event, error) {
	if r.Empty() {
		return nil, nil, resource.Invalid("messages", "nothing is said or done")
	}
	if err := r.Check(); err != nil {
		return nil, nil, err
	}
	refused, err := a.offered(ctx, scope, r.Authorization)
	if err == nil {
		err = refused
	}
	if err != nil {
		return nil, nil, err
	}
	var out *store.Conversation
	var events []store.Event
	err = a.write(ctx, scope, func(ctx context.Context, u *unit) error {
		c, parent, err := u.lockWithParent(ctx, id)
		if err != nil {
			return err
		}
		if err := checkHandles(c, person); err != nil {
			return err
		}
		out = c
		if events, err = u.happen(ctx, c, conversation.PersonActs(asking(r.Acts(newMessageID))), effects{by: byCompany}); err != nil {
			return err
		}
		return u.tellParent(ctx, c, parent)
	})
	return out, events, err
}

// Transfer gives a conversation from the person who handles it to another one, or with
// an empty to back to the queue. The agent sees only the latter.
func (a *App) Transfer(ctx context.Context, scope tenancy.Scope, id, person, to string) (*store.Conversation, error) {
	if to != "" {
		if err := checkPerson("to_person", to); err != nil {
			return nil, err
		}
	}
	return a.asOwner(ctx, scope, id, person, func(ctx context.Context, u *unit, c *store.Conversation) error {
		switch to {
		case person:
			return nil
		case "":
			c.Assignee = "" // not to who just gave it away
			_, err := u.happen(ctx, c, conversation.PersonRequeues(), effects{reason: c.HandoffReason})
			return err
		}
		return u.take(ctx, c, to)
	})
}

// DeclineHandoff ends the wait of a queued conversation; reason is what the agent is
// told, "" for the Company's words.
func (a *App) DeclineHandoff(ctx context.Context, scope tenancy.Scope, id, reason string) (*store.Conversation, error) {
	if reason != "" {
		if _, err := conversation.ParseCompanyMessage("", reason, nil); err != nil {
			return nil, resource.Invalid("reason", "can't be a message")
		}
	}
	return a.locked(ctx, scope, id, func(ctx context.Context, u *unit, c *store.Conversation) error {
		if c.Status != conversation.Queued {
			return problem.New(problem.Conflict, problem.FailedPrecondition, "", "the conversation waits for nobody: it is %s", c.Status)
		}
		text := reason
		if text == "" {
			s, err := u.inbox(ctx)
			if err != nil {
				return err
			}
			text = s.say(nobodyJoined, c)
		}
		return u.nobodyJoins(ctx, c, text)
	})
}

// asOwner does something with a conversation that person handles.
func (a *App) asOwner(ctx context.Context, scope tenancy.Scope, id, person string, do func(context.Context, *unit, *store.Conversation) error) (*store.Conversation, error) {
	return a.locked(ctx, scope, id, func(ctx context.Context, u *unit, c *store.Conversation) error {
		if err := checkHandles(c, person); err != nil {
			return err
		}
		return do(ctx, u, c)
	})
}

// locked does something with a conversation that nobody else changes meanwhile.
func (a *App) locked(ctx context.Context, scope tenancy.Scope, id string, do func(context.Context, *unit, *store.Conversation) error) (*store.Conversation, error) {
	var out *store.Conversation
	err := a.write(ctx, scope, func(ctx context.Context, u *unit) error {
		c, err := u.Lock(ctx, id)
		if err != nil {
			return err
		}
		out = c
		return do(ctx, u, c)
	})
	return out, err
}

// HandBack gives a conversation back to the Company's agent. Where the newest message is
// one of the Personal Agent, the backend is asked for its answer, and given the note.
// The note is kept beside the conversation as well, for people.
func (a *App) HandBack(ctx context.Context, scope tenancy.Scope, id, person, note string) (*store.Conversation, error) {
	co, err := a.companies.Get(ctx, scope)
	if err != nil {
		return nil, err
	}
	slot, free := a.dispatch.Take(scope)
	var claim *store.Claim
	out, err := a.asOwner(ctx, scope, id, person, func(ctx context.Context, u *unit, c *store.Conversation) error {
		claim = nil
		if note != "" {
			if err := u.CreateNote(ctx, store.Note{ID: ids.New(ids.Note), ConversationID: c.ID, Author: person, Text: note, CreatedAt: u.now}); err != nil {
				return err
			}
		}
		_, turn, err := u.openMessage(ctx, c)
		if err != nil {
			return err
		}
		c.Assignee = ""
		due := u.now.Add(deadlineOf(co))
		missed, err := u.missed(ctx, c, turn)
		if err != nil {
			return err
		}
		if _, err := u.happen(ctx, c, conversation.PersonLeaves(turn), effects{due: due}); err != nil {
			return err
		}
		var first Slot
		if free {
			first = slot
		}
		claim, err = u.giveBack(ctx, c, missed, returning{slot: first, note: note, turn: turn, due: due})
		return err
	})
	switch {
	case err == nil && claim != nil:
		slot.Run(*claim)
	case free:
		slot.Free()
	}
	return out, err
}

// openMessage finds the Personal Agent's message that nobody answered: the newest one
// of all that says something.
func (u *unit) openMessage(ctx context.Context, c *store.Conversation) (store.Event, bool, error) {
	e, found, err := u.LastMessage(ctx, c)
	if err != nil || !found {
		return store.Event{}, false, err
	}
	m, ok := e.Payload.(conversation.MessagePayload)
	return e, ok && m.Role == conversation.RoleUser, nil
}

// checkHandles refuses who doesn't handle an open conversation.
func checkHandles(c *store.Conversation, person string) error {
	switch {
	case c.Status == conversation.Closed:
		return problem.New(problem.Conflict, problem.ConversationClosed, "", "the conversation is closed")
	case c.Person == "" || c.Person != person:
		return notYours(c)
	}
	return nil
}

func notYours(c *store.Conversation) error {
	if c.Person == "" {
		return problem.New(problem.Conflict, problem.NotResponder, "", "no person handles the conversation: join it first")
	}
	return problem.New(problem.Conflict, problem.NotResponder, "", "%s handles the conversation", c.Person)
}

// checkPerson refuses names that two eyes would read as the same.
func checkPerson(field, person string) error {
	if person == "" || strings.TrimSpace(person) != person || strings.ContainsFunc(person, unicode.IsControl) {
		return resource.Invalid(field, "is no name: it begins or ends with a space, or holds control characters")
	}
	return nil
}
