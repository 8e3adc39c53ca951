package main

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// plainClient is an MCP client that knows nothing of Poppy.
type plainClient struct {
	co                *company
	id, redirect, mcp string
}

var metadataAt = regexp.MustCompile(`resource_metadata="([^"]+)"`)

// mcpCompany is a Company whose Users sign in, with two MCP servers.
func mcpCompany(t testing.TB, in *installation) (*company, string, string) {
	t.Helper()
	co := signsIn(t, in)
	mcp, other := "https://mcp.shop.test/"+fixture.RandomID(), "https://mcp.shop.test/other/"+fixture.RandomID()
	co.patch(t, "discoverySettings", object{"apis": []any{
		object{"type": "mcp", "url": mcp, "description": "Orders", "rules": []any{object{"path": "/", "scopes": []any{"poppy:read"}}}},
		object{"type": "mcp", "url": other},
		object{"type": "openapi", "url": "https://api.shop.test/openapi.json", "base_urls": []any{"https://api.shop.test"}},
	}})
	return co, mcp, other
}

// judgeBearer is what the Company's MCP server, or another API, is told of a Bearer token.
func (co *company) judgeBearer(t testing.TB, at, token string) answer {
	t.Helper()
	headers := []any{}
	if token != "" {
		headers = append(headers, object{"name": "Authorization", "value": "Bearer " + token})
	}
	return co.admin(t, http.MethodPost, co.name+":verifyRequest", object{"method": "POST", "url": at, "headers": headers}).is(t, http.StatusOK, "")
}

// challengeOf is the WWW-Authenticate of a refused call.
func challengeOf(t testing.TB, a answer) string {
	t.Helper()
	all, _ := a.body["headers"].([]any)
	for _, one := range all {
		if h, _ := one.(map[string]any); h["name"] == "Www-Authenticate" {
			return h["value"].(string)
		}
	}
	t.Fatalf("no challenge in %s", a.raw)
	return ""
}

// documented is a plain client with a document of its own.
func (in *installation) documented(t testing.TB, co *company, mcp string) *plainClient {
	t.Helper()
	host := agentsHost + "/" + fixture.RandomID()
	c := &plainClient{co: co, id: "https://" + host + "/client.json", redirect: "http://127.0.0.1:51234/back", mcp: mcp}
	in.web.put(host+"/client.json", document("application/json", []byte(`{"client_id":"`+c.id+`","client_name":"Example Agent",
		"redirect_uris":["http://127.0.0.1/back","https://`+host+`/back"],"token_endpoint_auth_method":"none"}`)))
	return c
}

func (c *plainClient) link(change ...func(url.Values)) string {
	q := url.Values{
		"response_type": {"code"}, "client_id": {c.id}, "redirect_uri": {c.redirect}, "scope": {bothScopes}, "state": {"st"}, "resource": {c.mcp},
		"code_challenge": {fixture.Challenge(fixture.Verifier)}, "code_challenge_method": {"S256"},
	}
	for _, f := range change {
		f(q)
	}
	return c.co.issuer + "/oauth/authorize?" + q.Encode()
}

// code has the User sign in to account and approve.
func (c *plainClient) code(t testing.TB, account string, ticked ...string) string {
	t.Helper()
	b := c.co.browser()
	a := b.decide(t, b.open(t, c.link()), account, "approve", ticked...)
	require.Equal(t, http.StatusSeeOther, a.status, "%s", a.raw)
	to, err := url.Parse(a.header.Get("Location"))
	require.NoError(t, err)
	require.Equal(t, c.redirect, to.Scheme+"://"+to.Host+to.Path)
	require.Equal(t, []string{"st", c.co.issuer}, []string{to.Query().Get("state"), to.Query().Get("iss")})
	return to.Query().Get("code")
}

func (c *plainClient) codeForm(code string, change ...func(url.Values)) url.Values {
	f := url.Values{
		"grant_type": {"authorization_code"}, "client_id": {c.id}, "code": {code}, "redirect_uri": {c.redirect},
		"code_verifier": {fixture.Verifier}, "resource": {c.mcp},
	}
	for _, change := range change {
		change(f)
	}
	return f
}

