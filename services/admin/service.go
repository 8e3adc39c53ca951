package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/proto"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/gate"
	"github.com/poppyfield/poppyfield/services/admin/method"
	"github.com/poppyfield/poppyfield/services/admin/rpc"
	"github.com/poppyfield/poppyfield/services/admin/store"
	"github.com/poppyfield/poppyfield/services/admin/watch"
	"github.com/poppyfield/poppyfield/services/admin/web"
)

// Config of the service. Zero values are the defaults; a negative limit is none.
type Config struct {
	// TLS of the public gRPC port; nil behind a proxy or on loopback.
	TLS *tls.Config
	// ReadsPerMinute and WritesPerMinute are budgets of each key: 1200 and 300.
	ReadsPerMinute, WritesPerMinute int
	// ChecksPerMinute is the budget of each key for what is asked for every request of an agent: 300,000.
	ChecksPerMinute int
	// FailuresPerMinute is how many unknown keys one address may try: 120.
	FailuresPerMinute int
	// StreamsPerKey is how many watches and gRPC streams a key may have open: 20.
	StreamsPerKey int
	// FirstMessage is how long a stream's first message may take: 10 s.
	FirstMessage time.Duration
	// Recheck is how often the key of an open stream is looked at again: 5 s.
	Recheck time.Duration
	// TrustedProxies may say in X-Forwarded-For whom they speak for.
	TrustedProxies []netip.Prefix
	// HSTS says that the API origin speaks TLS.
	HSTS bool
	// Heartbeat is how often a watch says that it lives: 15 s.
	Heartbeat time.Duration
	// PruneEvery is how often old answers are dropped: 10 min.
	PruneEvery time.Duration
}

// Owners are connections to the services that own the methods, made for the caller "admin".
type Owners struct {
	Discovery, Auth, Relay, Sessions, Conversations grpc.ClientConnInterface
}

// Deps of the service.
type Deps struct {
	DB     *db.DB
	Bus    *bus.Bus
	Keys   *keys.Ring
	Owners Owners
	// Limiter counts calls; nil for one of this process alone.
	Limiter *limit.Limiter
	Now     clock.Clock
	Log     *slog.Logger
	// TracerProvider and MeterProvider may be nil.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

// Service is admin.
type Service struct {
	cfg     Config
	deps    Deps
	answers *gate.Answers
	gate    *gate.Gate
	hub     *watch.Hub
	servers *servers
	http    http.Handler

	stopping chan struct{}
	once     sync.Once
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// New makes the service; nothing runs before Start, but its subscriptions. It fails when a method of the
// API has no rule, no route, or nobody who answers for it. ctx is only for the construction.
func New(ctx context.Context, cfg Config, deps Deps) (*Service, error) {
	cfg = withDefaults(cfg)
	table, err := method.Load(ownerTable.names()...)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, stopping: make(chan struct{})}
	if s.hub, err = watch.NewHub(deps.Bus); err != nil {
		return nil, err
	}
	if err := s.build(ctx, table); err != nil {
		s.hub.Close()
		return nil, err
	}
	return s, nil
}

func (s *Service) build(ctx context.Context, table *method.Table) error {
	deps, cfg := s.deps, s.cfg
	keyStore := store.NewKeys(deps.DB)
	company, operator := table.Permissions()
	manager := app.NewManager(keyStore, deps.Now, company, operator, s.hub.Revoked)
	auth := app.NewAuthenticator(keyStore, deps.Now, deps.Log)
	s.answers = gate.NewAnswers(store.NewAnswers(deps.DB), deps.Keys, deps.Now, deps.Log)
	owners := ownerTable.connections(deps.Owners, local{desc: &adminv1.ApiKeyService_ServiceDesc, impl: &rpc.APIKeys{App: manager, Now: deps.Now}})
	g, err := gate.New(gate.Config{
		ReadsPerMinute: cfg.ReadsPerMinute, WritesPerMinute: cfg.WritesPerMinute, ChecksPerMinute: cfg.ChecksPerMinute,
		FailuresPerMinute: cfg.FailuresPerMinute, TrustedProxies: cfg.TrustedProxies,
		StreamsPerKey: cfg.StreamsPerKey, FirstMessage: cfg.FirstMessage, Recheck: cfg.Recheck,
	}, gate.Deps{Table: table, Owners: owners, Store: keyStore, Auth: auth, Answers: s.answers, Limiter: deps.Limiter, Now: deps.Now, Log: deps.Log})
	if err != nil {
		return err
	}
	s.gate = g
	if s.servers, err = newServers(table, g, cfg.TLS, deps.TracerProvider, deps.MeterProvider); err != nil {
		return err
	}
	handler, err := web.New(ctx, web.Config{Heartbeat: cfg.Heartbeat}, web.Deps{
		Table: table, Gate: g, Auth: auth, Hub: s.hub, API: s.servers.inside,
		Conversations: adminv1.NewConversationServiceClient(deps.Owners.Conversations), Inbox: adminv1.NewInboxServiceClient(deps.Owners.Conversations),
		Connected: deps.Bus.Connected, Stopping: s.stopping, OpenAPI: proto.OpenAPI(), Now: deps.Now, Log: deps.Log,
	})
	if err != nil {
		return errors.Join(err, s.servers.inside.Close())
	}
	s.http = httpx.Standard(handler, httpx.Options{
		Name: "api", Log: deps.Log, MaxBody: gate.MaxRequest, HSTS: cfg.HSTS, Traces: deps.TracerProvider, Metrics: deps.MeterProvider,
	})
	return nil
}

func withDefaults(cfg Config) Config {
	set := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	set(&cfg.ReadsPerMinute, 1200)
	set(&cfg.WritesPerMinute, 300)
	set(&cfg.ChecksPerMinute, 300_000)
	set(&cfg.FailuresPerMinute, 120)
	set(&cfg.StreamsPerKey, 20)
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 15 * time.Second
	}
	if cfg.PruneEvery == 0 {
		cfg.PruneEvery = 10 * time.Minute
	}
	return cfg
}

