package auth_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/test/fixture"
)

const (
	both   = "poppy:read poppy:write"
	days30 = 30 * 24 * 3600 // seconds

	formType = "application/x-www-form-urlencoded"
	email    = "mia@example.com"
	password = "correct horse"
)

// eachSignIn runs fn on a rig whose Company offers every type of sign-in.
func eachSignIn(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { fn(t, newSignInRig(t, d)) })
}

func newSignInRig(t testing.TB, d *db.DB) *rig {
	t.Helper()
	r := newRig(t, d, auth.Config{RequestsPerMinute: -1})
	r.company.Snapshot.SignIn = fixture.SignIn()
	r.Changed(r.company)
	r.Accounts.Put(email, fixture.Account{ID: "acc-1", Password: password})
	return r
}

// session starts a signed-out Session and returns its id.
func (r *rig) session(t testing.TB) string {
	t.Helper()
	return r.ok(t, r.start(t)).text("session_id")
}

// approve is what the sign-in pages do once the User has approved: it returns the code.
func (r *rig) approve(t testing.TB, a *fixture.Agent, scope, account string) string {
	t.Helper()
	got, err := r.signIns.IssueCode(r.company.Ctx(t.Context()), &sessionsv1.IssueCodeRequest{
		ClientId: a.ClientID, AgentName: "Example Agent", RedirectUri: a.RedirectURI(), CodeChallenge: fixture.Challenge(fixture.Verifier),
		Scope: scope, Account: &sessionsv1.Account{Id: account, Label: email},
	})
	require.NoError(t, err)
	return got.GetCode()
}

// tokenRequest is a request to the token endpoint with a fresh proof.
func (r *rig) tokenRequest(t testing.TB, form url.Values) *request {
	t.Helper()
	endpoint := r.company.Issuer.TokenEndpoint()
	return &request{
		url: endpoint, contentType: formType, form: form,
		proofs: []string{fixture.Proof(t, r.key, http.MethodPost, endpoint, "", r.now())},
	}
}

// exchange is a right exchange of a code.
func (r *rig) exchange(t testing.TB, code, sessionID string) *request {
	t.Helper()
	return r.tokenRequest(t, r.agent.CodeForm(t, code, sessionID, r.company.Issuer.TokenEndpoint(), r.now()))
}

// refresh is a right use of an Account Token.
func (r *rig) refresh(t testing.TB, token string) *request {
	t.Helper()
	return r.tokenRequest(t, r.agent.RefreshForm(t, token, r.company.Issuer.TokenEndpoint(), r.now()))
}

// signedIn signs the Session in by Direct Sign-In and returns the answer.
func (r *rig) signedIn(t testing.TB, sessionID, scope, account string) answer {
	t.Helper()
	return r.ok(t, r.exchange(t, r.approve(t, r.agent, scope, account), sessionID))
}

// device is a right device authorization request.
func (r *rig) device(t testing.TB, scope string) *request {
	t.Helper()
	q := &request{url: r.company.Issuer.DeviceAuthorizationEndpoint(), contentType: formType}
	q.form = r.agent.ClientForm(t, r.company.Issuer.TokenEndpoint(), r.now())
	q.form.Set("scope", scope)
	return q
}

// poll is a right poll of a Device Sign-In.
func (r *rig) poll(t testing.TB, deviceCode, sessionID string) *request {
	t.Helper()
	return r.tokenRequest(t, r.agent.PollForm(t, deviceCode, sessionID, r.company.Issuer.TokenEndpoint(), r.now()))
}

// decide is what the device page does with the User's decision; no scope declines.
func (r *rig) decide(t testing.TB, userCode, scope, account string) {
	t.Helper()
	found, err := r.signIns.FindDevice(r.company.Ctx(t.Context()), &sessionsv1.FindDeviceRequest{UserCode: userCode})
	require.NoError(t, err)
	ask := &sessionsv1.DecideDeviceRequest{DeviceId: found.GetDeviceId(), ApprovedScope: scope}
	if scope != "" {
		ask.Account = &sessionsv1.Account{Id: account, Label: email}
	}
	_, err = r.signIns.DecideDevice(r.company.Ctx(t.Context()), ask)
	require.NoError(t, err)
}

