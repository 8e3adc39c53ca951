package app

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// defaultDeadline stands in for a Company's answer deadline that isn't set: an agent never hangs in working.
const defaultDeadline = time.Minute

// Accepted is what a POST of a message came to.
type Accepted struct {
	ConversationID string
	// First says that the message started the conversation: 201 instead of 202, for its retries too.
	First     bool
	Status    conversation.Status
	Responder conversation.Responder
	own       span
}

// span is the events that one message of the agent caused: they don't end the hold of its own POST.
type span struct{ first, last int64 }

// Start accepts the first message of a conversation. cursor is checked against the
// conversation before anything is accepted; "" for none.
func (a *App) Start(ctx context.Context, co *directory.Company, caller Caller, s conversation.Start, cursor string) (Accepted, error) {
	target := conversation.NewTarget(s.Parent())
	return a.accept(ctx, co, caller, s.Message(), target, cursor, func(ctx context.Context, tx store.Tx, now time.Time) (*store.Conversation, error) {
		if s.Parent() != "" {
			return nil, a.checkParent(ctx, tx, caller, s.Parent())
		}
		return &store.Conversation{
			ID: ids.New(ids.Conversation), ClientID: caller.ClientID, AgentName: caller.AgentName, UserID: caller.UserID, SessionID: caller.SessionID,
			Status: conversation.NewState().Status, Responder: conversation.NewState().Responder,
			CursorKey: ids.Random16(), OldestSequence: 1, CreatedAt: now, UpdatedAt: now,
		}, nil
	})
}

// Send accepts a later message.
func (a *App) Send(ctx context.Context, co *directory.Company, caller Caller, id string, m conversation.Message, cursor string) (Accepted, error) {
	if err := checkID(id); err != nil {
		return Accepted{}, err
	}
	target := conversation.ConversationTarget(id)
	return a.accept(ctx, co, caller, m, target, cursor, func(ctx context.Context, tx store.Tx, _ time.Time) (*store.Conversation, error) {
		return lockOwn(ctx, tx, caller, id)
	})
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

// checkParent judges the parent of a Direct Conversation (Poppy 7.10), which this
// installation has none of: a usable parent is refused as well, and says why.
func (a *App) checkParent(ctx context.Context, tx store.Tx, caller Caller, id string) error {
	parent, err := tx.Conversation(ctx, id)
	if err != nil {
		return err
	}
	if err := conversation.CheckOwner(parent.Owner(), caller.owner()); err != nil {
		return err
	}
	if parent.Status == conversation.Closed {
		return problem.New(problem.Conflict, problem.ConversationClosed, "poppy-0.1/7.10#11", "the parent conversation is closed")
	}
	return problem.New(problem.Invalid, problem.InvalidRequest, "", "this company takes no Direct Conversations").
		WithField("parent_conversation_id", "is not taken by this company")
}

type opener func(context.Context, store.Tx, time.Time) (*store.Conversation, error)

// accept is the one transaction of a message. open returns the conversation it goes
// to: locked, or one that isn't stored yet.
func (a *App) accept(ctx context.Context, co *directory.Company, caller Caller, m conversation.Message, target conversation.Target, cursor string, open opener) (Accepted, error) {
	hash, err := conversation.ContentHash(m, target)
	if err != nil {
		return Accepted{}, err
	}
	identity := store.Identity{Owner: caller.key(), MessageID: m.ID(), Content: hash}
	slot, free := a.dispatch.Take(caller.Scope)
	var out Accepted
	var claim *store.Claim
	err = a.store.Write(ctx, caller.Scope, func(ctx context.Context, tx store.Tx) error {
		claim = nil
		now := a.now()
		if target != conversation.NewTarget("") {
			// An existing conversation hides itself from strangers before anything is said of the message.
			return a.acceptLater(ctx, tx, co, caller, m, identity, cursor, now, open, slot, free, &out, &claim)
		}
		repeated, err := a.repeat(ctx, tx, caller, identity, cursor, &out)
		if repeated || err != nil {
			return err
		}
		c, err := open(ctx, tx, now)
		if err != nil {
			return err
		}
		identity.First = true
		return a.record(ctx, tx, co, caller, c, m, identity, cursor, now, slot, free, &out, &claim)
	})
	_ = slot
	return out, err
}
