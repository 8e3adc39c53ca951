package browser_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// with is a right authorization request with parameters changed; an empty value takes one out.
func (r *rig) with(pairs ...string) url.Values {
	q := r.request()
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
		if pairs[i+1] == "" {
			q.Del(pairs[i])
		}
	}
	return q
}

// refusedAtStart sends an authorization request that the agent has to be told about.
func (r *rig) refusedAtStart(t testing.TB, code string, pairs ...string) {
	t.Helper()
	b := r.browser(t)
	q := r.refusedByAgent(t, b.once(r.authorizeURL(r.with(pairs...))), code)
	require.Equal(t, state, q.Get("state"))
	require.Empty(t, b.cookies)
}

func TestPC01_ChallengeMissing(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#5", "poppy-0.1/4.5#1")
	each(t, func(t *testing.T, r *rig) {
		r.refusedAtStart(t, "invalid_request", "code_challenge", "")
		r.refusedAtStart(t, "invalid_request", "code_challenge", "", "code_challenge_method", "")
	})
}

func TestPC03_OnlyS256(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#6")
	each(t, func(t *testing.T, r *rig) {
		for _, method := range []string{"", "plain", "S512", "s256", "S256 ", "none"} {
			r.refusedAtStart(t, "invalid_request", "code_challenge_method", method)
		}
		right := fixture.Challenge(fixture.Verifier)
		for _, challenge := range []string{
			right[:42], right + "A", strings.Repeat("a", 129), right + "=", right[:42] + "=", right[:42] + "+", right[:42] + "/", right[:42] + "~", right[:42] + " ", right[:41] + "é",
		} {
			r.refusedAtStart(t, "invalid_request", "code_challenge", challenge)
		}
	})
}

func TestSC03_ScopeAtTheAuthorizationEndpoint(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.4#22", "poppy-0.1/4.4#23", "poppy-0.1/4.4#24", "poppy-0.1/4.4#25", "poppy-0.1/4.4#26", "poppy-0.1/4.4#20")
	each(t, func(t *testing.T, r *rig) {
		r.setUp(func(s *directoryv1.SignIn) { s.DirectScopes = []string{"poppy:read", "addresses"} })
		for _, scope := range []string{
			"", "poppy:read foo", "poppy:read  addresses", "poppy:read poppy:read", "poppy:read\taddresses", " poppy:read", "poppy:read ", "poppy:admin", "POPPY:READ", "openid",
			"poppy:write", // Device Sign-In has it
		} {
			r.refusedAtStart(t, "invalid_scope", "scope", scope)
		}
	})
}

func TestAuthorize_OtherParameters(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#5")
	each(t, func(t *testing.T, r *rig) {
		r.refusedAtStart(t, "unsupported_response_type", "response_type", "token")
		r.refusedAtStart(t, "unsupported_response_type", "response_type", "code id_token")
		r.refusedAtStart(t, "invalid_request", "response_type", "")
		r.refusedAtStart(t, "invalid_request", "response_mode", "fragment")
		r.refusedAtStart(t, "invalid_request", "response_mode", "form_post")
		r.refusedAtStart(t, "login_required", "prompt", "none")
		r.refusedAtStart(t, "request_not_supported", "request", "eyJ")
		r.refusedAtStart(t, "request_uri_not_supported", "request_uri", "urn:x")
		q := r.refusedByAgent(t, r.browser(t).once(r.authorizeURL(r.with("state", strings.Repeat("s", 4097)))), "invalid_request")
		require.Len(t, q.Get("state"), 4097)

		for _, fine := range [][]string{
			{"response_mode", "query"},
			{"prompt", "login consent"},
			{"state", ""},
			{"state", strings.Repeat("s", 4096)},
			{"state", "ü&=+ /?#\"<script>"},
			{"nonce", "n"},
			{"unknown", "x"},
			{"resource", "https://shop.example/"},
			{"scope", "addresses"},
		} {
			b := r.browser(t)
			p := b.get(r.authorizeURL(r.with(fine...)))
			require.Equal(t, http.StatusOK, p.status, fine)
			require.NotContains(t, p.body, "<script>")
			q := r.refusedByAgent(t, b.post(p, "decline", nil), "access_denied")
			require.Equal(t, r.with(fine...).Get("state"), q.Get("state"))
		}
	})
}

