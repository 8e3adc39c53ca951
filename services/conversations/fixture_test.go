package conversations_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/conversations"
	"github.com/poppyfield/poppyfield/services/conversations/dispatch"
	"github.com/poppyfield/poppyfield/services/conversations/web"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// installation is the service with a real database, NATS, internal gRPC and HTTP
// server; only the judge of tokens and the way to backends are scripted.
type installation struct {
	*fixture.Platform
	sessions *sessionsScript
	backend  *backendScript
	company  *fixture.Company
	service  *conversations.Service
	web      *httpx.Server
	address  string
	spans    *tracetest.SpanRecorder
	tracing  trace.TracerProvider
	meters   metric.MeterProvider
	admin    adminv1.ConversationServiceClient
	recorder *outbox.Recorder
}

// each runs fn on an installation with either database.
func each(t *testing.T, fn func(*testing.T, *installation)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { fn(t, newInstallation(t, d)) })
}

// impatient has background work done so often that tests needn't wait for it.
var impatient = conversations.Config{
	Dispatch:      dispatch.Config{Sweep: 20 * time.Millisecond, Renew: 20 * time.Millisecond, Count: 20 * time.Millisecond},
	DeadlineEvery: 20 * time.Millisecond, CloseEvery: 20 * time.Millisecond, PruneEvery: 20 * time.Millisecond,
	Streams: web.Streams{Readers: many},
}

func newInstallation(t testing.TB, d *db.DB) *installation {
	t.Helper()
	return newInstallationWith(t, d, impatient)
}

func newInstallationWith(t testing.TB, d *db.DB, cfg conversations.Config) *installation {
	t.Helper()
	return newInstallationMetered(t, d, cfg, nil)
}

func newInstallationMetered(t testing.TB, d *db.DB, cfg conversations.Config, meters metric.MeterProvider) *installation {
	t.Helper()
	in := &installation{
		meters:   meters,
		Platform: fixture.NewPlatform(t, d, "poppyfield.sessions.v1.SessionsService", "poppyfield.relay.v1.DeliveryService", "poppyfield.admin.v1.ConversationService", "poppyfield.admin.v1.InboxService", "poppyfield.admin.v1.BackendStreamService", "poppyfield.admin.v1.BackendDeliveryService"),
		sessions: &sessionsScript{known: map[string]*sessionsv1.VerifyRequestResponse{}}, backend: &backendScript{},
	}
	in.spans = tracetest.NewSpanRecorder()
	in.tracing = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(in.spans))
	if _, ok := t.(*testing.B); ok {
		in.tracing = noop.NewTracerProvider() // a recorder keeps every span
	}
	sessionsv1.RegisterSessionsServiceServer(in.Server, in.sessions)
	relayv1.RegisterDeliveryServiceServer(in.Server, in.backend)
	var err error
	in.recorder, err = outbox.New(d, in.Bus, in.Clock.Now, in.Log)
	require.NoError(t, err)
	t.Cleanup(func() { _ = in.recorder.Stop(context.Background()) })
	in.service = in.replicaWith(t, cfg)
	in.service.Register(in.Server)
	in.Serve(t)
	in.admin = adminv1.NewConversationServiceClient(in.Conn(t))
	in.company = in.newCompany(t)
	in.web, in.address = in.serveWeb(t, in.service)
	start(t, in.service)
	return in
}

// replica makes a further process's worth of the service on the same database and NATS.
func (in *installation) replica(t testing.TB, cfg dispatch.Config) *conversations.Service {
	t.Helper()
	all := impatient
	if cfg.Sweep == 0 {
		cfg.Sweep = all.Dispatch.Sweep
	}
	if cfg.Renew == 0 {
		cfg.Renew = all.Dispatch.Renew
	}
	all.Dispatch = cfg
	return in.replicaWith(t, all)
}

func (in *installation) replicaWith(t testing.TB, cfg conversations.Config) *conversations.Service {
	t.Helper()
	cfg.Dispatch.Jitter = func() float64 { return 0.5 }
	conn := in.Conn(t)
	s, err := conversations.New(
		cfg,
		conversations.Deps{
			DB: in.DB, Bus: in.Bus, Directory: in.Directory, Now: in.Clock.Now, Log: in.Log, Events: in.recorder,
			Sessions: sessionsv1.NewSessionsServiceClient(conn), Deliveries: relayv1.NewDeliveryServiceClient(conn), TracerProvider: in.tracing, MeterProvider: in.meters,
		})
	require.NoError(t, err)
	return s
}

