package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Who closed a conversation.
const (
	byAgent      = "agent"
	byCompany    = "company"
	byInactivity = "inactivity"
	byParent     = "parent" // with the conversation that a Direct one is linked to
)

// Close closes a conversation for the agent (Poppy 7.12). Closing a closed one
// changes nothing and gets the same answer.
func (a *App) Close(ctx context.Context, caller Caller, id string) (conversation.PostResponse, error) {
	if err := checkID(id); err != nil {
		return conversation.PostResponse{}, err
	}
	c, err := a.close(ctx, caller.Scope, id, conversation.AgentCloses(), byAgent, func(c *store.Conversation) error {
		return conversation.CheckOwner(c.Owner(), caller.owner())
	})
	if err != nil {
		return conversation.PostResponse{}, err
	}
	return conversation.PostResponse{ConversationID: c.ID, Status: c.Status, Responder: c.Responder}, nil
}

// CloseForCompany closes a conversation for the Company's staff.
func (a *App) CloseForCompany(ctx context.Context, scope tenancy.Scope, id string) (*store.Conversation, error) {
	return a.close(ctx, scope, id, conversation.CompanyCloses(), byCompany, func(*store.Conversation) error { return nil })
}

// errKeep ends a close that finds nothing to close.
var errKeep = errors.New("the conversation stays open")

func (a *App) closeInactive(ctx context.Context, scope tenancy.Scope, id string, before time.Time) error {
	_, err := a.close(ctx, scope, id, conversation.CompanyCloses(), byInactivity, func(c *store.Conversation) error {
		if c.Status != conversation.Idle || c.ChildID != "" || !c.LastEventAt.Before(before) {
			return errKeep // something happened since it was found
		}
		return nil
	})
	return err
}

func (a *App) close(ctx context.Context, scope tenancy.Scope, id string, in conversation.Input, by string, check func(*store.Conversation) error) (*store.Conversation, error) {
	var out *store.Conversation
	err := a.write(ctx, scope, func(ctx context.Context, u *unit) error {
		c, parent, err := u.lockWithParent(ctx, id)
		if err != nil {
			return err
		}
		if err := check(c); err != nil {
			return err
		}
		out = c
		events, err := u.happen(ctx, c, in, effects{by: by})
		if err != nil || len(events) == 0 {
			return err
		}
		return u.tellParent(ctx, c, parent)
	})
	return out, err
}
