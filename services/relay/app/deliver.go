package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Outcome is how an attempt ended.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota + 1 // took it, and said what Messages holds
	Accepted                    // took it; the answer comes through the API
	Retry                       // to be tried again
	Disabled                    // the backend is off
	Unwanted                    // late, and the Company wants no late ones
)

// Attempt is the result of one attempt.
type Attempt struct {
	Outcome    Outcome
	Messages   []conversation.CompanyMessage
	Status     int
	Reason     string
	RetryAfter time.Duration
	Duration   time.Duration
}

// Deliver makes one attempt: signs body with every secret in force, posts it, and
// judges the answer. The timestamp is the attempt's own, so that a late retry is
// still fresh for the receiver.
func (a *App) Deliver(ctx context.Context, scope tenancy.Scope, id string, body []byte, late bool) (Attempt, error) {
	now := a.now()
	b, secrets, err := a.store.Endpoint(ctx, scope, now)
	if err != nil {
		return Attempt{}, err
	}
	switch {
	case late && !b.DeliverLate: // also of a backend that is off: it won't be wanted later either
		return Attempt{Outcome: Unwanted, Reason: "late messages are not wanted"}, nil
	case b.URL == "":
		return Attempt{Outcome: Disabled, Reason: "no backend is set"}, nil
	case !b.Enabled:
		return Attempt{Outcome: Disabled, Reason: "backend disabled"}, nil
	}
	header, err := a.sign(scope, id, now, body, secrets)
	if err != nil {
		return Attempt{}, err
	}
	timeout := b.AttemptTimeout
	if timeout == 0 {
		timeout = DefaultAttemptTimeout
	}
	res, err := a.out.Post(ctx, egress.PostRequest{
		URL: b.URL, Body: body, Timeout: timeout, MaxBytes: webhook.MaxAnswer, Traced: true, Header: header,
	})
	if ctx.Err() != nil {
		return Attempt{}, ctx.Err()
	}
	out := a.judge(res, err)
	out.Duration = a.now().Sub(now)
	if out.Outcome != Disabled {
		return out, nil
	}
	err = a.disable(ctx, scope, b.URL, out.Reason)
	if errors.Is(err, errMoved) { // to be tried at the new address
		out.Outcome, err = Retry, nil
	}
	return out, err
}

func (a *App) judge(res egress.Response, err error) Attempt {
	failure := failureOf(err)
	out := Attempt{Status: res.Status}
	var answer webhook.Answer
	if failure == webhook.FailureNone && webhook.ClassifyAttempt(res.Status, failure).Outcome == webhook.Delivered {
		if answer, err = webhook.ParseAnswer(res.Status, res.ContentType, res.Body); err != nil {
			failure = webhook.FailureAnswer
		}
	}
	v := webhook.ClassifyAttempt(res.Status, failure)
	out.Reason = v.Reason
	switch v.Outcome {
	case webhook.Delivered:
		out.Outcome, out.Messages = Answered, answer.Messages
		if answer.Later {
			out.Outcome = Accepted
		}
	case webhook.Disable:
		out.Outcome = Disabled
	case webhook.Retry:
		out.Outcome = Retry
		out.RetryAfter, _ = webhook.ParseRetryAfter(res.Header.Get("Retry-After"), a.now())
	}
	return out
}

func failureOf(err error) webhook.Failure {
	if err == nil {
		return webhook.FailureNone
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

var errMoved = errors.New("the backend has another URL by now")

// disable turns the backend off; errMoved when its URL has changed since the attempt began.
func (a *App) disable(ctx context.Context, scope tenancy.Scope, url, reason string) error {
	_, err := a.store.UpdateBackend(ctx, scope, func(b *Backend) error {
		if b.URL != url {
			return errMoved
		}
		b.Enabled, b.DisableReason = false, reason
		return nil
	})
	return err
}
