package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

const secret = "0123456789abcdef0123456789abcdef"

// call is what an owner got.
type call struct {
	method  string
	company string
	actor   string
	req     proto.Message
}

// owner answers for every service of the API but the keys, over a real internal server.
type owner struct {
	mu     sync.Mutex
	calls  []call
	answer func(ctx context.Context, m *method.Method, req proto.Message) (proto.Message, error)
	// talk, if there is one, goes on with a stream after its first message.
	talk func(m *method.Method, stream grpc.ServerStream) error
}

func (o *owner) got() []call {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]call(nil), o.calls...)
}

func (o *owner) handle(ctx context.Context, m *method.Method, decode func(any) error) (any, error) {
	req := m.NewInput()
	if err := decode(req); err != nil {
		return nil, err
	}
	return o.take(ctx, m, req)
}

func (o *owner) take(ctx context.Context, m *method.Method, req proto.Message) (proto.Message, error) {
	c := call{method: m.FullName, actor: rpc.Actor(ctx), req: req}
	if scope, err := tenancy.From(ctx); err == nil {
		c.company = scope.CompanyID()
	}
	o.mu.Lock()
	o.calls = append(o.calls, c)
	answer := o.answer
	o.mu.Unlock()
	if answer == nil {
		return m.NewOutput(), nil
	}
	return answer(ctx, m, req)
}

// converse answers a stream's first message like a call, and ends the stream unless talk goes on with it.
func (o *owner) converse(m *method.Method, stream grpc.ServerStream) error {
	req := m.NewInput()
	if err := stream.RecvMsg(req); err != nil {
		return err
	}
	out, err := o.take(stream.Context(), m, req)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(out); err != nil {
		return err
	}
	o.mu.Lock()
	talk := o.talk
	o.mu.Unlock()
	if talk == nil {
		return nil
	}
	return talk(m, stream)
}

func (o *owner) talks(talk func(m *method.Method, stream grpc.ServerStream) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.talk = talk
}

func (o *owner) script(answer func(ctx context.Context, m *method.Method, req proto.Message) (proto.Message, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

func table(t testing.TB) *method.Table {
	t.Helper()
	got, err := method.Load("poppyfield.admin.v1.CompanyService", "poppyfield.admin.v1.DomainService", "poppyfield.admin.v1.BackendService",
		"poppyfield.admin.v1.AdmissionService", "poppyfield.admin.v1.SessionService", "poppyfield.admin.v1.ConversationService", "poppyfield.admin.v1.ApiKeyService",
		"poppyfield.admin.v1.SignInSetupService", "poppyfield.admin.v1.LoginService", "poppyfield.admin.v1.ConnectedAgentService",
		"poppyfield.admin.v1.AccessService", "poppyfield.admin.v1.AttemptService", "poppyfield.admin.v1.BackendDeliveryService", "poppyfield.admin.v1.BackendStreamService",
		"poppyfield.admin.v1.InboxService", "poppyfield.admin.v1.WebhookDeliveryService", "poppyfield.admin.v1.WebhookEndpointService",
		"poppyfield.admin.v1.UsageService")
	require.NoError(t, err)
	return got
}

// serve starts the owner and returns a connection to it.
func (o *owner) serve(t testing.TB) *grpc.ClientConn {
	t.Helper()
	tab := table(t)
	allow := rpc.Allow{}
	for _, name := range tab.Services() {
		allow[string(name)] = []string{"admin"}
	}
	s, err := rpc.NewServer(rpc.ServerConfig{Name: "owner", Secret: secret, Allow: allow, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for _, name := range tab.Services() {
		desc := &grpc.ServiceDesc{ServiceName: string(name), HandlerType: (*any)(nil)}
		for _, m := range tab.Of(name) {
			if m.Stream {
				desc.Streams = append(desc.Streams, grpc.StreamDesc{
					StreamName: string(m.Desc.Name()), ServerStreams: m.Desc.IsStreamingServer(), ClientStreams: m.Desc.IsStreamingClient(),
					Handler: func(_ any, stream grpc.ServerStream) error { return o.converse(m, stream) },
				})
				continue
			}
			desc.Methods = append(desc.Methods, grpc.MethodDesc{
				MethodName: string(m.Desc.Name()),
				Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
					// The interceptors make scope and actor out of metadata, as for any owner.
					return intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: m.FullName}, func(ctx context.Context, _ any) (any, error) {
						return o.handle(ctx, m, decode)
					})
				},
			})
		}
		s.RegisterService(desc, nil)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(nil) }()
	cc, err := s.Dial("admin")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cc.Close()); s.Stop(); <-done })
	return cc
}

