package conversations

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/conversations/app"
	"github.com/poppyfield/poppyfield/services/conversations/changes"
	"github.com/poppyfield/poppyfield/services/conversations/dispatch"
	"github.com/poppyfield/poppyfield/services/conversations/doorbell"
	"github.com/poppyfield/poppyfield/services/conversations/meter"
	"github.com/poppyfield/poppyfield/services/conversations/rpc"
	"github.com/poppyfield/poppyfield/services/conversations/store"
	"github.com/poppyfield/poppyfield/services/conversations/web"
)

// Config is what an installation may choose. The zero Config is fit for use.
type Config struct {
	Dispatch dispatch.Config
	// DeadlineEvery is how often overdue answers are looked for; 0 is 500 ms.
	DeadlineEvery time.Duration
	// CloseEvery is how often inactive conversations are closed; 0 is a minute.
	CloseEvery time.Duration
	// PruneEvery is how often old events are dropped; 0 is ten minutes.
	PruneEvery time.Duration
	// Streams are how streams of events are kept.
	Streams web.Streams
	// Heartbeat is how often a watch of the inbox says that it lives; 0 is 15 s.
	Heartbeat time.Duration
}

// Deps is what the service works with.
type Deps struct {
	DB         *db.DB
	Bus        *bus.Bus
	Directory  app.Companies // a *directory.Client
	Sessions   sessionsv1.SessionsServiceClient
	Deliveries relayv1.DeliveryServiceClient
	Now        clock.Clock
	Log        *slog.Logger
	// Events tells the Company's listeners of conversations; nil for nobody.
	Events *outbox.Recorder
	// Usage counts what Companies use; nil for nothing.
	Usage *usage.Meter
	// TracerProvider gets a span for each attempt at a delivery; nil for none.
	TracerProvider trace.TracerProvider
	// MeterProvider gets what is counted; nil for nothing.
	MeterProvider metric.MeterProvider
}

// Service is the conversations of an installation, as one process serves them.
type Service struct {
	cfg        Config
	deps       Deps
	bells      *doorbell.Bells
	dispatcher *dispatch.Dispatcher
	app        *app.App
	store      *store.Store
	meter      *meter.Meter
	leave      func() // the doorbells of changed backends
	changes    *changes.Hub

	stopping chan struct{} // closed when watches have to end
	stopOnce sync.Once

	stop  context.CancelFunc
	loops sync.WaitGroup
}

// New makes the service and subscribes its doorbells; nothing is delivered before Start.
func New(cfg Config, deps Deps) (*Service, error) {
	if deps.DB == nil || deps.Bus == nil || deps.Directory == nil || deps.Sessions == nil || deps.Deliveries == nil || deps.Now == nil || deps.Log == nil {
		return nil, errors.New("conversations: a dependency is missing")
	}
	for _, d := range []struct {
		v        *time.Duration
		fallback time.Duration
	}{{&cfg.DeadlineEvery, 500 * time.Millisecond}, {&cfg.CloseEvery, time.Minute}, {&cfg.PruneEvery, 10 * time.Minute}, {&cfg.Heartbeat, 15 * time.Second}} {
		if *d.v <= 0 {
			*d.v = d.fallback
		}
	}
	if deps.TracerProvider == nil {
		deps.TracerProvider = noop.NewTracerProvider()
	}
	m, err := meter.New(deps.MeterProvider)
	if err != nil {
		return nil, err
	}
	bells, err := doorbell.New(deps.Bus)
	if err != nil {
		return nil, err
	}
	s := store.New(deps.DB, deps.Events)
	d := dispatch.New(cfg.Dispatch, dispatch.Deps{
		Store: s, Relay: deps.Deliveries, Now: deps.Now, Log: deps.Log,
		Tracer: deps.TracerProvider.Tracer("github.com/poppyfield/poppyfield/services/conversations"),
		Meter:  m, Usage: deps.Usage, Ring: ring(deps.Bus), Delta: bells.Delta,
	})
	leave, err := deps.Bus.Subscribe(bus.AllDeliveries, func(_ context.Context, subject string, data []byte) {
		if tokens := bus.Tokens(subject); len(tokens) == 1 {
			if scope, err := tenancy.For(tokens[0]); err != nil {
				return
			} else if string(data) == deliveryDue {
				d.Due(scope)
			} else {
				d.BackendChanged(scope)
			}
		}
	})
	if err != nil {
		bells.Close()
		return nil, err
	}
	hub, err := changes.NewHub(deps.Bus)
	if err != nil {
		leave()
		bells.Close()
		return nil, err
	}
	return &Service{
		cfg: cfg, deps: deps, bells: bells, dispatcher: d, store: s, meter: m, leave: leave, changes: hub, stopping: make(chan struct{}),
		app: app.New(s, bells, d, deps.Directory, deps.Now, m, deps.Usage),
	}, nil
}

