package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestTokens_UsedWithProofs(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.3#4", "poppy-0.1/4.3#45", "poppy-0.1/4#7", "poppy-0.1/4#11", "poppy-0.1/4#25", "poppy-0.1/4.3#1", "poppy-0.1/4.3#2", "poppy-0.1/4.3#3", "poppy-0.1/4.3#8", "poppy-0.1/4.3#9", "poppy-0.1/4.3#10", "poppy-0.1/4.3#11",
			"poppy-0.1/4.3#12", "poppy-0.1/4.3#13", "poppy-0.1/4.3#14", "poppy-0.1/4.3#18", "poppy-0.1/4.3#19", "poppy-0.1/4.3#20", "poppy-0.1/4.3#21", "poppy-0.1/4.3#22", "poppy-0.1/4.3#23", "poppy-0.1/4.3#33",
			"poppy-0.1/4.3#37", "poppy-0.1/4.3#40", "poppy-0.1/4.3#d2", "poppy-0.1/4.3#d6", "poppy-0.1/4.3#d7", "poppy-0.1/4.3#d8", "poppy-0.1/4.3#d28", "poppy-0.1/4.3#d44", "poppy-0.1/7.2#3")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		events := co.issuer + eventsPath(id)
		u := func(change func(string) string) string { return change(events) }
		for name, c := range map[string]struct {
			htu    string
			change []fixture.Change
			header func(*http.Request)
		}{
			"as it should be":     {htu: events},
			"DP-05 with query":    {htu: events + "?cursor=x&wait=1"},
			"DP-05 with fragment": {htu: events + "#x"},
			"scheme and host upper case": {htu: u(func(s string) string {
				return strings.Replace(s, "https://"+co.host, "HTTPS://"+strings.ToUpper(co.host), 1)
			})},
			"dot segments":                {htu: u(func(s string) string { return strings.Replace(s, "/poppy/", "/x/../poppy/./", 1) })},
			"escape of an unreserved one": {htu: u(func(s string) string { return strings.Replace(s, "/poppy/", "/%70oppy/", 1) })},
			"iat as old as may be":        {htu: events, change: []fixture.Change{fixture.Claim("iat", in.ago(50*time.Second).Unix())}},
			"iat a little ahead":          {htu: events, change: []fixture.Change{fixture.Claim("iat", now().Add(8*time.Second).Unix())}},
			"jti of 1":                    {htu: events, change: []fixture.Change{fixture.Claim("jti", "1")}},
			"jti of 256":                  {htu: events, change: []fixture.Change{fixture.Claim("jti", strings.Repeat("j", 256))}},
			"DP-23 scheme in lower case":  {htu: events, header: header("Authorization", "dpop "+s.token)},
			"other cookies":               {htu: events, header: header("Cookie", "a=b")},
		} {
			t.Run(name, func(t *testing.T) {
				change := []func(*http.Request){header("DPoP", s.proofFor(t, http.MethodGet, c.htu, c.change...))}
				if c.header != nil {
					change = append(change, c.header)
				}
				got := s.read(t, id, "", change...).is(t, http.StatusOK, "")
				require.Empty(t, got.header.Values("Set-Cookie"))
			})
		}
	})
}