func (c *plainClient) refreshForm(token string, change ...func(url.Values)) url.Values {
	f := url.Values{"grant_type": {"refresh_token"}, "client_id": {c.id}, "refresh_token": {token}, "resource": {c.mcp}}
	for _, change := range change {
		change(f)
	}
	return f
}

// RFC 9728: what an MCP server's challenge leads to (PR-01, PR-03).
func TestPR01_MetadataOfAnMCPServer(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#1", "poppy-0.1/6#2", "poppy-0.1/6#5", "poppy-0.1/6#7", "poppy-0.1/6#9", "poppy-0.1/6#15", "poppy-0.1/6#16", "poppy-0.1/6#19",
			"poppy-0.1/6#21", "poppy-0.1/6#29", "poppy-0.1/6#30")
		clausetest.Refuses(t, "poppy-0.1/6#12", "poppy-0.1/6#20")
		co, mcp, other := mcpCompany(t, in)
		refused := co.judgeBearer(t, mcp, "")
		require.Equal(t, []any{401.0, "invalid_token"}, []any{refused.body["status"], refused.body["reason"]})
		challenge := challengeOf(t, refused)
		require.True(t, strings.HasPrefix(challenge, `Bearer error="invalid_token"`), challenge)
		require.NotContains(t, refused.str("body"), "resource_metadata")
		at := metadataAt.FindStringSubmatch(challenge)
		require.NotNil(t, at, challenge)
		require.True(t, strings.HasPrefix(at[1], co.issuer+"/"))

		got := in.get(t, at[1]).is(t, http.StatusOK, "")
		require.Equal(t, map[string]any{
			"resource": mcp, "authorization_servers": []any{co.issuer}, "bearer_methods_supported": []any{"header"},
			"scopes_supported": []any{"poppy:read", "poppy:write"}, "resource_name": "Orders",
		}, got.body)
		require.Equal(t, []string{"application/json", "*", "public, max-age=300"},
			[]string{got.header.Get("Content-Type"), got.header.Get("Access-Control-Allow-Origin"), got.header.Get("Cache-Control")})
		require.Equal(t, http.StatusNotModified, in.get(t, at[1], header("If-None-Match", got.header.Get("ETag"))).status)

		second := metadataAt.FindStringSubmatch(challengeOf(t, co.judgeBearer(t, other, "")))
		require.Equal(t, other, in.get(t, second[1]).is(t, http.StatusOK, "").str("resource"))
		in.get(t, strings.Replace(at[1], ".json", "x.json", 1)).is(t, http.StatusNotFound, "not_found")
		// The Company's own host, and another Company, know nothing of it at the well-known place.
		in.get(t, co.issuer+"/.well-known/oauth-protected-resource").is(t, http.StatusNotFound, "not_found")
		stranger := signsIn(t, in)
		in.get(t, strings.Replace(at[1], co.issuer, stranger.issuer, 1)).is(t, http.StatusNotFound, "not_found")
	})
}

// An MCP server on the issuer's own host has its metadata where RFC 9728 3.1 looks for it.
func TestPR01_WellKnownPlaceOfAnMCPServer(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#15")
		clausetest.Refuses(t, "poppy-0.1/6#15")
		for _, path := range []string{"", "/t/acme"} {
			var change []func(*plan)
			if path != "" {
				change = append(change, issuerPath(path))
			}
			co := in.company(t, change...)
			origin := strings.TrimSuffix(co.issuer, path)
			mcp := origin + path + "/tools/mcp"
			co.patch(t, "discoverySettings", object{"apis": []any{object{"type": "mcp", "url": mcp}}})
			const wellKnown = "/.well-known/oauth-protected-resource"
			got := in.get(t, origin+wellKnown+path+"/tools/mcp").is(t, http.StatusOK, "")
			require.Equal(t, []any{mcp, []any{co.issuer}}, []any{got.body["resource"], got.body["authorization_servers"]})
			for _, unknown := range []string{wellKnown, wellKnown + "/", wellKnown + path + "/tools", wellKnown + path + "/tools/mcp/", wellKnown + path + "/tools/mcp?x=1"} {
				in.get(t, origin+unknown).is(t, http.StatusNotFound, "not_found")
			}
		}
	})
}

