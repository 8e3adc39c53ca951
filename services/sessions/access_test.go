package sessions_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

const (
	ordersURL = "https://api.example.com/orders"
	mcpURL    = "https://mcp.example.com/mcp"
	ownURL    = "https://own.example.com/things"
)

// withAPIs gives the Company an API with rules, one that wants tokens of its own, and an MCP server.
func withAPIs(r *rig) {
	r.company.Snapshot.Apis = []*directoryv1.Api{
		{Url: "https://example.com/openapi.json", BaseUrls: []string{"https://api.example.com"}, Rules: []*directoryv1.AccessRule{
			{Methods: []string{"GET"}, Path: "/orders"},
			{Path: "/orders/**", Scopes: []string{"poppy:read", "poppy:write"}},
			{Path: "/account", SignIn: true},
		}},
		{Url: "https://example.com/own.json", BaseUrls: []string{"https://own.example.com"}, Resource: "https://own.example.com/"},
		{Url: mcpURL, Mcp: true, Resource: mcpURL},
	}
	r.company.Snapshot.McpUrls = []string{mcpURL}
	r.offer(nil)
	r.company.Snapshot.Resources = []string{"https://own.example.com/", mcpURL}
	r.Changed(r.company)
}

// ask has a request judged; changes are those of a right one with the token.
func (r *rig) ask(t testing.TB, token string, change func(*use)) *adminv1.VerifyRequestResponse {
	t.Helper()
	got, err := r.tryAsk(t, token, change)
	require.NoError(t, err)
	return got
}

func (r *rig) tryAsk(t testing.TB, token string, change func(*use)) (*adminv1.VerifyRequestResponse, error) {
	t.Helper()
	u := &use{authorization: []string{"DPoP " + token}, token: token, method: "GET", url: ordersURL, signer: r.key}
	if change != nil {
		change(u)
	}
	if u.proofs == nil {
		u.proofs = []string{fixture.Proof(t, u.signer, u.method, u.url, u.token, r.Clock.Now(), u.proof...)}
	}
	q := &adminv1.VerifyRequestRequest{Parent: r.company.Scope.Name(), Method: u.method, Url: u.url, Headers: []*adminv1.HeaderField{{Name: "cookie", Value: "a=b"}}}
	for _, v := range u.authorization {
		q.Headers = append(q.Headers, &adminv1.HeaderField{Name: "authorization", Value: v})
	}
	for _, v := range u.proofs {
		q.Headers = append(q.Headers, &adminv1.HeaderField{Name: "dpop", Value: v})
	}
	return r.access.VerifyRequest(r.company.Ctx(t.Context()), q)
}

func headersOf(a *adminv1.VerifyRequestResponse) map[string]string {
	out := map[string]string{}
	for _, h := range a.GetHeaders() {
		out[h.GetName()] = h.GetValue()
	}
	return out
}

// notAllowed checks that a request is refused as an agent has to see it.
func notAllowed(t testing.TB, a *adminv1.VerifyRequestResponse, status int32, reason problem.Reason, challenge string) {
	t.Helper()
	require.False(t, a.GetAllowed())
	require.Equal(t, status, a.GetStatus(), "%v", a)
	require.Equal(t, reason.Wire(), a.GetReason())
	var body map[string]string
	require.NoError(t, json.Unmarshal([]byte(a.GetBody()), &body))
	require.Equal(t, reason.Wire(), body["error"])
	if challenge == "" {
		require.NotContains(t, headersOf(a), "Www-Authenticate")
		return
	}
	require.Contains(t, headersOf(a)["Www-Authenticate"], challenge)
}

