package relay_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/devca"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/relay"
	"github.com/poppyfield/poppyfield/services/relay/queue"
	"github.com/poppyfield/poppyfield/services/relay/store"
)

// zone is the DNS of a test: addresses by name. A name that isn't in it does not exist.
type zone struct {
	mu sync.Mutex
	a  map[string]string
}

func (z *zone) set(name, addr string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.a[name+"."] = addr
}

func (z *zone) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	switch addr := z.a[host]; addr {
	case "":
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	case "fails":
		return nil, &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
	default:
		return []netip.Addr{netip.MustParseAddr(addr)}, nil
	}
}

func (z *zone) LookupTXT(_ context.Context, name string) ([]string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	switch text := z.a["txt "+name]; text {
	case "":
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	case "fails":
		return nil, &net.DNSError{Err: "server misbehaving", Name: name, IsTemporary: true}
	default:
		return strings.Split(text, "|"), nil
	}
}

// delivery is a webhook as a backend got it.
type delivery struct {
	shown  []*x509.Certificate
	host   string
	path   string
	header http.Header
	body   []byte
}

// site is a TLS server with a name that answers as a test says.
type site struct {
	name    string
	addr    string
	accepts atomic.Int64

	mu     sync.Mutex
	answer http.HandlerFunc
	got    []delivery
}

func newSite(t testing.TB, ca *devca.CA, name string) *site {
	t.Helper()
	s := &site{name: name, answer: func(http.ResponseWriter, *http.Request) {}}
	server := httptest.NewUnstartedServer(s)
	server.TLS = ca.ServerConfig(func(n string) bool { return n == name })
	server.TLS.ClientAuth = tls.RequestClientCert
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.accepts.Add(1)
		}
	}
	server.StartTLS()
	server.TLS.Certificates = nil
	t.Cleanup(server.Close)
	s.addr = server.Listener.Addr().String()
	return s
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.got = append(s.got, delivery{shown: r.TLS.PeerCertificates, host: r.Host, path: r.Method + " " + r.URL.Path, header: r.Header, body: body})
	answer := s.answer
	s.mu.Unlock()
	answer(w, r)
}

func (s *site) answers(fn http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = fn
}

// with answers with a status, header fields in pairs, and a body.
func (s *site) with(status int, body string, header ...string) {
	s.answers(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

func (s *site) deliveries() []delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]delivery(nil), s.got...)
}

// last returns the newest delivery.
func (s *site) last(t testing.TB) delivery {
	t.Helper()
	all := s.deliveries()
	require.NotEmpty(t, all)
	return all[len(all)-1]
}

// rig is relay with everything it runs on, reached as other services reach it.
type rig struct {
	db         *db.DB
	clock      *clock.Manual
	zone       *zone
	site, new  *site
	backends   adminv1.BackendServiceClient
	deliveries relayv1.DeliveryServiceClient
	egress     relayv1.EgressServiceClient
	signIns    relayv1.SignInServiceClient
	endpoints  adminv1.WebhookEndpointServiceClient
	attempts   adminv1.AttemptServiceClient
	webhooks   adminv1.WebhookDeliveryServiceClient
	service    *relay.Service
	events     *outbox.Recorder
	told       *told
	scope      tenancy.Scope
	bus        *bus.Bus
}

func each(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { fn(t, newRigOn(t, d)) })
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigOn(t, dbtest.SQLite(t))
}

const caller = "test"

