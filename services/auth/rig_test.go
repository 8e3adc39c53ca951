package auth_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/services/sessions" //nolint:depguard // the endpoints are tested on real Sessions
	"github.com/poppyfield/poppyfield/test/fixture"
)

const user = "usr_Q7c1vK"

// rig is the endpoints over real Sessions: what a Personal Agent meets, without the network.
type rig struct {
	*fixture.Platform
	web       http.Handler
	replica   http.Handler // another process of the service
	service   *auth.Service
	sessions  sessionsv1.SessionsServiceClient
	signIns   sessionsv1.SignInsServiceClient
	connected sessionsv1.ConnectionsServiceClient
	admission adminv1.AdmissionServiceClient
	admin     adminv1.SessionServiceClient
	company   *fixture.Company
	agent     *fixture.Agent
	key       *jose.Signer
}

// each runs fn on a rig of each kind of database.
func each(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { fn(t, newRig(t, d, auth.Config{RequestsPerMinute: -1})) })
}

func newRig(t testing.TB, d *db.DB, cfg auth.Config) *rig {
	t.Helper()
	p := fixture.NewPlatform(t, d, "poppyfield.sessions.v1.SessionsService", "poppyfield.sessions.v1.SignInsService", "poppyfield.sessions.v1.ConnectionsService",
		"poppyfield.admin.v1.AccessService", "poppyfield.admin.v1.AdmissionService", "poppyfield.admin.v1.SessionService", "poppyfield.admin.v1.ConnectedAgentService")
	s, err := sessions.New(sessions.Config{}, sessions.Deps{DB: d, Bus: p.Bus, Replay: p.Replay, Keys: p.Keys, Directory: p.Directory, Now: p.Clock.Now, Log: p.Log})
	require.NoError(t, err)
	s.Register(p.Server)
	p.Serve(t)
	conn := p.Conn(t)
	r := &rig{
		Platform: p, sessions: sessionsv1.NewSessionsServiceClient(conn), signIns: sessionsv1.NewSignInsServiceClient(conn),
		connected: sessionsv1.NewConnectionsServiceClient(conn), admission: adminv1.NewAdmissionServiceClient(conn),
		admin: adminv1.NewSessionServiceClient(conn), company: p.NewCompany(t), agent: fixture.NewAgent(t, "agent.example"), key: fixture.NewKey(t),
	}
	p.Web.Publish(r.agent)
	deps := auth.Deps{
		DB: d, Keys: p.Keys, Sessions: r.sessions, SignIns: r.signIns, Connections: r.connected,
		Egress: relayv1.NewEgressServiceClient(conn), RelaySignIn: relayv1.NewSignInServiceClient(conn), Directory: p.Directory, Now: p.Clock.Now, Log: p.Log,
	}
	r.service, err = auth.New(cfg, deps)
	require.NoError(t, err)
	r.web = publicweb.New(p.Directory, r.service.Routes())
	other, err := auth.New(cfg, deps)
	require.NoError(t, err)
	r.replica = publicweb.New(p.Directory, other.Routes())
	return r
}

// request is a token or revocation request about to be sent.
type request struct {
	url, contentType, extra string
	form                    url.Values
	proofs                  []string
}

func (r *rig) now() time.Time { return r.Clock.Now() }

// start is a right request for a new Session.
func (r *rig) start(t testing.TB) *request {
	t.Helper()
	return r.startAt(t, r.company, r.agent, user)
}

func (r *rig) startAt(t testing.TB, c *fixture.Company, a *fixture.Agent, user string) *request {
	t.Helper()
	endpoint := c.Issuer.TokenEndpoint()
	return &request{
		url: endpoint, contentType: "application/x-www-form-urlencoded", form: a.TokenForm(t, user, endpoint, r.now()),
		proofs: []string{fixture.Proof(t, r.key, http.MethodPost, endpoint, "", r.now())},
	}
}

// renew is a right request for a new token of the Session.
func (r *rig) renew(t testing.TB, sessionID string) *request {
	t.Helper()
	q := r.start(t)
	q.form.Set("session_id", sessionID)
	return q
}

// bearer is a right request for a Bearer token.
func (r *rig) bearer(t testing.TB, resource string) *request {
	t.Helper()
	q := r.start(t)
	q.proofs = nil
	q.form.Set("resource", resource)
	return q
}

// revocation is a right request to revoke token.
func (r *rig) revocation(t testing.TB, token string) *request {
	t.Helper()
	q := &request{url: r.company.Issuer.RevocationEndpoint(), contentType: "application/x-www-form-urlencoded"}
	q.form = r.agent.ClientForm(t, r.company.Issuer.TokenEndpoint(), r.now())
	q.form.Set("token", token)
	q.form.Set("token_type_hint", "refresh_token")
	return q
}

// set changes a parameter; an empty value takes it out.
func (q *request) set(name, value string) *request {
	if value == "" {
		q.form.Del(name)
	} else {
		q.form.Set(name, value)
	}
	return q
}

