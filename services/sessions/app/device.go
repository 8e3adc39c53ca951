package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

const (
	devicePrefix   = "pdc"
	deviceLifetime = 10 * time.Minute
	// userCodeTries bounds the search for a user code that nobody has.
	userCodeTries = 5
)

// DeviceStart asks for a device code for an agent that has authenticated.
type DeviceStart struct {
	ClientID, AgentName string
	Scope               string
	Once                []Once // the client assertion
}

// DeviceStarted is RFC 8628 section 3.2.
type DeviceStarted struct {
	DeviceCode, UserCode string
	Lifetime, Interval   time.Duration
}

// StartDevice starts a Device Sign-In (Poppy 4.6).
func (a *App) StartDevice(ctx context.Context, scope tenancy.Scope, d DeviceStart) (DeviceStarted, error) {
	company, err := a.company(ctx, scope)
	if err != nil {
		return DeviceStarted{}, err
	}
	o, err := a.Store.Opening(ctx, scope, store.Asked{ClientID: d.ClientID})
	if err != nil {
		return DeviceStarted{}, err
	}
	now := a.Now()
	if err := admitted(o.Standing, now); err != nil {
		return DeviceStarted{}, err
	}
	if err := a.takeStart(company, d.ClientID, now); err != nil {
		return DeviceStarted{}, err
	}
	wanted, err := checkScope(company, directory.Device, d.Scope)
	if err != nil {
		return DeviceStarted{}, err
	}
	if err := a.claim(ctx, scope, d.Once); err != nil {
		return DeviceStarted{}, err
	}
	started := DeviceStarted{DeviceCode: keys.RandomToken(devicePrefix), Lifetime: deviceLifetime, Interval: pollInterval}
	for range userCodeTries {
		code := newUserCode()
		err = a.Store.SaveDevice(ctx, scope, store.Device{
			Hash: keys.HashToken(scope.CompanyID(), started.DeviceCode), UserCodeHash: a.userCodeHashes(scope, code)[0],
			ClientID: d.ClientID, AgentName: d.AgentName, Scope: wanted.String(), State: store.DevicePending, Interval: pollInterval,
			CreatedAt: now, ExpiresAt: now.Add(deviceLifetime),
		})
		if !errors.Is(err, store.ErrTaken) {
			started.UserCode = showUserCode(code)
			break
		}
	}
	return started, err
}

// FindDevice finds the Device Sign-In that waits for a decision by its user code, as
// somebody typed it. The second result is the code as people read it.
func (a *App) FindDevice(ctx context.Context, scope tenancy.Scope, typed string) (store.Device, string, error) {
	if _, err := a.company(ctx, scope); err != nil {
		return store.Device{}, "", err
	}
	code, ok := parseUserCode(typed)
	if !ok {
		return store.Device{}, "", found(store.ErrNotFound)
	}
	d, err := a.Store.PendingDevice(ctx, scope, a.userCodeHashes(scope, code), a.Now())
	return d, showUserCode(code), found(err)
}

// DecideDevice records what the User decided; no scope means that they declined
// (decision 41). What was decided before, or ran out, is not found.
func (a *App) DecideDevice(ctx context.Context, scope tenancy.Scope, id, approved string, account Account) error {
	company, err := a.company(ctx, scope)
	if err != nil {
		return err
	}
	decided := store.DeviceDenied
	if approved == "" {
		account = Account{}
	} else {
		granted, err := checkScope(company, directory.Device, approved)
		if err != nil {
			return err
		}
		if err := checkAccount(account); err != nil {
			return err
		}
		decided, approved = store.DeviceApproved, granted.String()
	}
	now := a.Now()
	return found(a.Store.ChangeDevice(ctx, scope, id, func(d *store.Device) error {
		if d.State != store.DevicePending || !now.Before(d.ExpiresAt) {
			return store.ErrNotFound
		}
		if err := within(approved, d.Scope, NothingExtra); err != nil {
			return err
		}
		d.State, d.ApprovedScope, d.Account, d.AccountLabel = decided, approved, account.ID, account.Label
		return nil
	}))
}