func TestTokens_ProofsThatFail(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.2#61", "poppy-0.1/4.2#62", "poppy-0.1/4.3#26", "poppy-0.1/4.3#d44")
		clausetest.Refuses(t, "poppy-0.1/4#13", "poppy-0.1/4#25", "poppy-0.1/4.2#8", "poppy-0.1/4.2#10", "poppy-0.1/4.2#34", "poppy-0.1/4.2#61", "poppy-0.1/4.2#62", "poppy-0.1/4.3#2", "poppy-0.1/4.3#4", "poppy-0.1/4.3#8", "poppy-0.1/4.3#9",
			"poppy-0.1/4.3#10", "poppy-0.1/4.3#11", "poppy-0.1/4.3#12", "poppy-0.1/4.3#13", "poppy-0.1/4.3#14", "poppy-0.1/4.3#17", "poppy-0.1/4.3#18", "poppy-0.1/4.3#19", "poppy-0.1/4.3#20", "poppy-0.1/4.3#21", "poppy-0.1/4.3#22",
			"poppy-0.1/4.3#23", "poppy-0.1/4.3#26", "poppy-0.1/4.3#33", "poppy-0.1/4.3#d2", "poppy-0.1/4.3#d6", "poppy-0.1/4.3#d7", "poppy-0.1/4.3#d8", "poppy-0.1/4.3#d10", "poppy-0.1/4.3#d28", "poppy-0.1/4.3#d44", "poppy-0.1/7.2#3")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		events := co.issuer + eventsPath(id)
		key := newECKey(t)
		private := newECKey(t)
		claim := func(name string, v any) func(string, string) string {
			return func(method, u string) string { return s.proofFor(t, method, u, fixture.Claim(name, v)) }
		}
		forged := func(h object, sign seal) func(string, string) string {
			return func(method, u string) string {
				return forge(t, h, object{"jti": fixture.RandomID(), "htm": method, "htu": u, "iat": now().Unix(), "ath": dpop.TokenHash(s.token)}, sign)
			}
		}
		for name, build := range map[string]func(method, u string) string{
			"method":               claim("htm", "PUT"),
			"method in lower case": func(method, u string) string { return s.proofFor(t, strings.ToLower(method), u) },
			"no method":            claim("htm", nil),
			"URL of another path":  func(method, u string) string { return s.proofFor(t, method, u+"x") },
			"URL with a slash":     func(method, u string) string { return s.proofFor(t, method, u+"/") },
			"path in upper case": func(method, u string) string {
				return s.proofFor(t, method, strings.Replace(u, "/poppy/", "/Poppy/", 1))
			},
			"URL over http": func(method, u string) string { return s.proofFor(t, method, "http"+strings.TrimPrefix(u, "https")) },
			"URL of another host": func(method, u string) string {
				return s.proofFor(t, method, strings.Replace(u, co.host, "x."+co.host, 1))
			},
			"URL without the port": func(method, _ string) string { return s.proofFor(t, method, "https://"+co.host+conversationsPath) },
			"relative URL":         claim("htu", conversationsPath),
			"no URL":               claim("htu", nil),
			"iat two minutes ago":  claim("iat", now().Add(-2*time.Minute).Unix()),
			"iat ahead":            claim("iat", now().Add(time.Minute).Unix()),
			"no iat":               claim("iat", nil),
			"no jti":               claim("jti", nil),
			"empty jti":            claim("jti", ""),
			"jti of 257":           claim("jti", strings.Repeat("j", 257)),
			"ath of another token": claim("ath", dpop.TokenHash("pst_other")),
			"no ath":               claim("ath", nil),
			"key of another": func(method, u string) string {
				return fixture.Proof(t, fixture.NewKey(t), method, u, s.token, now())
			},
			"typ of a JWT":          func(method, u string) string { return s.proofFor(t, method, u, fixture.Typ("JWT")) },
			"no typ":                func(method, u string) string { return s.proofFor(t, method, u, fixture.Typ("")) },
			"an assertion":          func(string, string) string { return s.agent.ClientAssertion(t, co.tokenEndpoint(), now()) },
			"no key in it":          forged(object{"typ": "dpop+jwt", "alg": "ES256"}, key.sign),
			"signature of another":  forged(object{"typ": "dpop+jwt", "alg": "ES256", "jwk": key.jwk(false)}, private.sign),
			"DP-21 private key":     forged(object{"typ": "dpop+jwt", "alg": "ES256", "jwk": private.jwk(true)}, private.sign),
			"DP-20 none":            forged(object{"typ": "dpop+jwt", "alg": "none", "jwk": key.jwk(false)}, unsigned),
			"DP-20 nOnE":            forged(object{"typ": "dpop+jwt", "alg": "nOnE", "jwk": key.jwk(false)}, unsigned),
			"DP-20 HS256":           forged(object{"typ": "dpop+jwt", "alg": "HS256", "jwk": key.jwk(false)}, hmacWith([]byte("x"))),
			"DP-20 ES256 and space": forged(object{"typ": "dpop+jwt", "alg": "ES256 ", "jwk": key.jwk(false)}, key.sign),
			"no JWT":                func(string, string) string { return "x" },
			"":                      nil, // none at all
		} {
			t.Run("proof/"+name, func(t *testing.T) {
				drop := build == nil
				set := func(method, u string) func(*http.Request) {
					if drop {
						return header("DPoP")
					}
					return header("DPoP", build(method, u))
				}
				s.read(t, id, "", set(http.MethodGet, events)).is(t, http.StatusUnauthorized, "invalid_dpop_proof").challenged(t, "invalid_dpop_proof")
				got := s.post(t, conversationsPath, text("No"), set(http.MethodPost, co.conversationsEndpoint())).is(t, http.StatusUnauthorized, "invalid_dpop_proof")
				require.Equal(t, "no-store", got.header.Get("Cache-Control"))
				if strings.Contains(name, "ath") || strings.Contains(name, "key of another") || drop {
					return // the token endpoint knows neither token nor key, and without a proof asks for an MCP resource
				}
				r := co.tokenRequest(t, co.form(t, s.agent, s.user), "x")
				set(http.MethodPost, co.tokenEndpoint())(r)
				in.do(t, r).is(t, http.StatusBadRequest, "invalid_dpop_proof").challenged(t, "invalid_dpop_proof")
			})
		}
		require.NotContains(t, in.log.String(), private.jwk(true)["d"])
		t.Run("used before", func(t *testing.T) {
			proof := s.proofFor(t, http.MethodGet, events)
			s.read(t, id, "", header("DPoP", proof)).is(t, http.StatusOK, "")
			s.read(t, id, "", header("DPoP", proof)).is(t, http.StatusUnauthorized, "invalid_dpop_proof")
			proof = co.proof(t, s.key)
			co.token(t, co.form(t, s.agent, s.user), proof).is(t, http.StatusOK, "")
			co.token(t, co.form(t, s.agent, s.user), proof).is(t, http.StatusBadRequest, "invalid_dpop_proof")
		})
		t.Run("another key uses up nothing", func(t *testing.T) {
			jti := fixture.Claim("jti", fixture.RandomID())
			s.read(t, id, "", header("DPoP", fixture.Proof(t, fixture.NewKey(t), http.MethodGet, events, s.token, now(), jti))).is(t, http.StatusUnauthorized, "invalid_dpop_proof")
			s.read(t, id, "", header("DPoP", s.proofFor(t, http.MethodGet, events, jti))).is(t, http.StatusOK, "")
		})
		require.Len(t, s.settled(t, id), 4)
	})
}

