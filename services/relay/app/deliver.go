package app

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Outcome is how an attempt ended.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota + 1 // took it, and said what the Reply holds
	Accepted                    // took it; the answer comes through the API
	Retry                       // to be tried again
	Disabled                    // the endpoint is off
	Unwanted                    // late, and the Company wants no late ones
	Held                        // not sent: it is to be tried after RetryAfter, and was no attempt
)

// Attempt is the result of one attempt.
type Attempt struct {
	Outcome Outcome
	conversation.Reply
	Status     int
	Reason     string
	RetryAfter time.Duration
	Duration   time.Duration
}

// DeliverInput is a message on its way to the backend.
type DeliverInput struct {
	ID             string // of the delivery, and webhook-id
	Body           []byte
	Late           bool // the agent was told already that no answer came
	Attempt        int  // how many were made before
	ConversationID string
	History        []Turn // for kinds that need it
}

// Deliver makes one attempt to bring a message to the backend. delta gets pieces of the
// first message's text while it is being written; nil where nobody wants them.
func (a *App) Deliver(ctx context.Context, scope tenancy.Scope, in DeliverInput, delta func(string)) (Attempt, error) {
	e, secrets, err := a.store.Endpoint(ctx, scope, Backend, a.now())
	if err != nil {
		return Attempt{}, err
	}
	switch {
	case in.Late && !e.DeliverLate: // also of a backend that is off: it won't be wanted later either
		return Attempt{Outcome: Unwanted, Reason: "late messages are not wanted"}, nil
	case !e.IsSet():
		return Attempt{Outcome: Disabled, Reason: "no backend is set"}, nil
	case !e.Enabled:
		return Attempt{Outcome: Disabled, Reason: "backend disabled"}, nil
	case e.Kind == KindStream: // it has become one since the caller asked for its route
		return Attempt{Outcome: Held, Reason: "the backend opens a stream", RetryAfter: time.Second}, nil
	}
	return a.attempt(ctx, scope, e, secrets, try{id: in.ID, delivery: in.ID, conversation: in.ConversationID, body: in.Body, history: in.History}, delta)
}

// Telling is an event on its way to a listener.
type Telling struct {
	ID         string // of the event, and webhook-id
	Body       []byte
	Attempt    int // how many were made before
	DeliveryID string
	// Test: also where it is off, whatever went wrong before, and without consequences.
	Test bool
}

// Tell makes one attempt to tell a listener of an event.
func (a *App) Tell(ctx context.Context, scope tenancy.Scope, endpointID string, d Telling) (Attempt, error) {
	e, secrets, err := a.store.Endpoint(ctx, scope, endpointID, a.now())
	if err != nil {
		return Attempt{}, err
	}
	if !e.Enabled && !d.Test {
		return Attempt{Outcome: Disabled, Reason: "endpoint disabled"}, nil
	}
	got, err := a.attempt(ctx, scope, e, secrets, try{id: d.ID, delivery: d.DeliveryID, body: d.Body, test: d.Test}, nil)
	got.Reply = conversation.Reply{} // listeners answer nothing
	return got, err
}

// try is what one attempt sends.
type try struct {
	id, delivery, conversation string
	body                       []byte
	history                    []Turn
	test                       bool
}

// attempt asks the breaker and the rate, signs, sends, judges what came, and remembers
// it. The timestamp is the attempt's own, so that a late retry is still fresh for the receiver.
func (a *App) attempt(ctx context.Context, scope tenancy.Scope, e Endpoint, secrets []Secret, t try, delta func(string)) (Attempt, error) {
	now := a.now()
	l := a.lives.of(e, now)
	var pass ticket
	if !t.test {
		var wait time.Duration
		var why string
		if pass, wait, why = l.admit(e, now); wait > 0 {
			return Attempt{Outcome: Held, Reason: why, RetryAfter: wait}, nil
		}
		defer l.abandon(pass) // nothing is left to give back after settle
	}
	ready, err := a.prepare(scope, e, l)
	if err != nil {
		return Attempt{}, err
	}
	header, err := a.sign(scope, t.id, now, t.body, secrets)
	if err != nil {
		return Attempt{}, err
	}
	ready.credentials.put(header)
	asked := e
	asked.AckTimeout, asked.AttemptTimeout = e.Ack(), e.Whole()
	said := a.speak(ctx, Question{
		Endpoint: asked, Header: header, Certificate: ready.certificate, ID: t.id, ConversationID: t.conversation, Body: t.body, History: t.history,
		begun: func(status int) {
			if !isDead(status) {
				l.reached(e, pass, a.now())
			}
		},
	}, delta)
	if ctx.Err() != nil {
		return Attempt{}, ctx.Err()
	}
	out, f := a.judge(e, said)
	end := a.now()
	out.Duration = end.Sub(now)
	if !t.test {
		took := said.Response.Timing.Total
		if took == 0 {
			took = out.Duration
		}
		l.settle(e, pass, end, f, took)
		if err := a.remember(ctx, scope, e, l, &out, f); err != nil {
			if out.Outcome == Disabled {
				return Attempt{}, err
			}
			// What the endpoint said must not get lost with it. The next attempt tries to write it, too.
			a.told.WarnContext(ctx, "health of an endpoint not written", "endpoint", e.ID, "error", err)
		}
	}
	a.log.add(logged(scope, e, t, now, out, header, ready, said.Response))
	return out, nil
}

