package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/module"
	"github.com/poppyfield/poppyfield/internal/platform/telemetry"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/services/conversations"
	"github.com/poppyfield/poppyfield/services/sessions"
)

// stopTimeout bounds a graceful end: long polls answer at once, so what is left are requests and deliveries under way.
const stopTimeout = 9 * time.Second

// surface is an HTTP listener of the process and what it serves.
type surface struct {
	name    string
	lis     net.Listener
	handler http.Handler
	tls     *tls.Config
}

// process is a running set of services.
type process struct {
	cfg     Config
	tel     *telemetry.Telemetry
	db      *db.DB
	bus     *bus.Bus
	egress  *egress.Client
	graph   *graph
	group   *module.Group
	drainer *httpx.Drainer
	failed  chan error
	servers []*httpx.Server
}

type processOptions struct {
	devHosts  egress.DevHosts
	roots     *x509.CertPool
	migrate   bool
	logWriter io.Writer
	adminTLS  *tls.Config
	// auth, sessions and conversations tune those services; zero is their defaults.
	auth          auth.Config
	sessions      sessions.Config
	conversations conversations.Config
	// replayTimeout bounds a look into the replay memory; 0 is its default.
	replayTimeout time.Duration
}

// newProcess opens everything and wires the services; nothing serves yet.
func newProcess(ctx context.Context, cfg Config, o processOptions) (_ *process, err error) {
	p := &process{cfg: cfg, failed: make(chan error, 8), drainer: httpx.NewDrainer()}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(context.WithoutCancel(ctx)))
		}
	}()
	var level slog.Level
	if cfg.LogLevel != "" {
		if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
			return nil, fmt.Errorf("log_level: %w", err)
		}
	}
	host, _ := os.Hostname()
	p.tel, err = telemetry.Setup(ctx, telemetry.Config{
		Service: "poppyfield", Version: version, Instance: host, LogFormat: cfg.LogFormat, LogLevel: level, LogWriter: o.logWriter,
		OTLPEndpoint: cfg.OTLPEndpoint, Getenv: os.Getenv,
	})
	if err != nil {
		return nil, err
	}
	p.tel.SetGlobal()
	ring, err := keys.LoadRing(cfg.KeysFile)
	if err != nil {
		return nil, err
	}
	if p.db, err = db.Open(db.Config{DSN: cfg.Database.DSN, MaxConns: cfg.Database.MaxConns, TracerProvider: p.tel.TracerProvider()}); err != nil {
		return nil, err
	}
	if o.migrate {
		err = p.db.Migrate(ctx)
	} else {
		err = p.db.Migrated(ctx)
	}
	if err != nil {
		return nil, err
	}
	busCfg := bus.Config{URL: cfg.NATS.URL, CredentialsFile: cfg.NATS.CredentialsFile, CAFile: cfg.NATS.CAFile, Name: "poppyfield " + host, Log: p.tel.Logger()}
	if cfg.NATS.storeDir != "" {
		busCfg.Embedded = &bus.Embedded{StoreDir: cfg.NATS.storeDir}
	}
	if p.bus, err = bus.Connect(ctx, busCfg); err != nil {
		return nil, err
	}
	roots := o.roots
	if roots == nil {
		if roots, err = egress.LoadRoots(cfg.TrustCA); err != nil {
			return nil, err
		}
	}
	p.egress, err = egress.New(egress.Config{
		UserAgent: "Poppyfield/" + version, Roots: roots, Now: clock.System, TracerProvider: p.tel.TracerProvider(), MeterProvider: p.tel.MeterProvider(),
	}, egress.NewGuard(egress.GuardConfig{DevHosts: o.devHosts}))
	if err != nil {
		return nil, err
	}
	p.graph, err = newGraph(ctx, cfg, parts{
		db: p.db, bus: p.bus, keys: ring, egress: p.egress, now: clock.System, log: p.tel.Logger(),
		traces: p.tel.TracerProvider(), metrics: p.tel.MeterProvider(), adminTLS: o.adminTLS,
		auth: o.auth, sessions: o.sessions, conversations: o.conversations, replayTimeout: o.replayTimeout,
	})
	if err != nil {
		return nil, err
	}
	modules := append([]module.Module{
		{Name: "database", Ready: p.db.Ping},
		{Name: "internal rpc", Start: p.startInternal, Stop: p.stopInternal},
	}, p.graph.modules...)
	p.group = module.NewGroup(p.tel.Logger(), modules...)
	p.drainer.OnBegin(p.group.BeginDrain)
	for _, drain := range p.graph.drains {
		p.drainer.OnBegin(drain)
	}
	return p, nil
}