// A client with nothing but its document signs a User in, by MCP's own flow.
func TestMCP_PlainClientSignsIn(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#6", "poppy-0.1/6#11", "poppy-0.1/6#12", "poppy-0.1/6#13", "poppy-0.1/6#14", "poppy-0.1/6#17", "poppy-0.1/6#18",
			"poppy-0.1/6#31", "poppy-0.1/6#d35", "poppy-0.1/4.3#30", "poppy-0.1/4.3#32")
		clausetest.Refuses(t, "poppy-0.1/6#13", "poppy-0.1/6#14", "poppy-0.1/4.3#30", "poppy-0.1/4.3#32", "poppy-0.1/4.3#33", "poppy-0.1/6#11",
			"poppy-0.1/6#6", "poppy-0.1/6#25", "poppy-0.1/6#26", "poppy-0.1/6#32", "poppy-0.1/6#d35")
		co, mcp, other := mcpCompany(t, in)
		require.Equal(t, []any{"private_key_jwt", "none"}, co.metadata(t).body["token_endpoint_auth_methods_supported"])
		require.NotContains(t, co.metadata(t).body, "registration_endpoint")
		c := in.documented(t, co, mcp)
		got := co.token(t, c.codeForm(c.code(t, "acc-1", "poppy:read"))).is(t, http.StatusOK, "")
		require.Equal(t, []any{"Bearer", true, "poppy:read"}, []any{got.body["token_type"], got.body["signed_in"], got.body["scope"]})
		token := got.str("access_token")

		served := co.judgeBearer(t, mcp, token)
		require.Equal(t, true, served.body["allowed"], "%s", served.raw)
		who, _ := served.body["session"].(map[string]any)
		require.Equal(t, []any{c.id, "acc-1", co.name + "/sessions/" + got.str("session_id")}, []any{who["client_id"], who["account"], who["session"]})
		require.NotContains(t, string(got.raw), who["user"])

		// It is good nowhere else, in either scheme.
		for _, elsewhere := range []string{other, "https://api.shop.test/orders"} {
			require.Equal(t, "invalid_token", co.judgeBearer(t, elsewhere, token).body["reason"], elsewhere)
		}
		for _, scheme := range []string{"Bearer ", "DPoP "} {
			in.do(t, request(t, http.MethodPost, co.conversationsEndpoint(), `{}`, header("Authorization", scheme+token))).is(t, http.StatusUnauthorized, "")
		}
		stranger, theirs, _ := mcpCompany(t, in)
		require.Equal(t, "invalid_token", stranger.judgeBearer(t, theirs, token).body["reason"])

		// The scopes are the User's choice, and are enforced.
		narrow := co.token(t, c.codeForm(c.code(t, "acc-1", "poppy:write"))).is(t, http.StatusOK, "")
		refused := co.judgeBearer(t, mcp, narrow.str("access_token"))
		require.Equal(t, []any{403.0, "insufficient_scope"}, []any{refused.body["status"], refused.body["reason"]})
		require.Contains(t, challengeOf(t, refused), `scope="poppy:read"`)

		// One User ID for a client and account; another client has another.
		user := func(a answer) any {
			s, _ := co.judgeBearer(t, mcp, a.str("access_token")).body["session"].(map[string]any)
			return s["user"]
		}
		require.NotEqual(t, got.str("session_id"), narrow.str("session_id"))
		require.Equal(t, who["user"], user(narrow))
		second := in.documented(t, co, mcp)
		require.NotEqual(t, who["user"], user(co.token(t, second.codeForm(second.code(t, "acc-1", "poppy:read"))).is(t, http.StatusOK, "")))
		require.NotEqual(t, who["user"], user(co.token(t, c.codeForm(c.code(t, "acc-2", "poppy:read"))).is(t, http.StatusOK, "")))

		// The Company may turn the client away.
		co.rule(t, c.id, "BLOCK")
		require.Equal(t, "invalid_token", co.judgeBearer(t, mcp, token).body["reason"])
		require.Equal(t, http.StatusForbidden, in.get(t, c.link()).status)
	})
}

