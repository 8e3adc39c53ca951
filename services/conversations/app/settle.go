package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Ending is what an attempt means for its delivery.
type Ending uint8

// The endings.
const (
	Answered  Ending = iota + 1 // the backend took it and said what Reply holds
	TakenOver                   // the backend took it; its answer comes through the admin API
	Postponed                   // again at At
	Exhausted                   // failed, and the schedule is over
	Unwanted                    // late, and the Company wants no late ones
	Rejected                    // the backend took it, and would say the same again: what it said can't be taken
)

// notOfferedReason is that of an answer that asks for a scope which no sign-in of the Company gives.
const notOfferedReason = "scope not offered"

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
	case Rejected:
		return "rejected"
	}
	return "unknown"
}

// Attempt is the result of one attempt at a claim.
type Attempt struct {
	Ending Ending
	Reply  conversation.Reply
	// MessageID is the id of the reply's first message where its text was shown in pieces.
	MessageID string
	At        time.Time
	Kept      store.Attempt
	// Refused, if there is one, is told after the commit why the answer wasn't taken; "" if it was.
	Refused func(reason string)
	refusal *string
}

// ErrLost says that the delivery isn't the caller's any more: its lease ran out and
// another process took it, or it is done. The answer is dropped.
var ErrLost = errors.New("the lease of the delivery was lost")

// Settle records an attempt in one transaction: the events of the answer, the new
// state, the end of the delivery, and the lease of the conversation's next one,
// which is returned. owner is who holds the claim; with the zero next, the following
// delivery is left for anybody. An answer that can't be taken ends its delivery, whose
// reason says why.
func (a *App) Settle(ctx context.Context, claim store.Claim, owner string, got Attempt, next store.Lease) (*store.Claim, error) {
	refused, err := a.offered(ctx, claim.Scope, got.Reply.Authorization)
	if err != nil {
		return nil, err
	}
	if refused != nil {
		got = Attempt{Ending: Rejected, Kept: got.Kept, Refused: got.Refused}
		got.Kept.Reason = notOfferedReason
	}
	var untaken string
	got.refusal = &untaken
	id := claim.Delivery.ConversationID
	var following *store.Claim
	var head *store.Conversation
	var events []store.Event
	var open bool // the turn, until this
	var took time.Duration
	err = a.write(ctx, claim.Scope, func(ctx context.Context, u *unit) error {
		following, head, events, open, untaken = nil, nil, nil, false, ""
		if got.Ending == Rejected {
			untaken = got.Kept.Reason
		}
		u.committed = func() {
			if len(events) > 0 && claim.Tell != nil {
				claim.Tell(head, events)
			}
		}
		tx := u.Tx
		c, parent, err := u.lockToSettle(ctx, claim, got)
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
		now := u.now
		if got.Ending == Postponed {
			return tx.Postpone(ctx, mine.ID, got.At, got.Kept)
		}
		head, open, took = c, mine.Open(), now.Sub(mine.CreatedAt)
		if events, err = u.settle(ctx, c, *mine, others, got); err != nil {
			return err
		}
		if err := u.tellParent(ctx, c, parent); err != nil {
			return err
		}
		if got.Reply.HandOff {
			// Those that waited behind this one are a person's now.
			if others, err = tx.Live(ctx, id); err != nil {
				return err
			}
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
	if got.Refused != nil {
		got.Refused(untaken)
	}
	switch {
	case !open || head == nil:
	case got.Ending == Answered && len(events) > 0: // not for a closed conversation
		a.meter.Answered(ctx, took)
	case got.Ending == Exhausted:
		a.meter.Missed(ctx, 1)
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

// lockToSettle locks the claim's conversation, and the parent of a Direct one that the attempt may close.
func (u *unit) lockToSettle(ctx context.Context, claim store.Claim, got Attempt) (c, parent *store.Conversation, err error) {
	if claim.ParentID != "" && got.Reply.Close {
		return u.lockWithParent(ctx, claim.Delivery.ConversationID)
	}
	c, err = u.Lock(ctx, claim.Delivery.ConversationID)
	return c, nil, err
}

// settle ends a delivery of a locked conversation and returns the new events.
func (u *unit) settle(ctx context.Context, c *store.Conversation, mine store.Live, others []store.Live, got Attempt) ([]store.Event, error) {
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
		staffing, err := u.staffing(ctx, c, got.Reply.HandOff)
		if err != nil {
			return nil, err
		}
		in = conversation.BackendAnswers(got.acts(), staffing, more)
		if mine.Open() {
			outcome = store.OutcomeAnswered
			if got.Reply.Empty() {
				outcome = store.OutcomeSilent
			}
		}
	case Exhausted:
		end = store.Failed
		if !mine.Open() {
			return nil, u.Finish(ctx, mine.ID, end, outcome, got.Kept, u.now)
		}
		outcome, in = store.OutcomeDeadline, conversation.DeadlinePassed(Notice(), more)
	case Unwanted:
		return nil, u.Finish(ctx, mine.ID, store.Expired, outcome, got.Kept, u.now)
	case Rejected:
		// The turn stays open: the Company may still answer it, and the agent is told at the deadline.
		return nil, u.Finish(ctx, mine.ID, store.Failed, outcome, got.Kept, u.now)
	case TakenOver, Postponed:
		return nil, u.Finish(ctx, mine.ID, end, outcome, got.Kept, u.now)
	}
	e := effects{due: firstDue(turns), by: byCompany, reason: got.Reply.HandOffReason}
	if !mine.Open() {
		e.due = c.AnswerDueAt // late: the deadline is that of others
	}
	events, err := u.happen(ctx, c, in, e)
	if reason := refusal(err); reason != "" {
		got.Kept.Reason, *got.refusal = reason, reason
		return nil, u.Finish(ctx, mine.ID, end, store.OutcomeRefused, got.Kept, u.now)
	}
	if err != nil {
		return nil, err
	}
	if late := outcome == store.OutcomeDeadline || outcome == store.OutcomeHandedOff; late && !mine.Open() && len(events) > 0 {
		outcome = store.OutcomeLate
	}
	return events, u.Finish(ctx, mine.ID, end, outcome, got.Kept, u.now)
}

// refusal is why an answer that can't be taken any more is dropped, for the Company to
// read; "" for another error. Nothing reopens a closed conversation (poppy-0.1/7.12#d24),
// and a person who took over isn't talked over.
func refusal(err error) string {
	switch {
	case problem.Is(err, problem.ConversationClosed):
		return "conversation closed"
	case problem.Is(err, problem.NotResponder):
		return "a person took over"
	}
	return ""
}

// acts gives the reply's messages their ids: the first one that under which its text was shown.
func (got Attempt) acts() conversation.Acts {
	first := got.MessageID
	return asking(got.Reply.Acts(func() string {
		id := first
		if first = ""; id == "" {
			id = newMessageID()
		}
		return id
	}))
}
