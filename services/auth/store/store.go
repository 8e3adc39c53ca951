// Package store says what the service of authorization keeps: sign-ins under way,
// counters of attempts, and clients that have registered themselves. Every call is confined to the Company of its scope.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// What the stores refuse with; compare with errors.Is.
var (
	ErrNotFound = errors.New("not found")
	// ErrFull: the Company has as many of them as it may have.
	ErrFull = errors.New("full")
	// ErrStale: the sign-in went on meanwhile.
	ErrStale = errors.New("changed meanwhile")
)

// Stage is what comes next in a sign-in.
type Stage string

// The stages.
const (
	StageLogin   Stage = "login"
	StageCode    Stage = "code"
	StageConsent Stage = "consent"
	StageDone    Stage = "done"
)

// SignIn is a sign-in under way.
type SignIn struct {
	ID    string
	Kind  directory.SignInType
	Stage Stage

	ClientID, AgentName, AgentLogoURI string
	Scope                             string // asked for
	UILocale                          string

	RedirectURI, State, CodeChallenge string // direct
	Resource                          string // direct, of a plain client alone: the MCP server that it is for
	DeviceID                          string // device
	SessionID, UserID                 string // mediated

	BrowserHash  string // of the cookie's secret; empty for mediated
	UpstreamHash string // of what the Company's login comes back with; empty: nothing is awaited
	Sealed       []byte // opened and sealed by the callers
	Account      string
	AccountLabel string
	CodeSentTo   string
	CodeAttempts int
	CreatedAt    time.Time
	ExpiresAt    time.Time
	Version      int64
}

// SignIns keeps sign-ins under way.
type SignIns interface {
	Create(ctx context.Context, scope tenancy.Scope, s SignIn) error
	// Find returns a sign-in, also one that ran out; ErrNotFound once it is pruned.
	Find(ctx context.Context, scope tenancy.Scope, id string) (SignIn, error)
	// FindUpstream finds by what the Company's login came back with.
	FindUpstream(ctx context.Context, scope tenancy.Scope, hash string) (SignIn, error)
	// Save replaces the mutable part of the sign-in of s's ID and Version, else ErrStale.
	// It returns s with its new version. CodeAttempts is not saved: it begins anew when
	// the stage is another than StageCode.
	Save(ctx context.Context, scope tenancy.Scope, s SignIn) (SignIn, error)
	// TakeCodeAttempt counts one try of a one-time code in a sign-in at StageCode, and
	// returns the sign-in with that count and the same version. At limit tries, or at
	// another stage, it counts no further and fails with ErrStale: of any number of
	// parallel tries no more than limit get through.
	TakeCodeAttempt(ctx context.Context, scope tenancy.Scope, id string, limit int) (SignIn, error)
	// Prune drops sign-ins of all Companies that ran out before, at most limit of them.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)
}

// Key is something that may be tried only so often.
type Key struct {
	Kind, Value string // such as "account" and what the User typed
	Limit       int
	Window      time.Duration
}

// Attempts counts tries for all processes at once.
type Attempts interface {
	// Take counts one try for every key, or for none of them: where a key is used up it
	// returns for how long. Parallel calls never take more than Limit.
	Take(ctx context.Context, scope tenancy.Scope, now time.Time, keys ...Key) (wait time.Duration, err error)
	// Return gives one try back for every key: it succeeded.
	Return(ctx context.Context, scope tenancy.Scope, now time.Time, keys ...Key) error
	// PruneAttempts drops counters of all Companies whose window ended before.
	PruneAttempts(ctx context.Context, before time.Time, limit int) (int, error)
}
