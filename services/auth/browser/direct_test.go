package browser_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// requireSignedIn checks that the agent can exchange what it got for access to the account.
func (r *rig) requireSignedIn(t testing.TB, q url.Values, scope, account string) {
	t.Helper()
	require.Equal(t, state, q.Get("state"))
	require.False(t, q.Has("error"))
	got := r.exchange(t, q.Get("code"))
	require.Equal(t, scope, got["scope"], got)
	require.Equal(t, true, got["signed_in"])
	require.NotEmpty(t, got["refresh_token"])
	c := r.caller(t, got["access_token"])
	require.True(t, c.GetSignedIn())
	require.Equal(t, account, c.GetAccount())
}

func TestDirect_ByCredentialCheckAndCode(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#8", "poppy-0.1/4.4#21", "poppy-0.1/4.4#23", "poppy-0.1/4.4#32", "poppy-0.1/4.5#1", "poppy-0.1/4.5#3", "poppy-0.1/4.5#5",
		"poppy-0.1/4.5#6", "poppy-0.1/4.5#7", "poppy-0.1/4.5#8", "poppy-0.1/4.5#9", "poppy-0.1/4.5#10", "poppy-0.1/4.5#11", "poppy-0.1/4.5#12", "poppy-0.1/4.5#13",
		"poppy-0.1/4.5#14", "poppy-0.1/4.5#24")
	each(t, func(t *testing.T, r *rig) {
		r.Accounts.Put(email, fixture.Account{ID: account, Password: password, Code: oneTime})
		b, p := r.begun(t)
		for _, shown := range []string{"Example Agent", "agent.example", "Example Shop", "/agent-logo"} {
			require.Contains(t, p.text(), shown)
		}

		p = b.submit(p, "login", url.Values{"field.email": {email}, "field.password": {""}})
		require.Equal(t, http.StatusUnprocessableEntity, p.status)
		require.Contains(t, p.text(), "Please fill in every field")
		require.Contains(t, p.body, email)
		require.Empty(t, r.Accounts.Asked())
		p = b.submit(p, "login", credentials("wrong"))
		require.Equal(t, http.StatusUnprocessableEntity, p.status)
		require.Contains(t, p.text(), "That didn’t match")
		require.NotContains(t, p.body, "wrong\"")

		p = b.submit(p, "login", credentials(password))
		require.Equal(t, http.StatusOK, p.status, p.body)
		require.Contains(t, p.body, "ending in 71")
		p = b.submit(p, "code", url.Values{"code": {"0000"}})
		require.Equal(t, http.StatusUnprocessableEntity, p.status)
		require.Contains(t, p.text(), "That code isn’t right")
		p = b.submit(p, "code", url.Values{"code": {" " + oneTime + " "}})

		require.Equal(t, []string{"poppy:read", "poppy:write"}, p.scopes())
		for _, shown := range []string{"Example Agent", "agent.example", email, "See your orders & invoices", "Make changes in your account", "See and change your address book"} {
			require.Contains(t, p.text(), shown)
		}
		q := r.returned(t, b.post(p, "approve", ticked("poppy:read")))
		r.requireSignedIn(t, q, "poppy:read", account)

		// What the Company was asked is about this sign-in, and names nobody that it doesn't know.
		for _, asked := range r.Accounts.Asked() {
			s := asked.GetSubject()
			require.Equal(t, "direct", s.GetSignIn())
			require.Equal(t, r.agent.ClientID, s.GetClientId())
			require.Equal(t, []string{"poppy:read", "poppy:write"}, s.GetScopes())
			require.Empty(t, s.GetUserId()+s.GetSessionId())
		}
	})
}

