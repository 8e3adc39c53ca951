package browser_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func requireSafe(t testing.TB, p page, mayLeave bool) {
	t.Helper()
	csp := p.header.Get("Content-Security-Policy")
	formAction := "form-action 'self';"
	if mayLeave {
		formAction = "form-action 'self' https:;"
	}
	for _, part := range []string{"default-src 'none';", "style-src 'self';", "img-src 'self';", formAction, "base-uri 'none';", "frame-ancestors 'none'"} {
		require.Contains(t, csp, part, p.url)
	}
	require.Equal(t, "nosniff", p.header.Get("X-Content-Type-Options"), p.url)
	require.Equal(t, "no-referrer", p.header.Get("Referrer-Policy"), p.url)
	require.Equal(t, "DENY", p.header.Get("X-Frame-Options"), p.url)
	require.Equal(t, "no-store", p.header.Get("Cache-Control"), p.url)
	require.Equal(t, "text/html; charset=utf-8", p.header.Get("Content-Type"), p.url)
	require.NotEmpty(t, p.header.Get("Content-Language"), p.url)
	require.NotContains(t, p.body, "<script", p.url)
}

func TestCO01_HeadersOfEveryPage(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.Accounts.Put(email, fixture.Account{ID: account, Password: password, Code: oneTime})
		b, p := r.begun(t)
		requireSafe(t, p, true)
		requireSafe(t, b.head(p.url), true)
		p = b.submit(p, "login", credentials(password))
		requireSafe(t, p, true)
		p = b.submit(p, "code", url.Values{"code": {oneTime}})
		requireSafe(t, p, true)
		requireSafe(t, b.submit(p, "unknown", nil), false)
		_, userCode := r.device(t, both)
		at := b.get(r.company.Issuer.VerificationURI())
		requireSafe(t, at, false)
		at = b.submit(at, "", url.Values{"user_code": {userCode}})
		requireSafe(t, at, false)
		requireSafe(t, b.submit(at, "decline", nil), false)
		r.byHandoff()
		_, leave := r.begun(t)
		requireSafe(t, leave, true)
		for _, path := range []string{
			"/oauth/authorize", "/oauth/callback", "/oauth/callback?state=x", "/sign-in/sgn_unknown", "/sign-in/x/resume", "/account/agents", "/device?x=%00",
		} {
			requireSafe(t, r.browser(t).once(r.company.Issuer.String()+path), false)
		}
	})
}

func TestCO01_AnswersThatOurPageDidNotSend(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#10", "poppy-0.1/4.5#11")
	each(t, func(t *testing.T, r *rig) {
		b, p := r.atConsent(t)
		form := p.hidden()
		form.Set("action", "approve")
		form.Set("scope", "poppy:read")
		without := url.Values{"action": {"approve"}, "scope": {"poppy:read"}}
		guessed := url.Values{"action": {"approve"}, "scope": {"poppy:read"}, "csrf": {"guessed"}}
		const refused = "This request came from another site"

		for _, header := range []http.Header{
			{"Sec-Fetch-Site": {"cross-site"}},
			{"Sec-Fetch-Site": {"same-site"}},
			{"Sec-Fetch-Site": {"anything"}},
			{"Origin": {"https://evil.example"}},
			{"Origin": {"https://" + b.host + ".evil.example"}},
			{"Origin": {"http://" + b.host}},
		} {
			b.send(p.action(), form, header).shows(t, http.StatusForbidden, refused)
		}
		b.send(p.action(), without, nil).shows(t, http.StatusForbidden, refused)
		b.send(p.action(), guessed, nil).shows(t, http.StatusForbidden, refused)

		// A token of another sign-in of the same browser is not this one's.
		other := b.get(r.authorizeURL(r.request()))
		b.send(p.action(), url.Values{"action": {"approve"}, "scope": {"poppy:read"}, "csrf": other.hidden()["csrf"]}, nil).shows(t, http.StatusForbidden, refused)

		stranger := r.browser(t)
		stranger.send(p.action(), form, nil).shows(t, http.StatusForbidden, "Please use the same browser")
		stranger.get(p.url).shows(t, http.StatusForbidden, "Please use the same browser")
		_, _ = stranger.get(r.authorizeURL(r.request())), stranger.get(p.url)
		for name := range b.cookies { // a cookie of one's own making
			stranger.cookies[name] = "pfb_guessed"
		}
		stranger.send(p.action(), form, nil).shows(t, http.StatusForbidden, "Please use the same browser")

		b.send(p.action(), form, http.Header{"Content-Type": {"application/json"}}).shows(t, http.StatusBadRequest, "This link doesn’t work")
		b.send(p.action(), url.Values{"action": {"approve", "decline"}, "csrf": form["csrf"]}, nil).shows(t, http.StatusBadRequest, "This link doesn’t work")
		b.send(p.action(), url.Values{"action": {"approve"}, "scope": {"a\x00"}, "csrf": form["csrf"]}, nil).shows(t, http.StatusBadRequest, "This link doesn’t work")
		b.send(p.action(), url.Values{"action": {strings.Repeat("x", 70_000)}, "csrf": form["csrf"]}, nil).shows(t, http.StatusRequestEntityTooLarge, "This link doesn’t work")

		// None of it did anything; old browsers, which don't say where a form is from, still get on.
		require.NotEmpty(t, r.returned(t, b.send(p.action(), form, http.Header{"Origin": {"null"}})).Get("code"))
	})
}