func TestRU01_RedirectURIThatIsNotTheVeryOne(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#14", "poppy-0.1/4.5#d31")
	each(t, func(t *testing.T, r *rig) {
		r.publish(map[string]any{"redirect_uris": []string{"https://agent.example/oauth/callback"}})
		for _, uri := range []string{
			"https://agent.example/oauth/callback/", "https://agent.example/oauth/callback?x=1", "https://agent.example/oauth/callback?",
			"https://agent.example/oauth/callback/../evil", "https://agent.example/oauth/callback/%2e%2e/evil", "https://agent.example/oauth/callback/%252e%252e/evil",
			"https://agent.example/oauth/callback/..;/evil", "HTTPS://AGENT.EXAMPLE/oauth/callback", "https://AGENT.example/oauth/callback",
			"https://agent.example:443/oauth/callback", "https://agent.example./oauth/callback", "https://agent.example%2f@evil.example/",
			"https:agent.example/oauth/callback", "//agent.example/oauth/callback", "/oauth/callback", "https://agent.example/oauth/callback#f", "https://agent.example/oauth/callback#",
			"http://agent.example/oauth/callback", "https://agent.example/OAUTH/callback", "https://agent.example/oauth/%63allback", "https://agent.example/oauth/callback ",
			" https://agent.example/oauth/callback", "https://agent.example/oauth", "https://agent.example", "https://evil.example/oauth/callback",
			"https://agent.example@evil.example/oauth/callback", "https://agent.example/oauth/callback\n", "https://agent.example\\@evil.example/oauth/callback",
			"javascript:alert(1)//", "data:text/html,x", "",
		} {
			b := r.browser(t)
			p := b.once(r.authorizeURL(r.with("redirect_uri", uri)))
			p.shows(t, http.StatusBadRequest, "This link doesn’t work")
			require.Empty(t, b.cookies)
			require.NotContains(t, p.body, "evil")
			require.NotContains(t, p.body, "javascript:")
		}
		require.Equal(t, http.StatusOK, r.browser(t).get(r.authorizeURL(r.with("redirect_uri", "https://agent.example/oauth/callback"))).status)

		twice := r.authorizeURL(r.with("redirect_uri", "https://agent.example/oauth/callback"))
		r.browser(t).once(twice+"&redirect_uri=https%3A%2F%2Fevil.example").shows(t, http.StatusBadRequest, "This link doesn’t work")
		r.browser(t).once(twice+"&scope=addresses").shows(t, http.StatusBadRequest, "This link doesn’t work")
		r.browser(t).once(twice+"&x=%zz").shows(t, http.StatusBadRequest, "This link doesn’t work")
		r.browser(t).once(twice+"&x=%00").shows(t, http.StatusBadRequest, "This link doesn’t work")
	})
}

func TestRU02_ErrorsBeforeTheRedirectURIIsVerified(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#d31")
	clausetest.Refuses(t, "poppy-0.1/4.5#14")
	each(t, func(t *testing.T, r *rig) {
		const evil = "https://evil.example/cb"
		at := func(pairs ...string) page { return r.browser(t).once(r.authorizeURL(r.with(pairs...))) }
		at("redirect_uri", evil, "scope", "bad").shows(t, http.StatusBadRequest, "This link doesn’t work")
		at("redirect_uri", evil, "code_challenge", "").shows(t, http.StatusBadRequest, "This link doesn’t work")
		at("client_id", "", "scope", "bad").shows(t, http.StatusBadRequest, "This link doesn’t work")
		at("client_id", "https://unknown.example/agent.json", "redirect_uri", evil).shows(t, http.StatusBadRequest, "We can’t tell who is asking")
		at("client_id", "not a URL", "redirect_uri", evil).shows(t, http.StatusBadRequest, "We can’t tell who is asking")
		r.Web.Put("https://broken.example/agent.json", &relayv1.FetchResponse{Status: 200, ContentType: "text/html", Body: []byte("<html>")})
		at("client_id", "https://broken.example/agent.json", "redirect_uri", "https://broken.example/cb").shows(t, http.StatusBadRequest, "We can’t tell who is asking")
		r.Web.Down(true)
		at("client_id", "https://else.example/agent.json", "redirect_uri", evil).shows(t, http.StatusServiceUnavailable, "Not available right now")
	})
}

