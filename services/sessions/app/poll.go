package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// The clauses of polling.
const (
	DeviceKnown   clause.ID = "RFC8628/3.5"
	DevicePending clause.ID = "poppy-0.1/4.6#14"
	DeviceTooFast clause.ID = "poppy-0.1/4.6#15"
	DeviceDenied  clause.ID = "poppy-0.1/4.6#17"
	DeviceExpired clause.ID = "poppy-0.1/4.6#18"
)

const (
	pollInterval = 5 * time.Second
	// pollStep is what each slow_down adds for good (RFC 8628 section 3.5), up to maxPollInterval.
	pollStep        = 5 * time.Second
	maxPollInterval = time.Minute
	// pollSlack forgives what the network does to an agent that keeps the interval.
	pollSlack = time.Second
)

// ExchangeDevice signs a Session in by a device code, or tells its agent to go on
// waiting (Poppy 4.6). Waiting uses up neither the assertion nor the proof.
func (a *App) ExchangeDevice(ctx context.Context, scope tenancy.Scope, r Request, code string) (issued Issued, err error) {
	defer func() { a.counts.signIn(ctx, string(directory.Device), err) }()
	asked := store.Asked{ClientID: r.ClientID, SessionID: r.SessionID, Device: keys.HashToken(scope.CompanyID(), code)}
	return a.answer(ctx, scope, asked, func(company *directory.Company, o store.Opening, now time.Time) (Issued, error) {
		return a.exchangeDevice(ctx, company, o, r, now)
	})
}

func (a *App) exchangeDevice(ctx context.Context, company *directory.Company, o store.Opening, r Request, now time.Time) (Issued, error) {
	// Waiting has a limit of its own and doesn't count as a start.
	if err := admitted(o.Standing, now); err != nil {
		return Issued{}, err
	}
	p, err := a.prove(company, o.Standing, r, now)
	if err != nil {
		return Issued{}, err
	}
	if r.SessionID == "" {
		return Issued{}, sessionRequired()
	}
	d := o.Device
	if d == nil || d.ClientID != r.ClientID {
		return Issued{}, invalidGrant(DeviceKnown, "the device_code is unknown")
	}
	if d.State == store.DeviceConsumed {
		return Issued{}, deviceConsumed()
	}
	if err := checkOwn(o.Session, r.ClientID, company, now); err != nil {
		return Issued{}, err
	}
	switch {
	case !now.Before(d.ExpiresAt):
		return Issued{}, problem.New(problem.Invalid, problem.ExpiredToken, DeviceExpired, "the device_code has expired; start again")
	case d.State == store.DeviceDenied:
		return Issued{}, problem.New(problem.Invalid, problem.AccessDenied, DeviceDenied, "the User declined")
	case d.State == store.DevicePending:
		return Issued{}, a.wait(ctx, company.Scope, d.Hash, now)
	}
	if err := a.takeStart(company, r.ClientID, now); err != nil {
		return Issued{}, err
	}
	return a.redeem(ctx, company, listing(*o.Session, r.Extensions), redemption{
		what: approval{directory.Device, r.AgentName, Account{d.Account, d.AccountLabel}, d.ApprovedScope},
		use:  func(in store.SignedIn) error { return a.Store.RedeemDevice(ctx, company.Scope, d.Hash, in) },
		late: deviceConsumed,
	}, p, now)
}

// deviceConsumed answers polls after the one that got the tokens. They end nothing:
// agents poll again when an answer is late, and no more than that need have happened.
func deviceConsumed() error { return invalidGrant(DeviceKnown, "the device_code was used before") }

// wait answers a poll while the User hasn't decided. Every poll counts, wherever it
// came in, since nobody else changes the device meanwhile.
func (a *App) wait(ctx context.Context, scope tenancy.Scope, id string, now time.Time) error {
	tooFast := false
	err := a.Store.ChangeDevice(ctx, scope, id, func(d *store.Device) error {
		tooFast = false
		if d.State == store.DevicePending { // else decided since it was read; the next poll tells
			tooFast = poll(d, now)
		}
		return nil
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return invalidGrant(DeviceKnown, "the device_code is unknown")
	case err != nil:
		return err
	case tooFast:
		return problem.New(problem.Invalid, problem.SlowDown, DeviceTooFast, "wait 5 seconds longer between polls")
	}
	return problem.New(problem.Invalid, problem.AuthorizationPending, DevicePending, "the User hasn't decided yet")
}

// poll notes a poll and reports whether it came too soon after the one before.
func poll(d *store.Device, now time.Time) bool {
	tooFast := !d.PolledAt.IsZero() && now.Sub(d.PolledAt) < d.Interval-pollSlack
	if tooFast {
		d.Interval = min(d.Interval+pollStep, maxPollInterval)
	}
	if now.After(d.PolledAt) { // two processes' clocks may differ
		d.PolledAt = now
	}
	return tooFast
}
