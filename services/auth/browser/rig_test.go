package browser_test

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
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/services/sessions" //nolint:depguard // the pages are tested on real Sessions
	"github.com/poppyfield/poppyfield/test/fixture"
)

const (
	user     = "usr_Q7c1vK"
	state    = "canary-state-Xq81vR"
	both     = "poppy:read poppy:write"
	email    = "mia@example.com"
	password = "canary correct horse"
	account  = "acc-1"
	oneTime  = "canary-4711"
	formType = "application/x-www-form-urlencoded"
)

// rig is the pages over real Sessions, and what stands around them: an agent with its
// documents, a Company with its accounts, and its own backend at the admin API.
type rig struct {
	*fixture.Platform
	web       http.Handler
	replica   http.Handler // another process of the service
	sessions  sessionsv1.SessionsServiceClient
	signIns   sessionsv1.SignInsServiceClient
	admission adminv1.AdmissionServiceClient
	logins    adminv1.LoginServiceClient
	provider  *provider
	company   *fixture.Company
	agent     *fixture.Agent
	key       *jose.Signer
}

// each runs fn on a rig of each kind of database. The Company offers Direct and Device
// Sign-In, and checks credentials by webhook.
func each(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { fn(t, newRig(t, d, auth.Config{RequestsPerMinute: -1})) })
}

func newRig(t testing.TB, d *db.DB, cfg auth.Config) *rig {
	t.Helper()
	p := fixture.NewPlatform(t, d, "poppyfield.sessions.v1.SessionsService", "poppyfield.sessions.v1.SignInsService", "poppyfield.sessions.v1.ConnectionsService",
		"poppyfield.admin.v1.AccessService", "poppyfield.admin.v1.AdmissionService", "poppyfield.admin.v1.SessionService", "poppyfield.admin.v1.ConnectedAgentService", "poppyfield.admin.v1.LoginService")
	s, err := sessions.New(sessions.Config{}, sessions.Deps{DB: d, Bus: p.Bus, Replay: p.Replay, Keys: p.Keys, Directory: p.Directory, Now: p.Clock.Now, Log: p.Log})
	require.NoError(t, err)
	s.Register(p.Server)
	conn := p.Conn(t)
	r := &rig{
		Platform: p, sessions: sessionsv1.NewSessionsServiceClient(conn), signIns: sessionsv1.NewSignInsServiceClient(conn),
		admission: adminv1.NewAdmissionServiceClient(conn), logins: adminv1.NewLoginServiceClient(conn),
		provider: newProvider(t, relayv1.NewSignInServiceClient(conn), p.Clock.Now),
		company:  p.NewCompany(t), agent: fixture.NewAgent(t, "agent.example"), key: fixture.NewKey(t),
	}
	r.publish(nil)
	r.setUp(nil)
	p.Accounts.Put(email, fixture.Account{ID: account, Password: password})
	deps := auth.Deps{
		DB: d, Keys: p.Keys, Sessions: r.sessions, SignIns: r.signIns, Connections: sessionsv1.NewConnectionsServiceClient(conn),
		Egress: relayv1.NewEgressServiceClient(conn), RelaySignIn: r.provider, Directory: p.Directory, Now: p.Clock.Now, Log: p.Log,
	}
	first, err := auth.New(cfg, deps)
	require.NoError(t, err)
	first.Register(p.Server)
	r.web = publicweb.New(p.Directory, first.Routes())
	second, err := auth.New(cfg, deps)
	require.NoError(t, err)
	r.replica = publicweb.New(p.Directory, second.Routes())
	p.Serve(t)
	return r
}

func (r *rig) now() time.Time { return r.Clock.Now() }

// publish puts the agent's documents on the web, with members changed; nil takes one out.
func (r *rig) publish(changes map[string]any) {
	r.Web.Publish(r.agent)
	var doc map[string]any
	if json.Unmarshal(r.agent.Document(), &doc) != nil {
		return
	}
	doc["logo_uri"] = logoURL
	for name, value := range changes {
		if value == nil {
			delete(doc, name)
			continue
		}
		doc[name] = value
	}
	body, _ := json.Marshal(doc)
	r.Web.Put(r.agent.ClientID, &relayv1.FetchResponse{Status: 200, ContentType: "application/json", Body: body})
}

// setUp gives the Company the usual set-up of sign-in, changed by change.
func (r *rig) setUp(change func(*directoryv1.SignIn)) {
	s := fixture.SignIn()
	s.ScopeTexts = map[string]*directoryv1.Texts{
		"addresses":  {ByLanguage: map[string]string{"": "See and change your address book", "de": "Ihr Adressbuch sehen und ändern"}},
		"poppy:read": {ByLanguage: map[string]string{"": "See your orders & invoices"}},
	}
	if change != nil {
		change(s)
	}
	r.company.Snapshot.SignIn = s
	r.company.Snapshot.DisplayName = "Example Shop"
	r.Changed(r.company)
}

// request is a right authorization request.
func (r *rig) request() url.Values {
	return url.Values{
		"response_type": {"code"}, "client_id": {r.agent.ClientID}, "redirect_uri": {r.agent.RedirectURI()}, "scope": {both},
		"state": {state}, "code_challenge": {fixture.Challenge(fixture.Verifier)}, "code_challenge_method": {"S256"},
	}
}

func (r *rig) authorizeURL(q url.Values) string {
	return r.company.Issuer.AuthorizationEndpoint() + "?" + q.Encode()
}

