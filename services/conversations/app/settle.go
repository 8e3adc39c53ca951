package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Ending is what an attempt means for its delivery.
type Ending uint8

// The endings.
const (
	Answered  Ending = iota + 1 // the backend took it and said what Messages holds
	TakenOver                   // the backend took it; its answer comes through the admin API
	Postponed                   // again at At
	Exhausted                   // failed, and the schedule is over
	Unwanted                    // late, and the Company wants no late ones
)

// String is the ending in a word, for counting.
func (e Ending) String() string {
	switch e {
	case Answered:
		return "answered"
	case TakenOver:
		return "taken_over"
	case Postponed:
		return "postponed"
	case Exhausted:
		return "exhausted"
	case Unwanted:
		return "unwanted"
	}
	return "unknown"
}

// Attempt is the result of one attempt at a claim.
type Attempt struct {
	Ending   Ending
	Messages []conversation.CompanyMessage
	At       time.Time
	Kept     store.Attempt
}

// ErrLost says that the delivery isn't the caller's any more: its lease ran out and
// another process took it, or it is done. The answer is dropped.
var ErrLost = errors.New("the lease of the delivery was lost")

// Settle records an attempt in one transaction: the events of the answer, the new
// state, the end of the delivery, and the lease of the conversation's next one,
// which is returned. owner is who holds the claim; with the zero next, the following
// delivery is left for anybody.
func (a *App) Settle(ctx context.Context, claim store.Claim, owner string, got Attempt, next store.Lease) (*store.Claim, error) {
	id := claim.Delivery.ConversationID
	var following *store.Claim
	var head *store.Conversation
	var events []store.Event
	var open bool // the turn, until this
	var took time.Duration
	err := a.store.Write(ctx, claim.Scope, func(ctx context.Context, tx store.Tx) error {
		following, head, events, open = nil, nil, nil, false
		c, err := tx.Lock(ctx, id)
		if err != nil {
			return err
		}
		live, err := tx.Live(ctx, id)
		if err != nil {
			return err
		}
		mine, others := split(live, claim.Delivery.ID)
		if mine == nil || !mine.Pending || mine.LeaseOwner != owner {
			return ErrLost // a second answer of a webhook that was sent again counts as little as a lost one
		}
		now := a.now()
		if got.Ending == Postponed {
			return tx.Postpone(ctx, mine.ID, got.At, got.Kept)
		}
		head, open, took = c, mine.Open(), now.Sub(mine.CreatedAt)
		if events, err = a.settle(ctx, tx, c, *mine, others, got, now); err != nil {
			return err
		}
		for _, l := range others {
			if !l.Pending {
				continue
			}
			if next.Owner == "" {
				return tx.Release(ctx, l.ID, now)
			}
			if following, err = tx.Take(ctx, claim.Scope, l.ID, next); store.IsDamage(err) {
				return tx.Release(ctx, l.ID, now) // the sweep puts it aside
			}
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.meter.Delivered(ctx, got.Ending.String())
	switch {
	case !open || head == nil:
	case got.Ending == Answered && len(events) > 0: // not for a closed conversation
		a.meter.Answered(ctx, took)
	case got.Ending == Exhausted:
		a.meter.Missed(ctx, 1)
	}
	if len(events) > 0 {
		if claim.Tell != nil {
			claim.Tell(head, events)
		}
		a.bells.Ring(ctx, claim.Scope, id, head.LastSequence)
	}
	return following, nil
}

func split(live []store.Live, id string) (mine *store.Live, others []store.Live) {
	for i := range live {
		if live[i].ID == id {
			mine = &live[i]
		} else {
			others = append(others, live[i])
		}
	}
	return mine, others
}

// settle ends a delivery of a locked conversation and returns the new events.
func (a *App) settle(ctx context.Context, tx store.Tx, c *store.Conversation, mine store.Live, others []store.Live, got Attempt, now time.Time) ([]store.Event, error) {
	end, outcome := store.Delivered, mine.Outcome
	var turns []store.Live // the other turns that stay open
	for _, l := range others {
		if l.Open() {
			turns = append(turns, l)
		}
	}
	more := len(turns) > 0
	var in conversation.Input
	switch got.Ending {
	case Answered:
		messages := make([]conversation.MessagePayload, 0, len(got.Messages))
		for _, m := range got.Messages {
			messages = append(messages, m.Payload(ids.New(ids.Message)))
		}
		in = conversation.BackendAnswers(messages, more)
		if mine.Open() {
			outcome = store.OutcomeAnswered
			if len(messages) == 0 {
				outcome = store.OutcomeSilent
			}
		}
	case Exhausted:
		end = store.Failed
		if !mine.Open() {
			return nil, tx.Finish(ctx, mine.ID, end, outcome, got.Kept, now)
		}
		outcome, in = store.OutcomeDeadline, conversation.DeadlinePassed(Notice(), more)
	case Unwanted:
		return nil, tx.Finish(ctx, mine.ID, store.Expired, outcome, got.Kept, now)
	case TakenOver, Postponed:
		return nil, tx.Finish(ctx, mine.ID, end, outcome, got.Kept, now)
	}
	state, payloads, err := conversation.Step(c.State(), in)
	switch {
	case problem.Is(err, problem.ConversationClosed):
		// Nothing reopens a closed conversation: poppy-0.1/7.12#d24.
		got.Kept.Reason = "conversation closed"
		return nil, tx.Finish(ctx, mine.ID, end, store.OutcomeRefused, got.Kept, now)
	case err != nil:
		return nil, err
	}
	var events []store.Event
	due := firstDue(turns)
	if len(payloads) > 0 || !c.AnswerDueAt.Equal(due) {
		c.Status, c.Responder, c.AnswerDueAt = state.Status, state.Responder, due
		events = store.Append(c, now, payloads...)
		if err := tx.Save(ctx, c, now); err != nil {
			return nil, err
		}
		if err := tx.Insert(ctx, c, nil, events); err != nil {
			return nil, err
		}
	}
	return events, tx.Finish(ctx, mine.ID, end, outcome, got.Kept, now)
}
