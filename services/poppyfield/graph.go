package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/platform/limit/gossip"
	"github.com/poppyfield/poppyfield/internal/platform/module"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/services/conversations"
	"github.com/poppyfield/poppyfield/services/discovery"
	"github.com/poppyfield/poppyfield/services/relay"
	"github.com/poppyfield/poppyfield/services/sessions"
)

// callers is the table of who may call which gRPC service inside the installation:
// the trust boundaries of ARCHITECTURE.md in code. What isn't here can't be called.
func callers() rpc.Allow {
	onlyAdmin := []string{adminName}
	return rpc.Allow{
		directoryv1.DirectoryService_ServiceDesc.ServiceName: {relayName, discoveryName, authName, sessionsName, conversationsName},
		sessionsv1.SessionsService_ServiceDesc.ServiceName:   {authName, conversationsName},
		// Only who signs Users in may say that somebody did.
		sessionsv1.SignInsService_ServiceDesc.ServiceName:     {authName},
		sessionsv1.ConnectionsService_ServiceDesc.ServiceName: {authName},
		relayv1.EgressService_ServiceDesc.ServiceName:         {authName, discoveryName},
		relayv1.SignInService_ServiceDesc.ServiceName:         {authName},
		relayv1.DeliveryService_ServiceDesc.ServiceName:       {conversationsName, discoveryName},

		adminv1.CompanyService_ServiceDesc.ServiceName:         onlyAdmin,
		adminv1.DomainService_ServiceDesc.ServiceName:          onlyAdmin,
		adminv1.SignInSetupService_ServiceDesc.ServiceName:     onlyAdmin,
		adminv1.LoginService_ServiceDesc.ServiceName:           onlyAdmin,
		adminv1.ConnectedAgentService_ServiceDesc.ServiceName:  onlyAdmin,
		adminv1.BackendService_ServiceDesc.ServiceName:         onlyAdmin,
		adminv1.AdmissionService_ServiceDesc.ServiceName:       onlyAdmin,
		adminv1.SessionService_ServiceDesc.ServiceName:         onlyAdmin,
		adminv1.AccessService_ServiceDesc.ServiceName:          onlyAdmin,
		adminv1.ConversationService_ServiceDesc.ServiceName:    onlyAdmin,
		adminv1.BackendDeliveryService_ServiceDesc.ServiceName: onlyAdmin,
		adminv1.BackendStreamService_ServiceDesc.ServiceName:   onlyAdmin,
		adminv1.InboxService_ServiceDesc.ServiceName:           onlyAdmin,
		adminv1.WebhookEndpointService_ServiceDesc.ServiceName: onlyAdmin,
		adminv1.WebhookDeliveryService_ServiceDesc.ServiceName: onlyAdmin,
		adminv1.AttemptService_ServiceDesc.ServiceName:         onlyAdmin,
		adminv1.UsageService_ServiceDesc.ServiceName:           onlyAdmin,
	}
}

// parts are what the services of a process share.
type parts struct {
	db      *db.DB
	bus     *bus.Bus
	keys    *keys.Ring
	egress  *egress.Client
	now     clock.Clock
	log     *slog.Logger
	traces  trace.TracerProvider
	metrics metric.MeterProvider
	// adminTLS is the certificate of the gRPC API where the configuration names none.
	adminTLS *tls.Config
	// auth, sessions and conversations are what those services are configured with beside cfg.
	auth          auth.Config
	sessions      sessions.Config
	conversations conversations.Config
	replayTimeout time.Duration
}

// graph is the services of this process and how they reach each other and the
// services of other processes: always by gRPC, in memory or over TCP.
type graph struct {
	cfg     Config
	parts   parts
	server  *rpc.Server
	conns   []*grpc.ClientConn
	modules []module.Module
	// drains are called when the process is about to go, before anything stops.
	drains []func()
	routes []publicweb.Route
	admin  *admin.Service
	public *directory.Client
	events *outbox.Recorder
	// limits count together with those of other processes.
	limits    *gossip.Group
	addresses *limit.Limiter // of all public endpoints
	usage     *usage.Meter
}