// begun is a browser at the first page of a Direct Sign-In.
func (r *rig) begun(t testing.TB) (*browser, page) {
	t.Helper()
	b := r.browser(t)
	p := b.get(r.authorizeURL(r.request()))
	require.Equal(t, http.StatusOK, p.status, p.body)
	return b, p
}

// atConsent is a browser whose User has proved who they are.
func (r *rig) atConsent(t testing.TB) (*browser, page) {
	t.Helper()
	b, p := r.begun(t)
	return b, r.login(b, p)
}

// login fills the login form in rightly.
func (r *rig) login(b *browser, p page) page {
	p = b.submit(p, "login", credentials(password))
	require.Equal(b.t, http.StatusOK, p.status, p.body)
	require.NotEmpty(b.t, p.scopes())
	return p
}

func credentials(password string) url.Values {
	return url.Values{"field.email": {email}, "field.password": {password}}
}

// returned takes the parameters that the agent got by redirect.
func (r *rig) returned(t testing.TB, p page) url.Values {
	t.Helper()
	require.Equal(t, http.StatusSeeOther, p.status, p.body)
	u, err := url.Parse(p.header.Get("Location"))
	require.NoError(t, err)
	q := u.Query()
	u.RawQuery = ""
	require.Equal(t, r.agent.RedirectURI(), u.String())
	for name, values := range q {
		require.Len(t, values, 1, name)
	}
	require.Equal(t, r.company.Issuer.String(), q.Get("iss")) // IS-01: in every one of them
	require.Equal(t, "no-store", p.header.Get("Cache-Control"))
	require.Equal(t, "no-referrer", p.header.Get("Referrer-Policy"))
	return q
}

// refusedByAgent checks that the agent got an error, and nothing of use.
func (r *rig) refusedByAgent(t testing.TB, p page, code string) url.Values {
	t.Helper()
	q := r.returned(t, p)
	require.Equal(t, code, q.Get("error"), q.Get("error_description"))
	require.False(t, q.Has("code"))
	return q
}

// session starts a signed-out Session of the agent's User.
func (r *rig) session(t testing.TB) string {
	t.Helper()
	got := r.token(t, r.agent.TokenForm(t, user, r.company.Issuer.TokenEndpoint(), r.now()))
	require.Contains(t, got, "session_id")
	return got["session_id"].(string) //nolint:forcetypeassert // as just seen
}

// exchange has the agent exchange the code of a Direct Sign-In.
func (r *rig) exchange(t testing.TB, code string) map[string]any {
	t.Helper()
	return r.token(t, r.agent.CodeForm(t, code, r.session(t), r.company.Issuer.TokenEndpoint(), r.now()))
}

// token sends a token request.
func (r *rig) token(t testing.TB, form url.Values) map[string]any {
	t.Helper()
	endpoint := r.company.Issuer.TokenEndpoint()
	got := r.post(t, endpoint, form, fixture.Proof(t, r.key, http.MethodPost, endpoint, "", r.now()))
	var out map[string]any
	require.NoError(t, json.Unmarshal(got.Body.Bytes(), &out), got.Body.String())
	return out
}

func (r *rig) post(t testing.TB, u string, form url.Values, proof string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, u, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", formType)
	if proof != "" {
		req.Header.Set("DPoP", proof)
	}
	w := httptest.NewRecorder()
	r.web.ServeHTTP(w, req)
	return w
}

// device is a Device Sign-In that an agent began: the device code and the user code.
func (r *rig) device(t testing.TB, scope string) (deviceCode, userCode string) {
	t.Helper()
	form := r.agent.ClientForm(t, r.company.Issuer.TokenEndpoint(), r.now())
	form.Set("scope", scope)
	got := r.post(t, r.company.Issuer.DeviceAuthorizationEndpoint(), form, "")
	var out map[string]any
	require.NoError(t, json.Unmarshal(got.Body.Bytes(), &out), got.Body.String())
	require.Equal(t, http.StatusOK, got.Code, got.Body.String())
	return out["device_code"].(string), out["user_code"].(string) //nolint:forcetypeassert // RFC 8628 3.2
}

// poll asks whether the Device Sign-In is done.
func (r *rig) poll(t testing.TB, deviceCode string) map[string]any {
	t.Helper()
	return r.token(t, r.agent.PollForm(t, deviceCode, r.session(t), r.company.Issuer.TokenEndpoint(), r.now()))
}

// caller is what a Session Token stands for.
func (r *rig) caller(t testing.TB, token any) *sessionsv1.VerifyRequestResponse {
	t.Helper()
	u := r.company.Issuer.String() + "/poppy/conversations"
	raw, _ := token.(string)
	got, err := r.sessions.VerifyRequest(r.company.Ctx(t.Context()), &sessionsv1.VerifyRequestRequest{
		Authorization: []string{"DPoP " + raw},
		Proof:         &sessionsv1.ProofOfRequest{Proofs: []string{fixture.Proof(t, r.key, http.MethodPost, u, raw, r.now())}, Method: http.MethodPost, Url: u},
	})
	require.NoError(t, err)
	return got
}

// block has the Company block the agent.
func (r *rig) block(t testing.TB) {
	t.Helper()
	_, err := r.admission.CreateAdmissionRule(r.company.Ctx(t.Context()), &adminv1.CreateAdmissionRuleRequest{
		Parent: r.company.Scope.Name(), AdmissionRule: &adminv1.AdmissionRule{ClientId: r.agent.ClientID, Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_BLOCK},
	})
	require.NoError(t, err)
}