func TestMCP_PlainClientIsHeldToItsCode(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#17")
		clausetest.Refuses(t, "poppy-0.1/6#17", "poppy-0.1/4.3#29")
		co, mcp, other := mcpCompany(t, in)
		c := in.documented(t, co, mcp)
		// What may not be told by redirect is a page.
		for name, change := range map[string]func(url.Values){
			"another path":     with("redirect_uri", "http://127.0.0.1:51234/else"),
			"another host":     with("redirect_uri", "http://localhost:51234/back"),
			"not loopback":     with("redirect_uri", "http://127.0.0.1.evil.test/back"),
			"https loopback":   with("redirect_uri", "https://127.0.0.1/back"),
			"no redirect_uri":  without("redirect_uri"),
			"not registered":   with("client_id", "mcl_0123456789abcdefghjkmnpqrs"),
			"unreachable host": with("client_id", "https://"+agentsHost+"/nothing.json"),
		} {
			a := in.get(t, c.link(change))
			require.Equal(t, http.StatusBadRequest, a.status, name)
			require.Empty(t, a.header.Get("Location"), name)
		}
		for want, changes := range map[string][]func(url.Values){
			"invalid_target":  {without("resource"), with("resource", "https://api.shop.test"), with("resource", mcp+"/")},
			"invalid_request": {without("code_challenge"), with("code_challenge_method", "plain")},
			"invalid_scope":   {with("scope", "openid")},
		} {
			for _, change := range changes {
				a := in.get(t, c.link(change))
				require.Equal(t, http.StatusSeeOther, a.status)
				to, err := url.Parse(a.header.Get("Location"))
				require.NoError(t, err)
				require.Equal(t, []string{want, co.issuer}, []string{to.Query().Get("error"), to.Query().Get("iss")})
			}
		}

		code := c.code(t, "acc-1", "poppy:read")
		for want, changes := range map[string][]func(url.Values){
			"invalid_grant": {
				with("redirect_uri", "http://127.0.0.1:51235/back"), without("redirect_uri"), with("code_verifier", strings.Repeat("x", 43)),
				with("client_id", in.documented(t, co, mcp).id),
			},
			"invalid_target":  {with("resource", other)},
			"invalid_request": {without("code_verifier"), with("client_secret", "guess")},
		} {
			for _, change := range changes {
				co.token(t, c.codeForm(code, change)).is(t, http.StatusBadRequest, want)
			}
		}
		// Without authentication there is nothing else for it, and no agent gets by so.
		s := co.visitor(t)
		co.token(t, c.codeForm(code), s.proofFor(t, http.MethodPost, co.tokenEndpoint())).is(t, http.StatusBadRequest, "invalid_request")
		co.token(t, c.codeForm(code, with("client_id", s.agent.ClientID))).is(t, http.StatusUnauthorized, "invalid_client")
		co.token(t, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "client_id": {c.id}, "assertion": {"x"}, "resource": {mcp}}).
			is(t, http.StatusUnauthorized, "invalid_client")

		// The code is good once; its second use ends what it gave.
		token := co.token(t, c.codeForm(code, without("resource"))).is(t, http.StatusOK, "").str("access_token")
		require.Equal(t, true, co.judgeBearer(t, mcp, token).body["allowed"])
		co.token(t, c.codeForm(code)).is(t, http.StatusBadRequest, "invalid_grant")
		require.Equal(t, "sign_in_required", co.judgeBearer(t, mcp, token).body["reason"])

		// A server that is no longer listed takes nobody.
		late := c.code(t, "acc-1", "poppy:read")
		co.patch(t, "discoverySettings", object{"apis": []any{object{"type": "mcp", "url": other}}})
		require.Eventually(t, func() bool { // whoever judges tokens knows of the change
			return co.admin(t, http.MethodPost, co.name+":verifyRequest", object{"method": "POST", "url": mcp}).status == http.StatusBadRequest
		}, patience, 20*time.Millisecond)
		co.token(t, c.codeForm(late)).is(t, http.StatusBadRequest, "invalid_target")
	})
}

