package dispatch

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
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
	d.begin(id)
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
		got.say(Receipt{Reason: notRecorded})
		return nil // given up: Stop gives the lease back
	}
	d.deps.Meter.Attempted(ctx, got.Ending.String(), d.deps.Now().Sub(begun))
	if got.Kept.Count > c.Delivery.Attempts {
		d.deps.Usage.Add(c.Scope, usage.Deliveries, 1)
	}
	span.SetAttributes(attribute.String("poppyfield.reason", got.Kept.Reason))
	next := d.record(context.WithoutCancel(ctx), c, got)
	if got.Ending == app.Postponed && !got.At.After(d.deps.Now()) {
		d.ring(c.Scope)
	}
	return next
}

// begin notes that a delivery is in flight here.
func (d *Dispatcher) begin(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight[id] = d.deps.Now()
}

// shows returns what shows the pieces of the answer to a claim.
func (d *Dispatcher) shows(ctx context.Context, c store.Claim, messageID string) func(text string) {
	return upTo(maxPieces, func(text string) {
		d.deps.Delta(ctx, c.Scope, c.Delivery.ConversationID, messageID, c.Delivery.Sequence, text)
	})
}

// result is an attempt, and whom to tell what became of it.
type result struct {
	app.Attempt
	told func(Receipt) // nil for nobody
	bad  string        // why the answer was not taken as one
}

func (r result) say(what Receipt) {
	if r.told != nil {
		r.told(what)
	}
}

const notRecorded = "not recorded: it will be asked again"

// attempt brings a delivery to the backend once and decides what the result means for it.
func (d *Dispatcher) attempt(ctx context.Context, c store.Claim) result {
	body, err := webhook.BuildBody(content(c))
	if err != nil {
		d.deps.Log.ErrorContext(ctx, "webhook not built", "delivery", c.Delivery.ID, "error", err)
		return d.again(c, disabledWait, store.Attempt{Reason: "not built"})
	}
	r, err := d.routes.get(ctx, c.Scope)
	if err != nil {
		return d.again(c, unreachableWait, store.Attempt{Reason: "relay not reached"})
	}
	if r.stream {
		return d.byStream(ctx, c, r, body)
	}
	return d.byRelay(ctx, c, r, body)
}

// byRelay has the relay make the attempt.
func (d *Dispatcher) byRelay(ctx context.Context, c store.Claim, r route, body []byte) result {
	req := &relayv1.DeliverRequest{
		DeliveryId: c.Delivery.ID, Body: body, Late: c.Late, Attempt: int32(min(c.Delivery.Attempts, math.MaxInt32)), ConversationId: c.Delivery.ConversationID,
	}
	if r.history > 0 {
		var err error
		if req.History, err = d.history(ctx, c, r.history); err != nil {
			d.deps.Log.WarnContext(ctx, "history of a conversation not read", "delivery", c.Delivery.ID, "error", err)
			return d.again(c, unreachableWait, store.Attempt{Reason: "history not read"})
		}
	}
	most := d.cfg.Attempt
	if r.timeout > 0 {
		most = r.timeout + slack
	}
	callCtx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	messageID := ids.New(ids.Message)
	got, show := 0, d.shows(ctx, c, messageID)
	begun := d.deps.Now()
	res, err := d.send(callCtx, req, func(text string) {
		got++
		show(text)
	})
	if err != nil {
		if ctx.Err() == nil {
			d.deps.Log.WarnContext(ctx, "relay not reached", "delivery", c.Delivery.ID, "error", err)
		}
		switch {
		case callCtx.Err() != nil:
			return d.retry(c, r, 0, store.Attempt{Reason: "no answer in time"})
		case got > 0 || errors.Is(err, io.EOF):
			return d.retry(c, r, 0, store.Attempt{Reason: "answer not readable"})
		case refused(err):
			return d.retry(c, r, 0, store.Attempt{Reason: "refused by the relay"})
		}
		return d.again(c, unreachableWait, store.Attempt{Reason: "relay not reached"})
	}
	if res.GetOutcome() != relayv1.DeliverOutcome_DELIVER_OUTCOME_HELD {
		d.admitted(c.Scope.CompanyID(), begun)
		return d.judge(c, r, res, messageID)
	}
	wait := res.GetRetryAfter().AsDuration()
	if wait <= 0 {
		wait = heldWait
	}
	d.heldBack(c.Scope.CompanyID(), begun, wait)
	return d.again(c, wait, store.Attempt{Status: int(res.GetStatus()), Reason: res.GetReason()})
}

// refused reports whether the relay doesn't take what it was sent, as when it is too
// large: that isn't better the next time.
func refused(err error) bool {
	if code := status.Code(err); code == codes.ResourceExhausted || code == codes.InvalidArgument {
		return true
	}
	p := problem.As(err)
	return p.Kind == problem.Invalid || p.Kind == problem.TooLarge || p.Kind == problem.RateLimited
}