// DP-17, PS-02, LG-03, decision 26: exactly one token, in the header, with the right scheme.
func TestDP17_TokensSentWrongly(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.3#d26", "poppy-0.1/4.3#d44", "poppy-0.1/7.13#1")
		clausetest.Refuses(t, "poppy-0.1/4#1", "poppy-0.1/4#7", "poppy-0.1/4#11", "poppy-0.1/4.3#1", "poppy-0.1/4.3#3", "poppy-0.1/4.3#4", "poppy-0.1/4.3#32", "poppy-0.1/4.3#33", "poppy-0.1/4.3#45", "poppy-0.1/4.3#d26", "poppy-0.1/4.3#d44",
			"poppy-0.1/4.2#28", "poppy-0.1/4.3#40", "poppy-0.1/7.2#3", "poppy-0.1/7.13#1")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		for name, c := range map[string]struct {
			change func(*http.Request)
			code   string
		}{
			"no token":                  {header("Authorization"), "invalid_token"},
			"DP-17 as Bearer":           {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.token); r.Header.Del("DPoP") }, "invalid_token"},
			"DP-17 as bEaRer":           {header("Authorization", "bEaRer "+s.token), "invalid_token"},
			"unknown":                   {header("Authorization", "DPoP pst_unknown"), "invalid_token"},
			"a session id":              {header("Authorization", "DPoP "+s.id), "invalid_token"},
			"cut short":                 {header("Authorization", "DPoP "+s.token[:len(s.token)-1]), "invalid_token"},
			"Basic":                     {header("Authorization", "Basic dTpw"), "invalid_token"},
			"in a cookie":               {func(r *http.Request) { r.Header.Del("Authorization"); r.Header.Set("Cookie", "access_token="+s.token) }, "invalid_token"},
			"PS-02 two headers":         {header("Authorization", "DPoP "+s.token, "DPoP "+s.token), "invalid_request"},
			"PS-02 two in one":          {header("Authorization", "Bearer a, DPoP "+s.token), ""},
			"PS-02 two proofs":          {header("DPoP", s.proofFor(t, http.MethodGet, co.issuer+eventsPath(id)), s.proofFor(t, http.MethodGet, co.issuer+eventsPath(id))), "invalid_request"},
			"PS-02 in a quoted string":  {header("Authorization", `Digest realm="DPoP `+s.token+`", x`), ""},
			"LG-03 in the URL":          {func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "access_token=" + s.token }, ""},
			"LG-03 also in the URL":     {func(r *http.Request) { r.URL.RawQuery = "access_token=pst_canary-in-url" }, "invalid_request"},
			"LG-03 the proof in it too": {func(r *http.Request) { r.Header.Del("DPoP"); r.URL.RawQuery = "DPoP=canary-in-url" }, ""},
		} {
			t.Run(name, func(t *testing.T) {
				got := s.read(t, id, "", c.change)
				require.Contains(t, []int{http.StatusBadRequest, http.StatusUnauthorized}, got.status)
				got.is(t, got.status, c.code)
				if c.code == "invalid_token" {
					got.is(t, http.StatusUnauthorized, "").challenged(t, "invalid_token")
				}
			})
		}
		require.NotContains(t, in.log.String(), "canary-in-url")
		require.NotContains(t, in.log.String(), s.token)
	})
}

