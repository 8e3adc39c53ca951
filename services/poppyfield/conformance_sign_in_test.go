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

const bothScopes = "poppy:read poppy:write"

// signsIn is a Company whose Users sign in on its own login page.
func signsIn(t testing.TB, in *installation) *company {
	t.Helper()
	co := in.company(t)
	co.patch(t, "signInConnection", object{"method": "SIGN_IN_METHOD_LOGIN_HANDOFF", "login_handoff": object{"login_url": "https://login.shop.test/"}})
	scopes := []string{"poppy:read", "poppy:write"}
	co.patch(t, "discoverySettings", object{"direct_scopes": scopes, "device_scopes": scopes})
	return co
}

var (
	challenge  = regexp.MustCompile(`login_challenge=([A-Za-z0-9_-]+)`)
	csrf       = regexp.MustCompile(`name="csrf" value="([^"]+)"`)
	formAction = regexp.MustCompile(`<form[^>]* action="([^"]+)"`)
)

// userAgent is a User's browser: its cookies.
type userAgent struct {
	co      *company
	cookies map[string]string
}

func (co *company) browser() *userAgent { return &userAgent{co, map[string]string{}} }

// open follows redirects as long as they stay below the issuer.
func (u *userAgent) open(t testing.TB, at string) answer {
	t.Helper()
	return u.send(t, request(t, http.MethodGet, at, ""))
}

// submit sends a form with a page's own token.
func (u *userAgent) submit(t testing.TB, page answer, to string, form url.Values) answer {
	t.Helper()
	token := csrf.FindSubmatch(page.raw)
	require.NotNil(t, token, "%s", page.raw)
	form.Set("csrf", string(token[1]))
	return u.send(t, request(t, http.MethodPost, to, form.Encode(), header("Content-Type", "application/x-www-form-urlencoded"), header("Origin", u.co.issuer)))
}

func (u *userAgent) send(t testing.TB, r *http.Request) answer {
	t.Helper()
	for {
		for name, value := range u.cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		a := u.co.in.do(t, r)
		for _, c := range (&http.Response{Header: a.header}).Cookies() {
			u.cookies[c.Name] = c.Value
		}
		to := a.header.Get("Location")
		if a.status != http.StatusSeeOther || !strings.HasPrefix(to, u.co.issuer+"/") {
			return a
		}
		r = request(t, http.MethodGet, to, "")
	}
}

// decide goes from the page that leads to the Company's own login, which finds account,
// to consent, and answers it with an action and the ticked scopes.
func (u *userAgent) decide(t testing.TB, leave answer, account, action string, ticked ...string) answer {
	t.Helper()
	found := challenge.FindStringSubmatch(html.UnescapeString(string(leave.raw)))
	require.NotNil(t, found, "%d %s", leave.status, leave.raw)
	at := u.co.name + "/loginRequests/" + found[1]
	asked := u.co.admin(t, http.MethodGet, at, nil).is(t, http.StatusOK, "")
	require.Equal(t, "Example Agent", asked.str("agent_name"))
	accepted := u.co.admin(t, http.MethodPost, at+":accept", object{"account": account}).is(t, http.StatusOK, "")
	page := u.open(t, accepted.str("redirect_to")).is(t, http.StatusOK, "")
	to := formAction.FindSubmatch(page.raw)
	require.NotNil(t, to, "%s", page.raw)
	return u.submit(t, page, html.UnescapeString(string(to[1])), url.Values{"action": {action}, "scope": ticked})
}

// authorization is the link that the agent shows its User.
func (s *session) authorization(scope, state string) string {
	return s.co.issuer + "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {s.agent.ClientID}, "redirect_uri": {s.agent.RedirectURI()}, "scope": {scope}, "state": {state},
		"code_challenge": {fixture.Challenge(fixture.Verifier)}, "code_challenge_method": {"S256"},
	}.Encode()
}

// direct signs the Session in to an account, with what the User leaves ticked.
func (s *session) direct(t testing.TB, account string, ticked ...string) answer {
	t.Helper()
	b := s.co.browser()
	a := b.decide(t, b.open(t, s.authorization(bothScopes, "st")), account, "approve", ticked...)
	require.Equal(t, http.StatusSeeOther, a.status, "%s", a.raw)
	to, err := url.Parse(a.header.Get("Location"))
	require.NoError(t, err)
	require.Equal(t, s.agent.RedirectURI(), to.Scheme+"://"+to.Host+to.Path)
	require.Equal(t, []string{"st", s.co.issuer}, []string{to.Query().Get("state"), to.Query().Get("iss")})
	return s.co.token(t, s.agent.CodeForm(t, to.Query().Get("code"), s.id, s.co.tokenEndpoint(), time.Now()), s.co.proof(t, s.key))
}

