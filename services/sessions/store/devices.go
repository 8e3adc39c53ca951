package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// DeviceState is how far a Device Sign-In has come. Whether it ran out is judged by the reader.
type DeviceState string

// The states.
const (
	DevicePending  DeviceState = "pending"
	DeviceApproved DeviceState = "approved"
	DeviceDenied   DeviceState = "denied"
	DeviceConsumed DeviceState = "consumed"
)

// Device is a Device Sign-In under way (Poppy 4.6).
type Device struct {
	Hash, UserCodeHash    string
	ClientID, AgentName   string
	Scope                 string // asked for
	State                 DeviceState
	ApprovedScope         string
	Account, AccountLabel string
	Interval              time.Duration // between polls; whole seconds
	PolledAt              time.Time     // zero: not yet
	CreatedAt, ExpiresAt  time.Time
	GrantID               string // what it gave
}

// Devices keeps Device Sign-Ins.
type Devices interface {
	// SaveDevice fails with ErrTaken where another one has the user code.
	SaveDevice(ctx context.Context, scope tenancy.Scope, d Device) error
	// PendingDevice finds the one that is pending at now by any of the hashes of its user code.
	PendingDevice(ctx context.Context, scope tenancy.Scope, hashes []string, now time.Time) (Device, error)
	// ChangeDevice saves what change makes of the state, decision, interval and last poll
	// of a device; nobody else changes it meanwhile. change may run more than once; its error is returned.
	ChangeDevice(ctx context.Context, scope tenancy.Scope, hash string, change func(*Device) error) error
	// RedeemDevice is Codes.RedeemCode for an approved device.
	RedeemDevice(ctx context.Context, scope tenancy.Scope, hash string, s SignedIn) error
}

// SignInPruning drops rows of all Companies that nobody needs any more, at most limit
// at a time, and returns how many.
type SignInPruning interface {
	// PruneCodes drops codes that expired before.
	PruneCodes(ctx context.Context, before time.Time, limit int) (int, error)
	// PruneDevices drops Device Sign-Ins that expired before.
	PruneDevices(ctx context.Context, before time.Time, limit int) (int, error)
	// PruneGrants drops Grants that ended or expired before, and their Account Tokens.
	PruneGrants(ctx context.Context, before time.Time, limit int) (int, error)
}