func TestDirect_ByTestAccounts(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.company.Scope.CompanyID()
		accounts, err := json.Marshal([]map[string]string{{
			"account": "try-1", "label": "Try Me", "username": "tina", "password_hash": keys.HashToken(id, "tina's"), "code_hash": keys.HashToken(id, "123456"),
		}})
		require.NoError(t, err)
		sealed, err := r.Keys.Seal(id, "test accounts", "accounts", accounts)
		require.NoError(t, err)
		r.company.Snapshot.Test = true
		r.setUp(func(s *directoryv1.SignIn) {
			s.Method, s.SealedTestAccounts = directoryv1.SignInMethod_SIGN_IN_METHOD_TEST_ACCOUNTS, sealed
		})
		b, p := r.begun(t)
		require.Contains(t, p.body, "tina")
		require.NotContains(t, p.body, "password_hash")
		p = b.submit(p, "login", url.Values{"field.email": {"tina"}, "field.password": {"tina's"}})
		p = b.submit(p, "code", url.Values{"code": {"123456"}})
		require.Contains(t, p.text(), "Try Me")
		r.requireSignedIn(t, r.returned(t, b.post(p, "approve", ticked("poppy:read", "poppy:write"))), both, "try-1")
	})
}

func (r *rig) byOIDC(t testing.TB) {
	t.Helper()
	sealed, err := r.Keys.Seal(r.company.Scope.CompanyID(), "oidc client secret", "oidc", []byte("canary-client-secret"))
	require.NoError(t, err)
	r.setUp(func(s *directoryv1.SignIn) {
		s.Method, s.OidcIssuer, s.OidcClientId, s.OidcSealedSecret = directoryv1.SignInMethod_SIGN_IN_METHOD_OIDC, providerIssuer, providerClient, sealed
	})
}

func TestDirect_ByOIDC(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.byOIDC(t)
		b, p := r.begun(t)
		old := p.target(t)
		require.Empty(t, old.Query().Get("prompt"))
		p = b.get(p.url)
		to := p.target(t)
		require.NotEqual(t, old.Query().Get("state"), to.Query().Get("state"))

		b.get(r.provider.login(t, old, "mia-1")).shows(t, http.StatusGone, "This sign-in is over") // an older way back
		back := r.provider.login(t, to, "mia-1")
		require.Equal(t, http.StatusSeeOther, b.head(back).status) // which uses nothing up
		p = b.get(back)
		require.Equal(t, []string{"poppy:read", "poppy:write"}, p.scopes(), p.body)
		require.Contains(t, p.body, email)
		b.get(back).shows(t, http.StatusGone, "This sign-in is over")
		p = b.get(p.url)

		// As somebody else, who then has to prove anew who they are.
		p = b.submit(p, "restart", nil)
		to = p.target(t)
		require.Equal(t, "login", to.Query().Get("prompt"))
		p = b.get(r.provider.login(t, to, "mia-2"))
		r.requireSignedIn(t, r.returned(t, b.post(p, "approve", ticked("poppy:read", "poppy:write"))), both, "mia-2")
	})
}

func TestDirect_OIDCRefused(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.byOIDC(t)
		b, p := r.begun(t)
		at := p.target(t)
		query := func(pairs ...string) string {
			q := url.Values{}
			for i := 0; i < len(pairs); i += 2 {
				q.Add(pairs[i], pairs[i+1])
			}
			return r.company.Issuer.CallbackURL() + "?" + q.Encode()
		}
		b.get(query("code", upstreamCode)).shows(t, http.StatusBadRequest, "This link doesn’t work")
		b.get(query("code", upstreamCode, "state", "guessed")).shows(t, http.StatusGone, "This sign-in is over")
		b.get(query("code", upstreamCode, "state", at.Query().Get("state"), "state", at.Query().Get("state"))).shows(t, http.StatusBadRequest, "This link doesn’t work")
		r.browser(t).get(query("code", upstreamCode, "state", at.Query().Get("state"))).shows(t, http.StatusForbidden, "Please use the same browser")

		p = b.get(query("error", "access_denied", "state", at.Query().Get("state")))
		p.shows(t, http.StatusForbidden, "You weren’t signed in")
		require.Contains(t, p.body, "Try again")
		retry := b.get(p.action())
		require.Equal(t, http.StatusOK, retry.status)
		q := r.refusedByAgent(t, b.post(p, "decline", nil), "access_denied")
		require.Equal(t, state, q.Get("state"))
	})
}