func newGraph(ctx context.Context, cfg Config, p parts) (*graph, error) {
	serverTLS, err := internalTLS(cfg)
	if err != nil {
		return nil, err
	}
	if p.metrics != nil {
		if err := p.bus.Measure(p.metrics); err != nil {
			return nil, err
		}
	}
	g := &graph{cfg: cfg, parts: p, usage: usage.New(p.db, p.now, p.log)}
	if g.limits, err = gossip.New(p.bus, cfg.Internal.secret, p.now, p.log); err != nil {
		return nil, err
	}
	if g.addresses, err = g.limits.Limiter("addresses"); err != nil {
		return nil, err
	}
	g.modules = append(g.modules,
		module.Module{Name: "limits", Start: g.limits.Start, Stop: g.limits.Stop},
		module.Module{Name: "usage", Start: g.usage.Start, Stop: g.usage.Stop})
	g.server, err = rpc.NewServer(rpc.ServerConfig{
		Name: "internal", Secret: cfg.Internal.secret, Allow: callers(), Log: p.log, TLS: serverTLS, TracerProvider: p.traces,
	})
	if err != nil {
		return nil, err
	}
	for _, add := range []struct {
		name string
		fn   func(context.Context) error
	}{
		{relayName, g.addRelay},
		{discoveryName, g.addDiscovery},
		{sessionsName, g.addSessions},
		{authName, g.addAuth},
		{conversationsName, g.addConversations},
		{adminName, g.addAdmin},
	} {
		if !cfg.has(add.name) {
			continue
		}
		if err := add.fn(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", add.name, err), g.close())
		}
	}
	return g, nil
}

// dial returns caller's connection to the service named callee.
func (g *graph) dial(caller, callee string) (*grpc.ClientConn, error) {
	var cc *grpc.ClientConn
	var err error
	if g.cfg.has(callee) {
		cc, err = g.server.Dial(caller)
	} else {
		var conf *tls.Config
		if conf, err = internalTLS(g.cfg); err != nil {
			return nil, err
		}
		cc, err = rpc.Dial(g.cfg.Internal.Targets[callee], rpc.ClientConfig{Caller: caller, Secret: g.cfg.Internal.secret, TLS: conf, TracerProvider: g.parts.traces})
	}
	if err == nil {
		g.conns = append(g.conns, cc)
	}
	return cc, err
}

// directory returns caller's view of the Companies, refreshed by the bus.
func (g *graph) directory(caller string) (*directory.Client, error) {
	cc, err := g.dial(caller, discoveryName)
	if err != nil {
		return nil, err
	}
	c := directory.New(directoryv1.NewDirectoryServiceClient(cc), g.parts.now)
	_, err = g.parts.bus.Subscribe(bus.AllCompanies, func(context.Context, string, []byte) { c.Forget() })
	if g.public == nil {
		g.public = c
	}
	return c, err
}

// recorder tells the Companies' listeners of events; the services of a process share it.
func (g *graph) recorder() (*outbox.Recorder, error) {
	if g.events != nil {
		return g.events, nil
	}
	r, err := outbox.New(g.parts.db, g.parts.bus, g.parts.now, g.parts.log)
	if err != nil {
		return nil, err
	}
	g.events = r
	g.modules = append(g.modules, module.Module{Name: "events", Start: r.Start, Stop: r.Stop})
	return r, nil
}