func start(t testing.TB, s *conversations.Service) {
	t.Helper()
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Stop(ctx) // a test may leave a backend hanging
	})
}

func (in *installation) serveWeb(t testing.TB, s *conversations.Service) (*httpx.Server, string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := httpx.NewServer(context.WithoutCancel(t.Context()), httpx.Config{
		Log: in.Log,
		Handler: httpx.Standard(publicweb.New(in.Directory, s.Routes()), httpx.Options{
			Name: "public", Log: in.Log, NewID: func() string { return ids.New(ids.Request) }, MaxBody: 1 << 20, Traces: in.tracing,
		}),
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(lis) // ends with Shutdown
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
		<-done
	})
	return srv, lis.Addr().String()
}

func (in *installation) newCompany(t testing.TB) *fixture.Company {
	t.Helper()
	c := in.NewCompany(t)
	c.Snapshot.AnswerDeadline = durationpb.New(time.Minute)
	in.Changed(c)
	return c
}

// sessionsScript judges tokens by a table: the token's text is its name.
type sessionsScript struct {
	sessionsv1.UnimplementedSessionsServiceServer
	mu    sync.Mutex
	known map[string]*sessionsv1.VerifyRequestResponse
	asked []*sessionsv1.VerifyRequestRequest
	nonce string
	// refusal is every request's answer while it is set.
	refusal *problem.Error
}

// VerifyRequest implements the service.
func (s *sessionsScript) VerifyRequest(ctx context.Context, req *sessionsv1.VerifyRequestRequest) (*sessionsv1.VerifyRequestResponse, error) {
	if _, err := tenancy.From(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, req)
	if s.refusal != nil {
		return nil, s.refusal
	}
	refused := problem.New(problem.Unauthenticated, problem.InvalidToken, "", "the token is not known")
	if s.nonce != "" {
		refused = refused.WithExtra("dpop_nonce", s.nonce)
	}
	if len(req.GetAuthorization()) != 1 {
		return nil, refused
	}
	if len(req.GetProof().GetProofs()) != 1 {
		return nil, problem.New(problem.Unauthenticated, problem.InvalidDPoPProof, "", "no proof").WithExtra("dpop_nonce", s.nonce)
	}
	token, _ := strings.CutPrefix(req.GetAuthorization()[0], "DPoP ")
	got, ok := s.known[token]
	if !ok {
		return nil, refused
	}
	return got, nil
}

func (s *sessionsScript) last() *sessionsv1.VerifyRequestRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[len(s.asked)-1]
}

// user is a User at one Personal Agent, with a token of a Session.
type user struct {
	in      *installation
	company *fixture.Company
	token   string
	session *sessionsv1.VerifyRequestResponse
	address string
}

const agentID = "https://agent.example/agent.json"

func (in *installation) user(name string) *user { return in.userOf(in.company, agentID, name) }

func (in *installation) userOf(c *fixture.Company, clientID, name string) *user {
	u := &user{in: in, company: c, token: ids.New("tok"), address: in.address}
	u.session = &sessionsv1.VerifyRequestResponse{
		SessionId: ids.New(ids.Session), ClientId: clientID, AgentName: "Example Agent", UserId: name, Scopes: []string{},
	}
	in.sessions.mu.Lock()
	in.sessions.known[u.token] = u.session
	in.sessions.mu.Unlock()
	return u
}

// again is the same User with a new Session.
func (u *user) again() *user {
	return u.in.userOf(u.company, u.session.GetClientId(), u.session.GetUserId())
}

// signedIn is the same User with a token that is signed in to account.
func (u *user) signedIn(account string) *user {
	n := u.again()
	n.session.SignedIn, n.session.Account, n.session.Scopes = true, account, []string{"poppy:read"}
	return n
}

// answer is a response of the conversation endpoint.
type answer struct {
	Status int
	Header http.Header
	Raw    string

	ConversationID string  `json:"conversation_id"`
	State          string  `json:"status"`
	Responder      string  `json:"responder"`
	Events         []event `json:"events"`
	Cursor         string  `json:"cursor"`
	HasMore        bool    `json:"has_more"`
	Error          string  `json:"error"`
	Extension      string  `json:"extension"`
}