// as is the Session with another of its tokens.
func (s *session) as(token string) *session {
	other := *s
	other.token = token
	return &other
}

func TestMD04_MetadataSaysWhatSignInDoes(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.4#3", "poppy-0.1/4.4#20", "poppy-0.1/4.5#3", "poppy-0.1/4.5#6", "poppy-0.1/4.6#3")
		clausetest.Refuses(t, "poppy-0.1/4.4#3", "poppy-0.1/4.4#4")
		co := signsIn(t, in)
		got := co.metadata(t)
		require.Equal(t, co.issuer+"/oauth/authorize", got.str("authorization_endpoint"))
		require.Equal(t, co.issuer+"/oauth/device", got.str("device_authorization_endpoint"))
		require.Equal(t, []any{"S256"}, got.body["code_challenge_methods_supported"])
		require.Equal(t, true, got.body["authorization_response_iss_parameter_supported"])
		require.Len(t, got.body["grant_types_supported"], 4)
		// Without a way to the accounts nothing of it is promised, or works.
		co.patch(t, "signInConnection", object{"method": "SIGN_IN_METHOD_UNSPECIFIED"})
		require.Eventually(t, func() bool { return len(co.metadata(t).body["grant_types_supported"].([]any)) == 1 }, patience, 20*time.Millisecond)
		s := co.visitor(t)
		require.Equal(t, http.StatusNotFound, in.get(t, s.authorization("poppy:read", "st")).status)
		f := s.agent.CodeForm(t, "poc_x", s.id, co.tokenEndpoint(), time.Now())
		co.token(t, f, co.proof(t, s.key)).is(t, http.StatusBadRequest, "unsupported_grant_type")
	})
}

// What a sign-in gives is seen by the Company's backend, and only for as long as it is in force.
func TestSignIn_AccountAndScopesReachTheBackend(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.4#12", "poppy-0.1/4.4#13", "poppy-0.1/4.4#14", "poppy-0.1/4.4#31", "poppy-0.1/4.4#32", "poppy-0.1/4.4#34", "poppy-0.1/4.5#24",
			"poppy-0.1/4.9#2", "poppy-0.1/4.9#7", "poppy-0.1/4.9#8")
		clausetest.Refuses(t, "poppy-0.1/4.4#21", "poppy-0.1/4.4#45", "poppy-0.1/4.4#d13", "poppy-0.1/4.9#13")
		co := signsIn(t, in)
		s := co.visitor(t)
		before := s.token
		got := s.direct(t, "acc-1", "poppy:read").is(t, http.StatusOK, "")
		require.Equal(t, s.id, got.str("session_id"))
		require.Equal(t, "poppy:read", got.str("scope"))
		require.Equal(t, true, got.body["signed_in"])
		seen := func(token, words string) (bool, string, []string) {
			t.Helper()
			s.as(token).talk(t, words)
			d := co.backend.next(t).body.Data
			require.Equal(t, words, d.Message.Text)
			account := ""
			if d.Session.Account != nil {
				account = *d.Session.Account
			}
			return d.Session.SignedIn, account, d.Session.Scopes
		}
		in1, account, scopes := seen(got.str("access_token"), "signed in")
		require.True(t, in1)
		require.Equal(t, "acc-1", account)
		require.Equal(t, []string{"poppy:read"}, scopes)
		in1, account, _ = seen(before, "a token from before")
		require.False(t, in1)
		require.Empty(t, account)

		revoke := s.agent.ClientForm(t, co.tokenEndpoint(), time.Now())
		revoke.Set("token", got.str("refresh_token"))
		in.do(t, request(t, http.MethodPost, co.revocationEndpoint(), revoke.Encode(), header("Content-Type", "application/x-www-form-urlencoded"))).is(t, http.StatusOK, "")
		in1, account, scopes = seen(got.str("access_token"), "after signing out")
		require.False(t, in1)
		require.Empty(t, account)
		require.Empty(t, scopes)
	})
}