func (g *graph) addRelay(context.Context) error {
	dir, err := g.directory(relayName)
	if err != nil {
		return err
	}
	events, err := g.recorder()
	if err != nil {
		return err
	}
	s, err := relay.New(relay.Deps{
		DB: g.parts.db, Bus: g.parts.bus, Egress: g.parts.egress, Keys: g.parts.keys, Now: g.parts.now, Log: g.parts.log,
		Events: events, Directory: dir, MeterProvider: g.parts.metrics,
	})
	if err != nil {
		return err
	}
	s.Register(g.server)
	g.modules = append(g.modules, module.Module{Name: relayName, Start: s.Start, Stop: s.Stop})
	return nil
}

func (g *graph) addDiscovery(context.Context) error {
	cc, err := g.dial(discoveryName, relayName)
	if err != nil {
		return err
	}
	if _, err := g.directory(discoveryName); err != nil {
		return err
	}
	s := discovery.New(discovery.Config{HostedDomain: g.cfg.HostedDomain, Bounds: g.cfg.Bounds, EgressAddresses: g.cfg.Egress.Addresses}, discovery.Deps{
		DB: g.parts.db, Bus: g.parts.bus, Egress: relayv1.NewEgressServiceClient(cc), Deliveries: relayv1.NewDeliveryServiceClient(cc),
		Keys: g.parts.keys, Now: g.parts.now, Log: g.parts.log,
	})
	s.Register(g.server)
	g.routes = append(g.routes, s.Routes()...)
	g.modules = append(g.modules, module.Module{Name: discoveryName, Start: s.Start, Stop: s.Stop})
	return nil
}

func (g *graph) addSessions(ctx context.Context) error {
	dir, err := g.directory(sessionsName)
	if err != nil {
		return err
	}
	fresh, err := sessions.NothingIssued(ctx, g.parts.db)
	if err != nil {
		return err
	}
	memory, err := replay.Open(ctx, g.parts.bus.JetStream(), replay.Config{
		Replicas: max(g.cfg.NATS.Replicas, 1), Now: g.parts.now, Timeout: g.parts.replayTimeout, Ahead: oauth.Skew, Fresh: fresh,
	})
	if err != nil {
		return err
	}
	events, err := g.recorder()
	if err != nil {
		return err
	}
	starts, err := g.limits.Limiter("starts")
	if err != nil {
		return err
	}
	requests, err := g.limits.Limiter("requests")
	if err != nil {
		return err
	}
	s, err := sessions.New(g.parts.sessions, sessions.Deps{
		DB: g.parts.db, Bus: g.parts.bus, Replay: memory, Keys: g.parts.keys, Directory: dir, Now: g.parts.now, Log: g.parts.log,
		Events: events, Starts: starts, Requests: requests, Usage: g.usage, MeterProvider: g.parts.metrics,
	})
	if err != nil {
		return err
	}
	s.Register(g.server)
	g.modules = append(g.modules, module.Module{Name: sessionsName, Start: s.Start, Ready: s.Ready, Stop: s.Stop})
	return nil
}

func (g *graph) addAuth(context.Context) error {
	toSessions, err := g.dial(authName, sessionsName)
	if err != nil {
		return err
	}
	toRelay, err := g.dial(authName, relayName)
	if err != nil {
		return err
	}
	dir, err := g.directory(authName)
	if err != nil {
		return err
	}
	endpoints, err := g.limits.Limiter("oauth")
	if err != nil {
		return err
	}
	pages, err := g.limits.Limiter("pages")
	if err != nil {
		return err
	}
	conf := g.parts.auth
	conf.TrustedProxies = g.cfg.TrustedProxies
	s, err := auth.New(conf, auth.Deps{
		DB: g.parts.db, Keys: g.parts.keys, Sessions: sessionsv1.NewSessionsServiceClient(toSessions),
		SignIns: sessionsv1.NewSignInsServiceClient(toSessions), Connections: sessionsv1.NewConnectionsServiceClient(toSessions),
		Egress: relayv1.NewEgressServiceClient(toRelay), RelaySignIn: relayv1.NewSignInServiceClient(toRelay),
		Directory: dir, Endpoints: endpoints, Pages: pages, Now: g.parts.now, Log: g.parts.log,
	})
	if err != nil {
		return err
	}
	s.Register(g.server)
	g.routes = append(g.routes, s.Routes()...)
	g.modules = append(g.modules, module.Module{Name: authName, Start: s.Start, Stop: s.Stop})
	return nil
}

