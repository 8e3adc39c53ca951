// Package relay is the one service that reaches the Internet, and only through the
// guarded client: it fetches agents' documents, looks at Companies' domains, delivers
// webhooks, and takes sign-ins to Companies' own systems. It holds the webhook secrets,
// no conversation and no credentials.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
	"github.com/poppyfield/poppyfield/services/relay/queue"
	"github.com/poppyfield/poppyfield/services/relay/rpc"
	"github.com/poppyfield/poppyfield/services/relay/store"
	"github.com/poppyfield/poppyfield/services/relay/store/queuestore"
)

// Deps of the service.
type Deps struct {
	DB *db.DB
	// Bus may be nil: then what waits for an endpoint that is on again goes out at its own time.
	Bus    *bus.Bus
	Egress *egress.Client
	Keys   *keys.Ring
	Now    clock.Clock
	// Log may be nil: nothing is logged.
	Log *slog.Logger
	// Events may be nil: nobody is told of what happens to endpoints.
	Events *outbox.Recorder
	// Directory says how long Companies keep things; nil: nothing is ever dropped.
	Directory *directory.Client
	// MeterProvider gets what is counted; nil for nothing.
	MeterProvider metric.MeterProvider
	// Queue bounds the delivery of events to listening endpoints.
	Queue queue.Config
}

// How often background work is done.
const (
	pruneEvery    = 10 * time.Minute
	expiringEvery = time.Hour
)

// Service is relay.
type Service struct {
	app   *app.App
	deps  Deps
	kept  *queuestore.Store
	queue *queue.Queue

	stop  context.CancelFunc
	loops sync.WaitGroup
}

// New makes the service; nothing is written to the log of attempts before Start.
func New(deps Deps) (*Service, error) {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	check := func(url string) error {
		if _, err := deps.Egress.Guard().CheckURL(url); err != nil {
			return errors.New(egress.DetailOf(err))
		}
		return nil
	}
	s := &Service{deps: deps}
	with := app.Deps{
		Store: store.New(deps.DB, deps.Events, deps.Now), Outside: deps.Egress, Check: check, Keys: deps.Keys, Now: deps.Now, Log: deps.Log, Meter: deps.MeterProvider,
	}
	if deps.Bus != nil {
		with.Bell = deps.Bus
	}
	if deps.Directory != nil {
		with.Retention = s.retention
	}
	var err error
	if s.app, err = app.New(with); err != nil {
		return nil, err
	}
	s.newQueue()
	return s, nil
}

func (s *Service) retention(ctx context.Context, scope tenancy.Scope) (time.Duration, error) {
	co, err := s.deps.Directory.Get(ctx, scope)
	if err != nil {
		return 0, err
	}
	return co.EventRetention, nil
}

// Register adds the gRPC services that relay owns.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	adminv1.RegisterBackendServiceServer(r, &rpc.Backends{App: s.app})
	adminv1.RegisterWebhookEndpointServiceServer(r, &rpc.Endpoints{App: s.app, Now: s.deps.Now})
	adminv1.RegisterWebhookDeliveryServiceServer(r, &rpc.WebhookDeliveries{Kept: s.kept, Look: s.queue.Look, Now: s.deps.Now})
	adminv1.RegisterAttemptServiceServer(r, &rpc.Attempts{App: s.app, Now: s.deps.Now})
	relayv1.RegisterDeliveryServiceServer(r, &rpc.Deliveries{App: s.app})
	relayv1.RegisterEgressServiceServer(r, &rpc.Egress{Client: s.deps.Egress})
	relayv1.RegisterSignInServiceServer(r, &rpc.SignIns{App: s.app})
}

// Start begins to deliver events, to write the log of attempts and to tidy up. It goes on
// after ctx ends, until Stop.
func (s *Service) Start(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.loops.Go(func() { s.app.WriteLog(ctx) })
	s.every(ctx, "old attempts", pruneEvery, s.app.Prune)
	s.every(ctx, "ending secrets", expiringEvery, s.app.TellExpiring)
	return s.queue.Start(ctx)
}

func (s *Service) every(ctx context.Context, what string, interval time.Duration, work func(context.Context) error) {
	s.loops.Go(func() {
		clock.Every(ctx, interval, func(ctx context.Context) {
			if err := work(ctx); err != nil && ctx.Err() == nil {
				s.deps.Log.WarnContext(ctx, "background work failed", "work", what, "error", err)
			}
		})
	})
}

// Stop ends the background work, and writes down the attempts that aren't yet.
// Deliveries under way may end until ctx is done; what is left is given back.
func (s *Service) Stop(ctx context.Context) error {
	err := s.queue.Stop(ctx)
	if s.stop != nil {
		s.stop()
	}
	s.loops.Wait()
	return err
}
