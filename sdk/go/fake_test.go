package poppy

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

const (
	company  = "companies/cmp_1"
	session  = company + "/sessions/ses_1"
	baseURL  = "https://api.example.com"
	patience = 20 * time.Second
)

// server is the admin API, as far as a Verifier asks it.
type server struct {
	adminv1.UnimplementedAccessServiceServer
	now *clock.Manual

	mu         sync.Mutex
	tokens     map[string]*adminv1.IntrospectTokenResponse
	answer     *adminv1.VerifyRequestResponse
	err        error
	judged     int
	asked      []*adminv1.VerifyRequestRequest
	introspect func() // runs while a token is asked about
	table      *adminv1.AccessTable

	frames  chan *adminv1.WatchSessionsResponse
	opened  chan struct{}
	hangUps chan struct{}
}

func (s *server) VerifyRequest(_ context.Context, r *adminv1.VerifyRequestRequest) (*adminv1.VerifyRequestResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judged++
	s.asked = append(s.asked, r)
	return s.answer, s.err
}

func (s *server) IntrospectToken(_ context.Context, r *adminv1.IntrospectTokenRequest) (*adminv1.IntrospectTokenResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.introspect != nil {
		s.introspect()
	}
	if got := s.tokens[r.GetToken()]; got != nil {
		return got, nil
	}
	return &adminv1.IntrospectTokenResponse{}, nil
}

func (s *server) GetAccessTable(context.Context, *adminv1.GetAccessTableRequest) (*adminv1.AccessTable, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table, nil
}

func (s *server) WatchSessions(_ *adminv1.WatchSessionsRequest, stream adminv1.AccessService_WatchSessionsServer) error {
	s.opened <- struct{}{}
	for {
		select {
		case f := <-s.frames:
			if err := stream.Send(f); err != nil {
				return err
			}
		case <-s.hangUps:
			return status.Error(codes.Unavailable, "the server is going away")
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judged
}

// rig is a Verifier that judges locally, and knows what the server knows.
type rig struct {
	*Verifier
	server *server
	conn   *grpc.ClientConn
	key    *jose.Signer
	token  string
	jti    int
}

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	key, err := jose.GenerateSigner()
	require.NoError(t, err)
	now := clock.NewManual(time.Unix(1796203800, 0).Add(-time.Millisecond)) // the first beat makes it whole
	s := &server{
		now: now, frames: make(chan *adminv1.WatchSessionsResponse), opened: make(chan struct{}, 10), hangUps: make(chan struct{}),
		table: &adminv1.AccessTable{Apis: []*adminv1.AccessTableApi{{Url: "https://example.com/openapi.json", BaseUrls: []string{baseURL}, Rules: []*adminv1.AccessRule{
			{Path: "/orders/**"}, {Path: "/account", Scopes: []string{"poppy:read"}},
		}}}},
		tokens: map[string]*adminv1.IntrospectTokenResponse{}, answer: &adminv1.VerifyRequestResponse{Allowed: true, Session: agentSession()},
	}
	r := &rig{server: s, key: key, token: "st_1"}
	s.put(r.token, key.Thumbprint())
	lis := bufconn.Listen(1 << 20)
	g := grpc.NewServer()
	adminv1.RegisterAccessServiceServer(g, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(lis) })
	r.conn, err = grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	cfg := Config{Company: company, Conn: r.conn, BaseURL: baseURL, Local: true, Now: now.Now}
	if change != nil {
		change(&cfg)
	}
	r.Verifier, err = New(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		r.Close()
		_ = r.conn.Close()
		g.Stop()
		serving.Wait()
	})
	if cfg.Local {
		<-s.opened
		s.send(&adminv1.WatchSessionsResponse{Frame: &adminv1.WatchSessionsResponse_Synced{Synced: timestamppb.New(now.Now())}})
		r.beat(t)
	}
	return r
}

func agentSession() *adminv1.AgentSession {
	return &adminv1.AgentSession{Session: session, ClientId: "https://agent.example/agent.json", User: "usr_1"}
}

func (s *server) put(token, jkt string) {
	s.tokens[token] = &adminv1.IntrospectTokenResponse{Active: true, Jkt: jkt, KeepFor: durationpb.New(30 * time.Second), Session: agentSession()}
}

func (s *server) send(f *adminv1.WatchSessionsResponse) { s.frames <- f }

func (s *server) changed(name string) {
	s.send(&adminv1.WatchSessionsResponse{Frame: &adminv1.WatchSessionsResponse_Session{Session: name}})
}

func (s *server) all() {
	s.send(&adminv1.WatchSessionsResponse{Frame: &adminv1.WatchSessionsResponse_All{All: true}})
}

// beat sends a heartbeat and waits until it, and so everything before it, has been seen.
func (r *rig) beat(t testing.TB) {
	t.Helper()
	r.server.now.Advance(time.Millisecond) // so that it differs from the one before
	at := r.server.now.Now()
	r.server.send(&adminv1.WatchSessionsResponse{Frame: &adminv1.WatchSessionsResponse_Heartbeat{Heartbeat: timestamppb.New(at)}})
	require.Eventually(t, func() bool {
		r.known.mu.RLock()
		defer r.known.mu.RUnlock()
		return r.known.checked.Equal(at)
	}, patience, time.Millisecond)
}

// request is a right one, with a proof of its own.
func (r *rig) request(t testing.TB, method, path string) Request {
	t.Helper()
	u := baseURL + path
	return Request{Method: method, URL: u, Authorization: []string{"DPoP " + r.token}, DPoP: []string{r.proof(t, method, u)}}
}

func (r *rig) proof(t testing.TB, method, u string) string {
	t.Helper()
	r.jti++
	raw, err := dpop.BuildProof(r.key, dpop.ProofClaims{
		JTI: "jti-" + strconv.Itoa(r.jti), Method: method, URL: u, IssuedAt: r.server.now.Now(), TokenHash: dpop.TokenHash(r.token),
	})
	require.NoError(t, err)
	return raw
}

func (r *rig) verify(t testing.TB, q Request) *Decision {
	t.Helper()
	d, err := r.Verify(t.Context(), q)
	require.NoError(t, err)
	return d
}

// asks reports whether the server is asked for a right request.
func (r *rig) asks(t testing.TB, method, path string) bool {
	t.Helper()
	before := r.server.count()
	require.True(t, r.verify(t, r.request(t, method, path)).Allowed)
	return r.server.count() > before
}