func (g *graph) addConversations(context.Context) error {
	toSessions, err := g.dial(conversationsName, sessionsName)
	if err != nil {
		return err
	}
	toRelay, err := g.dial(conversationsName, relayName)
	if err != nil {
		return err
	}
	dir, err := g.directory(conversationsName)
	if err != nil {
		return err
	}
	events, err := g.recorder()
	if err != nil {
		return err
	}
	cfg := g.parts.conversations
	cfg.Streams.Readers.Most = cmp.Or(cfg.Streams.Readers.Most, g.cfg.MaxReaders)
	s, err := conversations.New(cfg, conversations.Deps{
		DB: g.parts.db, Bus: g.parts.bus, Directory: dir, Events: events, Usage: g.usage,
		Sessions: sessionsv1.NewSessionsServiceClient(toSessions), Deliveries: relayv1.NewDeliveryServiceClient(toRelay),
		Now: g.parts.now, Log: g.parts.log, TracerProvider: g.parts.traces, MeterProvider: g.parts.metrics,
	})
	if err != nil {
		return err
	}
	s.Register(g.server)
	g.routes = append(g.routes, s.Routes()...)
	g.drains = append(g.drains, s.BeginDrain)
	g.modules = append(g.modules, module.Module{Name: conversationsName, Start: s.Start, Ready: s.Ready, Stop: s.Stop})
	return nil
}

func (g *graph) addAdmin(ctx context.Context) error {
	var owners admin.Owners
	for name, to := range map[string]*grpc.ClientConnInterface{
		discoveryName: &owners.Discovery, authName: &owners.Auth, relayName: &owners.Relay, sessionsName: &owners.Sessions, conversationsName: &owners.Conversations,
	} {
		cc, err := g.dial(adminName, name)
		if err != nil {
			return err
		}
		*to = cc
	}
	conf, err := g.cfg.Admin.tls()
	if err != nil {
		return err
	}
	if g.parts.adminTLS != nil {
		conf = g.parts.adminTLS
	}
	calls, err := g.limits.Limiter("admin")
	if err != nil {
		return err
	}
	s, err := admin.New(ctx, admin.Config{TLS: conf, TrustedProxies: g.cfg.TrustedProxies, HSTS: true}, admin.Deps{
		DB: g.parts.db, Bus: g.parts.bus, Keys: g.parts.keys, Owners: owners, Limiter: calls, Now: g.parts.now, Log: g.parts.log,
		TracerProvider: g.parts.traces, MeterProvider: g.parts.metrics,
	})
	if err != nil {
		return err
	}
	g.admin = s
	g.modules = append(g.modules, module.Module{Name: adminName, Start: s.Start, Ready: s.Ready, Stop: s.Stop})
	return nil
}

// requestsPerAddress is what one client address may ask of one Company in a minute unless
// the configuration says otherwise. A Personal Agent speaks for many Users from few addresses.
const requestsPerAddress = 60_000

// router is the public surface of the services in this process; nil when there is none.
func (g *graph) router() *publicweb.Router {
	if len(g.routes) == 0 {
		return nil
	}
	return publicweb.New(g.public, g.routes).Bound(publicweb.Flood{
		Limiter: g.addresses, PerMinute: cmp.Or(g.cfg.RequestsPerAddress, requestsPerAddress), TrustedProxies: g.cfg.TrustedProxies, Now: g.parts.now,
	})
}

func (g *graph) close() error {
	var errs []error
	for _, cc := range g.conns {
		errs = append(errs, cc.Close())
	}
	return errors.Join(errs...)
}