// owner picks the connection to the service that owns something.
type owner func(o Owners, own grpc.ClientConnInterface) grpc.ClientConnInterface

type owners map[protoreflect.FullName]owner

func discovery(o Owners, _ grpc.ClientConnInterface) grpc.ClientConnInterface { return o.Discovery }

func auth(o Owners, _ grpc.ClientConnInterface) grpc.ClientConnInterface { return o.Auth }

func relay(o Owners, _ grpc.ClientConnInterface) grpc.ClientConnInterface { return o.Relay }

func sessions(o Owners, _ grpc.ClientConnInterface) grpc.ClientConnInterface { return o.Sessions }

func conversations(o Owners, _ grpc.ClientConnInterface) grpc.ClientConnInterface {
	return o.Conversations
}

func itself(_ Owners, own grpc.ClientConnInterface) grpc.ClientConnInterface { return own }

// ownerTable says who answers for each service of the API. One that isn't here isn't served, and New fails.
var ownerTable = owners{
	method.Package + ".CompanyService":         discovery,
	method.Package + ".DomainService":          discovery,
	method.Package + ".SignInSetupService":     discovery,
	method.Package + ".UsageService":           discovery,
	method.Package + ".LoginService":           auth,
	method.Package + ".BackendService":         relay,
	method.Package + ".WebhookEndpointService": relay,
	method.Package + ".WebhookDeliveryService": relay,
	method.Package + ".AttemptService":         relay,
	method.Package + ".AdmissionService":       sessions,
	method.Package + ".SessionService":         sessions,
	method.Package + ".ConnectedAgentService":  sessions,
	method.Package + ".AccessService":          sessions,
	method.Package + ".ConversationService":    conversations,
	method.Package + ".BackendDeliveryService": conversations,
	method.Package + ".BackendStreamService":   conversations,
	method.Package + ".InboxService":           conversations,
	method.Package + ".ApiKeyService":          itself,
}

func (t owners) names() []protoreflect.FullName {
	out := make([]protoreflect.FullName, 0, len(t))
	for name := range t {
		out = append(out, name)
	}
	return out
}

func (t owners) connections(o Owners, own grpc.ClientConnInterface) map[protoreflect.FullName]grpc.ClientConnInterface {
	out := make(map[protoreflect.FullName]grpc.ClientConnInterface, len(t))
	for name, pick := range t {
		if conn := pick(o, own); conn != nil {
			out[name] = conn
		}
	}
	return out
}

// HTTP returns the handler of the API origin. It brings its own request ids, limits and headers: don't wrap it again.
func (s *Service) HTTP() http.Handler { return s.http }

// ServeGRPC answers public gRPC calls on lis until Stop, and returns nil then.
func (s *Service) ServeGRPC(lis net.Listener) error { return s.servers.serve(lis) }

// Start lets REST reach the gRPC server, and begins to drop old answers.
func (s *Service) Start(ctx context.Context) error {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.done.Go(func() {
		if err := s.servers.serveInside(); err != nil {
			s.deps.Log.ErrorContext(ctx, "serving the API within the process", "error", err)
		}
	})
	s.done.Go(func() {
		clock.Every(ctx, s.cfg.PruneEvery, func(ctx context.Context) {
			if err := s.answers.Prune(ctx); err != nil && ctx.Err() == nil {
				s.deps.Log.WarnContext(ctx, "dropping old answers", "error", err)
			}
		})
	})
	return nil
}

// Ready reports whether calls can be answered: keys are in the database.
func (s *Service) Ready(ctx context.Context) error { return s.deps.DB.Ping(ctx) }

// streamGrace is how long streams may go on after the beginning of a stop.
const streamGrace = 2 * time.Second

// Stop says goodbye to watches and lets calls finish until the end of ctx. The HTTP
// server has to be shutting down already.
func (s *Service) Stop(ctx context.Context) error {
	var err error
	s.once.Do(func() {
		close(s.stopping)
		// A stream whose owner is stopping too has been told already; it ends when the answers under way are there.
		leave := time.AfterFunc(streamGrace, s.gate.Close)
		err = s.servers.stop(ctx)
		leave.Stop()
		s.gate.Close()
		s.hub.Close()
		if s.cancel != nil {
			s.cancel()
		}
		s.done.Wait()
	})
	return err
}