func TestConsent_OnlyWhatWasAskedFor(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.4#21", "poppy-0.1/4.4#22")
	each(t, func(t *testing.T, r *rig) {
		b, p := r.atConsent(t)
		b.post(p, "approve", ticked("poppy:read", "addresses")).shows(t, http.StatusBadRequest, "This link doesn’t work")
		b.post(p, "approve", ticked("poppy:admin")).shows(t, http.StatusBadRequest, "This link doesn’t work")
		q := r.returned(t, b.post(p, "approve", ticked("poppy:write", "poppy:read", "poppy:read")))
		require.Equal(t, both, r.exchange(t, q.Get("code"))["scope"])
	})
}

func TestConsent_StagesCannotBeSkipped(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#11")
	each(t, func(t *testing.T, r *rig) {
		b, p := r.begun(t)
		for _, action := range []string{"approve", "code"} {
			next := b.submit(p, action, url.Values{"scope": {"poppy:read"}, "code": {"1"}})
			require.Equal(t, http.StatusOK, next.status)
			require.Contains(t, next.body, "field.password") // the page of what comes next, which is still the login
		}
		b.submit(p, "restart", nil).shows(t, http.StatusGone, "This sign-in is over")
	})
}

func TestConsent_TwiceGivesOneCode(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#11")
	each(t, func(t *testing.T, r *rig) {
		b, p := r.atConsent(t)
		var codes, over atomic.Int64
		var done sync.WaitGroup
		for i := range 12 {
			double := &browser{t: t, web: r.web, host: b.host, cookies: map[string]string{}, headers: http.Header{}}
			for name, value := range b.cookies {
				double.cookies[name] = value
			}
			if i%2 == 1 {
				double.web = r.replica
			}
			done.Go(func() {
				switch got := double.post(p, "approve", ticked("poppy:read")); {
				case strings.Contains(got.header.Get("Location"), "code="):
					codes.Add(1)
				case got.status == http.StatusGone:
					over.Add(1)
				}
			})
		}
		done.Wait()
		require.EqualValues(t, 1, codes.Load())
		require.EqualValues(t, 11, over.Load())
	})
}

func TestSignIn_RunsOut(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#11")
	each(t, func(t *testing.T, r *rig) {
		b, p := r.atConsent(t)
		r.Clock.Advance(15*time.Minute - time.Second)
		require.NotEmpty(t, b.get(p.url).scopes())
		r.Clock.Advance(time.Second)
		b.get(p.url).shows(t, http.StatusGone, "This sign-in is over")
		b.submit(p, "approve", ticked("poppy:read")).shows(t, http.StatusGone, "This sign-in is over")
	})
}

