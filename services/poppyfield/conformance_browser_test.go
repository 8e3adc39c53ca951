package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// browserHost begins the names of hosts that Companies point at the installation.
const browserHost = "poppy."

// joinable gives the Company a domain, sign-in, and a browser session endpoint at the URL
// that at makes of the domain.
func joinable(t testing.TB, in *installation, cookie object, at func(domain string) string) *company {
	t.Helper()
	co := signsIn(t, in)
	co.domain = in.shop(t)
	co.own(t, co.domain)
	set := object{}
	for name, value := range cookie {
		set[name] = value
	}
	if set["domain"] == "" {
		set["domain"] = co.domain
	}
	co.patch(t, "discoverySettings", object{"browser_session_endpoint": at(co.domain), "browser_cookie": set})
	co.joinsAt(t)
	return co
}

func onOwnHost(domain string) string { return "https://" + browserHost + domain + "/join" }

// joinsAt returns the endpoint as an agent learns it.
func (co *company) joinsAt(t testing.TB) string {
	t.Helper()
	at := ""
	until(t, "the endpoint is published", func() bool {
		web, _ := co.document(t, co.domain).body["web"].(map[string]any)
		at, _ = web["browser_session_endpoint"].(string)
		return at != ""
	})
	return at
}

// assertion is a right one for the Session.
func (s *session) assertion(t testing.TB, change ...fixture.Change) string {
	t.Helper()
	return s.agent.BrowserAssertion(t, s.user, s.id, s.co.joinsAt(t), "https://"+s.co.domain+"/orders?page=2", now(), change...)
}

// join posts the form as a browser does, from a page of the agent.
func (co *company) join(t testing.TB, assertion string, change ...func(*http.Request)) answer {
	t.Helper()
	return co.in.do(t, joinRequest(t, co.joinsAt(t), url.Values{"assertion": {assertion}}.Encode(), change...))
}

func joinRequest(t testing.TB, at, form string, change ...func(*http.Request)) *http.Request {
	t.Helper()
	return request(t, http.MethodPost, at, form, append([]func(*http.Request){
		header("Content-Type", "application/x-www-form-urlencoded"), header("Origin", "https://agents.example"), header("Sec-Fetch-Site", "cross-site"),
	}, change...)...)
}

// cookie returns what a browser keeps of the answer, which must have let it in.
func (a answer) cookie(t testing.TB) *http.Cookie {
	t.Helper()
	require.Equal(t, http.StatusSeeOther, a.status, "%s", a.raw)
	got := (&http.Response{Header: a.header}).Cookies()
	require.Len(t, got, 1)
	return got[0]
}

// notJoined requires the page of section 5.
func (a answer) notJoined(t testing.TB, why string) {
	t.Helper()
	require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", why, a.raw)
	require.Empty(t, a.header.Values("Set-Cookie"), why)
	require.Empty(t, a.header.Get("Location"), why)
	require.Contains(t, a.header.Get("Content-Type"), "text/html", why)
	require.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'", why)
	require.NotContains(t, string(a.raw), "<script", why)
}

// visitedBy asks, as the website does, whose visit a request with these cookies is; nil for nobody's.
func (co *company) visitedBy(t testing.TB, cookies string) map[string]any {
	t.Helper()
	got := co.admin(t, http.MethodPost, co.name+":checkBrowserSession", object{"cookie_header": cookies}).is(t, http.StatusOK, "")
	require.Equal(t, []any{1.0}, []any{got.body["cache_seconds"]})
	s, _ := got.body["session"].(map[string]any)
	require.Equal(t, got.body["found"] == true, s != nil)
	return s
}

