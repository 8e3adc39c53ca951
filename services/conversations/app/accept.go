package app

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/doorbell"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

const (
	// defaultDeadline stands in for an answer deadline that isn't set: an agent never hangs in working.
	defaultDeadline = time.Minute
	// acceptTimeout bounds the transaction of a message, whose end the client's going away doesn't decide.
	acceptTimeout = 10 * time.Second
)

// Accepted is what a POST of a message came to.
type Accepted struct {
	ConversationID string
	// First says that the message started the conversation: 201 rather than 202, for its retries too.
	First     bool
	Status    conversation.Status
	Responder conversation.Responder
	own       span
	// What ReadReply goes on from, when the message is new and its POST waits: the page
	// that its first read would find, a waiter from before it was accepted, and what the
	// answer became, if this process gets it.
	seen   *page
	waiter *doorbell.Waiter
	told   chan page
}

// span is the events that one message of the agent caused. They are in the answer
// of its own POST, but don't end the hold (decision 18).
type span struct{ first, last int64 }

// An acceptance is one message on its way in.
type acceptance struct {
	app      *App
	company  *directory.Company
	caller   Caller
	message  conversation.Message
	identity store.Identity
	// id is the conversation's that the message goes to, or may start.
	id    string
	query conversation.ReadQuery // its cursor is checked before anything is accepted
	slot  Slot                   // nil when none is free

	// What the last try of the transaction came to.
	out   Accepted
	isNew bool
	claim *store.Claim
}

// Start accepts the first message of a conversation. A cursor is judged before
// anything is accepted. After one with a wait, ReadReply has to be called.
func (a *App) Start(ctx context.Context, co *directory.Company, caller Caller, s conversation.Start, q conversation.ReadQuery) (Accepted, error) {
	x, err := a.accepting(co, caller, s.Message(), conversation.NewTarget(s.Parent()), ids.New(ids.Conversation), q)
	if err != nil {
		return Accepted{}, err
	}
	return x.run(ctx, func(ctx context.Context, u *unit) error {
		if s.Parent() != "" {
			// A retry finds the parent with its own first try below it, or closed since.
			if err := x.openBelow(ctx, u, s.Parent(), x.id); err != nil {
				return x.unlessRepeated(ctx, u, err)
			}
		}
		c := &store.Conversation{
			ID: x.id, ParentID: s.Parent(), ClientID: caller.ClientID, AgentName: caller.AgentName, UserID: caller.UserID, SessionID: caller.SessionID,
			Status: conversation.NewState().Status, Responder: conversation.NewState().Responder,
			CursorKey: ids.Random16(), OldestSequence: 1, CreatedAt: u.now, UpdatedAt: u.now, Version: 1,
		}
		x.identity.First = true
		return x.record(ctx, u, c)
	})
}

// Send accepts a later message. After one with a wait, ReadReply has to be called.
func (a *App) Send(ctx context.Context, co *directory.Company, caller Caller, id string, m conversation.Message, q conversation.ReadQuery) (Accepted, error) {
	if err := checkID(id); err != nil {
		return Accepted{}, err
	}
	x, err := a.accepting(co, caller, m, conversation.ConversationTarget(id), id, q)
	if err != nil {
		return Accepted{}, err
	}
	return x.run(ctx, func(ctx context.Context, u *unit) error {
		c, err := lockOwn(ctx, u.Tx, caller, id)
		if err != nil {
			return err
		}
		return x.unlessRepeated(ctx, u, x.record(ctx, u, c))
	})
}

// MessageLimit is the clause of refusing messages over a quota.
const MessageLimit clause.ID = "poppy-0.1/4.3#46"

// allowMessage refuses new messages where one more, or bringing it to the backend, would be
// over a quota. What is accepted is delivered, whatever it uses.
func (a *App) allowMessage(scope tenancy.Scope) error {
	if ok, wait := a.usage.Allow(scope, usage.MessageQuota, usage.DeliveryQuota); !ok {
		return problem.New(problem.RateLimited, problem.RateLimitedReason, MessageLimit, "the Company takes no more messages for now").WithRetryAfter(wait)
	}
	return nil
}

// unlessRepeated is err, unless what was refused is a retry: that check comes before
// all others of the message (poppy-0.1/7.3#d17). It is made only where it may matter,
// since a message that is accepted for the second time collides with its first.
func (x *acceptance) unlessRepeated(ctx context.Context, u *unit, err error) error {
	var refused *problem.Error
	if !errors.As(err, &refused) {
		return err
	}
	if repeated, other := x.repeat(ctx, u.Tx); repeated || other != nil {
		return other
	}
	return err
}