// What was right when the page was shown may not be when its form comes (RFC 6749 10.12, CO-01).
func TestCO01_ChecksAreRepeatedAtTheAnswer(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#19", "poppy-0.1/4.4#22", "poppy-0.1/4.5#14")
	for name, c := range map[string]struct {
		change func(*testing.T, *rig)
		status int
		title  string
	}{
		"the agent is blocked": {func(t *testing.T, r *rig) { r.block(t) }, http.StatusForbidden, "This agent isn’t allowed here"},
		"the type is gone": {func(_ *testing.T, r *rig) {
			r.setUp(func(s *directoryv1.SignIn) { s.DirectScopes = nil })
		}, http.StatusNotFound, "This way of signing in isn’t offered"},
		"the scope is gone": {func(_ *testing.T, r *rig) {
			r.setUp(func(s *directoryv1.SignIn) { s.DirectScopes = []string{"poppy:write"} })
		}, http.StatusNotFound, "This way of signing in isn’t offered"},
		"the redirect_uri is gone": {func(_ *testing.T, r *rig) {
			r.publish(map[string]any{"redirect_uris": []string{"https://agent.example/elsewhere"}})
			r.Clock.Advance(6 * time.Minute) // documents are kept for five
		}, http.StatusBadRequest, "This link doesn’t work"},
		"the document is gone": {func(_ *testing.T, r *rig) {
			r.publish(map[string]any{"client_id": "https://else.example/agent.json"})
			r.Clock.Advance(6 * time.Minute)
		}, http.StatusBadRequest, "We can’t tell who is asking"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				b, p := r.atConsent(t)
				c.change(t, r)
				b.submit(p, "approve", ticked("poppy:read")).shows(t, c.status, c.title)
			})
		})
	}
	t.Run("a blocked agent gets no credentials checked", func(t *testing.T) {
		each(t, func(t *testing.T, r *rig) {
			b, p := r.begun(t)
			r.block(t)
			b.submit(p, "login", credentials(password)).shows(t, http.StatusForbidden, "This agent isn’t allowed here")
			require.Empty(t, r.Accounts.Asked())
		})
	})
	t.Run("one of two scopes is gone", func(t *testing.T) {
		each(t, func(t *testing.T, r *rig) {
			b, p := r.atConsent(t)
			r.setUp(func(s *directoryv1.SignIn) { s.DirectScopes = []string{"poppy:write"} })
			require.Equal(t, []string{"poppy:write"}, b.get(p.url).scopes())
			q := r.returned(t, b.submit(p, "approve", ticked("poppy:read", "poppy:write")))
			require.Equal(t, "poppy:write", r.exchange(t, q.Get("code"))["scope"])
		})
	})
	t.Run("a decline stays here without a redirect_uri", func(t *testing.T) {
		each(t, func(t *testing.T, r *rig) {
			b, p := r.atConsent(t)
			r.publish(map[string]any{"redirect_uris": []string{}})
			r.Clock.Advance(6 * time.Minute)
			p = b.submit(p, "decline", nil)
			require.Equal(t, http.StatusOK, p.status)
			require.Empty(t, p.header.Get("Location"))
		})
	})
}

func TestMT06_OtherCompaniesSeeNothing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		_, userCode := r.device(t, both)
		b, p := r.atConsent(t)
		mine := r.company
		r.company = r.NewCompany(t)
		r.setUp(nil)
		foreign := strings.Replace(p.url, mine.Issuer.Host(), r.company.Issuer.Host(), 1)
		b.host = r.company.Issuer.Host()
		b.get(foreign).shows(t, http.StatusNotFound, "There is nothing here")
		form := p.hidden()
		form.Set("action", "approve")
		form.Set("scope", "poppy:read")
		b.send(foreign, form, nil).shows(t, http.StatusNotFound, "There is nothing here")
		r.enter(b, userCode).shows(t, http.StatusUnprocessableEntity, "There is no such code")
	})
}

func TestSite_FloodsAreHeldBack(t *testing.T) {
	d := dbtest.SQLite(t)
	r := newRig(t, d, auth.Config{RequestsPerMinute: 5})
	b := r.browser(t)
	b.address = "192.0.2.9:1000"
	for range 5 {
		require.Equal(t, http.StatusOK, b.once(r.company.Issuer.VerificationURI()).status)
	}
	p := b.once(r.company.Issuer.VerificationURI())
	p.shows(t, http.StatusTooManyRequests, "Too many tries")
	require.NotEmpty(t, p.header.Get("Retry-After"))
	requireSafe(t, p, false)
	for range 20 { // CO-05: who isn't a proxy is not believed
		b.headers.Set("X-Forwarded-For", fixture.RandomID())
		require.Equal(t, http.StatusTooManyRequests, b.once(r.company.Issuer.VerificationURI()).status)
	}
	b.address = "192.0.2.10:1000"
	require.Equal(t, http.StatusOK, b.once(r.company.Issuer.VerificationURI()).status)
}

func TestSite_Styles(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newRig(t, d, auth.Config{RequestsPerMinute: -1})
		r.setUp(func(s *directoryv1.SignIn) { s.Design = &directoryv1.PageDesign{AccentColor: "#aa3377"} })
		b, p := r.begun(t)
		css := regexpOf(t, `href="([^"]+/assets/pages-[^"]+\.css)"`, p.body)
		got := b.once(css)
		require.Equal(t, http.StatusOK, got.status)
		require.Equal(t, "text/css; charset=utf-8", got.header.Get("Content-Type"))
		require.Equal(t, "public, max-age=31536000, immutable", got.header.Get("Cache-Control"))
		require.NotEmpty(t, got.body)
		got = b.once(r.company.Issuer.String() + "/assets/pages-older.css")
		require.Equal(t, http.StatusOK, got.status)
		require.Equal(t, "public, max-age=60", got.header.Get("Cache-Control"))
		got = b.once(regexpOf(t, `href="([^"]+/assets/brand\.css[^"]*)"`, p.body))
		require.Equal(t, http.StatusOK, got.status)
		require.Contains(t, got.body, "#aa3377")
	})
}
