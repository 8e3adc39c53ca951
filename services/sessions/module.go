// Package sessions is the service of Sessions and sign-ins: it lets Personal Agents
// in, issues Session Tokens and Account Tokens, and is the one place where proofs of
// possession are checked. It owns the tables of admission, Sessions, Grants, codes
// and tokens, and the replay memory.
//
// It must not know HTTP, nor how agents authenticate, nor how Users prove who they
// are: that is the business of the services that call it.
package sessions

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/app"
	"github.com/poppyfield/poppyfield/services/sessions/rpc"
	"github.com/poppyfield/poppyfield/services/sessions/store/entstore"
	"github.com/poppyfield/poppyfield/services/sessions/watch"
)

// Config of the service.
type Config struct {
	// PruneEvery is how often rows that nobody needs are dropped; 0 is an hour.
	PruneEvery time.Duration
	// Rates are the limits that Companies don't set.
	Rates app.Rates
}

// Deps is what the service works with. Bus may be nil: then nobody is woken.
type Deps struct {
	DB        *db.DB
	Bus       *bus.Bus
	Replay    *replay.Memory
	Keys      *keys.Ring
	Directory *directory.Client
	Now       clock.Clock
	Log       *slog.Logger
	// Events tells the Company's listeners of Sessions; nil for nobody.
	Events *outbox.Recorder
	// Starts and Requests count what comes too often; nil for ones of this process alone.
	Starts, Requests *limit.Limiter
	// Usage counts what Companies use; nil for nothing.
	Usage *usage.Meter
	// MeterProvider gets what is counted; nil for nothing.
	MeterProvider metric.MeterProvider
}

// Service is the service of Sessions.
type Service struct {
	cfg    Config
	app    *app.App
	hub    *watch.Hub
	leave  []func()
	replay *replay.Memory
}

// New makes the service.
func New(cfg Config, d Deps) (*Service, error) {
	if d.DB == nil || d.Replay == nil || d.Keys == nil || d.Directory == nil || d.Now == nil || d.Log == nil {
		return nil, errors.New("sessions: a dependency is missing")
	}
	if cfg.PruneEvery <= 0 {
		cfg.PruneEvery = time.Hour
	}
	deps := app.Deps{Store: entstore.New(d.DB, d.Events), Companies: d.Directory, Memory: d.Replay, Nonces: keys.NewNonces(d.Keys), Keys: d.Keys, Now: d.Now, Log: d.Log, Listening: func(s tenancy.Scope) bool { return !d.Events.Quiet(s) }}
	deps.Starts, deps.Requests, deps.Rates, deps.Usage = d.Starts, d.Requests, cfg.Rates, d.Usage
	if d.Bus != nil {
		deps.Bell = d.Bus
	}
	if d.MeterProvider != nil {
		deps.Meter = d.MeterProvider.Meter("github.com/poppyfield/poppyfield/services/sessions")
	}
	a, err := app.New(deps)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, app: a, replay: d.Replay, hub: watch.New(deps.Store, d.Now, d.Log, 0)}
	return s, s.listen(d.Bus)
}

// listen has the watches look as soon as a doorbell rings.
func (s *Service) listen(b *bus.Bus) error {
	if b == nil {
		return nil
	}
	for _, subject := range []string{bus.AllSessions, bus.AllCompanies} {
		leave, err := b.Subscribe(subject, func(context.Context, string, []byte) { s.hub.Ring() })
		if err != nil {
			return err
		}
		s.leave = append(s.leave, leave)
	}
	return nil
}

// NothingIssued reports whether the installation has accepted nothing yet: a replay
// memory that begins then has forgotten nothing (replay.Config.Fresh).
func NothingIssued(ctx context.Context, d *db.DB) (bool, error) {
	return entstore.NothingIssued(ctx, d)
}

// Register puts the services of sessions.v1 on r, and AdmissionService, SessionService,
// AccessService and ConnectedAgentService of admin.v1.
func (s *Service) Register(r grpc.ServiceRegistrar) { rpc.Register(r, s.app, s.hub) }

// Start begins the work in the background.
func (s *Service) Start(ctx context.Context) error {
	s.app.Start(ctx, s.cfg.PruneEvery)
	s.hub.Start(ctx)
	return nil
}

// Stop ends it, at the latest with ctx.
func (s *Service) Stop(ctx context.Context) error {
	for _, leave := range s.leave {
		leave()
	}
	s.hub.Stop()
	return s.app.Stop(ctx)
}

// Ready returns nil once the replay memory can judge what it is asked.
func (s *Service) Ready(ctx context.Context) error { return s.replay.Ready(ctx) }