// A conversation becomes the account's with its first signed-in message (7.2), and
// stays so whatever becomes of the sign-in (RV-07).
func TestRV07_ConversationsOfAnAccount(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.4#43", "poppy-0.1/7.2#d21", "poppy-0.1/4.9#17")
		clausetest.Refuses(t, "poppy-0.1/4.4#41", "poppy-0.1/4.4#46", "poppy-0.1/7.2#d21")
		co := signsIn(t, in)
		mia := co.visitor(t)
		ken := mia.again(t) // the same User, agent and Company; another account
		miaIn := mia.as(mia.direct(t, "acc-mia", "poppy:read", "poppy:write").is(t, http.StatusOK, "").str("access_token"))
		kenIn := ken.as(ken.direct(t, "acc-ken", "poppy:read").is(t, http.StatusOK, "").str("access_token"))
		mia.direct(t, "acc-ken", "poppy:read").is(t, http.StatusBadRequest, "account_mismatch")

		id := mia.talk(t, "nobody's yet")
		kenIn.read(t, id, "").is(t, http.StatusOK, "")
		miaIn.post(t, messagesPath(id), text("now it is mia's")).is(t, http.StatusAccepted, "")
		miaIn.read(t, id, "").is(t, http.StatusOK, "")
		mia.read(t, id, "").is(t, http.StatusForbidden, "sign_in_required")
		mia.post(t, messagesPath(id), text("signed out")).is(t, http.StatusForbidden, "sign_in_required")
		missing := kenIn.read(t, "cnv_00000000000000000000000000", "").is(t, http.StatusNotFound, "conversation_not_found")
		require.Equal(t, missing.raw, kenIn.read(t, id, "").is(t, http.StatusNotFound, "conversation_not_found").raw)

		// Disconnecting one account leaves the other's sign-in and conversation as they are.
		own := kenIn.talk(t, "ken's")
		co.admin(t, http.MethodPost, co.name+"/connectedAgents:disconnectAccount", object{"account": "acc-mia"}).is(t, http.StatusOK, "")
		miaIn.read(t, id, "").is(t, http.StatusForbidden, "sign_in_required")
		kenIn.read(t, own, "").is(t, http.StatusOK, "")
	})
}

func TestSignIn_DeviceAndDecline(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.5#15", "poppy-0.1/4.5#d31", "poppy-0.1/4.6#6", "poppy-0.1/4.6#14", "poppy-0.1/4.6#16", "poppy-0.1/4.6#17")
		clausetest.Refuses(t, "poppy-0.1/4.6#11", "poppy-0.1/4.5#d41")
		co := signsIn(t, in)
		s := co.visitor(t)
		for _, ending := range []struct {
			action string
			ticked []string
		}{{"decline", []string{"poppy:read"}}, {"approve", nil}} {
			b := co.browser()
			a := b.decide(t, b.open(t, s.authorization(bothScopes, "st")), "acc-1", ending.action, ending.ticked...)
			to, err := url.Parse(a.header.Get("Location"))
			require.NoError(t, err)
			told := to.Query()
			told.Del("error_description") // for who builds the agent
			require.Equal(t, url.Values{"error": {"access_denied"}, "state": {"st"}, "iss": {co.issuer}}, told)
		}
		form := s.agent.ClientForm(t, co.tokenEndpoint(), time.Now())
		form.Set("scope", "poppy:read")
		begun := in.do(t, request(t, http.MethodPost, co.issuer+"/oauth/device", form.Encode(), header("Content-Type", "application/x-www-form-urlencoded"))).is(t, http.StatusOK, "")
		poll := func() answer {
			return co.token(t, s.agent.PollForm(t, begun.str("device_code"), s.id, co.tokenEndpoint(), time.Now()), co.proof(t, s.key))
		}
		require.Equal(t, co.issuer+"/device", begun.str("verification_uri"))
		b := co.browser()
		page := b.open(t, begun.str("verification_uri_complete")).is(t, http.StatusOK, "")
		poll().is(t, http.StatusBadRequest, "authorization_pending") // opening the link approves nothing
		leave := b.submit(t, page, co.issuer+"/device", url.Values{"user_code": {strings.ToLower(begun.str("user_code"))}})
		b.decide(t, leave, "acc-1", "approve", "poppy:read").is(t, http.StatusOK, "")
		got := poll().is(t, http.StatusOK, "")
		require.Equal(t, "poppy:read", got.str("scope"))
		require.NotEmpty(t, got.str("refresh_token"))
	})
}