// judge says what came of an attempt, and whose fault it is.
func (a *App) judge(e Endpoint, said Spoken) (Attempt, fault) {
	res := said.Response
	failure := failureOf(said.Err)
	if (failure == webhook.FailureAnswer || failure == webhook.FailureRead) && e.Role == RoleListens && success(res.Status) {
		failure = webhook.FailureNone // whatever it answers, it took the event
	}
	v := webhook.ClassifyAttempt(res.Status, failure)
	out := Attempt{Status: res.Status, Reason: v.Reason}
	if said.Reason != "" {
		out.Reason = said.Reason
	}
	switch v.Outcome {
	case webhook.Delivered:
		out.Outcome, out.Reply = Answered, said.Answer.Reply
		if said.Answer.Later {
			out.Outcome = Accepted
		}
		return out, noFault
	case webhook.Disable:
		out.Outcome = Disabled
		return out, refusedFault
	case webhook.Retry:
	}
	out.Outcome = Retry
	out.RetryAfter, _ = webhook.ParseRetryAfter(res.Header.Get("Retry-After"), a.now())
	switch {
	// An answer that breaks the contract, or breaks off, spoils one conversation: the others go on.
	case failure == webhook.FailureAnswer, success(res.Status):
		return out, refusedFault
	case failure != webhook.FailureNone, isDead(res.Status):
		return out, deadFault
	}
	return out, refusedFault
}

// isDead reports a status by which the server says that it can't take anything for now.
func isDead(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests
}

func failureOf(err error) webhook.Failure {
	if err == nil {
		return webhook.FailureNone
	}
	var bad *problem.Error
	if errors.As(err, &bad) {
		return webhook.FailureAnswer
	}
	switch egress.KindOf(err) {
	case egress.DNS:
		return webhook.FailureDNS
	case egress.Connect:
		return webhook.FailureConnect
	case egress.TLS:
		return webhook.FailureTLS
	case egress.Timeout:
		return webhook.FailureTimeout
	case egress.Blocked, egress.InvalidURL:
		return webhook.FailureBlocked
	default:
		return webhook.FailureRead
	}
}

// errSame leaves a row as it is.
var errSame = errors.New("nothing to change")

// remember writes down what changes with an attempt: the beginning and the end of a
// series of failures, and that the endpoint is off. On the good path it writes nothing.
func (a *App) remember(ctx context.Context, scope tenancy.Scope, e Endpoint, l *live, out *Attempt, f fault) error {
	now := a.now()
	if f == noFault {
		if failing := l.succeeded(now); !failing && e.FailingSince == nil && !e.Recovering {
			return nil
		}
		return a.recovered(ctx, scope, e, now)
	}
	gone := out.Outcome == Disabled
	failures := l.failed(now, func(since time.Time) bool {
		if e.FailingSince != nil {
			since = *e.FailingSince
		}
		return gone || now.Sub(since) >= e.disableAfter()
	})
	if failures == 0 {
		return nil
	}
	moved, off := false, false
	err := a.store.ChangeSeries(ctx, scope, e.ID, func(row *Endpoint) ([]Event, error) {
		if moved, off = row.Epoch != e.Epoch, false; moved {
			return nil, errSame
		}
		row.Failures += failures
		if row.FailingSince == nil {
			row.FailingSince = &now
		}
		if !row.Enabled {
			off = true
			return nil, nil
		}
		switch {
		case gone:
			row.DisableReason = out.Reason
		case now.Sub(*row.FailingSince) >= row.disableAfter():
			row.DisableReason = "nothing but failures for " + inWords(row.disableAfter()) + ", the last: " + out.Reason
		default:
			return nil, nil
		}
		off, row.Enabled, row.Recovering = true, false, true
		return []Event{about(webhook.EventEndpointDisabled, scope, *row, now)}, nil
	})
	if err != nil && !errors.Is(err, errSame) {
		l.unsaved(failures)
		return err
	}
	switch {
	case moved && gone:
		out.Outcome = Retry // at the new address
	case off:
		out.Outcome = Disabled
	}
	return nil
}

// recoveredAfter is how long an endpoint has to have failed for its recovery to be told.
const recoveredAfter = time.Minute

func (a *App) recovered(ctx context.Context, scope tenancy.Scope, e Endpoint, now time.Time) error {
	err := a.store.ChangeSeries(ctx, scope, e.ID, func(row *Endpoint) ([]Event, error) {
		if row.Epoch != e.Epoch || row.FailingSince == nil && !row.Recovering {
			return nil, errSame
		}
		tell := row.Recovering || now.Sub(*row.FailingSince) >= recoveredAfter
		row.Series = Series{LastSuccessAt: &now}
		if !row.Enabled || !tell { // it may have been turned off while this attempt was under way
			return nil, nil
		}
		row.Recovering = false
		return []Event{about(webhook.EventEndpointRecovered, scope, *row, now)}, nil
	})
	if errors.Is(err, errSame) {
		return nil
	}
	return err
}

// about makes the event that an endpoint is off, or works again.
func about(kind string, scope tenancy.Scope, e Endpoint, at time.Time) Event {
	return Event{Type: kind, Subject: e.Name(), At: at, Data: webhook.EndpointData{Endpoint: named(scope, e), Reason: e.DisableReason}}
}

func named(scope tenancy.Scope, e Endpoint) webhook.EventEndpoint {
	return webhook.EventEndpoint{Name: scope.Name() + "/" + e.Name(), DisplayName: e.DisplayName}
}

func inWords(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 1 && d%(24*time.Hour) == 0 {
		return strconv.Itoa(int(days)) + " days"
	}
	return d.String()
}
