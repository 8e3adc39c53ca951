package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

const (
	// lateNotice is what the agent reads when no answer came in time (decision 25).
	lateNotice = "The company's agent did not answer in time. If its answer still comes, it will be added to this conversation."

	sweepBatch = 200
	// maxFailed is how many failures end a sweep: then it isn't single rows that are at fault.
	maxFailed = 100
)

// Notice is the company message that tells the agent that no answer came.
func Notice() conversation.MessagePayload {
	return conversation.MessagePayload{ID: ids.New(ids.Message), Role: conversation.RoleCompany, Sender: conversation.SenderAgent, Text: lateNotice}
}

// firstDue is when the first of the open turns is due; zero for none.
func firstDue(turns []store.Live) time.Time {
	var first time.Time
	for _, l := range turns {
		if !l.ReplyBy.IsZero() && (first.IsZero() || l.ReplyBy.Before(first)) {
			first = l.ReplyBy
		}
	}
	return first
}

// ExpireAnswers tells the agents whose answer is overdue. A conversation of which that
// fails is an error in the end, and the next call's to try again, but doesn't keep the
// others from being told, of whatever Company they are.
func (a *App) ExpireAnswers(ctx context.Context) error {
	failed := map[string]struct{}{}
	var errs []error
	for {
		limit := sweepBatch + len(failed) // those are found again
		due, err := a.store.DueAnswers(ctx, a.now(), limit)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, d := range due {
			if _, known := failed[d.ID]; known {
				continue
			}
			if err := a.expire(ctx, d.Scope, d.ID); err != nil {
				failed[d.ID] = struct{}{}
				errs = append(errs, fmt.Errorf("%s: %w", d.ID, err))
			}
			if ctx.Err() != nil || len(failed) == maxFailed {
				return errors.Join(errs...)
			}
		}
		if len(due) < limit {
			return errors.Join(errs...)
		}
	}
}

func (a *App) expire(ctx context.Context, scope tenancy.Scope, id string) error {
	missed := 0
	err := a.write(ctx, scope, func(ctx context.Context, u *unit) error {
		missed = 0
		c, err := u.Lock(ctx, id)
		if err != nil {
			return err
		}
		if c.AnswerDueAt.IsZero() || c.AnswerDueAt.After(u.now) {
			return nil // answered or put off since it was found
		}
		if c.Status == conversation.Queued || c.Responder == conversation.ResponderHuman {
			return u.expirePerson(ctx, c)
		}
		turns, err := openTurns(ctx, u.Tx, c.ID)
		if err != nil {
			return err
		}
		var expired []string
		var rest []store.Live
		for _, l := range turns {
			if l.ReplyBy.After(u.now) {
				rest = append(rest, l)
			} else {
				expired = append(expired, l.ID)
			}
		}
		if _, err := u.happen(ctx, c, conversation.DeadlinePassed(Notice(), len(rest) > 0), effects{due: firstDue(rest)}); err != nil {
			return err
		}
		missed = len(expired)
		return u.SettleTurns(ctx, store.OutcomeDeadline, expired...)
	})
	if err == nil {
		a.meter.Missed(ctx, missed)
	}
	return err
}