// One Session for the website, whoever joined it, as it is at each request (5).
func TestBrowser_JoinsASessionAndFollowsIt(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3.1#17", "poppy-0.1/4.3#34", "poppy-0.1/5#1", "poppy-0.1/5#2", "poppy-0.1/5#4", "poppy-0.1/5#7", "poppy-0.1/5#8", "poppy-0.1/5#9", "poppy-0.1/5#10",
			"poppy-0.1/5#11", "poppy-0.1/5#12", "poppy-0.1/5#13", "poppy-0.1/5#14", "poppy-0.1/5#16", "poppy-0.1/5#17", "poppy-0.1/5#19", "poppy-0.1/5#20", "poppy-0.1/5#23",
			"poppy-0.1/5#28", "poppy-0.1/5#29", "poppy-0.1/5#30", "poppy-0.1/5#31", "poppy-0.1/5#32", "poppy-0.1/5#34", "poppy-0.1/5#35", "poppy-0.1/5#36", "poppy-0.1/5#37",
			"poppy-0.1/5#38", "poppy-0.1/5#39", "poppy-0.1/5#40")
		clausetest.Refuses(t, "poppy-0.1/5#36")
		co := joinable(t, in, object{"domain": ""}, onOwnHost)
		require.Equal(t, onOwnHost(co.domain), co.joinsAt(t))
		s := co.visitor(t)
		joined := co.join(t, s.assertion(t))
		require.Equal(t, "https://"+co.domain+"/orders?page=2", joined.header.Get("Location"))
		require.Equal(t, "no-store", joined.header.Get("Cache-Control"))
		c := joined.cookie(t)
		require.Equal(t, []any{"__Secure-poppy", co.domain, "/", true, true, http.SameSiteLaxMode}, []any{c.Name, c.Domain, c.Path, c.Secure, c.HttpOnly, c.SameSite})
		require.Positive(t, c.MaxAge)
		require.LessOrEqual(t, c.MaxAge, 24*60*60)

		older := "visit=old; cart=7; " + c.Name + "=" + c.Value
		who := co.visitedBy(t, older)
		require.Equal(t, []any{co.name + "/sessions/" + s.id, s.agent.ClientID, s.user}, []any{who["session"], who["client_id"], who["user"]})
		require.NotEqual(t, true, who["signed_in"])
		require.Empty(t, who["scopes"])

		in2 := s.direct(t, "acc-1", "poppy:read").is(t, http.StatusOK, "")
		who = co.visitedBy(t, older)
		require.Equal(t, []any{true, "acc-1", []any{"poppy:read"}}, []any{who["signed_in"], who["account"], who["scopes"]})
		form := s.agent.ClientForm(t, co.revocationEndpoint(), now())
		form.Set("token", in2.str("refresh_token"))
		in.do(t, request(t, http.MethodPost, co.revocationEndpoint(), form.Encode(), header("Content-Type", "application/x-www-form-urlencoded"))).is(t, http.StatusOK, "")
		who = co.visitedBy(t, older)
		require.NotNil(t, who, "the Session goes on, signed out")
		require.NotEqual(t, true, who["signed_in"])
		require.Empty(t, who["account"])

		require.Nil(t, co.visitedBy(t, "cart=7"))
		require.Nil(t, co.visitedBy(t, "other="+c.Value))
		require.Nil(t, co.visitedBy(t, c.Name+"=pbc_unknown"))
		require.Equal(t, http.StatusBadRequest, co.admin(t, http.MethodPost, co.name+":checkBrowserSession", object{}).status)
		require.Equal(t, http.StatusBadRequest, co.admin(t, http.MethodPost, co.name+":checkBrowserSession", object{"cookie": c.Value, "cookie_header": older}).status)
		byValue := co.admin(t, http.MethodPost, co.name+":checkBrowserSession", object{"cookie": c.Value}).is(t, http.StatusOK, "")
		require.Equal(t, true, byValue.body["found"])

		co.admin(t, http.MethodPost, co.name+"/sessions/"+s.id+":end", object{}).is(t, http.StatusOK, "")
		require.Nil(t, co.visitedBy(t, older))
		require.NotContains(t, in.log.String(), c.Value)
	})
}

func TestBrowser_ANewAssertionReplacesTheCookie(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/5#41", "poppy-0.1/5#42")
		clausetest.Refuses(t, "poppy-0.1/5#42")
		co := joinable(t, in, object{"name": "sb_session", "domain": ""}, onOwnHost)
		s := co.visitor(t)
		first := co.join(t, s.assertion(t)).cookie(t)
		second := co.join(t, s.assertion(t)).cookie(t)
		require.Equal(t, []string{"sb_session", "sb_session"}, []string{first.Name, second.Name})
		require.NotEqual(t, first.Value, second.Value)
		require.Nil(t, co.visitedBy(t, "sb_session="+first.Value))
		require.NotNil(t, co.visitedBy(t, "sb_session="+first.Value+"; sb_session="+second.Value))

		// Another Session's cookie has nothing to do with it.
		other := s.again(t)
		theirs := co.join(t, other.assertion(t)).cookie(t)
		require.Equal(t, co.name+"/sessions/"+s.id, co.visitedBy(t, "sb_session="+second.Value)["session"])
		require.Equal(t, co.name+"/sessions/"+other.id, co.visitedBy(t, "sb_session="+theirs.Value)["session"])
		// Of two Sessions in one browser the later one counts.
		require.Equal(t, co.name+"/sessions/"+other.id, co.visitedBy(t, "sb_session="+second.Value+"; sb_session="+theirs.Value)["session"])
	})
}