// DP-25: nonces at the token endpoint and at conversations.
func TestDP25_Nonces(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.2#63", "poppy-0.1/4.2#64", "poppy-0.1/4.3#16", "poppy-0.1/4.3#24", "poppy-0.1/4.3#26")
		clausetest.Refuses(t, "poppy-0.1/4.2#63", "poppy-0.1/4.2#64", "poppy-0.1/4.3#16", "poppy-0.1/4.3#24", "poppy-0.1/4.3#26")
		co := in.company(t, admission(object{"require_dpop_nonce": true}))
		a := in.agent(t)
		key := fixture.NewKey(t)
		form := co.form(t, a, "usr_1")
		got := co.token(t, form, co.proof(t, key)).is(t, http.StatusBadRequest, "use_dpop_nonce").challenged(t, "use_dpop_nonce")
		nonce := got.header.Get("DPoP-Nonce")
		require.NotEmpty(t, nonce)
		// The assertions were not used up by the refusal.
		got = co.token(t, form, co.proof(t, key, fixture.Claim("nonce", nonce))).is(t, http.StatusOK, "")
		s := &session{co: co, agent: a, user: "usr_1", key: key, id: got.str("session_id"), token: got.str("access_token")}
		got = s.post(t, conversationsPath, text("Hello")).is(t, http.StatusUnauthorized, "use_dpop_nonce").challenged(t, "use_dpop_nonce")
		s.nonce = got.header.Get("DPoP-Nonce")
		require.NotEmpty(t, s.nonce)
		got = s.post(t, conversationsPath, text("Hello")).is(t, http.StatusCreated, "")
		require.NotEmpty(t, got.header.Get("DPoP-Nonce"))
		id := got.str("conversation_id")
		require.NotContains(t, string(got.raw), s.nonce)
		for _, wrong := range []string{"old", "", nonce + "x"} {
			s.nonce = wrong
			got = s.read(t, id, "").is(t, http.StatusUnauthorized, "use_dpop_nonce")
			require.NotEmpty(t, got.header.Get("DPoP-Nonce"))
		}
		s.nonce = got.header.Get("DPoP-Nonce")
		s.read(t, id, "").is(t, http.StatusOK, "")
		// Another Company's nonce is none here.
		other := in.company(t, admission(object{"require_dpop_nonce": true}))
		co2 := other.token(t, other.form(t, a, "usr_1"), other.proof(t, key, fixture.Claim("nonce", nonce)))
		co2.is(t, http.StatusBadRequest, "use_dpop_nonce")
	})
}