func TestRT01_RefreshTokenOfAPlainClient(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#17", "poppy-0.1/4.8#d14")
		clausetest.Refuses(t, "poppy-0.1/6#14", "poppy-0.1/4.8#d14")
		co, mcp, other := mcpCompany(t, in)
		c := in.documented(t, co, mcp)
		first := co.token(t, c.codeForm(c.code(t, "acc-1", "poppy:read", "poppy:write"))).is(t, http.StatusOK, "")
		next := co.token(t, c.refreshForm(first.str("refresh_token"), with("scope", "poppy:read"))).is(t, http.StatusOK, "")
		require.Equal(t, []any{"Bearer", "poppy:read", first.str("session_id")}, []any{next.body["token_type"], next.body["scope"], next.body["session_id"]})
		require.Equal(t, true, co.judgeBearer(t, mcp, next.str("access_token")).body["allowed"])
		// Within the grace an old token gives the same successor.
		again := co.token(t, c.refreshForm(first.str("refresh_token"))).is(t, http.StatusOK, "")
		require.NotEmpty(t, next.str("refresh_token"))
		require.NotEqual(t, first.str("refresh_token"), next.str("refresh_token"))
		require.Equal(t, next.str("refresh_token"), again.str("refresh_token"))

		token := next.str("refresh_token")
		co.token(t, c.refreshForm(token, with("resource", other))).is(t, http.StatusBadRequest, "invalid_target")
		co.token(t, c.refreshForm(token, with("client_id", in.documented(t, co, mcp).id))).is(t, http.StatusBadRequest, "invalid_grant")
		co.token(t, c.refreshForm(token, with("scope", "poppy:read addresses"))).is(t, http.StatusBadRequest, "invalid_scope")
		co.token(t, c.refreshForm("pat_unknown")).is(t, http.StatusBadRequest, "invalid_grant")
		// An agent's Account Token is none of these, nor is it one.
		s := co.visitor(t)
		account := s.direct(t, "acc-1", "poppy:read").is(t, http.StatusOK, "").str("refresh_token")
		co.token(t, c.refreshForm(account)).is(t, http.StatusBadRequest, "invalid_grant")
		co.token(t, s.agent.RefreshForm(t, token, co.tokenEndpoint(), now()), co.proof(t, s.key)).is(t, http.StatusBadRequest, "invalid_grant")
	})
}

// A client without a document registers itself, where the Company allows it.
func TestMCP_Registration(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#17")
		clausetest.Refuses(t, "poppy-0.1/6#17")
		co, mcp, _ := mcpCompany(t, in)
		register := func(body string) answer {
			return in.do(t, request(t, http.MethodPost, co.issuer+"/oauth/register", body, header("Content-Type", "application/json")))
		}
		const right = `{"client_name":"Example Agent","redirect_uris":["http://localhost/back","https://tool.test/back"],"token_endpoint_auth_method":"client_secret_post"}`
		register(right).is(t, http.StatusNotFound, "not_found")
		co.patch(t, "discoverySettings", object{"mcp_registration": true})
		require.Eventually(t, func() bool { return co.metadata(t).str("registration_endpoint") == co.issuer+"/oauth/register" }, patience, 20*time.Millisecond)
		for body, code := range map[string]string{
			`{}`: "invalid_redirect_uri",
			`[]`: "invalid_client_metadata",
			`{"redirect_uris":["http://tool.test/back"]}`:                                                          "invalid_redirect_uri",
			`{"redirect_uris":["javascript:alert(1)"]}`:                                                            "invalid_redirect_uri",
			`{"redirect_uris":["https://tool.test/#x"]}`:                                                           "invalid_redirect_uri",
			`{"redirect_uris":["https://tool.test/back"],"grant_types":["client_credentials"]}`:                    "invalid_client_metadata",
			`{"redirect_uris":["https://tool.test/back"],"response_types":["token"]}`:                              "invalid_client_metadata",
			`{"redirect_uris":["https://tool.test/back"],"redirect_uris":["https://other.test/back"]}`:             "invalid_client_metadata",
			`{"redirect_uris":[` + strings.TrimSuffix(strings.Repeat(`"https://tool.test/back",`, 11), ",") + `]}`: "invalid_redirect_uri",
		} {
			register(body).is(t, http.StatusBadRequest, code)
		}
		made := register(right).is(t, http.StatusCreated, "")
		require.Equal(t, []any{"none", "no-store"}, []any{made.body["token_endpoint_auth_method"], made.header.Get("Cache-Control")})
		require.NotContains(t, made.body, "client_secret")
		c := &plainClient{co: co, id: made.str("client_id"), redirect: "http://localhost:50001/back", mcp: mcp}

		b := co.browser()
		page := b.open(t, c.link()).is(t, http.StatusOK, "")
		require.Contains(t, page.header.Get("Content-Security-Policy"), "form-action 'self' https: http://127.0.0.1:* http://localhost:*;")
		got := co.token(t, c.codeForm(c.code(t, "acc-1", "poppy:read"))).is(t, http.StatusOK, "")
		require.Equal(t, true, co.judgeBearer(t, mcp, got.str("access_token")).body["allowed"])

		// The Company may turn it away, as any other.
		rule := co.rule(t, c.id, "BLOCK")
		require.Equal(t, "invalid_token", co.judgeBearer(t, mcp, got.str("access_token")).body["reason"])
		co.admin(t, http.MethodDelete, rule, nil).is(t, http.StatusOK, "")

		// The client is another Company's as little as any id of ours, and none any more where the Company changes its mind.
		stranger, theirs, _ := mcpCompany(t, in)
		stranger.patch(t, "discoverySettings", object{"mcp_registration": true})
		foreign := &plainClient{co: stranger, id: c.id, redirect: c.redirect, mcp: theirs}
		require.Equal(t, http.StatusBadRequest, in.get(t, foreign.link()).status)
		co.patch(t, "discoverySettings", object{"mcp_registration": false})
		require.Eventually(t, func() bool {
			return co.token(t, c.refreshForm(got.str("refresh_token"))).str("error") == "invalid_client"
		}, patience, 20*time.Millisecond)
	})
}

