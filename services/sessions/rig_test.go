package sessions_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/sessions"
	"github.com/poppyfield/poppyfield/test/fixture"
)

const (
	clientID = "https://agent.example/agent.json"
	userID   = "usr_Q7c1vK"
)

// rig is the service behind internal gRPC, as its callers see it.
type rig struct {
	*fixture.Platform
	service   *sessions.Service
	api       sessionsv1.SessionsServiceClient
	signIns   sessionsv1.SignInsServiceClient
	pages     sessionsv1.ConnectionsServiceClient
	admission adminv1.AdmissionServiceClient
	admin     adminv1.SessionServiceClient
	agents    adminv1.ConnectedAgentServiceClient
	access    adminv1.AccessServiceClient
	company   *fixture.Company
	key       *jose.Signer
}

func each(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { fn(t, newRig(t, d)) })
}

func newRig(t testing.TB, d *db.DB) *rig {
	t.Helper()
	return newMeteredRig(t, d, nil)
}

func newMeteredRig(t testing.TB, d *db.DB, meters metric.MeterProvider) *rig {
	t.Helper()
	return onPlatform(t, newPlatform(t, d), meters)
}

func newPlatform(t testing.TB, d *db.DB) *fixture.Platform {
	t.Helper()
	return fixture.NewPlatform(t, d, "poppyfield.sessions.v1.SessionsService", "poppyfield.sessions.v1.SignInsService",
		"poppyfield.sessions.v1.ConnectionsService", "poppyfield.admin.v1.AdmissionService", "poppyfield.admin.v1.SessionService",
		"poppyfield.admin.v1.ConnectedAgentService", "poppyfield.admin.v1.AccessService")
}

func onPlatform(t testing.TB, p *fixture.Platform, meters metric.MeterProvider) *rig {
	t.Helper()
	s, err := sessions.New(sessions.Config{PruneEvery: time.Hour}, sessions.Deps{DB: p.DB, Bus: p.Bus, Replay: p.Replay, Keys: p.Keys, Directory: p.Directory, Now: p.Clock.Now, Log: p.Log, MeterProvider: meters})
	require.NoError(t, err)
	s.Register(p.Server)
	p.Serve(t)
	conn := p.Conn(t)
	return &rig{
		Platform: p, service: s, api: sessionsv1.NewSessionsServiceClient(conn), admission: adminv1.NewAdmissionServiceClient(conn),
		admin: adminv1.NewSessionServiceClient(conn), company: p.NewCompany(t), key: fixture.NewKey(t),
		signIns: sessionsv1.NewSignInsServiceClient(conn), pages: sessionsv1.NewConnectionsServiceClient(conn), agents: adminv1.NewConnectedAgentServiceClient(conn),
		access: adminv1.NewAccessServiceClient(conn),
	}
}

// replica is another process of the same installation: it shares database, keys and
// clock, and has its own memory, connections and caches.
func (r *rig) replica(t testing.TB) *rig {
	t.Helper()
	return r.replicaWith(t, r.Keys)
}

func (r *rig) replicaWith(t testing.TB, ring *keys.Ring) *rig {
	t.Helper()
	p := newPlatform(t, r.DB)
	p.Keys, p.Clock = ring, r.Clock
	p.Directory = directory.New(directoryv1.NewDirectoryServiceClient(p.Conn(t)), r.Clock.Now)
	other := onPlatform(t, p, nil)
	other.company, other.key = r.company, r.key
	p.Changed(r.company)
	return other
}

// open starts or renews a Session and returns its token.
func (r *rig) open(t testing.TB, change func(*sessionsv1.OpenSessionRequest)) *sessionsv1.IssuedTokens {
	t.Helper()
	got, err := r.tryOpen(t, r.company, change)
	require.NoError(t, err)
	return got
}

func (r *rig) tryOpen(t testing.TB, c *fixture.Company, change func(*sessionsv1.OpenSessionRequest)) (*sessionsv1.IssuedTokens, error) {
	t.Helper()
	q := &sessionsv1.OpenSessionRequest{
		ClientId: clientID, AgentName: "Agent", UserId: userID, Proof: r.proof(t, c),
		Once: []*sessionsv1.OnceKey{r.once(replay.KindClientAssertion), r.once(replay.KindSessionAssertion)},
	}
	if change != nil {
		change(q)
	}
	opened, err := r.api.OpenSession(c.Ctx(t.Context()), q)
	return opened.GetTokens(), err
}

// proof is a right one for c's token endpoint.
func (r *rig) proof(t testing.TB, c *fixture.Company) *sessionsv1.ProofOfRequest {
	t.Helper()
	te := c.Issuer.TokenEndpoint()
	return &sessionsv1.ProofOfRequest{Method: "POST", Url: te, Proofs: []string{fixture.Proof(t, r.key, "POST", te, "", r.Clock.Now())}}
}

// once is an assertion of the agent that wasn't seen before.
func (r *rig) once(kind string) *sessionsv1.OnceKey {
	now := r.Clock.Now()
	return &sessionsv1.OnceKey{
		Kind: kind, Owner: clientID, Jti: fixture.RandomID(), IssueTime: timestamppb.New(now), Until: timestamppb.New(now.Add(90 * time.Second)),
	}
}

// bearer asks for a Bearer token.
func bearer(resource string) func(*sessionsv1.OpenSessionRequest) {
	return func(q *sessionsv1.OpenSessionRequest) { q.Resource, q.Proof.Proofs = resource, nil }
}

const path = "/poppy/conversations/cnv_1/events"

// use is a right request with the token, unless changed. The proof is made last, for
// what the request has become; changes of the proof itself come in proof.
type use struct {
	authorization []string
	token         string
	method, url   string
	signer        *jose.Signer
	resource      string
	proofs        []string // instead of a right one
	proof         []fixture.Change
}

func (r *rig) verify(t testing.TB, token string, change func(*use)) (*sessionsv1.VerifyRequestResponse, error) {
	t.Helper()
	u := &use{authorization: []string{"DPoP " + token}, token: token, method: "GET", url: r.company.Issuer.String() + path, signer: r.key}
	if change != nil {
		change(u)
	}
	if u.proofs == nil {
		u.proofs = []string{fixture.Proof(t, u.signer, u.method, u.url, u.token, r.Clock.Now(), u.proof...)}
	}
	return r.api.VerifyRequest(r.company.Ctx(t.Context()), &sessionsv1.VerifyRequestRequest{
		Authorization: u.authorization, RequiredResource: u.resource,
		Proof: &sessionsv1.ProofOfRequest{Proofs: u.proofs, Method: u.method, Url: u.url},
	})
}

func (r *rig) refused(t testing.TB, token string, reason problem.Reason, change func(*use)) problem.Error {
	t.Helper()
	_, err := r.verify(t, token, change)
	requireReason(t, err, reason)
	require.NotContains(t, err.Error(), token)
	return *problem.As(err)
}

func requireReason(t testing.TB, err error, reason problem.Reason) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, reason, problem.As(err).Reason, "%v", err)
}

func (r *rig) sessionName(id string) string { return r.company.Scope.Name() + "/sessions/" + id }
