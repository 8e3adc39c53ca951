package relaybench_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/conversations"
	"github.com/poppyfield/poppyfield/services/relay"
	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/peer"
	"github.com/poppyfield/poppyfield/test/pgtest"
)

const caller = "bench"

// rig is conversations and relay in one process, joined as in production; only the
// directory and the judge of tokens are scripted.
type rig struct {
	db        *db.DB
	dsn       string
	super     *pgx.Conn // sees all rows
	egress    *egress.Client
	backend   *backend
	setup     adminv1.BackendServiceClient
	companies *fixture.Companies
	directory *directory.Client
	sessions  *sessions
	address   string // of the public server
	authority string // the file with the CA of the backends' certificate
	floor     *floor
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := pgtest.Start(t, pgtest.Options{Durable: true})
	r := &rig{companies: &fixture.Companies{}, sessions: &sessions{}, dsn: server.Database(t, "bench")}
	var err error
	r.db, err = db.Open(db.Config{DSN: r.dsn})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.db.Close() })
	require.NoError(t, r.db.Migrate(t.Context()))
	r.super, err = pgx.Connect(t.Context(), strings.Replace(r.dsn, "//"+pgtest.Role+"@", "//postgres@", 1))
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.super.Close(context.WithoutCancel(t.Context())) })
	r.reachBackends(t)
	r.serve(t)
	return r
}

// names are the hosts of all Companies' backends.
func names() (reached, refused []string) {
	for n := range good + 2 {
		reached = append(reached, backendName("good", n))
	}
	for n := range rounds {
		reached, refused = append(reached, backendName("hang", n)), append(refused, backendName("refuse", n))
	}
	return reached, refused
}

func backendName(kind string, n int) string { return fmt.Sprintf("%s%d.bench.test", kind, n) }

func (r *rig) reachBackends(t *testing.T) {
	t.Helper()
	reached, refused := names()
	certificate := peer.NewCertificate(t, reached...)
	r.backend, r.authority = startBackend(t, certificate), certificate.CA
	// A port that was just free has nobody listening.
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	var hosts []string
	for _, name := range reached {
		hosts = append(hosts, name+"="+r.backend.address)
	}
	for _, name := range refused {
		hosts = append(hosts, name+"="+closed.Addr().String())
	}
	dev, err := egress.ParseDevHosts(hosts)
	require.NoError(t, err)
	roots, err := egress.LoadRoots([]string{certificate.CA})
	require.NoError(t, err)
	r.egress, err = egress.New(egress.Config{UserAgent: "poppyfield-bench", Now: time.Now, Roots: roots}, egress.NewGuard(egress.GuardConfig{DevHosts: dev}))
	require.NoError(t, err)
	t.Cleanup(r.egress.Close)
}

// dropped takes a log, which costs its lines to be made.
type dropped struct{}

// Write implements io.Writer.
func (dropped) Write(p []byte) (int, error) { return len(p), nil }

// serve starts both services and the public server.
func (r *rig) serve(t *testing.T) {
	t.Helper()
	log := slog.New(slog.NewJSONHandler(dropped{}, nil))
	b, err := bus.Connect(t.Context(), bus.Config{Embedded: &bus.Embedded{StoreDir: t.TempDir()}, Log: log})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	root := make([]byte, keys.RootSize)
	_, _ = rand.Read(root) // never fails
	ring, err := keys.NewRing(1, map[byte][]byte{1: root})
	require.NoError(t, err)
	server, conn := r.internal(t, log)
	r.directory = directory.New(directoryv1.NewDirectoryServiceClient(conn), clock.System)
	events, err := outbox.New(r.db, b, clock.System, log)
	require.NoError(t, err)
	t.Cleanup(func() { _ = events.Stop(context.WithoutCancel(t.Context())) })
	out, err := relay.New(relay.Deps{
		DB: r.db, Bus: b, Egress: r.egress, Keys: ring, Now: clock.System, Log: log, Events: events, Directory: r.directory,
	})
	require.NoError(t, err)
	out.Register(server)
	talk, err := conversations.New(conversations.Config{}, conversations.Deps{
		DB: r.db, Bus: b, Directory: r.directory, Events: events, Now: clock.System, Log: log,
		Sessions: sessionsv1.NewSessionsServiceClient(conn), Deliveries: relayv1.NewDeliveryServiceClient(conn),
	})
	require.NoError(t, err)
	talk.Register(server)
	go func() { _ = server.Serve(nil) }() // ends with Stop
	t.Cleanup(server.Stop)
	require.NoError(t, events.Start(t.Context()))
	for _, s := range []interface {
		Start(ctx context.Context) error
		Stop(ctx context.Context) error
	}{out, talk} {
		require.NoError(t, s.Start(t.Context()))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
			defer cancel()
			_ = s.Stop(ctx)
		})
	}
	r.listen(t, log, talk)
}

