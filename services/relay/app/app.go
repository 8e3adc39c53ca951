// Package app decides how a Company's own systems are reached: where its backend and its
// listening endpoints are, what signs the webhooks, whether an attempt may be made now,
// what its end means, and what may be sent to its identity provider. It keeps no queue:
// what is due is the business of conversations and of the package queue. Of what Users
// sign in with it keeps and logs nothing.
package app

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Event is something that the Company's listeners are told of.
type Event = outbox.Event

// Store keeps endpoints, secrets and the log of attempts. Not found is problem
// NOT_FOUND. An endpoint is named by its id, the Company's backend by Backend.
type Store interface {
	// Endpoint returns the endpoint and the secrets that sign for it, without those that
	// have expired at now. Where there is no backend it is NewBackend.
	Endpoint(ctx context.Context, scope tenancy.Scope, id string, now time.Time) (Endpoint, []Secret, error)
	// UpdateEndpoint loads, changes and saves in one unit, making the backend where there is none.
	UpdateEndpoint(ctx context.Context, scope tenancy.Scope, id string, change func(*Endpoint) error) (Endpoint, error)
	// ChangeSeries changes how attempts went, and whether the endpoint is on, and records
	// the events in the same unit. Its etag stays the same unless it
	// was turned off, or works again after that.
	ChangeSeries(ctx context.Context, scope tenancy.Scope, id string, change func(*Endpoint) ([]Event, error)) error
	// CreateListener saves an endpoint with its first secret, unless there are limit of them.
	CreateListener(ctx context.Context, scope tenancy.Scope, e Endpoint, s Secret, limit int) (Endpoint, error)
	// DeleteListener deletes an endpoint, its secrets and deliveries, if check agrees.
	DeleteListener(ctx context.Context, scope tenancy.Scope, id string, check func(Endpoint) error) error
	// Listeners returns at most n endpoints that listen, the oldest first.
	Listeners(ctx context.Context, scope tenancy.Scope, after time.Time, afterID string, n int) ([]Endpoint, error)
	// Pending returns how many deliveries wait for an endpoint, and since when the first does.
	Pending(ctx context.Context, scope tenancy.Scope, id string) (int, *time.Time, error)
	// AddSecret saves s, makes earlier secrets of its kind and endpoint expire at until, and drops those that have expired when s is made.
	AddSecret(ctx context.Context, scope tenancy.Scope, s Secret, until time.Time) error
	// Expiring returns the secrets of all Companies that end between two times.
	Expiring(ctx context.Context, after, until time.Time) (map[tenancy.Scope][]Secret, error)
	// TellOnce records an event unless there is one of its type and subject.
	TellOnce(ctx context.Context, scope tenancy.Scope, e Event) error

	// SaveAttempts writes attempts of several Companies.
	SaveAttempts(ctx context.Context, batch []Logged) error
	// Attempts returns the newest attempts first.
	Attempts(ctx context.Context, scope tenancy.Scope, q AttemptQuery) ([]Logged, error)
	// PruneAttempts drops at most limit attempts from before a time.
	PruneAttempts(ctx context.Context, scope tenancy.Scope, before time.Time, limit int) (int, error)
	// NextCompany returns the first Company after the one with the given id that has attempts.
	NextCompany(ctx context.Context, after string) (scope tenancy.Scope, ok bool, err error)
}

// Outside sends to foreign addresses; egress.Client is one.
type Outside interface {
	Post(ctx context.Context, r egress.PostRequest) (egress.Response, error)
	Send(ctx context.Context, r egress.SendRequest) (egress.Response, error)
	// Stream returns a response also beside an error.
	Stream(ctx context.Context, r egress.StreamRequest) (*egress.StreamResponse, error)
}

// Bell wakes whoever waits for a subject; *bus.Bus is one.
type Bell interface {
	Publish(ctx context.Context, subject string, data []byte)
}

// Deps is what the use cases work with.
type Deps struct {
	Store   Store
	Outside Outside
	// Check says whether a URL may be an endpoint's.
	Check func(url string) error
	Keys  *keys.Ring
	Bell  Bell // nil: nobody is woken
	Now   clock.Clock
	Log   *slog.Logger         // nil: nothing is logged
	Meter metric.MeterProvider // nil: nothing is counted
	// Retention returns for how long a Company keeps events; nil: nothing is ever dropped.
	Retention func(ctx context.Context, scope tenancy.Scope) (time.Duration, error)
}

// App is the use cases.
type App struct {
	bell      Bell
	store     Store
	out       Outside
	check     func(url string) error
	keys      *keys.Ring
	now       clock.Clock
	told      *slog.Logger
	retention func(ctx context.Context, scope tenancy.Scope) (time.Duration, error)

	agents agents
	lives  lives
	log    *attemptLog
}

// New makes the use cases.
func New(deps Deps) (*App, error) {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Meter == nil {
		deps.Meter = noop.NewMeterProvider()
	}
	a := &App{
		bell: deps.Bell, store: deps.Store, out: deps.Outside, check: deps.Check, keys: deps.Keys, now: deps.Now, told: deps.Log, retention: deps.Retention,
	}
	a.log = newAttemptLog(a.saveLogged, deps.Log)
	_, err := deps.Meter.Meter("github.com/poppyfield/poppyfield/services/relay").Int64ObservableCounter("poppyfield.relay.attempts_unlogged",
		metric.WithDescription("Attempts that are missing in the log because the database was away."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(a.log.dropped.Load())
			return nil
		}))
	return a, err
}

// WriteLog writes the log of attempts until ctx ends, and then what is left of it.
func (a *App) WriteLog(ctx context.Context) { a.log.run(ctx) }

// reachable tells those who deliver that one of a Company's endpoints is on again, or elsewhere.
func (a *App) reachable(ctx context.Context, scope tenancy.Scope) {
	a.ring(ctx, scope, bus.DeliverySubject)
}

// changed tells those who remember what a Company listens to that it is different now.
func (a *App) changed(ctx context.Context, scope tenancy.Scope) {
	a.ring(ctx, scope, bus.CompanySubject)
}

func (a *App) ring(ctx context.Context, scope tenancy.Scope, of func(company string) (string, error)) {
	if a.bell == nil {
		return
	}
	if subject, err := of(scope.CompanyID()); err == nil { // a checked id always has one
		a.bell.Publish(ctx, subject, nil)
	}
}

// isAway reports that the database can't be reached for now.
func isAway(err error) bool { return problem.Is(err, problem.TemporarilyUnavailable) }
