package queue

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

const (
	// troubleWait is until an attempt is made again that failed for a reason of ours.
	troubleWait = 2 * time.Second
	// shortestHold keeps an endpoint that is held back from being asked for in a circle.
	shortestHold = 50 * time.Millisecond
	recordTries  = 4
	gone         = "the endpoint was deleted"
	forgotten    = "older than the retention"
)

// deliver makes one attempt at a claim and records it.
func (q *Queue) deliver(c Claim) {
	q.mu.Lock()
	q.inFlight[c.DeliveryID] = q.deps.Now()
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		delete(q.inFlight, c.DeliveryID)
		q.mu.Unlock()
	}()
	ctx := tenancy.Into(q.attempts, c.Scope)
	got := q.attempt(ctx, c)
	if ctx.Err() != nil {
		return // given up: Stop gives the lease back
	}
	q.record(context.WithoutCancel(ctx), c, got)
}

// attempt has the endpoint told, and decides what the answer means for the delivery.
func (q *Queue) attempt(ctx context.Context, c Claim) Result {
	if c.Body == nil {
		return Result{State: Failed, Attempts: c.Attempts, Reason: forgotten}
	}
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Attempt)
	defer cancel()
	a, err := q.deps.Teller.Tell(ctx, c.Key, Message{EventID: c.EventID, DeliveryID: c.DeliveryID, Body: c.Body, Attempt: c.Attempts + 1})
	now := q.deps.Now()
	switch {
	case problem.Is(err, problem.NotFoundReason):
		return Result{State: Canceled, Attempts: c.Attempts, Reason: gone}
	case err != nil:
		if ctx.Err() == nil {
			q.deps.Log.WarnContext(ctx, "webhook not sent", "delivery", c.DeliveryID, "error", err)
		}
		return Result{State: Pending, At: now.Add(troubleWait), Attempts: c.Attempts, Reason: "not sent"}
	}
	out := Result{State: Pending, Attempts: c.Attempts, Status: a.Status, Reason: a.Reason}
	switch a.Outcome {
	case Taken:
		q.sent(c.Key)
		out.State, out.Attempts = Delivered, c.Attempts+1
	case Held:
		wait := max(a.RetryAfter, shortestHold)
		q.hold(c.Key, now, wait)
		out.At = now.Add(wait)
	case Off:
		out.At = Parked()
		if a.Sent {
			out.Attempts++
		}
	default:
		q.sent(c.Key)
		return q.retry(c, out, a.RetryAfter, now)
	}
	return out
}

// retry puts a failed claim off by the endpoint's schedule, or gives it up at its end.
func (q *Queue) retry(c Claim, out Result, retryAfter time.Duration, now time.Time) Result {
	out.Attempts = c.Attempts + 1
	wait, more := webhook.NextAttempt(c.Schedule, out.Attempts, q.cfg.Jitter(), retryAfter)
	if !more {
		out.State = Failed
		return out
	}
	out.At = now.Add(wait)
	return out
}

// record writes the result. If the database stays away the lease runs out, and the
// event is sent again under the id by which the endpoint knows it.
func (q *Queue) record(ctx context.Context, c Claim, got Result) {
	for try := 1; ; try++ {
		err := q.recordOnce(ctx, c, got)
		switch {
		case err == nil:
			return
		case errors.Is(err, ErrLost):
			q.deps.Log.InfoContext(ctx, "result of a lost webhook delivery dropped", "delivery", c.DeliveryID)
			return
		case try == recordTries || q.attempts.Err() != nil:
			q.deps.Log.ErrorContext(ctx, "result of a webhook delivery not recorded", "delivery", c.DeliveryID, "error", err)
			return
		}
		select {
		case <-q.attempts.Done():
		case <-time.After(time.Duration(try) * 250 * time.Millisecond):
		}
	}
}

func (q *Queue) recordOnce(ctx context.Context, c Claim, got Result) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return q.deps.Store.Settle(ctx, c, q.id, got, q.deps.Now())
}