// The User is told that no Personal Agent asks, and where it gets access.
func TestMCP_ConsentSaysThatItIsNoAgent(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#17")
		co, mcp, _ := mcpCompany(t, in)
		const said = "This is not a personal agent"
		consent := func(link string) string {
			b := co.browser()
			found := challenge.FindStringSubmatch(html.UnescapeString(string(b.open(t, link).raw)))
			require.NotNil(t, found)
			accepted := co.admin(t, http.MethodPost, co.name+"/loginRequests/"+found[1]+":accept", object{"account": "acc-1"}).is(t, http.StatusOK, "")
			return string(b.open(t, accepted.str("redirect_to")).is(t, http.StatusOK, "").raw)
		}
		page := consent(in.documented(t, co, mcp).link(without("scope")))
		require.Contains(t, page, said)
		require.Contains(t, page, "mcp.shop.test")
		require.Contains(t, page, "127.0.0.1")
		require.Contains(t, page, `value="poppy:write"`)
		require.NotContains(t, page, agentsHost)
		s := co.visitor(t)
		require.NotContains(t, consent(s.authorization(bothScopes, "st")+"&"+url.Values{"resource": {mcp}}.Encode()), said)
	})
}

// A Personal Agent gets its tokens for an MCP server as ever, bound to its key or not.
func TestMCP_APersonalAgentsTokens(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#6", "poppy-0.1/6#11", "poppy-0.1/6#14", "poppy-0.1/6#3", "poppy-0.1/6#4", "poppy-0.1/6#10", "poppy-0.1/4.3#27", "poppy-0.1/4.3#28", "poppy-0.1/4.3#31", "poppy-0.1/4.3#37")
		clausetest.Refuses(t, "poppy-0.1/6#4", "poppy-0.1/6#14", "poppy-0.1/4.3#29", "poppy-0.1/4.3#32", "poppy-0.1/4.3#37", "poppy-0.1/6#23")
		co, mcp, other := mcpCompany(t, in)
		s := co.visitor(t)
		tokens := s.direct(t, "acc-1", "poppy:read").is(t, http.StatusOK, "")
		refresh := s.agent.RefreshForm(t, tokens.str("refresh_token"), co.tokenEndpoint(), now())
		refresh.Set("session_id", s.id)
		refresh.Set("resource", mcp)
		bearer := co.token(t, refresh).is(t, http.StatusOK, "")
		require.Equal(t, []any{"Bearer", s.id}, []any{bearer.body["token_type"], bearer.body["session_id"]})
		require.Equal(t, true, co.judgeBearer(t, mcp, bearer.str("access_token")).body["allowed"])
		require.Equal(t, "invalid_token", co.judgeBearer(t, other, bearer.str("access_token")).body["reason"])
		require.Equal(t, "invalid_token", co.judgeBearer(t, mcp, tokens.str("access_token")).body["reason"], "a bound token as Bearer")

		judge := func(at, token string) answer {
			return co.admin(t, http.MethodPost, co.name+":verifyRequest", object{"method": "POST", "url": at, "headers": []any{
				object{"name": "Authorization", "value": "DPoP " + token},
				object{"name": "DPoP", "value": s.as(token).proofFor(t, http.MethodPost, at)},
			}}).is(t, http.StatusOK, "")
		}
		// The token without resource is good everywhere but here; the one for here, bound to a key, is good here alone.
		signedIn := tokens.str("access_token")
		require.Equal(t, true, judge("https://api.shop.test/orders", signedIn).body["allowed"])
		require.Equal(t, "invalid_token", judge(mcp, signedIn).body["reason"])
		again := s.agent.RefreshForm(t, tokens.str("refresh_token"), co.tokenEndpoint(), now())
		again.Set("resource", mcp)
		bound := co.token(t, again, co.proof(t, s.key)).is(t, http.StatusOK, "").str("access_token")
		require.Equal(t, true, judge(mcp, bound).body["allowed"])
		require.Equal(t, "invalid_token", judge("https://api.shop.test/orders", bound).body["reason"])
		// A signed-out Bearer token has to sign in first.
		out := co.token(t, co.form(t, s.agent, s.user, with("resource", mcp))).is(t, http.StatusOK, "")
		require.Equal(t, "sign_in_required", co.judgeBearer(t, mcp, out.str("access_token")).body["reason"])
	})
}