type event struct {
	ID        string   `json:"id"`
	Type      string   `json:"type"`
	CreatedAt string   `json:"created_at"`
	Message   *message `json:"message"`
	Status    string   `json:"status"`
	Responder string   `json:"responder"`
	// Of an authorization, a user_requested, and of a direct_opened or direct_closed event.
	Error          string `json:"error"`
	Scope          string `json:"scope"`
	Reason         string `json:"reason"`
	ConversationID string `json:"conversation_id"`
}

type message struct {
	ID     string          `json:"id"`
	Role   string          `json:"role"`
	Sender string          `json:"sender"`
	Text   string          `json:"text"`
	Data   json.RawMessage `json:"data"`
}

// told lists what the events say: the text of messages, "=status" for states, the type
// and what it says for others.
func (a answer) told() []string {
	var out []string
	for _, e := range a.Events {
		switch {
		case e.Message != nil:
			out = append(out, e.Message.Role+": "+e.Message.Text)
		case e.Type != "state":
			out = append(out, strings.Join(strings.Fields(strings.Join([]string{e.Type, e.Error, e.Scope, e.Reason, e.ConversationID}, " ")), " "))
		default:
			out = append(out, "="+e.Status)
		}
	}
	return out
}

func (u *user) request(ctx context.Context, method, path, body string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+u.address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Host = u.company.Issuer.Hostname()
	req.Header.Set("Authorization", "DPoP "+u.token)
	req.Header.Set("DPoP", "proof")
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

var client = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 256},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// try makes a request and returns what came, also from goroutines.
func (u *user) try(ctx context.Context, method, path, body string, changes ...func(*http.Request)) (answer, error) {
	req, err := u.request(ctx, method, path, body)
	if err != nil {
		return answer{}, err
	}
	for _, c := range changes {
		c(req)
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	out := answer{Status: res.StatusCode, Header: res.Header, Raw: string(raw)}
	if len(raw) > 0 {
		// "status" is a string in responses and absent in errors.
		if err := json.Unmarshal(raw, &out); err != nil {
			return answer{}, err
		}
	}
	return out, nil
}

func (u *user) do(t testing.TB, method, path, body string, changes ...func(*http.Request)) answer {
	t.Helper()
	out, err := u.try(t.Context(), method, path, body, changes...)
	require.NoError(t, err)
	return out
}

const endpoint = "/poppy/conversations"

func text(id, s string) string {
	raw, _ := json.Marshal(map[string]any{"message": map[string]any{"id": id, "sender": "agent", "text": s}})
	return string(raw)
}

// start starts a conversation and waits for the backend's answer.
func (u *user) start(t testing.TB, id, s string) answer {
	t.Helper()
	got := u.do(t, http.MethodPost, endpoint+"?wait=20", text(id, s))
	require.Equal(t, http.StatusCreated, got.Status, got.Raw)
	return got
}

func (u *user) send(t testing.TB, conversation, query, body string) answer {
	t.Helper()
	return u.do(t, http.MethodPost, endpoint+"/"+conversation+"/messages"+query, body)
}

func (u *user) read(t testing.TB, conversation, query string) answer {
	t.Helper()
	return u.do(t, http.MethodGet, endpoint+"/"+conversation+"/events"+query, "")
}

func (u *user) close(t testing.TB, conversation string) answer {
	t.Helper()
	return u.do(t, http.MethodPost, endpoint+"/"+conversation+"/close", "{}")
}

// backendScript is the way to the backends: what it answers is a test's.
type backendScript struct {
	relayv1.UnimplementedDeliveryServiceServer
	mu    sync.Mutex
	reply func(ctx context.Context, w webhook) (*relayv1.DeliverResponse, error)
	seen  []webhook
	news  chan struct{}
	// routes are of Companies whose route isn't the empty one; asked counts who looked.
	routes map[string]*relayv1.GetRouteResponse
	asked  int
}

// webhook is a delivery as it came to the relay.
type webhook struct {
	company string
	id      string
	late    bool
	raw     string
	asked   *relayv1.DeliverRequest
	frames  grpc.ServerStreamingServer[relayv1.DeliverResponse]
	Type    string `json:"type"`
	Data    struct {
		Company      string
		Conversation struct{ ID, Status, Responder string }
		Sequence     int64
		Message      message
		Context      map[string]any
		Agent        struct {
			ClientID string `json:"client_id"`
			Name     string
		}
		User    struct{ ID string }
		Session struct {
			ID       string
			SignedIn bool `json:"signed_in"`
			Account  *string
			Scopes   []string
		}
		Expected struct {
			Reply   bool
			ReplyBy *string `json:"reply_by"`
		}
	} `json:"data"`
}

// Deliver implements the service.
func (b *backendScript) Deliver(req *relayv1.DeliverRequest, frames grpc.ServerStreamingServer[relayv1.DeliverResponse]) error {
	got, err := b.deliver(frames.Context(), req, frames)
	if err != nil {
		return err
	}
	return frames.Send(got)
}

// GetRoute implements the service.
func (b *backendScript) GetRoute(ctx context.Context, _ *relayv1.GetRouteRequest) (*relayv1.GetRouteResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if r := b.routes[scope.CompanyID()]; r != nil {
		return r, nil
	}
	return &relayv1.GetRouteResponse{}, nil
}

func (b *backendScript) deliver(ctx context.Context, req *relayv1.DeliverRequest, frames grpc.ServerStreamingServer[relayv1.DeliverResponse]) (*relayv1.DeliverResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	w := webhook{company: scope.CompanyID(), id: req.GetDeliveryId(), raw: string(req.GetBody()), late: req.GetLate(), asked: req, frames: frames}
	if err := json.Unmarshal(req.GetBody(), &w); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.seen = append(b.seen, w)
	reply := b.reply
	if b.news != nil {
		close(b.news)
		b.news = nil
	}
	b.mu.Unlock()
	if reply == nil {
		return says("echo: " + w.Data.Message.Text), nil
	}
	return reply(ctx, w)
}

func (b *backendScript) answers(fn func(ctx context.Context, w webhook) (*relayv1.DeliverResponse, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reply = fn
}

// always answers every webhook alike.
func (b *backendScript) always(r *relayv1.DeliverResponse) {
	b.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) { return r, nil })
}

