package dispatch

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/conversations/app"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

const (
	recordTimeout = 10 * time.Second
	recordTries   = 4
)

// deliver makes one attempt at a claim and records it. It returns the
// conversation's next delivery, leased to this process, if there is one.
func (d *Dispatcher) deliver(c store.Claim) *store.Claim {
	id := c.Delivery.ID
	d.mu.Lock()
	d.inFlight[id] = d.deps.Now()
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.inFlight, id)
		d.mu.Unlock()
	}()
	// One trace goes from the agent's request to the backend, also after a restart.
	ctx := propagation.TraceContext{}.Extract(d.attempts, propagation.MapCarrier{"traceparent": c.Delivery.Traceparent})
	ctx, span := d.deps.Tracer.Start(tenancy.Into(ctx, c.Scope), "conversations.deliver", trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("poppyfield.company", c.Scope.CompanyID()), attribute.String("poppyfield.delivery", id)))
	defer span.End()
	begun := d.deps.Now()
	got := d.attempt(ctx, c)
	if d.attempts.Err() != nil {
		return nil // given up: Stop gives the lease back
	}
	d.deps.Meter.Attempted(ctx, got.Ending.String(), d.deps.Now().Sub(begun))
	span.SetAttributes(attribute.String("poppyfield.reason", got.Kept.Reason))
	return d.record(context.WithoutCancel(ctx), c, got)
}

// attempt calls the relay once and decides what the result means for the delivery.
func (d *Dispatcher) attempt(ctx context.Context, c store.Claim) app.Attempt {
	body, err := webhook.BuildBody(content(c))
	if err != nil {
		d.deps.Log.ErrorContext(ctx, "webhook not built", "delivery", c.Delivery.ID, "error", err)
		return d.again(c, disabledWait, store.Attempt{Reason: "not built"})
	}
	callCtx, cancel := context.WithTimeout(ctx, d.cfg.Attempt)
	defer cancel()
	res, err := d.send(callCtx, &relayv1.DeliverRequest{DeliveryId: c.Delivery.ID, Body: body, Late: c.Late})
	if err != nil {
		if ctx.Err() == nil {
			d.deps.Log.WarnContext(ctx, "relay not reached", "delivery", c.Delivery.ID, "error", err)
		}
		if callCtx.Err() != nil {
			return d.retry(c, 0, store.Attempt{Reason: "no answer in time"})
		}
		return d.again(c, unreachableWait, store.Attempt{Reason: "relay not reached"})
	}
	kept := store.Attempt{Status: int(res.GetStatus()), Reason: res.GetReason(), Count: c.Delivery.Attempts + 1}
	switch res.GetOutcome() {
	case relayv1.DeliverOutcome_DELIVER_OUTCOME_ANSWERED:
		messages, err := messages(res.GetMessages())
		if err != nil {
			kept.Reason = "answer breaks the contract"
			return d.retry(c, 0, kept)
		}
		return app.Attempt{Ending: app.Answered, Reply: conversation.Reply{Messages: messages}, Kept: kept}
	case relayv1.DeliverOutcome_DELIVER_OUTCOME_ACCEPTED:
		return app.Attempt{Ending: app.TakenOver, Kept: kept}
	case relayv1.DeliverOutcome_DELIVER_OUTCOME_DISABLED:
		return d.again(c, disabledWait, kept)
	case relayv1.DeliverOutcome_DELIVER_OUTCOME_UNWANTED:
		kept.Count = c.Delivery.Attempts
		return app.Attempt{Ending: app.Unwanted, Kept: kept}
	default:
		return d.retry(c, res.GetRetryAfter().AsDuration(), kept)
	}
}

// send has the relay make an attempt and waits for its result.
func (d *Dispatcher) send(ctx context.Context, req *relayv1.DeliverRequest) (*relayv1.DeliverResponse, error) {
	frames, err := d.deps.Relay.Deliver(ctx, req)
	if err != nil {
		return nil, err
	}
	for {
		frame, err := frames.Recv()
		if err != nil || frame.GetOutcome() != relayv1.DeliverOutcome_DELIVER_OUTCOME_UNSPECIFIED {
			return frame, err
		}
	}
}

