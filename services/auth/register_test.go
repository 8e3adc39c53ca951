package auth_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

const (
	mcpServer   = "https://mcp.example.com/mcp"
	mcpRedirect = "http://127.0.0.1:51234/back"
)

// eachMCP runs fn on a rig whose Company has an MCP server that clients register for.
func eachMCP(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.McpUrls, r.company.Snapshot.McpRegistration = []string{mcpServer}, true
		r.Changed(r.company)
		fn(t, r)
	})
}

func (r *rig) register(t testing.TB, address string) answer {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, r.company.Issuer.RegistrationEndpoint(), strings.NewReader(`{"redirect_uris":["http://127.0.0.1/back"]}`))
	req.RemoteAddr = address
	return r.serve(t, req)
}

// plainCode is what the pages give a plain client once the User has approved.
func (r *rig) plainCode(t testing.TB, clientID string) string {
	t.Helper()
	got, err := r.signIns.IssueCode(r.company.Ctx(t.Context()), &sessionsv1.IssueCodeRequest{
		ClientId: clientID, AgentName: "Tool", RedirectUri: mcpRedirect, CodeChallenge: fixture.Challenge(fixture.Verifier),
		Scope: both, Account: &sessionsv1.Account{Id: "acc-1", Label: email}, Resource: mcpServer,
	})
	require.NoError(t, err)
	return got.GetCode()
}

func (r *rig) plainRequest(form url.Values) *request {
	return &request{url: r.company.Issuer.TokenEndpoint(), contentType: formType, form: form}
}

func (r *rig) plainExchange(t testing.TB, clientID string) *request {
	t.Helper()
	return r.plainRequest(url.Values{
		"grant_type": {"authorization_code"}, "client_id": {clientID}, "code": {r.plainCode(t, clientID)}, "redirect_uri": {mcpRedirect},
		"code_verifier": {fixture.Verifier}, "resource": {mcpServer},
	})
}

func TestRegister_SoManyFromAnAddressInADay(t *testing.T) {
	eachMCP(t, func(t *testing.T, r *rig) {
		for i := range 20 {
			require.Equal(t, http.StatusCreated, r.register(t, "203.0.113.7:"+strconv.Itoa(1000+i)).status)
		}
		refused := r.register(t, "203.0.113.7:999")
		require.Equal(t, http.StatusTooManyRequests, refused.status)
		require.NotEmpty(t, refused.header.Get("Retry-After"))
		require.Equal(t, http.StatusCreated, r.register(t, "203.0.113.8:999").status)
		r.Clock.Advance(24*time.Hour + time.Second)
		require.Equal(t, http.StatusCreated, r.register(t, "203.0.113.7:999").status)
	})
}

func TestRegister_ExpiresWhenItIsNotUsed(t *testing.T) {
	eachMCP(t, func(t *testing.T, r *rig) {
		unused, used := r.register(t, "203.0.113.7:1").text("client_id"), r.register(t, "203.0.113.7:1").text("client_id")
		refresh := r.ok(t, r.plainExchange(t, used)).text("refresh_token")
		r.Clock.Advance(24*time.Hour + time.Second)
		r.refused(t, r.plainExchange(t, unused), http.StatusUnauthorized, "invalid_client")
		require.NoError(t, r.service.Prune(t.Context()))
		r.refused(t, r.plainExchange(t, unused), http.StatusUnauthorized, "invalid_client")
		form := url.Values{"grant_type": {"refresh_token"}, "client_id": {used}, "refresh_token": {refresh}}
		r.ok(t, r.plainRequest(form))
		r.Clock.Advance(90*24*time.Hour + time.Second)
		require.NoError(t, r.service.Prune(t.Context()))
		r.refused(t, r.plainRequest(form), http.StatusUnauthorized, "invalid_client")
	})
}

// What a plain client replaced is good for a minute more; later it ends the sign-in.
func TestRT01_APlainClientsRefreshTokenReused(t *testing.T) {
	eachMCP(t, func(t *testing.T, r *rig) {
		client := r.register(t, "203.0.113.7:1").text("client_id")
		first := r.ok(t, r.plainExchange(t, client))
		refresh := func(token string) *request {
			return r.plainRequest(url.Values{"grant_type": {"refresh_token"}, "client_id": {client}, "refresh_token": {token}})
		}
		next := r.ok(t, refresh(first.text("refresh_token")))
		r.Clock.Advance(59 * time.Second)
		require.Equal(t, next.text("refresh_token"), r.ok(t, refresh(first.text("refresh_token"))).text("refresh_token"))
		require.NoError(t, r.useBearer(t, next.text("access_token"), mcpServer))
		r.Clock.Advance(2 * time.Second)
		r.refused(t, refresh(first.text("refresh_token")), http.StatusBadRequest, "invalid_grant")
		r.refused(t, refresh(next.text("refresh_token")), http.StatusBadRequest, "invalid_grant")
	})
}

// What was given to one kind of client is unknown from the other, were their client_id the same.
func TestMCP_NoAgentRedeemsAPlainClientsCode(t *testing.T) {
	eachMCP(t, func(t *testing.T, r *rig) {
		id := r.session(t)
		q := r.exchange(t, r.plainCode(t, r.agent.ClientID), id)
		q.form.Set("redirect_uri", mcpRedirect)
		r.refused(t, q, http.StatusBadRequest, "invalid_grant")
		_, err := r.signIns.ExchangePlain(r.company.Ctx(t.Context()), &sessionsv1.ExchangePlainRequest{
			ClientId: r.agent.ClientID, Grant: &sessionsv1.ExchangePlainRequest_Code{Code: &sessionsv1.CodeGrant{
				Code: r.approve(t, r.agent, both, "acc-1"), RedirectUri: r.agent.RedirectURI(), CodeVerifier: fixture.Verifier,
			}},
		})
		requireReason(t, err, problem.InvalidGrant)
		account := r.signedIn(t, id, both, "acc-1").text("refresh_token")
		_, err = r.signIns.ExchangePlain(r.company.Ctx(t.Context()), &sessionsv1.ExchangePlainRequest{
			ClientId: r.agent.ClientID, Grant: &sessionsv1.ExchangePlainRequest_RefreshToken{RefreshToken: &sessionsv1.AccountTokenGrant{Token: account}},
		})
		requireReason(t, err, problem.InvalidGrant)
		_, err = r.signIns.IssueCode(r.company.Ctx(t.Context()), &sessionsv1.IssueCodeRequest{
			ClientId: "mcl_1", RedirectUri: mcpRedirect, CodeChallenge: fixture.Challenge(fixture.Verifier), Scope: both,
			Account: &sessionsv1.Account{Id: "acc-1"}, Resource: "https://elsewhere.example/mcp",
		})
		requireReason(t, err, problem.InvalidTarget)
	})
}

// Where the Session has ended the client goes on in another one, of the same User.
func TestMCP_APlainClientsSessionEnded(t *testing.T) {
	eachMCP(t, func(t *testing.T, r *rig) {
		client := r.register(t, "203.0.113.7:1").text("client_id")
		first := r.ok(t, r.plainExchange(t, client))
		_, err := r.admin.EndSession(r.company.Ctx(t.Context()), &adminv1.EndSessionRequest{Name: r.company.Scope.Name() + "/sessions/" + first.text("session_id")})
		require.NoError(t, err)
		next := r.ok(t, r.plainRequest(url.Values{"grant_type": {"refresh_token"}, "client_id": {client}, "refresh_token": {first.text("refresh_token")}}))
		require.NotEqual(t, first.text("session_id"), next.text("session_id"))
		require.Equal(t, true, next.body["signed_in"])
	})
}