// Tokens for one service, and Bearer tokens for MCP (RFC 8707, Poppy 4.3).
func TestTokens_ForOneService(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4#13", "poppy-0.1/4.2#29", "poppy-0.1/4.2#60", "poppy-0.1/4.3#27", "poppy-0.1/4.3#28", "poppy-0.1/4.3#29", "poppy-0.1/4.3#31", "poppy-0.1/4.3#36", "poppy-0.1/4.3#37", "poppy-0.1/4.3#38", "poppy-0.1/4.3#39", "poppy-0.1/4.3#d28",
			"poppy-0.1/4.3#d34", "poppy-0.1/3.1#23", "poppy-0.1/3.1#24", "poppy-0.1/4.3#35")
		clausetest.Refuses(t, "poppy-0.1/4.2#29", "poppy-0.1/4.2#60", "poppy-0.1/4.3#27", "poppy-0.1/4.3#28", "poppy-0.1/4.3#29", "poppy-0.1/4.3#30", "poppy-0.1/4.3#32", "poppy-0.1/4.3#33", "poppy-0.1/4.3#37", "poppy-0.1/4.3#38", "poppy-0.1/4.3#39", "poppy-0.1/4.3#d34",
			"poppy-0.1/3.1#23", "poppy-0.1/3.1#24", "poppy-0.1/4.3#36", "poppy-0.1/4.3#d28")
		const mcp, api = "https://mcp.harbor.example/mcp", "https://api.harbor.example/"
		apis := []any{
			object{"type": "openapi", "url": "https://api.harbor.example/openapi.json", "resource": api},
			object{"type": "mcp", "url": mcp},
		}
		co := in.company(t, settings(object{"apis": apis}))
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		renewal := with("session_id", s.id)
		// A Bearer token: the renewal without a proof.
		got := co.token(t, co.form(t, s.agent, s.user, renewal, with("resource", mcp))).is(t, http.StatusOK, "")
		require.Equal(t, "Bearer", got.str("token_type"))
		require.Equal(t, s.id, got.str("session_id"))
		bearer := got.str("access_token")
		s.read(t, id, "").is(t, http.StatusOK, "") // the DPoP token is as good as before
		for _, change := range []func(*http.Request){
			header("Authorization", "Bearer "+bearer),
			header("Authorization", "DPoP "+bearer),
			func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+bearer); r.Header.Del("DPoP") },
		} {
			s.read(t, id, "", change).is(t, http.StatusUnauthorized, "invalid_token")
		}
		// A new Session may begin with one (decision 34).
		got = co.token(t, co.form(t, s.agent, s.user, with("resource", mcp))).is(t, http.StatusOK, "")
		require.Equal(t, "Bearer", got.str("token_type"))
		require.NotEqual(t, s.id, got.str("session_id"))
		co.token(t, co.form(t, s.agent, s.user, renewal)).is(t, http.StatusBadRequest, "invalid_request")
		co.token(t, co.form(t, s.agent, s.user)).is(t, http.StatusBadRequest, "invalid_request")
		for _, resource := range []string{api, mcp + "/", "https://other.example/mcp", co.conversationsEndpoint()} {
			co.token(t, co.form(t, s.agent, s.user, with("resource", resource))).is(t, http.StatusBadRequest, "invalid_target")
		}
		// A token for one service with a proof works there alone.
		got = co.token(t, co.form(t, s.agent, s.user, renewal, with("resource", api)), co.proof(t, s.key)).is(t, http.StatusOK, "")
		require.Equal(t, "DPoP", got.str("token_type"))
		narrow := *s
		narrow.token = got.str("access_token")
		narrow.read(t, id, "").is(t, http.StatusUnauthorized, "invalid_token")

		// Conversations that want tokens of their own take no others.
		own := in.company(t, settings(object{"conversations_resource": true}))
		o := own.visitor(t)
		o.post(t, conversationsPath, text("Hello")).is(t, http.StatusUnauthorized, "invalid_token")
		got = own.token(t, own.form(t, o.agent, o.user, with("session_id", o.id), with("resource", own.conversationsEndpoint())), own.proof(t, o.key)).is(t, http.StatusOK, "")
		o.token = got.str("access_token")
		o.talk(t, "Hello")
		// Empty scope is as good as none.
		own.token(t, own.form(t, o.agent, o.user, with("scope", "")), own.proof(t, o.key)).is(t, http.StatusOK, "")
	})
}

