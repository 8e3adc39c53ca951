// Package app decides how a Company's own systems are reached: where its backend is,
// what signs the webhooks, what an attempt's end means, and what may be sent to its
// identity provider. It keeps no queue: which message is due is the business of
// conversations. Of what Users sign in with it keeps and logs nothing.
package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Backend is a Company's own agent.
type Backend struct {
	ID             string // empty: never set up
	URL            string
	Enabled        bool
	DisableReason  string
	AttemptTimeout time.Duration
	DeliverLate    bool
	Version        int64
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Kinds of Secret.
const (
	HMAC    = "hmac"
	Ed25519 = "ed25519"
)

// Secret signs webhooks. Sealed opens only with the Company's key.
type Secret struct {
	ID        string
	Kind      string
	Sealed    []byte
	PublicKey string
	Prefix    string
	CreatedAt time.Time
	ExpiresAt *time.Time
}

// Store keeps backends and secrets. Not found is problem NOT_FOUND.
type Store interface {
	// Endpoint returns the backend, NewBackend where there is none, and the secrets that have not expired at now.
	Endpoint(ctx context.Context, scope tenancy.Scope, now time.Time) (Backend, []Secret, error)
	// UpdateBackend loads, changes and saves in one unit, making the backend where there is none.
	UpdateBackend(ctx context.Context, scope tenancy.Scope, change func(*Backend) error) (Backend, error)
	// AddSecret saves s, makes earlier secrets of its kind expire at until, and drops those that have expired when s is made.
	AddSecret(ctx context.Context, scope tenancy.Scope, s Secret, until time.Time) error
}

// Outside sends to foreign addresses; egress.Client is one.
type Outside interface {
	Post(ctx context.Context, r egress.PostRequest) (egress.Response, error)
	Send(ctx context.Context, r egress.SendRequest) (egress.Response, error)
}

// Bell wakes whoever waits for a subject; *bus.Bus is one.
type Bell interface {
	Publish(ctx context.Context, subject string, data []byte)
}

// App is the use cases.
type App struct {
	bell  Bell // nil: nobody is woken
	store Store
	out   Outside
	check func(url string) error
	keys  *keys.Ring
	now   clock.Clock
}

// New makes the use cases. check says whether a URL may be a backend's; bell may be nil.
func New(store Store, out Outside, check func(url string) error, ring *keys.Ring, bell Bell, now clock.Clock) *App {
	return &App{store: store, out: out, check: check, keys: ring, bell: bell, now: now}
}

// reachable tells those who deliver that a Company's backend is on again, or elsewhere.
func (a *App) reachable(ctx context.Context, scope tenancy.Scope) {
	if a.bell == nil {
		return
	}
	if subject, err := bus.DeliverySubject(scope.CompanyID()); err == nil { // a checked id always has one
		a.bell.Publish(ctx, subject, nil)
	}
}