// deliveryDue is what a ring says that is about a delivery; others say that the backend is another one.
const deliveryDue = "due"

// ring tells other processes that a delivery waits for one with a stream of its backend.
func ring(b *bus.Bus) func(context.Context, tenancy.Scope) {
	return func(ctx context.Context, scope tenancy.Scope) {
		if subject, err := bus.DeliverySubject(scope.CompanyID()); err == nil { // a scope's id always has one
			b.Publish(ctx, subject, []byte(deliveryDue))
		}
	}
}

// Register puts the service's part of the admin API on a server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	adminv1.RegisterConversationServiceServer(r, &rpc.Conversations{App: s.app, Store: s.store, Now: s.deps.Now})
	adminv1.RegisterBackendDeliveryServiceServer(r, &rpc.BackendDeliveries{App: s.app, Store: s.store, Now: s.deps.Now})
	adminv1.RegisterBackendStreamServiceServer(r, &rpc.BackendStreams{Streams: s.dispatcher})
	adminv1.RegisterInboxServiceServer(r, &rpc.Inbox{
		App: s.app, Store: s.store, Now: s.deps.Now,
		Changes: s.changes, Connected: s.deps.Bus.Connected, Heartbeat: s.cfg.Heartbeat, Stopping: s.stopping,
	})
}

// Routes returns the public endpoints.
func (s *Service) Routes() []publicweb.Route {
	return (&web.Handlers{App: s.app, Sessions: s.deps.Sessions, Now: s.deps.Now, Streams: s.cfg.Streams}).Routes()
}

// Start begins to deliver and to watch deadlines. It goes on after ctx ends, until Stop.
func (s *Service) Start(ctx context.Context) error {
	if err := s.meter.Observe(s.Waiting); err != nil {
		return err
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.dispatcher.Start(ctx, s.app)
	s.loop(func() { s.bells.Run(ctx) })
	s.every(ctx, "overdue answers", s.cfg.DeadlineEvery, s.app.ExpireAnswers)
	s.every(ctx, "inactive conversations", s.cfg.CloseEvery, s.app.CloseInactive)
	s.every(ctx, "old events", s.cfg.PruneEvery, s.app.Prune)
	return nil
}

func (s *Service) loop(fn func()) {
	s.loops.Add(1)
	go func() {
		defer s.loops.Done()
		fn()
	}()
}

func (s *Service) every(ctx context.Context, what string, interval time.Duration, work func(context.Context) error) {
	s.loop(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			if err := work(ctx); err != nil && ctx.Err() == nil {
				s.deps.Log.WarnContext(ctx, "background work failed", "work", what, "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

// Stop ends the background work. Deliveries in flight may end until ctx is done;
// what is left then is given back for another process.
func (s *Service) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { close(s.stopping) })
	err := s.dispatcher.Stop(ctx)
	if s.stop != nil {
		s.stop()
	}
	s.loops.Wait()
	s.leave()
	s.changes.Close()
	s.bells.Close()
	return errors.Join(err, s.meter.Close())
}

// Ready reports an error unless the database answers; NATS may be away.
func (s *Service) Ready(ctx context.Context) error {
	_, _, err := s.store.NextCompany(ctx, "")
	return err
}

// Waiting returns how many reads are being held.
func (s *Service) Waiting() int { return s.bells.Listeners() }

// BeginDrain tells backends with a stream to open another one elsewhere. Stop does it too.
func (s *Service) BeginDrain() { s.dispatcher.BeginDrain() }

// BackendChanged says that a Company's backend is on again or elsewhere, as a ring for it does.
func (s *Service) BackendChanged(scope tenancy.Scope) { s.dispatcher.BackendChanged(scope) }

// InFlight returns how many deliveries this process is making.
func (s *Service) InFlight() int { n, _ := s.dispatcher.Load(); return n }

// Delivering reports whether the process still claims deliveries.
func (s *Service) Delivering() bool { _, running := s.dispatcher.Load(); return running }