func TestTokens_RequestsAreLimited(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.3#46", "poppy-0.1/7.13#16")
		clausetest.Refuses(t, "poppy-0.1/4.3#46", "poppy-0.1/7.13#16")
		co := in.company(t, limits(object{"requests_per_minute": 5}))
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		for range 4 {
			s.read(t, id, "").is(t, http.StatusOK, "")
		}
		for _, got := range []answer{s.read(t, id, ""), s.post(t, messagesPath(id), text("Hello")), s.post(t, closePath(id), "{}")} {
			require.NotEmpty(t, got.is(t, http.StatusTooManyRequests, "rate_limited").header.Get("Retry-After"))
		}
		// Another Session isn't held back.
		s.again(t).read(t, id, "").is(t, http.StatusOK, "")
	})
}

// PK-17: huge credentials are refused quickly, many at a time.
func TestPK17_HugeCredentials(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/4.2#6", "poppy-0.1/4.3#9")
		co := in.company(t)
		s := co.visitor(t)
		dots, payload := strings.Repeat(".", 1<<20), "eyJhbGciOiJFUzI1NiJ9."+strings.Repeat("A", 1<<20)+".AA"
		refusedFast := func(name string, r *http.Request) {
			begun := now()
			got, err := in.try(r)
			require.Less(t, time.Since(begun), 5*time.Second, name)
			if err == nil { // a server may also stop reading
				require.Contains(t, []int{400, 401, 413, 431}, got.status, "%s: %s", name, got.raw)
			}
		}
		for _, huge := range []string{dots, payload} {
			refusedFast("client assertion", co.tokenRequest(t, co.form(t, s.agent, s.user, with("client_assertion", huge)), co.proof(t, s.key)))
			refusedFast("assertion", co.tokenRequest(t, co.form(t, s.agent, s.user, with("assertion", huge)), co.proof(t, s.key)))
			refusedFast("proof", co.tokenRequest(t, co.form(t, s.agent, s.user), huge))
			refusedFast("token", s.request(t, http.MethodPost, conversationsPath, text("Hello"), header("Authorization", "DPoP "+huge)))
			refusedFast("proof of a message", s.request(t, http.MethodPost, conversationsPath, text("Hello"), header("DPoP", huge)))
		}
		// What fits into a header is refused by its size, too.
		for _, big := range []string{strings.Repeat(".", 20<<10), "a." + strings.Repeat("A", 20<<10) + ".b"} {
			co.token(t, co.form(t, s.agent, s.user), big).is(t, http.StatusBadRequest, "invalid_dpop_proof")
			s.post(t, conversationsPath, text("Hello"), header("DPoP", big)).is(t, http.StatusUnauthorized, "invalid_dpop_proof")
		}
		const parallel = 100
		done := make(chan error, parallel)
		requests := make([]*http.Request, parallel)
		for i := range requests {
			requests[i] = co.tokenRequest(t, co.form(t, s.agent, s.user, with("client_assertion", strings.Repeat(".", 60<<10))), co.proof(t, s.key))
		}
		for _, r := range requests {
			go func() {
				_, err := in.try(r)
				done <- err
			}()
		}
		for range parallel {
			require.NoError(t, <-done)
		}
		s.talk(t, "Still here?")
	})
}