// byHandoff has the Company sign its Users in on its own page.
func (r *rig) byHandoff() {
	r.setUp(func(s *directoryv1.SignIn) {
		s.Method, s.LoginUrl = directoryv1.SignInMethod_SIGN_IN_METHOD_LOGIN_HANDOFF, "https://shop.example/login?from=poppyfield"
	})
}

// challenge is the name of the login request that the page sends the browser away with.
func (r *rig) challenge(t testing.TB, p page) string {
	t.Helper()
	to := p.target(t)
	require.Equal(t, "https://shop.example/login", to.Scheme+"://"+to.Host+to.Path)
	require.Equal(t, "poppyfield", to.Query().Get("from"))
	return r.company.Scope.Name() + "/loginRequests/" + to.Query().Get("login_challenge")
}

func (r *rig) accept(t testing.TB, name, account string) (string, error) {
	t.Helper()
	got, err := r.logins.AcceptLoginRequest(r.company.Ctx(t.Context()), &adminv1.AcceptLoginRequestRequest{Name: name, Account: account, AccountLabel: email})
	return got.GetRedirectTo(), err
}

func TestDirect_ByHandoff(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.byHandoff()
		q := r.request()
		q.Set("ui_locales", "de nonsense-tag-123456789 en")
		b := r.browser(t)
		p := b.get(r.authorizeURL(q))
		require.Equal(t, "de", p.header.Get("Content-Language"))
		name := r.challenge(t, p)
		about, err := r.logins.GetLoginRequest(r.company.Ctx(t.Context()), &adminv1.GetLoginRequestRequest{Name: name})
		require.NoError(t, err)
		require.Equal(t, r.agent.ClientID, about.GetClientId())
		require.Equal(t, "Example Agent", about.GetAgentName())
		require.Equal(t, []string{"poppy:read", "poppy:write"}, about.GetScopes())
		require.Equal(t, "direct", about.GetSignIn())
		require.Equal(t, "de", about.GetUiLocale())
		require.True(t, about.GetExpireTime().AsTime().After(r.now()))

		back, err := r.accept(t, name, account)
		require.NoError(t, err)
		require.Equal(t, http.StatusSeeOther, b.head(back).status) // which uses nothing up
		p = b.get(back)
		require.NotEmpty(t, p.scopes(), p.body)
		require.Contains(t, p.body, email)
		r.requireSignedIn(t, r.returned(t, b.post(p, "approve", ticked("poppy:read", "poppy:write"))), both, account)
	})
}

func TestDirect_Declined(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#10", "poppy-0.1/4.5#15", "poppy-0.1/4.5#d31", "poppy-0.1/4.5#12", "poppy-0.1/4.5#13")
	each(t, func(t *testing.T, r *rig) {
		r.Accounts.Put("code@example.com", fixture.Account{ID: "acc-2", Password: password, Code: oneTime})
		for name, to := range map[string]func(*browser, page) page{
			"at login": func(_ *browser, p page) page { return p },
			"at code": func(b *browser, p page) page {
				return b.submit(p, "login", url.Values{"field.email": {"code@example.com"}, "field.password": {password}})
			},
			"at consent": r.login,
		} {
			t.Run(name, func(t *testing.T) {
				b, p := r.begun(t)
				p = to(b, p)
				declined := b.post(p, "decline", nil)
				q := r.refusedByAgent(t, declined, "access_denied")
				require.Equal(t, state, q.Get("state"))
				require.Empty(t, b.cookies)
				b.get(p.url).shows(t, http.StatusGone, "This sign-in is over")
			})
		}
		t.Run("without state", func(t *testing.T) {
			q := r.request()
			q.Del("state")
			b := r.browser(t)
			got := r.refusedByAgent(t, b.post(b.get(r.authorizeURL(q)), "decline", nil), "access_denied")
			require.False(t, got.Has("state"))
		})
	})
}