func TestVerifyRequest_ServesWhoMayBeServed(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/6#10", "poppy-0.1/6#4", "poppy-0.1/6#18", "poppy-0.1/6#31", "poppy-0.1/4.3#39")
	each(t, func(t *testing.T, r *rig) {
		withAPIs(r)
		opened := r.open(t, nil)
		got := r.ask(t, opened.GetAccessToken(), nil)
		require.True(t, got.GetAllowed())
		require.Equal(t, "https://example.com/openapi.json", got.GetApi())
		s := got.GetSession()
		require.Equal(t, []any{r.sessionName(opened.GetSessionId()), clientID, "Agent", userID, false, "", 0},
			[]any{s.GetSession(), s.GetClientId(), s.GetAgentName(), s.GetUser(), s.GetSignedIn(), s.GetAccount(), len(s.GetScopes())})
		require.True(t, s.GetExpireTime().AsTime().After(r.Clock.Now()))
		require.Empty(t, got.GetHeaders())
		require.Zero(t, got.GetStatus())

		in := r.signSessionIn(t, opened.GetSessionId(), func(q *sessionsv1.IssueCodeRequest) { q.Scope = "poppy:read poppy:write" })
		got = r.ask(t, in.GetAccessToken(), func(u *use) { u.method, u.url = "POST", ordersURL+"/7/exchanges" })
		require.True(t, got.GetAllowed(), "%v", got)
		require.True(t, got.GetSession().GetSignedIn())
		require.Equal(t, []string{"poppy:read", "poppy:write"}, got.GetSession().GetScopes())
		require.NotEmpty(t, got.GetSession().GetAccount())

		own := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.Resource = "https://own.example.com/" }).GetAccessToken()
		require.True(t, r.ask(t, own, func(u *use) { u.url = ownURL }).GetAllowed())
		notAllowed(t, r.ask(t, own, nil), 401, problem.InvalidToken, `DPoP error="invalid_token"`)
		notAllowed(t, r.ask(t, opened.GetAccessToken(), func(u *use) { u.url = ownURL }), 401, problem.InvalidToken, `DPoP error="invalid_token"`)
	})
}

func TestVerifyRequest_RefusesWithWhatTheAgentHasToBeTold(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/6#19", "poppy-0.1/6#20", "poppy-0.1/6#21", "poppy-0.1/6#23", "poppy-0.1/6#25", "poppy-0.1/6#26", "poppy-0.1/6#27", "poppy-0.1/6#29",
		"poppy-0.1/6#30", "poppy-0.1/6#32")
	clausetest.Refuses(t, "poppy-0.1/6#20", "poppy-0.1/6#23", "poppy-0.1/6#25", "poppy-0.1/6#27", "poppy-0.1/4.3#33")
	each(t, func(t *testing.T, r *rig) {
		withAPIs(r)
		opened := r.open(t, nil)
		token := opened.GetAccessToken()
		changes := func(u *use) { u.method, u.url = "POST", ordersURL+"/7" }
		notAllowed(t, r.ask(t, token, changes), 403, problem.SignInRequired, `DPoP error="sign_in_required"`)
		notAllowed(t, r.ask(t, token, func(u *use) { u.url = "https://api.example.com/account" }), 403, problem.SignInRequired, `DPoP error="sign_in_required"`)
		refused := r.ask(t, token, changes)
		require.Equal(t, clientID, refused.GetSession().GetClientId(), "who it is, is known")
		in := r.signSessionIn(t, opened.GetSessionId(), func(q *sessionsv1.IssueCodeRequest) { q.Scope = "poppy:read" }).GetAccessToken()
		lacks := r.ask(t, in, changes)
		notAllowed(t, lacks, 403, problem.InsufficientScope, `DPoP error="insufficient_scope"`)
		require.Contains(t, headersOf(lacks)["Www-Authenticate"], `scope="poppy:read poppy:write"`)
		notAllowed(t, r.ask(t, in, func(u *use) { u.url = "https://api.example.com/other" }), 403, problem.AccessDenied, "")

		for name, change := range map[string]func(*use){
			"no token":          func(u *use) { u.authorization, u.proofs = nil, []string{} },
			"unknown token":     func(u *use) { u.authorization = []string{"DPoP pst_unknown"} },
			"Bearer downgrade":  func(u *use) { u.authorization, u.proofs = []string{"Bearer " + token}, []string{} },
			"bEaRer downgrade":  func(u *use) { u.authorization = []string{"bEaRer " + token} },
			"a token of an MCP": func(u *use) { u.authorization = []string{"Bearer " + r.open(t, bearer(mcpURL)).GetAccessToken()} },
		} {
			got := r.ask(t, token, change)
			require.False(t, got.GetAllowed(), name)
			require.Equal(t, int32(401), got.GetStatus(), name)
			require.Contains(t, headersOf(got)["Www-Authenticate"], "DPoP ", name)
			require.Nil(t, got.GetSession(), name)
			require.NotContains(t, got.String(), token, name)
		}
		twice := r.ask(t, token, func(u *use) { u.authorization = append(u.authorization, "Bearer x") })
		require.Equal(t, []any{false, int32(400)}, []any{twice.GetAllowed(), twice.GetStatus()})
		spent := fixture.Proof(t, r.key, "GET", ordersURL, token, r.Clock.Now())
		require.True(t, r.ask(t, token, func(u *use) { u.proofs = []string{spent} }).GetAllowed())
		for name, change := range map[string]func(*use){
			"replayed":       func(u *use) { u.proofs = []string{spent} },
			"no proof":       func(u *use) { u.proofs = []string{} },
			"wrong key":      func(u *use) { u.signer = fixture.NewKey(t) },
			"another method": func(u *use) { u.proof = []fixture.Change{fixture.Claim("htm", "POST")} },
			"another path":   func(u *use) { u.proof = []fixture.Change{fixture.Claim("htu", ordersURL+"/7")} },
			"another host":   func(u *use) { u.proof = []fixture.Change{fixture.Claim("htu", "https://evil.example/orders")} },
			"another token":  func(u *use) { u.token = in },
			"old": func(u *use) {
				u.proof = []fixture.Change{fixture.Claim("iat", r.Clock.Now().Add(-10*time.Minute).Unix())}
			},
		} {
			t.Log(name)
			notAllowed(t, r.ask(t, token, change), 401, problem.InvalidDPoPProof, `DPoP error="invalid_dpop_proof"`)
		}
		// Behind a proxy the scheme is another one: what counts is the configured address.
		require.True(t, r.ask(t, token, func(u *use) {
			u.proofs, u.url = []string{fixture.Proof(t, r.key, "GET", ordersURL, token, r.Clock.Now())}, "http://api.example.com/orders?x=1"
		}).GetAllowed())

		_, err := r.admin.EndSession(r.company.Ctx(t.Context()), &adminv1.EndSessionRequest{Name: r.sessionName(opened.GetSessionId())})
		require.NoError(t, err)
		notAllowed(t, r.ask(t, token, nil), 401, problem.InvalidToken, `DPoP error="invalid_token"`)
	})
}