// DP-11: a Host that is none is refused, quietly.
func TestDP11_MalformedHost(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/4.3#d2")
		co := in.company(t)
		s := co.visitor(t)
		before := strings.Count(in.log.String(), `"level":"ERROR"`)
		for _, host := range []string{"exa mple:abc", "", "a:b:c", "[::1", "x\x01y", strings.Repeat("a", 5000)} {
			got := string(in.rawRequest(t, co.host, "POST "+conversationsPath+" HTTP/1.1\r\nHost: "+host+"\r\nAuthorization: DPoP "+s.token+"\r\nDPoP: "+
				s.proofFor(t, http.MethodPost, co.conversationsEndpoint())+"\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"))
			require.Regexp(t, `^HTTP/1\.1 (400|401|404|421) `, got, "%q", host)
		}
		two := string(in.rawRequest(t, co.host, "GET /.well-known/oauth-authorization-server HTTP/1.1\r\nHost: "+co.host+"\r\nHost: evil.example\r\nConnection: close\r\n\r\n"))
		require.Regexp(t, `^HTTP/1\.1 400 `, two)
		// The absolute form names the host.
		absolute := string(in.rawRequest(t, co.host, "GET https://evil.example/.well-known/oauth-authorization-server HTTP/1.1\r\nHost: "+co.host+"\r\nConnection: close\r\n\r\n"))
		require.Regexp(t, `^HTTP/1\.1 404 `, absolute)
		require.Equal(t, before, strings.Count(in.log.String(), `"level":"ERROR"`))
	})
}

// RV-01, RV-04, decisions 28 and 33.
func TestRV01_Revocation(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4#30", "poppy-0.1/3.2#12", "poppy-0.1/4.3#d28", "poppy-0.1/4.3#d29")
		clausetest.Refuses(t, "poppy-0.1/4#30", "poppy-0.1/4.3#d44", "poppy-0.1/3.2#12")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		revoke := func(a *fixture.Agent, token string, change ...func(*http.Request)) answer {
			f := a.ClientForm(t, co.revocationEndpoint(), now())
			if token != "" {
				f.Set("token", token)
			}
			return in.do(t, request(t, http.MethodPost, co.revocationEndpoint(), f.Encode(), append([]func(*http.Request){header("Content-Type", "application/x-www-form-urlencoded")}, change...)...))
		}
		other := in.agent(t)
		for name, got := range map[string]answer{
			"unknown":             revoke(s.agent, "pst_unknown"),
			"another form":        revoke(s.agent, "eyJhbGciOiJub25lIn0.e30."),
			"half of ours":        revoke(s.agent, s.token[:len(s.token)-4]+"xxxx"),
			"by another client":   revoke(other, s.token),
			"a proof is ignored":  revoke(s.agent, "pst_unknown", header("DPoP", "nonsense")),
			"with the wrong hint": revoke(s.agent, "pat_unknown"),
		} {
			require.Equal(t, http.StatusOK, got.status, name)
			require.Empty(t, got.raw, name)
		}
		s.read(t, id, "").is(t, http.StatusOK, "")
		revoke(s.agent, "").is(t, http.StatusBadRequest, "invalid_request")
		f := s.agent.ClientForm(t, co.revocationEndpoint(), now())
		f.Set("token", "")
		in.do(t, request(t, http.MethodPost, co.revocationEndpoint(), f.Encode(), header("Content-Type", "application/x-www-form-urlencoded"))).is(t, http.StatusBadRequest, "invalid_request")
		in.do(t, request(t, http.MethodPost, co.revocationEndpoint(), "token=x", header("Content-Type", "application/x-www-form-urlencoded"))).is(t, http.StatusUnauthorized, "invalid_client")
		// A Session Token revoked is that token alone.
		second := co.token(t, co.form(t, s.agent, s.user, with("session_id", s.id)), co.proof(t, s.key)).is(t, http.StatusOK, "").str("access_token")
		require.Equal(t, http.StatusOK, revoke(s.agent, s.token).status)
		s.read(t, id, "").is(t, http.StatusUnauthorized, "invalid_token")
		require.Equal(t, http.StatusOK, revoke(s.agent, s.token).status)
		s.token = second
		s.read(t, id, "").is(t, http.StatusOK, "")
	})
}