func (p *process) startInternal(context.Context) error {
	var lis net.Listener
	if p.cfg.Internal.Listen != "" {
		var err error
		if lis, err = net.Listen("tcp", p.cfg.Internal.Listen); err != nil {
			return err
		}
	}
	go func() {
		if err := p.graph.server.Serve(lis); err != nil {
			p.failed <- fmt.Errorf("internal rpc: %w", err)
		}
	}()
	return nil
}

func (p *process) stopInternal(context.Context) error {
	p.graph.server.GracefulStop()
	return nil
}

// start starts the services, then the listeners.
func (p *process) start(ctx context.Context, surfaces ...surface) error {
	if err := p.group.Start(ctx); err != nil {
		return err
	}
	for _, s := range surfaces {
		srv := httpx.NewServer(ctx, httpx.Config{Handler: s.handler, Log: p.tel.Logger(), TLS: s.tls, Drainer: p.drainer, DrainDelay: p.cfg.DrainDelay})
		p.servers = append(p.servers, srv)
		go func() {
			if err := srv.Serve(s.lis); err != nil {
				p.failed <- fmt.Errorf("%s: %w", s.name, err)
			}
		}()
	}
	return nil
}

// standard wraps a surface's handler into what every one has.
func (p *process) standard(name string, h http.Handler, maxBody int64, hsts bool) http.Handler {
	return httpx.Standard(h, httpx.Options{
		Name: name, Log: p.tel.Logger(), MaxBody: maxBody, HSTS: hsts, Traces: p.tel.TracerProvider(), Metrics: p.tel.MeterProvider(),
	})
}

// operations serves metrics and health.
func (p *process) operations() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.tel.MetricsHandler())
	mux.Handle("GET /livez", p.group.LivezHandler())
	mux.Handle("GET /readyz", p.group.ReadyzHandler())
	return mux
}

// wait returns when ctx ends or a part fails.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.failed:
		return err
	}
}

// stop ends gracefully: readiness turns false, polls answer, listeners close, then the services end.
func (p *process) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout+p.cfg.DrainDelay)
	defer cancel()
	p.drainer.Begin()
	ends := make(chan error, len(p.servers))
	for _, s := range p.servers {
		go func() { ends <- s.Shutdown(ctx) }()
	}
	var errs []error
	for range p.servers {
		errs = append(errs, <-ends)
	}
	errs = append(errs, p.group.Stop(ctx), p.close(ctx))
	return errors.Join(errs...)
}

// close releases what newProcess opened, in reverse.
func (p *process) close(ctx context.Context) error {
	var errs []error
	if p.graph != nil {
		errs = append(errs, p.graph.close())
	}
	if p.egress != nil {
		p.egress.Close()
	}
	if p.bus != nil {
		errs = append(errs, p.bus.Drain(ctx))
		p.bus.Close()
	}
	if p.db != nil {
		errs = append(errs, p.db.Close())
	}
	if p.tel != nil {
		errs = append(errs, p.tel.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// internalTLS is the mutual TLS of internal calls; nil where it isn't configured.
func internalTLS(cfg Config) (*tls.Config, error) {
	if cfg.Internal.CertFile == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(cfg.Internal.CertFile, cfg.Internal.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("internal certificate: %w", err)
	}
	roots, err := egress.LoadRoots([]string{cfg.Internal.CAFile})
	if err != nil {
		return nil, fmt.Errorf("internal CA: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}, nil
}