func TestVerifyRequest_MCPTakesItsOwnBearerTokensOnly(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/6#6", "poppy-0.1/6#11", "poppy-0.1/6#12", "poppy-0.1/6#14", "poppy-0.1/6#29")
	clausetest.Refuses(t, "poppy-0.1/6#14", "poppy-0.1/4.3#32")
	each(t, func(t *testing.T, r *rig) {
		withAPIs(r)
		r.company.Snapshot.Apis = append(r.company.Snapshot.Apis, &directoryv1.Api{Url: "https://mcp.example.com/two", Mcp: true, Resource: "https://mcp.example.com/two"})
		r.company.Snapshot.McpUrls = append(r.company.Snapshot.McpUrls, "https://mcp.example.com/two")
		r.Changed(r.company)
		token := r.open(t, bearer(mcpURL)).GetAccessToken()
		at := func(url string) func(*use) {
			return func(u *use) {
				u.method, u.url, u.authorization, u.proofs = "POST", url, []string{"Bearer " + token}, []string{}
			}
		}
		require.True(t, r.ask(t, token, at(mcpURL)).GetAllowed())
		require.True(t, r.ask(t, token, at(mcpURL)).GetAllowed(), "as often as it likes")
		notAllowed(t, r.ask(t, token, at("https://mcp.example.com/two")), 401, problem.InvalidToken, `Bearer error="invalid_token"`)
		notAllowed(t, r.ask(t, token, at(ordersURL)), 401, problem.InvalidToken, `DPoP error="invalid_token"`)
		bound := r.open(t, nil).GetAccessToken()
		notAllowed(t, r.ask(t, bound, func(u *use) { u.method, u.url = "POST", mcpURL }), 401, problem.InvalidToken, `Bearer error="invalid_token"`)
	})
}