// A path of the Company's own host, whose proxy keeps the Host or says the issuer's.
func TestBrowser_AtAPathOfTheCompanysOwnHost(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/5#4", "poppy-0.1/5#10", "poppy-0.1/5#34")
		clausetest.Refuses(t, "poppy-0.1/5#23")
		co := joinable(t, in, object{}, func(domain string) string { return "https://" + domain + "/poppy/browser-session" })
		s := co.visitor(t)
		at := func(u, host string, change ...fixture.Change) answer {
			return in.do(t, joinRequest(t, u, url.Values{"assertion": {s.assertion(t, change...)}}.Encode(), func(r *http.Request) {
				if host != "" {
					r.Host = host
				}
			}))
		}
		c := at(co.issuer+"/poppy/browser-session", "").cookie(t)
		require.Equal(t, []any{"__Host-poppy", ""}, []any{c.Name, c.Domain})
		through := "https://" + browserHost + co.domain
		c = at(through+"/poppy/browser-session", co.domain).cookie(t)
		require.NotNil(t, co.visitedBy(t, c.Name+"="+c.Value))

		at(co.issuer+"/poppy/browser-session", "", fixture.Claim("aud", co.issuer+"/poppy/browser-session")).notJoined(t, "aud from the Host")
		require.Equal(t, http.StatusNotFound, at(through+"/oauth/token", co.domain).status, "nothing else is there")
		require.Equal(t, http.StatusNotFound, at(through+"/other", co.domain).status)
		require.Equal(t, http.StatusNotFound, at(through+"/poppy/browser-session", "").status, "the endpoint is not on this host")
	})
}