// internal makes the server of the internal calls and a connection to it.
func (r *rig) internal(t *testing.T, log *slog.Logger) (*rpc.Server, *grpc.ClientConn) {
	t.Helper()
	allow := rpc.Allow{}
	for _, name := range []string{
		directoryv1.DirectoryService_ServiceDesc.ServiceName, sessionsv1.SessionsService_ServiceDesc.ServiceName,
		relayv1.DeliveryService_ServiceDesc.ServiceName, relayv1.EgressService_ServiceDesc.ServiceName, relayv1.SignInService_ServiceDesc.ServiceName,
		adminv1.BackendService_ServiceDesc.ServiceName, adminv1.WebhookEndpointService_ServiceDesc.ServiceName,
		adminv1.WebhookDeliveryService_ServiceDesc.ServiceName, adminv1.AttemptService_ServiceDesc.ServiceName,
		adminv1.ConversationService_ServiceDesc.ServiceName, adminv1.InboxService_ServiceDesc.ServiceName,
		adminv1.BackendStreamService_ServiceDesc.ServiceName, adminv1.BackendDeliveryService_ServiceDesc.ServiceName,
	} {
		allow[name] = []string{caller}
	}
	server, err := rpc.NewServer(rpc.ServerConfig{Name: "internal", Secret: "0123456789abcdef0123456789abcdef", Allow: allow, Log: log})
	require.NoError(t, err)
	directoryv1.RegisterDirectoryServiceServer(server, r.companies)
	sessionsv1.RegisterSessionsServiceServer(server, r.sessions)
	conn, err := server.Dial(caller)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	r.setup = adminv1.NewBackendServiceClient(conn)
	return server, conn
}

func (r *rig) listen(t *testing.T, log *slog.Logger, s *conversations.Service) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	r.address = l.Addr().String()
	web := httpx.NewServer(context.WithoutCancel(t.Context()), httpx.Config{Log: log, Handler: httpx.Standard(publicweb.New(r.directory, s.Routes()), httpx.Options{
		Name: "public", Log: log, NewID: func() string { return ids.New(ids.Request) },
	})})
	go func() { _ = web.Serve(l) }() // ends with Shutdown
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = web.Shutdown(ctx)
	})
}

// company is a Company whose backend is at a name.
type company struct {
	scope tenancy.Scope
	host  string
}

func (r *rig) newCompany(t *testing.T, backend string) *company {
	t.Helper()
	c := &company{scope: dbtest.Company(t, r.db)}
	id := c.scope.CompanyID()
	slug := "c-" + id[len(id)-12:]
	c.host = slug + ".poppyfield.test"
	r.companies.Put(c.host, &directoryv1.CompanySnapshot{
		CompanyId: id, Slug: slug, DisplayName: slug, Issuer: "https://" + c.host, Active: true, ConversationsEnabled: true,
		SessionTokenLifetime: durationpb.New(time.Hour), SessionIdleLifetime: durationpb.New(7 * 24 * time.Hour), AnswerDeadline: durationpb.New(time.Minute),
	})
	r.directory.Forget()
	_, err := r.setup.UpdateBackend(tenancy.Into(t.Context(), c.scope), &adminv1.UpdateBackendRequest{
		Backend: &adminv1.Backend{Name: c.scope.Name() + "/backend", Url: "https://" + backend + "/webhook"},
	})
	require.NoError(t, err)
	return c
}

// sessions is the judge of tokens: each that it made is good.
type sessions struct {
	sessionsv1.UnimplementedSessionsServiceServer
	known sync.Map // token -> *sessionsv1.VerifyRequestResponse
}

func (s *sessions) open() (token string) {
	token = ids.New("tok")
	s.known.Store("DPoP "+token, &sessionsv1.VerifyRequestResponse{
		SessionId: ids.New(ids.Session), ClientId: "https://agent.example/agent.json", AgentName: "Example Agent", UserId: ids.New("usr"), Scopes: []string{},
	})
	return token
}

// VerifyRequest implements the service.
func (s *sessions) VerifyRequest(_ context.Context, req *sessionsv1.VerifyRequestRequest) (*sessionsv1.VerifyRequestResponse, error) {
	if len(req.GetAuthorization()) == 1 {
		if got, ok := s.known.Load(req.GetAuthorization()[0]); ok {
			return got.(*sessionsv1.VerifyRequestResponse), nil
		}
	}
	return nil, problem.New(problem.Unauthenticated, problem.InvalidToken, "", "the token is not known")
}
