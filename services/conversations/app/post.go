package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Post adds a message of the Company and settles the turns that it answers: those
// that the backend took over with a 202, or else the oldest one. With more it
// settles none, the conversation stays in working, and the deadline starts anew. A
// closed conversation refuses it.
func (a *App) Post(ctx context.Context, scope tenancy.Scope, id string, m conversation.CompanyMessage, more bool) (*store.Conversation, store.Event, error) {
	co, err := a.companies.Get(ctx, scope)
	if err != nil {
		return nil, store.Event{}, err
	}
	var out *store.Conversation
	var event store.Event
	var took []time.Duration // of the turns that were answered
	err = a.store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		c, err := tx.Lock(ctx, id)
		if err != nil {
			return err
		}
		now := a.now()
		turns, err := openTurns(ctx, tx, c.ID)
		if err != nil {
			return err
		}
		var settled []store.Live
		if !more {
			settled, turns = answered(turns)
		}
		state, payloads, err := conversation.Step(c.State(), conversation.CompanySays([]conversation.MessagePayload{m.Payload(ids.New(ids.Message))}, len(turns) > 0))
		if err != nil {
			return err
		}
		c.Status, c.Responder = state.Status, state.Responder
		c.AnswerDueAt = firstDue(turns)
		if more && len(turns) > 0 {
			c.AnswerDueAt = now.Add(deadlineOf(co))
		}
		events := store.Append(c, now, payloads...)
		out, event = c, events[0]
		if err := tx.Save(ctx, c, now); err != nil {
			return err
		}
		if err := tx.Insert(ctx, c, nil, events); err != nil {
			return err
		}
		took = took[:0]
		ids := make([]string, 0, len(settled))
		for _, l := range settled {
			took, ids = append(took, now.Sub(l.CreatedAt)), append(ids, l.ID)
		}
		return tx.SettleTurns(ctx, store.OutcomeAnswered, ids...)
	})
	if err != nil {
		return nil, store.Event{}, err
	}
	for _, t := range took {
		a.meter.Answered(ctx, t)
	}
	a.bells.Ring(ctx, scope, id, out.LastSequence)
	return out, event, nil
}

func openTurns(ctx context.Context, tx store.Tx, id string) ([]store.Live, error) {
	live, err := tx.Live(ctx, id)
	if err != nil {
		return nil, err
	}
	open := live[:0]
	for _, l := range live {
		if l.Open() {
			open = append(open, l)
		}
	}
	return open, nil
}

// answered splits open turns into those that a message of the Company settles and the rest.
func answered(turns []store.Live) (settled, rest []store.Live) {
	for _, l := range turns {
		if l.Pending {
			rest = append(rest, l)
		} else {
			settled = append(settled, l)
		}
	}
	if len(settled) == 0 && len(rest) > 0 {
		// The answer may be faster than the record of the 202, or staff answer for a backend that is down.
		settled, rest = rest[:1], rest[1:]
	}
	return settled, rest
}