func TestBrowser_AssertionsThatAreRefused(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/5#7", "poppy-0.1/5#8", "poppy-0.1/5#9", "poppy-0.1/5#10", "poppy-0.1/5#11", "poppy-0.1/5#13", "poppy-0.1/5#14", "poppy-0.1/5#16", "poppy-0.1/5#17",
			"poppy-0.1/5#19", "poppy-0.1/5#20", "poppy-0.1/5#21", "poppy-0.1/5#22", "poppy-0.1/5#23", "poppy-0.1/5#24", "poppy-0.1/5#25", "poppy-0.1/5#26", "poppy-0.1/5#28", "poppy-0.1/5#29",
			"poppy-0.1/5#30", "poppy-0.1/5#31", "poppy-0.1/5#32", "poppy-0.1/5#d6", "poppy-0.1/5#d7", "poppy-0.1/5#d39")
		clausetest.Covers(t, "poppy-0.1/5#24", "poppy-0.1/5#25", "poppy-0.1/5#26", "poppy-0.1/5#33", "poppy-0.1/5#d7", "poppy-0.1/5#d39", "poppy-0.1/5#d6", "poppy-0.1/5#21", "poppy-0.1/5#22")
		co := joinable(t, in, object{"domain": ""}, onOwnHost)
		s := co.visitor(t)
		iat := now()
		for why, change := range map[string]fixture.Change{
			"key of another":         fixture.SignedBy(fixture.NewKey(t)),
			"unknown kid":            fixture.KID("k9"),
			"typ JWT":                fixture.Typ("JWT"),
			"no typ":                 fixture.Typ(""),
			"typ of a proof":         fixture.Typ("dpop+jwt"),
			"typ in capitals":        fixture.Typ("POPPY-BROWSER+JWT"),
			"no iss":                 fixture.Claim("iss", nil),
			"iss of nobody":          fixture.Claim("iss", "https://agents.example/nobody.json"),
			"sub of another User":    fixture.Claim("sub", "usr_other"),
			"no sub":                 fixture.Claim("sub", nil),
			"aud token endpoint":     fixture.Claim("aud", co.tokenEndpoint()),
			"aud issuer":             fixture.Claim("aud", co.issuer),
			"aud with a slash":       fixture.Claim("aud", onOwnHost(co.domain)+"/"),
			"aud a list":             fixture.Claim("aud", []string{onOwnHost(co.domain)}),
			"no aud":                 fixture.Claim("aud", nil),
			"expired":                fixture.Times(iat.Add(-2*time.Minute), iat.Add(-time.Minute)),
			"61 seconds":             fixture.Times(iat, iat.Add(61*time.Second)),
			"iat to come":            fixture.Times(iat.Add(2*time.Minute), iat.Add(3*time.Minute)),
			"exp before iat":         fixture.Times(iat, iat.Add(-time.Second)),
			"no exp":                 fixture.Claim("exp", nil),
			"no iat":                 fixture.Claim("iat", nil),
			"short jti":              fixture.Claim("jti", "fifteen-letters"),
			"no jti":                 fixture.Claim("jti", nil),
			"no session":             fixture.Claim("session_id", nil),
			"unknown session":        fixture.Claim("session_id", "ses_unknown"),
			"return_to over http":    fixture.Claim("return_to", "http://"+co.domain+"/"),
			"return_to elsewhere":    fixture.Claim("return_to", "https://evil.example/"),
			"return_to looks like":   fixture.Claim("return_to", "https://not"+co.domain+"/"),
			"return_to below evil":   fixture.Claim("return_to", "https://"+co.domain+".evil.example/"),
			"return_to with user":    fixture.Claim("return_to", "https://"+co.domain+"@evil.example/"),
			"return_to backslash":    fixture.Claim("return_to", "https://evil.example\\."+co.domain+"/"),
			"return_to of the host":  fixture.Claim("return_to", co.issuer+"/device"),
			"return_to relative":     fixture.Claim("return_to", "/orders"),
			"return_to no string":    fixture.Claim("return_to", 7),
			"return_to with newline": fixture.Claim("return_to", "https://"+co.domain+"/\r\nSet-Cookie: a=b"),
		} {
			co.join(t, s.assertion(t, change)).notJoined(t, why)
		}
		co.join(t, s.agent.SessionAssertion(t, s.user, co.joinsAt(t), now())).notJoined(t, "a Session assertion with the right aud")
		co.join(t, s.agent.SessionAssertion(t, s.user, co.tokenEndpoint(), now())).notJoined(t, "a Session assertion")
		co.join(t, s.agent.ClientAssertion(t, co.joinsAt(t), now())).notJoined(t, "a client assertion")
		co.join(t, "nonsense").notJoined(t, "no JWT")
		co.join(t, "").notJoined(t, "nothing")

		// Who owns the Session decides, not who knows its id.
		stranger := co.visitor(t)
		theirs := stranger.agent.BrowserAssertion(t, s.user, s.id, co.joinsAt(t), "https://"+co.domain+"/", now())
		co.join(t, theirs).notJoined(t, "another client's Session")
		elsewhere := joinable(t, in, object{"domain": ""}, onOwnHost)
		elsewhere.join(t, s.assertion(t)).notJoined(t, "another Company's endpoint")
		elsewhere.join(t, s.assertion(t, fixture.Claim("aud", elsewhere.joinsAt(t)), fixture.Claim("return_to", "https://"+elsewhere.domain+"/"))).notJoined(t, "another Company's Session")

		// At the token endpoint a browser assertion is none of either kind.
		form := co.form(t, s.agent, s.user)
		form.Set("assertion", s.assertion(t, fixture.Claim("aud", co.tokenEndpoint())))
		co.token(t, form, co.proof(t, s.key)).is(t, http.StatusBadRequest, "invalid_grant")
		form = co.form(t, s.agent, s.user)
		form.Set("client_assertion", s.assertion(t, fixture.Claim("aud", co.tokenEndpoint()), fixture.Claim("sub", s.agent.ClientID)))
		co.token(t, form, co.proof(t, s.key)).is(t, http.StatusUnauthorized, "invalid_client")

		// The request itself.
		good := s.assertion(t)
		body := url.Values{"assertion": {good}}.Encode()
		for why, r := range map[string]*http.Request{
			"in the URL":     joinRequest(t, co.joinsAt(t)+"?"+body, ""),
			"twice":          joinRequest(t, co.joinsAt(t), body+"&"+body),
			"as JSON":        joinRequest(t, co.joinsAt(t), `{"assertion":"`+good+`"}`, header("Content-Type", "application/json")),
			"a form of 1 MB": joinRequest(t, co.joinsAt(t), body+"&pad="+strings.Repeat("x", 1<<20)),
		} {
			in.do(t, r).notJoined(t, why)
		}
		require.Equal(t, http.StatusMethodNotAllowed, in.get(t, co.joinsAt(t)).status)

		// None of those has used the jti up; this one does, and only this once.
		co.join(t, good).cookie(t)
		co.join(t, good).notJoined(t, "a second time")

		sub := co.join(t, s.assertion(t, fixture.Claim("return_to", "https://www."+co.domain+":8443/a")))
		require.Equal(t, "https://www."+co.domain+":8443/a", sub.header.Get("Location"))
		sub.cookie(t)
		root := co.join(t, s.assertion(t, fixture.Claim("return_to", nil)))
		require.Equal(t, "https://"+co.domain+"/", root.header.Get("Location"))
		last := root.cookie(t)

		name := co.rule(t, s.agent.ClientID, "BLOCK")
		co.join(t, s.assertion(t)).notJoined(t, "a blocked agent")
		require.Nil(t, co.visitedBy(t, last.Name+"="+last.Value), "a blocked agent")
		co.admin(t, http.MethodDelete, name, nil).is(t, http.StatusOK, "")
		require.NotNil(t, co.visitedBy(t, last.Name+"="+last.Value))
		co.admin(t, http.MethodPost, co.name+"/sessions/"+s.id+":end", object{}).is(t, http.StatusOK, "")
		co.join(t, s.assertion(t)).notJoined(t, "an ended Session")
	})
}

