package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// CheckTimeout bounds a check of credentials: a User waits for it.
const CheckTimeout = 10 * time.Second

// Check is a question to the Company's own system whether a User is who they say. It
// holds secrets of the User, which are passed through and kept nowhere.
type Check struct {
	URL     string
	ID      string // webhook-id
	Subject webhook.SignInSubject
	// Credentials by field name; nil: a one-time code is checked.
	Credentials map[string]string
	Code, State string
}

// Checked is what came of a Check.
type Checked struct {
	Answer webhook.SignInAnswer // its zero value: no usable answer came
	Reason string               // why none came: as of an attempt to deliver
}

// CheckCredentials asks the Company once, by a webhook that is signed like every other.
// It is not repeated: the User is there and may try again.
func (a *App) CheckCredentials(ctx context.Context, scope tenancy.Scope, c Check) (Checked, error) {
	now := a.now()
	_, secrets, err := a.store.Endpoint(ctx, scope, Backend, now)
	if err != nil {
		return Checked{}, err
	}
	if len(secrets) == 0 {
		if err := a.ensureKey(ctx, scope, secrets); err != nil {
			return Checked{}, err
		}
		// Read again: another call may have made one at the same time.
		if _, secrets, err = a.store.Endpoint(ctx, scope, Backend, now); err != nil {
			return Checked{}, err
		}
	}
	body, err := webhook.BuildSignInCheck(webhook.SignInCheck{
		At: now, Company: scope.Name(), Subject: c.Subject, Credentials: c.Credentials, Code: c.Code, State: c.State,
	})
	if err != nil {
		return Checked{}, err
	}
	header, err := a.sign(scope, c.ID, now, body, secrets)
	if err != nil {
		return Checked{}, err
	}
	res, err := a.out.Post(ctx, egress.PostRequest{
		URL: c.URL, Body: body, Timeout: CheckTimeout, MaxBytes: webhook.MaxSignInAnswer, Traced: true, Header: header,
	})
	if ctx.Err() != nil {
		return Checked{}, ctx.Err()
	}
	failure := failureOf(err)
	if failure == webhook.FailureNone && webhook.ClassifyAttempt(res.Status, failure).Outcome == webhook.Delivered {
		answer, err := webhook.ParseSignInAnswer(res.Status, res.ContentType, res.Body)
		if err == nil {
			return Checked{Answer: answer}, nil
		}
		failure = webhook.FailureAnswer
	}
	return Checked{Reason: webhook.ClassifyAttempt(res.Status, failure).Reason}, nil
}