// checkID answers an id that no conversation can have like one that no conversation has.
func checkID(id string) error {
	if conversation.CheckID("conversation_id", id) != nil {
		return conversation.NotFound("poppy-0.1/7.2#16")
	}
	return nil
}

func lockOwn(ctx context.Context, tx store.Tx, caller Caller, id string) (*store.Conversation, error) {
	c, err := tx.Lock(ctx, id)
	if err != nil {
		return nil, err
	}
	return c, conversation.CheckOwner(c.Owner(), caller.owner())
}

// openBelow judges the parent of a Direct Conversation and tells it that the
// conversation with the id opens (Poppy 7.10). The parent's lock decides between two
// starts below it.
func (x *acceptance) openBelow(ctx context.Context, u *unit, parentID, id string) error {
	parent, err := lockOwn(ctx, u.Tx, x.caller, parentID)
	if err != nil {
		return err
	}
	_, err = u.happen(ctx, parent, conversation.DirectOpens(id), effects{due: parent.AnswerDueAt})
	return err
}

func (a *App) accepting(co *directory.Company, caller Caller, m conversation.Message, t conversation.Target, id string, q conversation.ReadQuery) (*acceptance, error) {
	hash, err := conversation.ContentHash(m, t)
	if err != nil {
		return nil, err
	}
	return &acceptance{
		app: a, company: co, caller: caller, message: m, id: id, query: q,
		identity: store.Identity{Owner: caller.key(), MessageID: m.ID(), Content: hash},
	}, nil
}

func (x *acceptance) run(ctx context.Context, try func(context.Context, *unit) error) (Accepted, error) {
	// A client that goes away must not leave it open whether its message was accepted and nobody told the backend.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), acceptTimeout)
	defer cancel()
	scope := x.caller.Scope
	var waiter *doorbell.Waiter
	if x.query.Wait > 0 {
		// Listening from before the commit spares the read that would look for what came in between.
		var err error
		if waiter, err = x.app.bells.Conversation(scope, x.id); err != nil {
			return Accepted{}, conversation.NotFound("poppy-0.1/7.2#16")
		}
		defer func() {
			if x.out.waiter == nil {
				waiter.Close()
			}
		}()
	}
	slot, free := x.app.dispatch.Take(scope)
	if free {
		x.slot = slot
		defer func() {
			if x.slot != nil {
				x.slot.Free()
			}
		}()
	}
	err := x.app.write(ctx, scope, func(ctx context.Context, u *unit) error {
		x.out, x.isNew, x.claim = Accepted{}, false, nil
		if err := x.app.allowMessage(scope); err != nil {
			return x.unlessRepeated(ctx, u, err) // a retry uses nothing
		}
		return try(ctx, u)
	})
	if errors.Is(err, store.ErrTaken) {
		err = x.lost(ctx, err)
	}
	if err != nil {
		return Accepted{}, err
	}
	if x.claim != nil {
		if waiter != nil {
			told := make(chan page, 1) // a claim is settled once
			x.claim.Tell = func(c *store.Conversation, events []store.Event) { told <- page{conversation: c, events: events} }
			x.out.told = told
		}
		slot.Run(*x.claim)
		x.slot = nil // the delivery's now
	}
	if x.isNew {
		x.out.waiter = waiter
		x.app.meter.Accepted(ctx, x.out.First)
	}
	return x.out, nil
}

// lost answers a message whose id another request had committed in the meantime:
// it is a retry after all, or a conflict.
func (x *acceptance) lost(ctx context.Context, cause error) error {
	return x.app.store.Read(ctx, x.caller.Scope, func(ctx context.Context, tx store.Tx) error {
		x.isNew, x.claim = false, nil
		repeated, err := x.repeat(ctx, tx)
		if err == nil && !repeated {
			return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the message could not be accepted; send it again").
				WithRetryAfter(time.Second).WithCause(cause)
		}
		return err
	})
}