// again puts a claim off without counting the attempt against the schedule.
func (d *Dispatcher) again(c store.Claim, wait time.Duration, kept store.Attempt) app.Attempt {
	kept.Count = c.Delivery.Attempts
	return app.Attempt{Ending: app.Postponed, At: d.deps.Now().Add(wait), Kept: kept}
}

// retry puts a failed claim off by the schedule, or gives it up at its end.
func (d *Dispatcher) retry(c store.Claim, retryAfter time.Duration, kept store.Attempt) app.Attempt {
	kept.Count = c.Delivery.Attempts + 1
	wait, ok := webhook.NextAttempt(d.cfg.Schedule, kept.Count, d.cfg.Jitter(), retryAfter)
	if !ok {
		return app.Attempt{Ending: app.Exhausted, Kept: kept}
	}
	return app.Attempt{Ending: app.Postponed, At: d.deps.Now().Add(wait), Kept: kept}
}

// record writes the result. If the database stays away the lease runs out, and the
// webhook is sent again with the id by which the backend knows it.
func (d *Dispatcher) record(ctx context.Context, c store.Claim, got app.Attempt) *store.Claim {
	for try := 1; ; try++ {
		next, err := d.recordOnce(ctx, c, got)
		switch {
		case err == nil:
			return next
		case errors.Is(err, app.ErrLost):
			d.deps.Log.InfoContext(ctx, "answer of a lost delivery dropped", "delivery", c.Delivery.ID)
			d.deps.Meter.Delivered(ctx, "lost")
			return nil
		case store.IsDamage(err): // no later attempt could be recorded either
			d.putAside(ctx, c.Scope, store.Damaged{ID: c.Delivery.ID, ConversationID: c.Delivery.ConversationID, Err: err})
			return nil
		case try == recordTries || d.attempts.Err() != nil:
			d.deps.Log.ErrorContext(ctx, "result of a delivery not recorded", "delivery", c.Delivery.ID, "error", err)
			d.deps.Meter.Delivered(ctx, "unrecorded")
			return nil
		}
		select {
		case <-d.attempts.Done():
		case <-time.After(time.Duration(try) * 250 * time.Millisecond):
		}
	}
}

func (d *Dispatcher) recordOnce(ctx context.Context, c store.Claim, got app.Attempt) (*store.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	var next store.Lease
	d.mu.Lock()
	running := d.running
	d.mu.Unlock()
	if running {
		next = d.lease(d.deps.Now())
	}
	return d.recorder.Settle(ctx, c, d.id, got, next)
}

func messages(in []*relayv1.AnswerMessage) ([]conversation.CompanyMessage, error) {
	out := make([]conversation.CompanyMessage, 0, len(in))
	for _, m := range in {
		parsed, err := conversation.ParseCompanyMessage(m.GetSender(), m.GetText(), m.GetData())
		if err != nil {
			return nil, err
		}
		out = append(out, parsed)
	}
	return out, nil
}

// content is what the webhook of a claim says. It depends on nothing but what was
// stored with the message, so that every attempt has the same bytes.
func content(c store.Claim) webhook.Delivery {
	m := c.Delivery.Moment
	w := webhook.Delivery{
		OccurredAt:   c.Delivery.CreatedAt,
		Company:      c.Scope.Name(),
		Conversation: webhook.DeliveryConversation{ID: c.Delivery.ConversationID, Status: m.Status, Responder: m.Responder},
		Sequence:     c.Delivery.Sequence,
		Message:      c.Message,
		Context:      c.Delivery.Context,
		Agent:        webhook.DeliveryAgent{ClientID: c.ClientID, Name: c.AgentName},
		UserID:       c.UserID,
		Session:      webhook.DeliverySession{ID: m.SessionID, SignedIn: m.SignedIn, Scopes: m.Scopes},
		ReplyBy:      c.Delivery.ReplyBy,
	}
	if m.Account != "" {
		w.Session.Account = &m.Account
	}
	return w
}