// What an API's caller is told of a proof that is no good, or lacks a nonce.
func TestAPIs_ProofsThatFail(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/6#19", "poppy-0.1/6#20", "poppy-0.1/6#21", "poppy-0.1/6#27", "poppy-0.1/6#28", "poppy-0.1/6#29", "poppy-0.1/6#30")
		clausetest.Refuses(t, "poppy-0.1/6#4", "poppy-0.1/6#18", "poppy-0.1/6#27", "poppy-0.1/6#28")
		co, _, _ := mcpCompany(t, in)
		s := co.visitor(t)
		const at = "https://api.shop.test/orders"
		judge := func(fields ...any) answer {
			return co.admin(t, http.MethodPost, co.name+":verifyRequest", object{"method": "POST", "url": at, "headers": fields}).is(t, http.StatusOK, "")
		}
		token := object{"name": "Authorization", "value": "DPoP " + s.token}
		for name, got := range map[string]answer{
			"another method": judge(token, object{"name": "DPoP", "value": s.proofFor(t, http.MethodGet, at)}),
			"another URL":    judge(token, object{"name": "DPoP", "value": s.proofFor(t, http.MethodPost, at+"/7")}),
			"none":           judge(token),
		} {
			require.Equal(t, []any{401.0, "invalid_dpop_proof"}, []any{got.body["status"], got.body["reason"]}, name)
			require.True(t, strings.HasPrefix(challengeOf(t, got), `DPoP error="invalid_dpop_proof"`), name)
			require.Contains(t, got.str("body"), `"error":"invalid_dpop_proof"`)
			require.NotContains(t, challengeOf(t, got), "resource_metadata")
		}
		unknown := judge(object{"name": "Authorization", "value": "DPoP pst_unknown"}, object{"name": "DPoP", "value": s.proofFor(t, http.MethodPost, at)})
		require.Equal(t, []any{401.0, "invalid_token"}, []any{unknown.body["status"], unknown.body["reason"]})

		co.patch(t, "admission", object{"require_dpop_nonce": true})
		asked := judge(token, object{"name": "DPoP", "value": s.proofFor(t, http.MethodPost, at)})
		require.Equal(t, []any{401.0, "use_dpop_nonce"}, []any{asked.body["status"], asked.body["reason"]})
		nonce := ""
		for _, one := range asked.body["headers"].([]any) {
			if h, _ := one.(map[string]any); h["name"] == "Dpop-Nonce" {
				nonce, _ = h["value"].(string)
			}
		}
		require.NotEmpty(t, nonce, "%s", asked.raw)
		again := judge(token, object{"name": "DPoP", "value": s.proofFor(t, http.MethodPost, at, fixture.Claim("nonce", nonce))})
		require.Equal(t, true, again.body["allowed"], "%s", again.raw)
	})
}