// judge decides what the relay's last frame means.
func (d *Dispatcher) judge(c store.Claim, r route, res *relayv1.DeliverResponse, messageID string) result {
	kept := store.Attempt{Status: int(res.GetStatus()), Reason: res.GetReason(), Count: c.Delivery.Attempts + 1}
	switch res.GetOutcome() {
	case relayv1.DeliverOutcome_DELIVER_OUTCOME_ANSWERED:
		reply, err := saidIn(res).reply()
		if err != nil {
			kept.Reason = breaksContract
			return d.retry(c, r, 0, kept)
		}
		return result{Attempt: app.Attempt{Ending: app.Answered, Reply: reply, MessageID: messageID, Kept: kept}}
	case relayv1.DeliverOutcome_DELIVER_OUTCOME_ACCEPTED:
		return result{Attempt: app.Attempt{Ending: app.TakenOver, Kept: kept}}
	case relayv1.DeliverOutcome_DELIVER_OUTCOME_DISABLED:
		return d.again(c, disabledWait, kept)
	case relayv1.DeliverOutcome_DELIVER_OUTCOME_UNWANTED:
		kept.Count = c.Delivery.Attempts
		return result{Attempt: app.Attempt{Ending: app.Unwanted, Kept: kept}}
	default:
		return d.retry(c, r, res.GetRetryAfter().AsDuration(), kept)
	}
}

const breaksContract = "answer breaks the contract"

func saidIn(res *relayv1.DeliverResponse) Said {
	s := Said{
		AuthorizationError: res.GetAuthorizationError(), AuthorizationScope: res.GetAuthorizationScope(), RequestUser: res.GetRequestUser(),
		HandOff: res.GetHandOff(), HandOffReason: res.GetHandOffReason(), Close: res.GetClose(),
	}
	for _, m := range res.GetMessages() {
		s.Messages = append(s.Messages, SaidMessage{m.GetSender(), m.GetText(), m.GetData()})
	}
	return s
}

// send has the relay make an attempt and waits for its result.
func (d *Dispatcher) send(ctx context.Context, req *relayv1.DeliverRequest, piece func(string)) (*relayv1.DeliverResponse, error) {
	frames, err := d.deps.Relay.Deliver(ctx, req)
	if err != nil {
		return nil, err
	}
	for {
		frame, err := frames.Recv()
		if err != nil || frame.GetOutcome() != relayv1.DeliverOutcome_DELIVER_OUTCOME_UNSPECIFIED {
			return frame, err
		}
		if text := frame.GetTextDelta(); text != "" {
			piece(text)
		}
	}
}

// history is the conversation so far, for backends that don't keep it themselves.
func (d *Dispatcher) history(ctx context.Context, c store.Claim, limit int) ([]*relayv1.Turn, error) {
	var said []conversation.MessagePayload
	err := d.deps.Store.Read(ctx, c.Scope, func(ctx context.Context, tx store.Tx) error {
		var err error
		said, err = tx.History(ctx, c, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]*relayv1.Turn, 0, len(said))
	for _, m := range said {
		out = append(out, &relayv1.Turn{Role: string(m.Role), Sender: string(m.Sender), Text: m.Text, Data: m.Data})
	}
	return out, nil
}

// again puts a claim off without counting the attempt against the schedule.
func (d *Dispatcher) again(c store.Claim, wait time.Duration, kept store.Attempt) result {
	kept.Count = c.Delivery.Attempts
	return result{Attempt: app.Attempt{Ending: app.Postponed, At: d.deps.Now().Add(wait), Kept: kept}}
}

// retry puts a failed claim off by the schedule, or gives it up at its end.
func (d *Dispatcher) retry(c store.Claim, r route, retryAfter time.Duration, kept store.Attempt) result {
	kept.Count = c.Delivery.Attempts + 1
	wait, ok := webhook.NextAttempt(d.schedule(r), kept.Count, d.cfg.Jitter(), retryAfter)
	if !ok {
		return result{Attempt: app.Attempt{Ending: app.Exhausted, Kept: kept}}
	}
	return result{Attempt: app.Attempt{Ending: app.Postponed, At: d.deps.Now().Add(wait), Kept: kept}}
}

func (d *Dispatcher) schedule(r route) []time.Duration {
	if len(r.schedule) == 0 {
		return d.cfg.Schedule
	}
	return r.schedule
}

// record writes the result. If the database stays away the lease runs out, and the
// webhook is sent again with the id by which the backend knows it.
func (d *Dispatcher) record(ctx context.Context, c store.Claim, got result) *store.Claim {
	refused := ""
	got.Refused = func(reason string) { refused = reason }
	for try := 1; ; try++ {
		next, err := d.recordOnce(ctx, c, got.Attempt)
		switch {
		case err == nil:
			reason := cmp.Or(got.bad, refused)
			got.say(Receipt{Recorded: reason == "", Reason: reason})
			return next
		case errors.Is(err, app.ErrLost):
			got.say(Receipt{Reason: tooLate})
			d.deps.Log.InfoContext(ctx, "answer of a lost delivery dropped", "delivery", c.Delivery.ID)
			d.deps.Meter.Delivered(ctx, "lost")
			return nil
		case store.IsDamage(err): // no later attempt could be recorded either
			got.say(Receipt{Reason: notRecorded})
			d.putAside(ctx, c.Scope, store.Damaged{ID: c.Delivery.ID, ConversationID: c.Delivery.ConversationID, Err: err})
			return nil
		case try == recordTries || d.attempts.Err() != nil:
			got.say(Receipt{Reason: notRecorded})
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
	if c.ParentID != "" {
		w.Conversation.Direct, w.Conversation.Parent = true, &c.ParentID
	}
	if c.Delivery.Round > 0 {
		w.Handback = &webhook.DeliveryHandback{Note: m.Note}
	}
	if m.Account != "" {
		w.Session.Account = &m.Account
	}
	return w
}