func TestDirect_NothingTickedIsDeclined(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#d41")
	each(t, func(t *testing.T, r *rig) {
		b, p := r.atConsent(t)
		r.refusedByAgent(t, b.post(p, "approve", nil), "access_denied")
	})
}

func TestDirect_AsSomebodyElse(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.Accounts.Put("max@example.com", fixture.Account{ID: "acc-2", Password: password})
		b, old := r.atConsent(t)
		p := b.submit(old, "restart", nil)
		require.Empty(t, p.scopes())
		p = b.submit(p, "login", url.Values{"field.email": {"max@example.com"}, "field.password": {password}})
		require.Contains(t, p.body, "max@example.com")

		// The page that showed the first account can't approve for the second.
		b.post(old, "approve", ticked("poppy:read")).shows(t, http.StatusForbidden, "This request came from another site")
		r.requireSignedIn(t, r.returned(t, b.post(p, "approve", ticked("poppy:write"))), "poppy:write", "acc-2")
	})
}

func TestDirect_OutOfCodes(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.Accounts.Put(email, fixture.Account{ID: account, Password: password, Code: oneTime})
		b, p := r.begun(t)
		p = b.submit(p, "login", credentials(password))
		for range 4 {
			p = b.submit(p, "code", url.Values{"code": {"0000"}})
			require.Equal(t, http.StatusUnprocessableEntity, p.status, p.body)
		}
		r.refusedByAgent(t, b.submit(p, "code", url.Values{"code": {"0000"}}), "access_denied")
		b.submit(p, "code", url.Values{"code": {oneTime}}).shows(t, http.StatusGone, "This sign-in is over")
	})
}

func TestDirect_LoginAttemptsAreLimited(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		b, p := r.begun(t)
		for range 10 {
			p = b.submit(p, "login", credentials("wrong"))
			require.Equal(t, http.StatusUnprocessableEntity, p.status)
		}
		b.web = r.replica
		p = b.submit(p, "login", credentials(password))
		require.Equal(t, http.StatusTooManyRequests, p.status)
		require.NotEmpty(t, p.header.Get("Retry-After"))
		require.Contains(t, p.text(), "Too many tries")
		require.Len(t, r.Accounts.Asked(), 10)

		r.Accounts.Down(true)
		b, p = r.begun(t)
		p = b.submit(p, "login", url.Values{"field.email": {"else@example.com"}, "field.password": {password}})
		require.Equal(t, http.StatusServiceUnavailable, p.status)
		require.Contains(t, p.text(), "can’t check this right now")
	})
}

func TestDirect_Languages(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		b := r.browser(t)
		b.headers.Set("Accept-Language", "fr-CH, fr;q=0.9, en;q=0.8")
		require.Equal(t, "fr", b.get(r.authorizeURL(r.request())).header.Get("Content-Language"))
		q := r.request()
		q.Set("ui_locales", "xx ja de")
		p := b.get(r.authorizeURL(q))
		require.Equal(t, "ja", p.header.Get("Content-Language"))
		b.headers.Set("Accept-Language", "es")
		require.Equal(t, "ja", b.get(p.url).header.Get("Content-Language"))
		q.Set("ui_locales", "de")
		p = r.login(b, b.get(r.authorizeURL(q)))
		require.Contains(t, p.text(), "Ihr Adressbuch sehen und ändern")

		for range 3 { // as many as a browser likes, each with a cookie of its own
			b.get(r.authorizeURL(r.request()))
		}
		require.Len(t, b.cookies, 6)
	})
}

func TestDirect_AgentWithoutLogo(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.publish(map[string]any{"logo_uri": nil, "client_name": "A\u202eB <b>"})
		_, p := r.begun(t)
		require.NotContains(t, p.body, "agent-logo")
		require.Contains(t, p.body, "AB &lt;b&gt;") // CI-15
	})
}