func TestCO03_DangerousRedirectURIsInTheDocument(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#14")
	each(t, func(t *testing.T, r *rig) {
		for i, uris := range [][]string{
			{"javascript:alert(1)//"}, {"data:text/html,x"}, {"http://agent.example/cb"}, {"https://agent.example/cb", "custom:/x"}, {"https://evil.example/cb"},
		} {
			r.agent = fixture.NewAgent(t, "a"+string(rune('0'+i))+".example")
			r.publish(map[string]any{"redirect_uris": uris})
			r.browser(t).once(r.authorizeURL(r.with("redirect_uri", uris[0]))).shows(t, http.StatusBadRequest, "We can’t tell who is asking")
		}
	})
}

func TestIS01_IssuerInEveryRedirect(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#13")
	each(t, func(t *testing.T, r *rig) {
		// Every test here sees it by returned; this one that it is the published string, on an issuer with a path too.
		b, p := r.atConsent(t)
		require.Equal(t, r.company.Snapshot.GetIssuer(), r.returned(t, b.post(p, "approve", ticked("poppy:read"))).Get("iss"))

		r.company = r.NewCompanyAt(t, "/t/acme")
		r.setUp(nil)
		require.True(t, strings.HasSuffix(r.company.Issuer.String(), "/t/acme"))
		b, p = r.atConsent(t)
		require.Equal(t, r.company.Snapshot.GetIssuer(), r.returned(t, b.post(p, "approve", ticked("poppy:read"))).Get("iss"))
		require.Equal(t, r.company.Snapshot.GetIssuer(), r.refusedByAgent(t, b.once(r.authorizeURL(r.with("scope", "x"))), "invalid_scope").Get("iss"))
	})
}

func TestAuthorize_RedirectURIKeepsItsQuery(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		const uri = "https://agent.example/cb?keep=1%20x"
		r.publish(map[string]any{"redirect_uris": []string{uri}})
		b := r.browser(t)
		p := b.post(b.get(r.authorizeURL(r.with("redirect_uri", uri))), "decline", nil)
		require.True(t, strings.HasPrefix(p.header.Get("Location"), uri+"&error=access_denied&"), p.header.Get("Location"))
	})
}

func TestAuthorize_AgentThatTheCompanyRefuses(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#19")
	each(t, func(t *testing.T, r *rig) {
		r.block(t)
		r.browser(t).once(r.authorizeURL(r.request())).shows(t, http.StatusForbidden, "This agent isn’t allowed here")
	})
}

func TestAuthorize_NotOffered(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#3", "poppy-0.1/4.4#4")
	each(t, func(t *testing.T, r *rig) {
		r.setUp(func(s *directoryv1.SignIn) { s.DirectScopes = nil })
		r.browser(t).once(r.authorizeURL(r.request())).shows(t, http.StatusNotFound, "This way of signing in isn’t offered")
		r.company.Snapshot.SignIn = nil
		r.Changed(r.company)
		r.browser(t).once(r.authorizeURL(r.request())).shows(t, http.StatusNotFound, "This way of signing in isn’t offered")
		r.browser(t).once(r.company.Issuer.VerificationURI()).shows(t, http.StatusNotFound, "This way of signing in isn’t offered")
	})
}

func TestAuthorize_HeadBeginsNothing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		b := r.browser(t)
		p := b.head(r.authorizeURL(r.request()))
		require.Equal(t, http.StatusOK, p.status)
		require.Empty(t, b.cookies)
		require.Equal(t, http.StatusMethodNotAllowed, b.send(r.company.Issuer.AuthorizationEndpoint(), r.request(), nil).status)
	})
}