// repeat looks for the message among the accepted ones. A retry gets its first
// answer with the present status (decision 36); another content is a conflict, and
// so is the id's use in another conversation, since the target is part of the
// content.
func (x *acceptance) repeat(ctx context.Context, tx store.Tx) (bool, error) {
	before, found, err := tx.FindMessage(ctx, x.identity.Owner, x.identity.MessageID)
	if err != nil || !found {
		return false, err
	}
	if before.Content != x.identity.Content {
		return false, problem.New(problem.Conflict, problem.MessageIDConflict, "poppy-0.1/7.3#11", "a message with this id and other content was accepted before")
	}
	c, err := tx.Conversation(ctx, before.ConversationID)
	if err != nil {
		return false, err
	}
	if err := conversation.CheckOwner(c.Owner(), x.caller.owner()); err != nil {
		return false, err
	}
	if _, err := startOf(c, x.query.Cursor); err != nil {
		return false, err
	}
	own := span{before.Sequence, before.Sequence}
	next, err := tx.Events(ctx, c, before.Sequence, 1)
	if err != nil {
		return false, err
	}
	if len(next) == 1 {
		// Only a message that found the conversation idle is followed by a change to working.
		if s, ok := next[0].Payload.(conversation.StatePayload); ok && s.Status == conversation.Working {
			own.last = next[0].Sequence
		}
	}
	x.out = Accepted{ConversationID: c.ID, First: before.First, Status: c.Status, Responder: c.Responder, own: own}
	return true, nil
}

// record adds the message to c and writes everything that follows from it. A
// conversation that a person handles, or is awaited for, goes to no backend.
func (x *acceptance) record(ctx context.Context, u *unit, c *store.Conversation) error {
	after, err := startOf(c, x.query.Cursor)
	if err != nil {
		return err
	}
	newest := c.LastSequence
	if c.Context, err = conversation.MergeContext(c.Context, x.message.Context()); err != nil {
		return err
	}
	e := effects{identity: &x.identity, create: x.identity.First, due: c.AnswerDueAt}
	if e.due.IsZero() {
		e.due = u.now.Add(deadlineOf(x.company))
	}
	if x.caller.SignedIn && c.Account == "" {
		c.Account = x.caller.Account // poppy-0.1/7.2#d21
	}
	c.Moment = store.Moment{SessionID: x.caller.SessionID, SignedIn: x.caller.SignedIn, Account: x.caller.Account, Scopes: x.caller.Scopes}
	forBackend := c.Responder == conversation.ResponderAgent && c.Status != conversation.Queued
	behind := false
	if forBackend && !x.identity.First {
		// Asked before anything is written: what follows goes out with the commit.
		if behind, err = u.HasPending(ctx, c.ID); err != nil {
			return err
		}
	}
	events, err := u.happen(ctx, c, conversation.AgentSays(x.message, x.caller.SignedIn), e)
	if err != nil {
		return err
	}
	if forBackend {
		if err := x.enqueue(ctx, u, c, events[0], behind); err != nil {
			return err
		}
	}
	x.isNew = true
	x.out = Accepted{
		ConversationID: c.ID, First: x.identity.First, Status: c.Status, Responder: c.Responder,
		own: span{events[0].Sequence, events[len(events)-1].Sequence},
	}
	if after == newest {
		x.out.seen = &page{conversation: c, events: events}
	}
	return nil
}

// enqueue has the message delivered to the backend, by this process where there is a
// slot and nothing before it.
func (x *acceptance) enqueue(ctx context.Context, u *unit, c *store.Conversation, message store.Event, behind bool) error {
	delivery := x.delivery(ctx, u.now, c, message)
	var lease store.Lease
	if x.slot != nil && !behind {
		lease = x.slot.Lease(u.now)
		x.claim = &store.Claim{
			Scope: x.caller.Scope, Delivery: delivery, Message: x.message.Payload(),
			ClientID: c.ClientID, AgentName: c.AgentName, UserID: c.UserID, ParentID: c.ParentID,
		}
	}
	return u.Enqueue(ctx, delivery, behind, lease)
}

func (x *acceptance) delivery(ctx context.Context, now time.Time, c *store.Conversation, message store.Event) store.Delivery {
	d := store.Delivery{
		ID: ids.New(ids.Delivery), ConversationID: c.ID, Sequence: message.Sequence, ExpectsReply: x.message.StartsTurn(),
		Moment: store.Moment{
			SessionID: x.caller.SessionID, SignedIn: x.caller.SignedIn, Account: x.caller.Account, Scopes: x.caller.Scopes,
			Status: c.Status, Responder: c.Responder,
		},
		Context: c.Context, Traceparent: traceparent(ctx), CreatedAt: now,
	}
	if d.ExpectsReply {
		d.ReplyBy = now.Add(deadlineOf(x.company))
	}
	return d
}

func deadlineOf(co *directory.Company) time.Duration {
	if co.AnswerDeadline <= 0 {
		return defaultDeadline
	}
	return co.AnswerDeadline
}

// traceparent is the trace that the delivery goes on with, "" outside of any.
func traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}
