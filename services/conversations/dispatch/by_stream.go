package dispatch

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/pieces"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/services/conversations/app"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

const (
	tooLate = "too late"
	// promptBreaks is how many attempts whose stream broke are followed by another one at
	// once. A message that breaks its backend each time goes on by the schedule.
	promptBreaks = 3
	maxFailure   = 200 // bytes of a backend's own reason that are kept
)

// byStream gives the delivery to a stream that the backend opened, and waits for the answer.
func (d *Dispatcher) byStream(ctx context.Context, c store.Claim, r route, body []byte) result {
	if c.Late && r.dropLate {
		kept := store.Attempt{Reason: "late messages are not wanted", Count: c.Delivery.Attempts}
		return result{Attempt: app.Attempt{Ending: app.Unwanted, Kept: kept}}
	}
	if r.off {
		return d.again(c, 0, store.Attempt{Reason: "the backend is disabled"})
	}
	messageID := ids.New(ids.Message)
	event := Event{Delivery: c.Delivery.ID, Attempt: c.Delivery.Attempts + 1, Body: body}
	shown := pieces.New(d.shows(ctx, c, messageID))
	defer shown.Stop(false)
	q := d.streams.ask(c.Scope.CompanyID(), event, shown.Add)
	if q == nil {
		return d.noStream(c)
	}
	most := d.cfg.Attempt
	if r.timeout > 0 {
		most = r.timeout
	}
	late := time.NewTimer(most)
	defer late.Stop()
	var got answer
	select {
	case got = <-q.came:
	case <-late.C:
		if d.streams.withdraw(q) {
			return d.retry(c, r, 0, store.Attempt{Reason: "no answer in time"})
		}
		got = <-q.came
	case <-ctx.Done():
		if d.streams.withdraw(q) {
			return d.again(c, 0, store.Attempt{})
		}
		got = <-q.came
	}
	if got.broken {
		return d.broken(c, r)
	}
	shown.Stop(true)
	return d.hear(c, r, got, messageID)
}

// noStream puts off a claim that no stream took. Where there is none here, another
// process may have one; where there are, they are full.
func (d *Dispatcher) noStream(c store.Claim) result {
	if d.streams.room(c.Scope.CompanyID()) == 0 {
		return d.again(c, 0, store.Attempt{Reason: "no stream is open"})
	}
	return d.again(c, fullWait, store.Attempt{Reason: "no stream has room"})
}

// hear decides what an answer means for its delivery.
func (d *Dispatcher) hear(c store.Claim, r route, got answer, messageID string) result {
	kept := store.Attempt{Reason: "delivered", Count: c.Delivery.Attempts + 1}
	reply, err := got.reply()
	var out result
	switch {
	case got.Bad, got.Failure == "" && !got.Later && err != nil:
		kept.Reason = breaksContract
		out = d.retry(c, r, 0, kept)
		out.bad = breaksContract
	case got.Failure != "":
		kept.Reason = "failed: " + cutText(got.Failure, maxFailure)
		out = d.retry(c, r, 0, kept)
	case got.Later:
		out = result{Attempt: app.Attempt{Ending: app.TakenOver, Kept: kept}}
	default:
		out = result{Attempt: app.Attempt{Ending: app.Answered, Reply: reply, MessageID: messageID, Kept: kept}}
	}
	out.told = got.told
	return out
}

// broken puts off a claim whose stream ended before the answer. That never uses the schedule up.
func (d *Dispatcher) broken(c store.Claim, r route) result {
	schedule := d.schedule(r)
	made := min(c.Delivery.Attempts+1, max(len(schedule)-1, c.Delivery.Attempts))
	kept := store.Attempt{Reason: "stream ended", Count: made}
	at := d.deps.Now()
	if c.Delivery.Attempts+1 > promptBreaks {
		if wait, ok := webhook.NextAttempt(schedule, made, d.cfg.Jitter(), 0); ok {
			at = at.Add(wait)
		}
	}
	return result{Attempt: app.Attempt{Ending: app.Postponed, At: at, Kept: kept}}
}

// cutText shortens a text to whole characters of at most n bytes.
func cutText(s string, n int) string {
	for i := range s {
		if i > n {
			return s[:i]
		}
	}
	return s
}
