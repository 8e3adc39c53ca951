// Package app decides about Sessions: whom a Company lets in, what a token request
// gets (Poppy 4.2), whether a request with a Session Token may go on (Poppy 4.3),
// how a Session comes to an account (Poppy 4.4 to 4.8), and when a sign-in or a
// Session is over. It knows neither gRPC nor the database, and keeps no
// state that could let a blocked agent or an ended Session pass once more.
package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Companies finds the settings of the Company of a scope.
type Companies interface {
	Get(ctx context.Context, scope tenancy.Scope) (*directory.Company, error)
}

// Memory remembers what may be used only once, with the errors of package replay.
type Memory interface {
	Claim(ctx context.Context, companyID, kind, owner, value string, issuedAt, until time.Time) error
}

// Bell wakes whoever waits for a subject.
type Bell interface {
	Publish(ctx context.Context, subject string, data []byte)
}

// Store is everything that is kept.
type Store interface {
	store.Tokens
	store.Admissions
	store.Sessions
	store.Pruning
	store.Codes
	store.Devices
	store.Grants
	store.Connections
	store.Browsers
	store.SignInPruning
	store.Changes
}

// Deps is what an App works with.
type Deps struct {
	Store     Store
	Companies Companies
	Memory    Memory
	Nonces    *keys.Nonces
	Keys      *keys.Ring
	Bell      Bell // nil: nobody is woken
	Now       clock.Clock
	Log       *slog.Logger
	Meter     metric.Meter // nil counts nothing
	// Starts and Requests count what comes too often; nil for ones of this process alone.
	Starts, Requests *limit.Limiter
	Rates            Rates
	// Usage counts what Companies use; nil for nothing.
	Usage *usage.Meter
	// Listening tells whether somebody wants to hear of a Company's Sessions; nil for never.
	Listening func(tenancy.Scope) bool
}

// App holds the use cases. It is safe for concurrent use.
type App struct {
	Deps
	touches    *toucher
	counts     counts
	background sync.WaitGroup
	stopping   sync.Once
}

// New makes an App.
func New(d Deps) (*App, error) {
	c, err := newCounts(d.Meter)
	if err != nil {
		return nil, err
	}
	d.Starts, d.Requests = limit.Or(d.Starts), limit.Or(d.Requests)
	d.Rates = d.Rates.inForce()
	return &App{Deps: d, touches: newToucher(d.Store, d.Log), counts: c}, nil
}

// company returns the settings of scope's Company, which must be open for business.
func (a *App) company(ctx context.Context, scope tenancy.Scope) (*directory.Company, error) {
	c, err := a.Companies.Get(ctx, scope)
	if err != nil {
		return nil, err
	}
	if !c.Active {
		return nil, problem.New(problem.NotFound, problem.NotFoundReason, "", "not found")
	}
	return c, nil
}

// nonce returns the nonce to hand out, empty where the Company asks for none.
func (a *App) nonce(scope tenancy.Scope, s store.Standing, now time.Time) string {
	if !s.Admission.RequireNonce {
		return ""
	}
	return a.Nonces.Current(scope.CompanyID(), now)
}

func (a *App) ring(ctx context.Context, subject string, err error) {
	if a.Bell == nil {
		return
	}
	if err != nil {
		a.Log.ErrorContext(ctx, "doorbell without a subject", "error", err)
		return
	}
	a.Bell.Publish(ctx, subject, nil)
}

func withNonce(err error, nonce string) error {
	if err == nil || nonce == "" {
		return err
	}
	return problem.As(err).WithExtra(problem.DPoPNonce, nonce)
}