// mediated is a request of Mediated Sign-In about to be sent.
type mediated struct {
	url, body, address string
	authorization      []string
	proofs             []string
	replica            bool
}

// mediatedAt is a right request to u, or the sign-in below the endpoint.
func (r *rig) mediatedAt(t testing.TB, token, id, body string) *mediated {
	t.Helper()
	u := r.company.Issuer.SignInEndpoint()
	if id != "" {
		u += "/" + id
	}
	return &mediated{
		url: u, body: body, authorization: []string{"DPoP " + token},
		proofs: []string{fixture.Proof(t, r.key, http.MethodPost, u, token, r.now())},
	}
}

// credentials is a right Mediated Sign-In.
func (r *rig) credentials(t testing.TB, token, scope, email, password string) *mediated {
	t.Helper()
	body, err := json.Marshal(map[string]any{"scope": scope, "credentials": map[string]string{"email": email, "password": password}})
	require.NoError(t, err)
	return r.mediatedAt(t, token, "", string(body))
}

// oneTimeCode is the second step.
func (r *rig) oneTimeCode(t testing.TB, token, id, code string) *mediated {
	t.Helper()
	body, err := json.Marshal(map[string]string{"code": code})
	require.NoError(t, err)
	return r.mediatedAt(t, token, id, string(body))
}

func (r *rig) sendMediated(t testing.TB, m *mediated) answer {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, m.url, strings.NewReader(m.body))
	req.Header.Set("Content-Type", "application/json")
	for _, v := range m.authorization {
		req.Header.Add("Authorization", v)
	}
	for _, p := range m.proofs {
		req.Header.Add("DPoP", p)
	}
	if m.address != "" {
		req.RemoteAddr = m.address
	}
	h := r.web
	if m.replica {
		h = r.replica
	}
	return r.serveBy(t, h, req)
}

// status sends a request that has to be answered with a status.
func (r *rig) status(t testing.TB, m *mediated, status string) answer {
	t.Helper()
	a := r.sendMediated(t, m)
	require.Equal(t, http.StatusOK, a.status, a.raw)
	require.Equal(t, status, a.text("status"), a.raw)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.NotContains(t, a.raw, password)
	return a
}

// refusedMediated sends a request that has to get an error.
func (r *rig) refusedMediated(t testing.TB, m *mediated, status int, code string) answer {
	t.Helper()
	a := r.sendMediated(t, m)
	require.Equal(t, code, a.text("error"), a.raw)
	require.Equal(t, status, a.status, a.raw)
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.NotContains(t, a.raw, password)
	return a
}

// caller is what the token of a signed-in or signed-out Session stands for.
func (r *rig) caller(t testing.TB, token string) *sessionsv1.VerifyRequestResponse {
	t.Helper()
	u := r.company.Issuer.String() + place
	got, err := r.sessions.VerifyRequest(r.company.Ctx(t.Context()), &sessionsv1.VerifyRequestRequest{
		Authorization: []string{"DPoP " + token},
		Proof:         &sessionsv1.ProofOfRequest{Proofs: []string{fixture.Proof(t, r.key, http.MethodPost, u, token, r.now())}, Method: http.MethodPost, Url: u},
	})
	require.NoError(t, err)
	return got
}

// requireSignedIn checks that a is the answer of Poppy 4.4 with an Account Token.
func (r *rig) requireSignedIn(t testing.TB, a answer, sessionID, scope, account string) {
	t.Helper()
	require.Equal(t, "DPoP", a.text("token_type"))
	require.InDelta(t, 3600, a.body["expires_in"], 0)
	require.Equal(t, true, a.body["signed_in"])
	require.Equal(t, sessionID, a.text("session_id"))
	require.Equal(t, scope, a.text("scope"))
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.Regexp(t, `^pat_[A-Za-z0-9_-]{43}$`, a.text("refresh_token"))
	require.InDelta(t, days30, a.body["refresh_token_expires_in"], 0)
	c := r.caller(t, a.text("access_token"))
	require.True(t, c.GetSignedIn())
	require.Equal(t, account, c.GetAccount())
	require.ElementsMatch(t, strings.Fields(scope), c.GetScopes())
	require.Equal(t, sessionID, c.GetSessionId())
}
