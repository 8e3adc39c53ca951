package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Response is what the Company's agent says by the API, and whether more will follow.
type Response struct {
	conversation.Reply
	More bool
}

// Respond adds what the Company's agent says and does, and settles the turns that it
// answers: those that the backend took over with a 202, or else the oldest one. With
// more it settles none, the conversation stays in working, and the deadline starts
// anew. A closed conversation refuses it, and so does one that a person handles.
func (a *App) Respond(ctx context.Context, scope tenancy.Scope, id string, r Response) (*store.Conversation, []store.Event, error) {
	co, err := a.companies.Get(ctx, scope)
	if err != nil {
		return nil, nil, err
	}
	var out *store.Conversation
	var events []store.Event
	var took []time.Duration // of the turns that were answered
	err = a.write(ctx, scope, func(ctx context.Context, u *unit) error {
		c, parent, err := u.lockWithParent(ctx, id)
		if err != nil {
			return err
		}
		turns, err := openTurns(ctx, u.Tx, c.ID)
		if err != nil {
			return err
		}
		var settled []store.Live
		if !r.More {
			settled, turns = answered(turns)
		}
		staffing, err := u.staffing(ctx, c, r.HandOff)
		if err != nil {
			return err
		}
		e := effects{due: firstDue(turns), by: byCompany, reason: r.HandOffReason}
		if r.More && len(turns) > 0 {
			e.due = u.now.Add(deadlineOf(co))
		}
		out = c
		if events, err = u.happen(ctx, c, conversation.CompanyActs(r.Acts(newMessageID), staffing, len(turns) > 0), e); err != nil {
			return err
		}
		took = took[:0]
		ids := make([]string, 0, len(settled))
		for _, l := range settled {
			took, ids = append(took, u.now.Sub(l.CreatedAt)), append(ids, l.ID)
		}
		if err := u.SettleTurns(ctx, store.OutcomeAnswered, ids...); err != nil {
			return err
		}
		return u.tellParent(ctx, c, parent)
	})
	if err != nil {
		return nil, nil, err
	}
	for _, t := range took {
		a.meter.Answered(ctx, t)
	}
	return out, events, nil
}

func newMessageID() string { return ids.New(ids.Message) }

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