func (b *backendScript) webhooks() []webhook {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]webhook(nil), b.seen...)
}

// await waits until n webhooks have come and returns them.
func (b *backendScript) await(t testing.TB, n int) []webhook {
	t.Helper()
	limit := time.After(patience)
	for {
		b.mu.Lock()
		seen := append([]webhook(nil), b.seen...)
		if b.news == nil {
			b.news = make(chan struct{})
		}
		news := b.news
		b.mu.Unlock()
		if len(seen) >= n {
			return seen
		}
		select {
		case <-news:
		case <-limit:
			require.FailNow(t, "webhooks missing", "%d of %d came", len(seen), n)
		}
	}
}

func says(texts ...string) *relayv1.DeliverResponse {
	r := &relayv1.DeliverResponse{Outcome: relayv1.DeliverOutcome_DELIVER_OUTCOME_ANSWERED, Status: 200, Reason: "delivered"}
	for _, s := range texts {
		r.Messages = append(r.Messages, &relayv1.AnswerMessage{Text: s})
	}
	return r
}

func ends(o relayv1.DeliverOutcome, status int32, reason string) *relayv1.DeliverResponse {
	return &relayv1.DeliverResponse{Outcome: o, Status: status, Reason: reason}
}

var (
	later    = ends(relayv1.DeliverOutcome_DELIVER_OUTCOME_ACCEPTED, 202, "delivered")
	fails    = ends(relayv1.DeliverOutcome_DELIVER_OUTCOME_RETRY, 500, "status 500")
	disabled = ends(relayv1.DeliverOutcome_DELIVER_OUTCOME_DISABLED, 410, "endpoint gone")
	unwanted = ends(relayv1.DeliverOutcome_DELIVER_OUTCOME_UNWANTED, 0, "late messages are not wanted")
)

// eventually waits until done is true.
func eventually(t testing.TB, done func() bool, what string) {
	t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			require.FailNow(t, "never happened", what)
		}
	}
}

func message1(s string) *adminv1.Message { return &adminv1.Message{Text: s} }

func messageID(i int) string { return fmt.Sprintf("msg_round_%d", i) }
