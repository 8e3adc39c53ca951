package app

import (
	"context"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// maxMissed is how many messages the backend is told of when a conversation is its own
// again: the newest ones.
const maxMissed = 50

// returning says how a conversation becomes the backend's again.
type returning struct {
	slot Slot      // for the first message; nil: whoever finds it due delivers it
	note string    // of the person who hands it back
	turn bool      // the newest message is to be answered
	due  time.Time // until then
}

// missed are the agent's messages that the backend has not got, since a person was
// awaited or there; with turn also the newest one, whatever became of it.
func (u *unit) missed(ctx context.Context, c *store.Conversation, turn bool) ([]store.Event, error) {
	all, err := u.Missed(ctx, c, maxMissed)
	if err != nil {
		return nil, err
	}
	// The context of those that say nothing else goes along with any other.
	all = slices.DeleteFunc(all, func(e store.Event) bool {
		m, ok := e.Payload.(conversation.MessagePayload)
		return !ok || m.Text == "" && m.Data == nil
	})
	if !turn {
		return all, nil
	}
	newest, _, err := u.openMessage(ctx, c)
	if n := len(all); err == nil && (n == 0 || all[n-1].Sequence != newest.Sequence) {
		all = append(all, newest)
	}
	return all, err
}

// giveBack has the backend told of missed messages, in order, each in a round of its
// own. It returns the first one as a claim where there is a slot for it.
func (u *unit) giveBack(ctx context.Context, c *store.Conversation, missed []store.Event, r returning) (*store.Claim, error) {
	if len(missed) == 0 {
		return nil, nil
	}
	behind, err := u.HasPending(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	var claim *store.Claim
	for i, e := range missed {
		message, _ := e.Payload.(conversation.MessagePayload)
		round, err := u.NextRound(ctx, c.ID, e.Sequence)
		if err != nil {
			return nil, err
		}
		d := store.Delivery{
			ID: ids.New(ids.Delivery), ConversationID: c.ID, Sequence: e.Sequence, Round: round,
			Moment: c.Moment, Context: c.Context, Traceparent: traceparent(ctx), CreatedAt: u.now,
		}
		d.Moment.Status, d.Moment.Responder, d.Moment.Note = c.Status, c.Responder, r.note
		if last := i == len(missed)-1; last && r.turn {
			d.ExpectsReply, d.ReplyBy = true, r.due
		}
		var lease store.Lease
		if r.slot != nil && !behind {
			lease = r.slot.Lease(u.now)
			claim = &store.Claim{
				Scope: u.scope, Delivery: d, Message: message, ClientID: c.ClientID, AgentName: c.AgentName, UserID: c.UserID, ParentID: c.ParentID,
			}
		}
		if err := u.Enqueue(ctx, d, behind, lease); err != nil {
			return nil, err
		}
		behind = true
	}
	return claim, nil
}

// nobodyJoins ends the wait of a queued conversation: the agent is told why, and the
// backend of what was said meanwhile.
func (u *unit) nobodyJoins(ctx context.Context, c *store.Conversation, text string) error {
	missed, err := u.missed(ctx, c, false)
	if err != nil {
		return err
	}
	if _, err := u.happen(ctx, c, conversation.NobodyJoined(notice(text)), effects{}); err != nil {
		return err
	}
	_, err = u.giveBack(ctx, c, missed, returning{})
	return err
}