func newRigOn(t testing.TB, d *db.DB) *rig {
	t.Helper()
	ca, err := devca.Load(t.TempDir(), time.Now)
	require.NoError(t, err)
	r := &rig{
		db: d, zone: &zone{a: map[string]string{}}, site: newSite(t, ca, "backend.example"), new: newSite(t, ca, "new.example"), scope: dbtest.Company(t, d),
		told: newTold(),
		// Verifiers that know no other clock look at the system's.
		clock: clock.NewManual(time.Now()),
	}
	// A port that was just free has nobody listening.
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	hosts, err := egress.ParseDevHosts([]string{"backend.example=" + r.site.addr, "new.example=" + r.new.addr, "refused.example=" + closed.Addr().String(), "untrusted.example=" + r.site.addr})
	require.NoError(t, err)
	roots, err := egress.LoadRootsPEM(ca.PEM())
	require.NoError(t, err)
	client, err := egress.New(egress.Config{
		UserAgent: "poppyfield-test", Now: time.Now, Resolver: r.zone, Roots: roots, TracerProvider: r.told.tracing, MeterProvider: r.told.metering,
	}, egress.NewGuard(egress.GuardConfig{DevHosts: hosts}))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	root := make([]byte, keys.RootSize)
	_, _ = rand.Read(root) // never fails
	ring, err := keys.NewRing(1, map[byte][]byte{1: root})
	require.NoError(t, err)

	allow := rpc.Allow{}
	for _, name := range []string{adminv1.WebhookEndpointService_ServiceDesc.ServiceName, adminv1.WebhookDeliveryService_ServiceDesc.ServiceName, adminv1.AttemptService_ServiceDesc.ServiceName, adminv1.BackendService_ServiceDesc.ServiceName, relayv1.DeliveryService_ServiceDesc.ServiceName, relayv1.EgressService_ServiceDesc.ServiceName, relayv1.SignInService_ServiceDesc.ServiceName} {
		allow[name] = []string{caller}
	}
	server, err := rpc.NewServer(rpc.ServerConfig{Name: "test", Secret: "0123456789abcdef0123456789abcdef", Allow: allow, Log: r.told.logger, TracerProvider: r.told.tracing})
	require.NoError(t, err)
	r.bus, err = bus.Connect(t.Context(), bus.Config{Embedded: &bus.Embedded{StoreDir: t.TempDir()}})
	require.NoError(t, err)
	t.Cleanup(r.bus.Close)
	r.events, err = outbox.New(d, r.bus, r.clock.Now, r.told.logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.events.Stop(context.Background()) })
	r.service, err = relay.New(relay.Deps{
		DB: d, Bus: r.bus, Egress: client, Keys: ring, Now: r.clock.Now, Log: r.told.logger, Events: r.events, MeterProvider: r.told.metering,
		Queue: queue.Config{Sweep: 20 * time.Millisecond, Unpark: 20 * time.Millisecond, Jitter: func() float64 { return 0.5 }},
	})
	require.NoError(t, err)
	r.service.Register(server)
	require.NoError(t, r.service.Start(t.Context()))
	t.Cleanup(func() { _ = r.service.Stop(context.Background()) })
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(nil) }()
	t.Cleanup(func() { server.Stop(); <-done })
	conn, err := server.Dial(caller)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	r.backends, r.deliveries, r.egress = adminv1.NewBackendServiceClient(conn), relayv1.NewDeliveryServiceClient(conn), relayv1.NewEgressServiceClient(conn)
	r.signIns = relayv1.NewSignInServiceClient(conn)
	r.webhooks = adminv1.NewWebhookDeliveryServiceClient(conn)
	r.endpoints, r.attempts = adminv1.NewWebhookEndpointServiceClient(conn), adminv1.NewAttemptServiceClient(conn)
	return r
}

func (r *rig) ctx(t testing.TB) context.Context { return tenancy.Into(t.Context(), r.scope) }

func (r *rig) name() string { return r.scope.Name() + "/backend" }

// update changes the backend.
func (r *rig) update(t testing.TB, b *adminv1.Backend) *adminv1.Backend {
	t.Helper()
	b.Name = r.name()
	got, err := r.backends.UpdateBackend(r.ctx(t), &adminv1.UpdateBackendRequest{Backend: b})
	require.NoError(t, err)
	return got
}

// backend returns the backend as stored.
func (r *rig) backend(t testing.TB) *adminv1.Backend {
	t.Helper()
	got, err := r.backends.GetBackend(r.ctx(t), &adminv1.GetBackendRequest{Name: r.name()})
	require.NoError(t, err)
	return got
}

// point sets the backend's URL to a path of the site.
func (r *rig) point(t testing.TB) {
	t.Helper()
	r.update(t, &adminv1.Backend{Url: "https://backend.example/hook"})
}

func (r *rig) store() *store.Store { return store.New(r.db, r.events, r.clock.Now) }

// enable turns the backend on.
func (r *rig) enable(t testing.TB) {
	t.Helper()
	_, err := r.backends.EnableBackend(r.ctx(t), &adminv1.EnableBackendRequest{Name: r.name()})
	require.NoError(t, err)
}

// deliver makes an attempt.
func (r *rig) deliver(t testing.TB, id, body string) *relayv1.DeliverResponse {
	t.Helper()
	return r.attempt(t, &relayv1.DeliverRequest{DeliveryId: id, Body: []byte(body)})
}

// attempt makes an attempt and returns its result; pieces before it are dropped.
func (r *rig) attempt(t testing.TB, req *relayv1.DeliverRequest) *relayv1.DeliverResponse {
	t.Helper()
	_, got := r.frames(t, req)
	return got
}

// frames makes an attempt and returns the pieces and the result.
func (r *rig) frames(t testing.TB, req *relayv1.DeliverRequest) ([]string, *relayv1.DeliverResponse) {
	t.Helper()
	stream, err := r.deliveries.Deliver(r.ctx(t), req)
	require.NoError(t, err)
	var pieces []string
	for {
		got, err := stream.Recv()
		require.NoError(t, err)
		if got.GetOutcome() == relayv1.DeliverOutcome_DELIVER_OUTCOME_UNSPECIFIED {
			pieces = append(pieces, got.GetTextDelta())
			continue
		}
		_, err = stream.Recv()
		require.ErrorIs(t, err, io.EOF, "the result is the last frame")
		return pieces, got
	}
}

func requireReason(t testing.TB, err error, reason problem.Reason, fields ...string) {
	t.Helper()
	require.True(t, problem.Is(err, reason), "%v", err)
	var got []string
	for _, f := range problem.As(err).Fields {
		got = append(got, f.Path)
	}
	if fields != nil {
		require.Equal(t, fields, got)
	}
}