// The endpoint and the cookie are where the Company may set one.
func TestBrowser_SettingsThatNoBrowserCouldFollow(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/5#3")
		clausetest.Refuses(t, "poppy-0.1/5#4", "poppy-0.1/5#34")
		co := signsIn(t, in)
		co.domain = in.shop(t)
		own := onOwnHost(co.domain)
		set := func(endpoint string, cookie object) answer {
			return co.admin(t, http.MethodPatch, co.name+"/discoverySettings?update_mask=browser_session_endpoint,browser_cookie",
				object{"browser_session_endpoint": endpoint, "browser_cookie": cookie})
		}
		require.Equal(t, http.StatusBadRequest, set(own, object{}).status, "the domain is not verified yet")
		co.own(t, co.domain)
		require.NotContains(t, co.document(t, co.domain).body, "web")
		require.Equal(t, http.StatusNotFound, in.do(t, joinRequest(t, own, "")).status)
		require.Equal(t, http.StatusNotFound, in.do(t, joinRequest(t, co.issuer+"/poppy/browser-session", "")).status)
		require.Equal(t, http.StatusConflict, co.admin(t, http.MethodPost, co.name+":checkBrowserSession", object{"cookie": "x"}).status)
		for why, c := range map[string]struct {
			endpoint string
			cookie   object
			field    string
		}{
			"nowhere":                 {"", object{}, "browser_session_endpoint"},
			"over http":               {"http://" + co.domain + "/join", object{}, "browser_session_endpoint"},
			"of somebody else":        {"https://poppy.elsewhere.example/join", object{}, "browser_session_endpoint"},
			"without a path":          {"https://" + co.domain, object{}, "browser_session_endpoint"},
			"with a query":            {own + "?a=b", object{}, "browser_session_endpoint"},
			"another path of ours":    {co.issuer + "/join", object{}, "browser_session_endpoint"},
			"cookie for a suffix":     {own, object{"domain": "example"}, "browser_cookie.domain"},
			"cookie of a sibling":     {own, object{"domain": "www." + co.domain}, "browser_cookie.domain"},
			"cookie of somebody else": {own, object{"domain": "elsewhere.example"}, "browser_cookie.domain"},
			"__Host- with a domain":   {own, object{"name": "__Host-x", "domain": co.domain}, "browser_cookie.name"},
			"name with a space":       {own, object{"name": "a b"}, "browser_cookie.name"},
		} {
			got := set(c.endpoint, c.cookie)
			require.Equal(t, http.StatusBadRequest, got.status, "%s: %s", why, got.raw)
			require.Contains(t, string(got.raw), c.field, why)
		}
		set(own, object{"domain": co.domain}).is(t, http.StatusOK, "")
		require.Equal(t, own, co.joinsAt(t))
		s := co.visitor(t)
		c := co.join(t, s.assertion(t)).cookie(t)

		// With the domain goes the endpoint.
		second := in.shop(t)
		co.own(t, second)
		for _, d := range co.admin(t, http.MethodGet, co.name+"/domains", nil).is(t, http.StatusOK, "").body["domains"].([]any) {
			if d := d.(map[string]any); d["domain"] == co.domain {
				co.admin(t, http.MethodDelete, d["name"].(string), nil).is(t, http.StatusOK, "")
			}
		}
		until(t, "the endpoint is gone", func() bool { return in.do(t, joinRequest(t, own, "")).status == http.StatusNotFound })
		require.NotContains(t, co.document(t, second).body, "web")
		require.Equal(t, http.StatusConflict, co.admin(t, http.MethodPost, co.name+":checkBrowserSession", object{"cookie": c.Value}).status)
	})
}