// api is a running service with everything around it.
type api struct {
	db       *db.DB
	bus      *bus.Bus
	owner    *owner
	clock    *clock.Manual
	svc      *admin.Service
	http     *httptest.Server
	conn     *grpc.ClientConn
	log      *buffer
	operator string // an operator's key
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// root is the ring whose current root key has that version.
func root(t testing.TB, current byte) *keys.Ring {
	t.Helper()
	ring, err := keys.NewRing(current, map[byte][]byte{1: bytes.Repeat([]byte{7}, keys.RootSize), 2: bytes.Repeat([]byte{8}, keys.RootSize)})
	require.NoError(t, err)
	return ring
}

func start(t testing.TB, d *db.DB, cfg admin.Config) *api {
	t.Helper()
	return startWith(t, d, cfg, root(t, 1))
}

func startWith(t testing.TB, d *db.DB, cfg admin.Config, ring *keys.Ring) *api {
	t.Helper()
	a := &api{db: d, owner: &owner{}, clock: clock.NewManual(time.Now()), log: &buffer{}}
	var err error
	a.bus, err = bus.Connect(t.Context(), bus.Config{Embedded: &bus.Embedded{StoreDir: t.TempDir()}})
	require.NoError(t, err)
	t.Cleanup(a.bus.Close)
	cc := a.owner.serve(t)
	a.svc, err = admin.New(t.Context(), cfg, admin.Deps{
		DB: d, Bus: a.bus, Keys: ring, Now: a.clock.Now,
		Owners: admin.Owners{Discovery: cc, Auth: cc, Relay: cc, Sessions: cc, Conversations: cc},
		// No redaction: what must not be logged must not get there in the first place.
		Log: slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, err)
	require.NoError(t, a.svc.Start(t.Context()))
	a.http = httptest.NewServer(a.svc.HTTP())
	lis := listen(t)
	served := make(chan error, 1)
	go func() { served <- a.svc.ServeGRPC(lis) }()
	a.conn, err = grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.conn.Close())
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, a.svc.Stop(ctx))
		a.http.Close()
		require.NoError(t, <-served)
	})
	a.operator, err = admin.CreateOperatorKey(t.Context(), d, "test", time.Time{})
	require.NoError(t, err)
	return a
}

// key makes a key of the Company.
func (a *api) key(t testing.TB, scope tenancy.Scope, scopes ...string) string {
	t.Helper()
	k := admin.NewKey()
	require.NoError(t, admin.EnsureAPIKey(t.Context(), a.db, scope, "test", k, scopes...))
	return k
}

// answer is an HTTP answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (r answer) json(t testing.TB) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal(r.body, &out), string(r.body))
	return out
}

// problem checks that the answer is a problem document with the reason and returns its members.
func (r answer) problem(t testing.TB, status int, reason string) map[string]any {
	t.Helper()
	require.Equal(t, status, r.status, string(r.body))
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
	p := r.json(t)
	require.Equal(t, reason, p["reason"], string(r.body))
	require.EqualValues(t, status, p["status"])
	require.NotEmpty(t, p["type"])
	require.NotEmpty(t, p["title"])
	require.NotEmpty(t, p["request_id"])
	require.Equal(t, r.header.Get("X-Request-Id"), p["request_id"])
	return p
}

func (r answer) violation(t testing.TB) string {
	t.Helper()
	list, ok := r.json(t)["field_violations"].([]any)
	require.True(t, ok, string(r.body))
	first, ok := list[0].(map[string]any)
	require.True(t, ok)
	field, ok := first["field"].(string)
	require.True(t, ok)
	return field
}

func (a *api) rest(t testing.TB, key, verb, path, body string) answer {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), verb, a.http.URL+path, in)
	require.NoError(t, err)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return a.do(t, req)
}

func (a *api) do(t testing.TB, req *http.Request) answer {
	t.Helper()
	res, err := a.http.Client().Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return answer{status: res.StatusCode, header: res.Header, body: raw}
}

// as returns a context that carries the key to the gRPC server.
func as(t testing.TB, key string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return lis
}