type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

func (a answer) text(name string) string {
	s, _ := a.body[name].(string)
	return s
}

func (r *rig) send(t testing.TB, q *request) answer {
	t.Helper()
	return r.sendTo(t, r.web, q)
}

func (r *rig) sendTo(t testing.TB, h http.Handler, q *request) answer {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, q.url, strings.NewReader(q.form.Encode()+q.extra))
	req.Header.Set("Content-Type", q.contentType)
	for _, p := range q.proofs {
		req.Header.Add("DPoP", p)
	}
	return r.serveBy(t, h, req)
}

func (r *rig) serve(t testing.TB, req *http.Request) answer {
	t.Helper()
	return r.serveBy(t, r.web, req)
}

func (r *rig) serveBy(t testing.TB, h http.Handler, req *http.Request) answer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	a := answer{status: w.Code, header: w.Header(), raw: w.Body.String()}
	if a.raw != "" {
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a.body), a.raw)
	}
	return a
}

// ok sends a request that has to succeed.
func (r *rig) ok(t testing.TB, q *request) answer {
	t.Helper()
	a := r.send(t, q)
	require.Equal(t, http.StatusOK, a.status, a.raw)
	return a
}

// refused sends a request that has to get an error of Poppy 4.2.
func (r *rig) refused(t testing.TB, q *request, status int, code string) answer {
	t.Helper()
	a := r.send(t, q)
	require.Equal(t, code, a.text("error"), a.raw)
	require.Equal(t, status, a.status, a.raw)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.Contains(t, a.header.Get("Cache-Control"), "no-store")
	for name, value := range a.body {
		require.Contains(t, []string{"error", "error_description"}, name)
		require.IsType(t, "", value)
	}
	return a
}

const place = "/poppy/conversations"

// use sends the token to a service of the Company that takes any DPoP token.
func (r *rig) use(t testing.TB, token string, key *jose.Signer) error {
	t.Helper()
	u := r.company.Issuer.String() + place
	_, err := r.sessions.VerifyRequest(r.company.Ctx(t.Context()), &sessionsv1.VerifyRequestRequest{
		Authorization: []string{"DPoP " + token},
		Proof:         &sessionsv1.ProofOfRequest{Proofs: []string{fixture.Proof(t, key, http.MethodPost, u, token, r.now())}, Method: http.MethodPost, Url: u},
	})
	return err
}

// useBearer sends a Bearer token to a service that insists on resource.
func (r *rig) useBearer(t testing.TB, token, resource string) error {
	t.Helper()
	_, err := r.sessions.VerifyRequest(r.company.Ctx(t.Context()), &sessionsv1.VerifyRequestRequest{
		Authorization: []string{"Bearer " + token}, RequiredResource: resource,
		Proof: &sessionsv1.ProofOfRequest{Method: http.MethodPost, Url: resource},
	})
	return err
}

func requireReason(t testing.TB, err error, reason problem.Reason) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, reason, problem.As(err).Reason, "%v", err)
}

// rule adds an admission rule of the agent.
func (r *rig) rule(t testing.TB, c *fixture.Company, clientID string, effect adminv1.AdmissionEffect) *adminv1.AdmissionRule {
	t.Helper()
	rule, err := r.admission.CreateAdmissionRule(c.Ctx(t.Context()), &adminv1.CreateAdmissionRuleRequest{
		Parent: c.Scope.Name(), AdmissionRule: &adminv1.AdmissionRule{ClientId: clientID, Effect: effect},
	})
	require.NoError(t, err)
	return rule
}

// policy changes the admission policy.
func (r *rig) policy(t testing.TB, mode adminv1.AdmissionMode, nonce bool) {
	t.Helper()
	_, err := r.admission.UpdateAdmission(r.company.Ctx(t.Context()), &adminv1.UpdateAdmissionRequest{
		Admission: &adminv1.Admission{Name: r.company.Scope.Name() + "/admission", Mode: mode, RequireDpopNonce: nonce},
	})
	require.NoError(t, err)
}

// useNonce is use with a nonce in the proof.
func (r *rig) useNonce(t testing.TB, token, nonce string) error {
	t.Helper()
	u := r.company.Issuer.String() + place
	proof := fixture.Proof(t, r.key, http.MethodPost, u, token, r.now(), fixture.Claim("nonce", nonce))
	got, err := r.sessions.VerifyRequest(r.company.Ctx(t.Context()), &sessionsv1.VerifyRequestRequest{
		Authorization: []string{"DPoP " + token},
		Proof:         &sessionsv1.ProofOfRequest{Proofs: []string{proof}, Method: http.MethodPost, Url: u},
	})
	if err == nil {
		require.NotEmpty(t, got.GetDpopNonce())
	}
	return err
}

// nonceOf is the nonce that c hands out now.
func (r *rig) nonceOf(c *fixture.Company) string {
	return keys.NewNonces(r.Keys).Current(c.Scope.CompanyID(), r.now())
}