func TestVerifyRequest_NoncesAndLimits(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/6#28", "poppy-0.1/4.3#46")
	each(t, func(t *testing.T, r *rig) {
		withAPIs(r)
		token := r.open(t, nil).GetAccessToken()
		_, err := r.admission.UpdateAdmission(r.company.Ctx(t.Context()), &adminv1.UpdateAdmissionRequest{
			Admission: &adminv1.Admission{Name: r.company.Scope.Name() + "/admission", RequireDpopNonce: true},
		})
		require.NoError(t, err)
		got := r.ask(t, token, nil)
		notAllowed(t, got, 401, problem.UseDPoPNonce, `DPoP error="use_dpop_nonce"`)
		nonce := headersOf(got)["Dpop-Nonce"]
		require.NotEmpty(t, nonce)
		require.NotContains(t, got.GetBody(), nonce)
		again := r.ask(t, token, func(u *use) { u.proof = []fixture.Change{fixture.Claim("nonce", nonce)} })
		require.True(t, again.GetAllowed())
		require.NotEmpty(t, headersOf(again)["DPoP-Nonce"])

		r.company.Snapshot.RequestsPerMinute = 1
		r.Changed(r.company)
		limited := func() *adminv1.VerifyRequestResponse {
			return r.ask(t, token, func(u *use) { u.proof = []fixture.Change{fixture.Claim("nonce", nonce)} })
		}
		require.Eventually(t, func() bool { return limited().GetStatus() == 429 }, 10*time.Second, time.Millisecond)
		require.NotEmpty(t, headersOf(limited())["Retry-After"])
	})
}

func TestVerifyRequest_WhatTheCompanyDoesWrongIsItsError(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		withAPIs(r)
		token := r.open(t, nil).GetAccessToken()
		for _, url := range []string{"https://other.example/orders", "/orders", "https://api.example.com/a/../orders", "https://api.example.com//orders"} {
			_, err := r.tryAsk(t, token, func(u *use) { u.url, u.proofs = url, []string{"x"} })
			requireReason(t, err, problem.InvalidRequest)
		}
		// Of another Company nothing is known, nor of its tokens.
		other := r.NewCompany(t)
		_, err := r.access.VerifyRequest(other.Ctx(t.Context()), &adminv1.VerifyRequestRequest{Parent: r.company.Scope.Name(), Method: "GET", Url: ordersURL})
		requireReason(t, err, problem.NotFoundReason)
		got, err := r.access.IntrospectToken(other.Ctx(t.Context()), &adminv1.IntrospectTokenRequest{Parent: other.Scope.Name(), Token: token})
		require.NoError(t, err)
		require.False(t, got.GetActive())
	})
}

func TestIntrospectToken(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		withAPIs(r)
		opened := r.open(t, nil)
		of := func(token string) *adminv1.IntrospectTokenResponse {
			got, err := r.access.IntrospectToken(r.company.Ctx(t.Context()), &adminv1.IntrospectTokenRequest{Parent: r.company.Scope.Name(), Token: token})
			require.NoError(t, err)
			return got
		}
		got := of(opened.GetAccessToken())
		require.True(t, got.GetActive())
		require.Equal(t, []any{"DPoP", "", false}, []any{got.GetTokenType(), got.GetResource(), got.GetSession().GetSignedIn()})
		require.NotEmpty(t, got.GetJkt())
		require.Equal(t, r.company.Issuer.String(), got.GetIssuer())
		require.WithinDuration(t, r.Clock.Now(), got.GetIssueTime().AsTime(), time.Second)
		mcp := of(r.open(t, bearer(mcpURL)).GetAccessToken())
		require.Equal(t, []any{"Bearer", mcpURL, ""}, []any{mcp.GetTokenType(), mcp.GetResource(), mcp.GetJkt()})

		in := r.signSessionIn(t, opened.GetSessionId(), func(q *sessionsv1.IssueCodeRequest) { q.Scope = "poppy:read" })
		require.Equal(t, []string{"poppy:read"}, of(in.GetAccessToken()).GetSession().GetScopes())
		require.False(t, of(opened.GetAccessToken()).GetSession().GetSignedIn(), "a token from before stays signed out")
		for _, unknown := range []string{"pst_unknown", in.GetRefreshToken(), "x"} {
			got := of(unknown)
			require.False(t, got.GetActive())
			require.Nil(t, got.GetSession())
		}
		_, err := r.admin.EndSession(r.company.Ctx(t.Context()), &adminv1.EndSessionRequest{Name: r.sessionName(opened.GetSessionId())})
		require.NoError(t, err)
		require.False(t, of(in.GetAccessToken()).GetActive())
	})
}
