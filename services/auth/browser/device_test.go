package browser_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

// enter types a user code into the device page.
func (r *rig) enter(b *browser, userCode string) page {
	b.t.Helper()
	return b.submit(b.get(r.company.Issuer.VerificationURI()), "", url.Values{"user_code": {userCode}})
}

// deviceConsent is a browser at the consent page of a Device Sign-In.
func (r *rig) deviceConsent(t testing.TB, userCode string) (*browser, page) {
	t.Helper()
	b := r.browser(t)
	return b, r.login(b, r.enter(b, userCode))
}

func TestDevice_SignIn(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#9", "poppy-0.1/4.6#10", "poppy-0.1/4.6#16", "poppy-0.1/4.6#1")
	each(t, func(t *testing.T, r *rig) {
		deviceCode, userCode := r.device(t, both)
		b := r.browser(t)
		p := b.get(r.company.Issuer.VerificationURI() + "?" + url.Values{"user_code": {userCode}}.Encode())
		require.Contains(t, p.body, `value="`+userCode+`"`)
		require.NotContains(t, p.body, "Example Agent") // it was not looked up
		p = b.submit(p, "", url.Values{"user_code": {userCode}})
		require.Contains(t, p.body, "Example Agent")
		require.Equal(t, "authorization_pending", r.poll(t, deviceCode)["error"])
		p = r.login(b, p)
		for _, shown := range []string{"Example Agent", "agent.example", userCode, "See your orders & invoices", "Make changes in your account"} {
			require.Contains(t, p.text(), shown)
		}
		require.NotContains(t, p.text(), "address book") // Device Sign-In can't grant it
		p = b.submit(p, "approve", ticked("poppy:write"))
		require.Equal(t, http.StatusOK, p.status, p.body)
		require.Empty(t, p.header.Get("Location"))
		require.Len(t, b.cookies, 1) // the device page's own

		r.Clock.Advance(6 * time.Second)
		got := r.poll(t, deviceCode)
		require.Equal(t, "poppy:write", got["scope"], got)
		require.Equal(t, account, r.caller(t, got["access_token"]).GetAccount())

		r.enter(b, userCode).shows(t, http.StatusUnprocessableEntity, "There is no such code")
	})
}

func TestDevice_Declined(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#10", "poppy-0.1/4.6#17", "poppy-0.1/4.6#d41")
	each(t, func(t *testing.T, r *rig) {
		for name, decline := range map[string]func(*browser, page) page{
			"by the button":     func(b *browser, p page) page { return b.submit(p, "decline", nil) },
			"by ticking none":   func(b *browser, p page) page { return b.submit(p, "approve", nil) },
			"before logging in": nil,
		} {
			t.Run(name, func(t *testing.T) {
				deviceCode, userCode := r.device(t, both)
				if decline == nil {
					b := r.browser(t)
					require.Equal(t, http.StatusOK, b.submit(r.enter(b, userCode), "decline", nil).status)
				} else {
					b, p := r.deviceConsent(t, userCode)
					require.Equal(t, http.StatusOK, decline(b, p).status)
				}
				require.Equal(t, "access_denied", r.poll(t, deviceCode)["error"])
			})
		}
	})
}

func TestDF05_UserCodeInAnySpelling(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#1")
	clausetest.Refuses(t, "poppy-0.1/4.6#1")
	each(t, func(t *testing.T, r *rig) {
		_, userCode := r.device(t, both)
		b := r.browser(t)
		bare := strings.ReplaceAll(userCode, "-", "")
		for _, typed := range []string{
			userCode, bare, strings.ToLower(userCode), strings.ToLower(bare), strings.ReplaceAll(userCode, "-", " "), " " + userCode + "\n", userCode + "\t", bare[:2] + " " + bare[2:],
		} {
			p := r.enter(b, typed)
			require.Equal(t, http.StatusOK, p.status, "%q", typed)
			require.Contains(t, p.body, "Example Agent")
		}
		for _, typed := range []string{"", "   ", "AAAA-AAAA", bare[:7], bare + "X", strings.Repeat("X", 101), "<script>", "Ｗ" + bare[1:]} {
			p := r.enter(b, typed)
			require.Equal(t, http.StatusUnprocessableEntity, p.status, "%q", typed)
			require.Contains(t, p.text(), "There is no such code")
			require.NotContains(t, p.body, "<script>")
		}
	})
}

func TestDF06_OpeningTheLinkDoesNothing(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#11")
	clausetest.Refuses(t, "poppy-0.1/4.6#11")
	each(t, func(t *testing.T, r *rig) {
		deviceCode, userCode := r.device(t, both)
		link := r.company.Issuer.VerificationURI() + "?" + url.Values{"user_code": {userCode}}.Encode()
		signedIn, consent := r.deviceConsent(t, userCode)
		for _, b := range []*browser{r.browser(t), signedIn} {
			for range 5 {
				require.Equal(t, http.StatusOK, b.once(link).status)
				require.Equal(t, http.StatusOK, b.head(link).status)
			}
		}
		// Neither do pages that a browser with the cookie loads ahead.
		for range 5 {
			require.Equal(t, http.StatusOK, signedIn.once(consent.url).status)
			require.Equal(t, http.StatusOK, signedIn.head(consent.url).status)
			signedIn.once(consent.url + "?action=approve&scope=poppy%3Aread&csrf=" + url.QueryEscape(consent.hidden().Get("csrf")))
		}
		require.Equal(t, "authorization_pending", r.poll(t, deviceCode)["error"])
		found, err := r.signIns.FindDevice(r.company.Ctx(t.Context()), &sessionsv1.FindDeviceRequest{UserCode: userCode})
		require.NoError(t, err)
		require.NotEmpty(t, found.GetDeviceId())
		require.Equal(t, http.StatusOK, signedIn.submit(consent, "approve", ticked("poppy:read")).status) // nothing was used up
	})
}

func TestDevice_GuessingUserCodesIsLimited(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.6#1")
	each(t, func(t *testing.T, r *rig) {
		_, userCode := r.device(t, both)
		b := r.browser(t)
		b.address = "192.0.2.9:1000"
		for i := range 10 { // in two processes
			b.web = r.web
			if i%2 == 1 {
				b.web = r.replica
			}
			require.Equal(t, http.StatusUnprocessableEntity, r.enter(b, "BBBB-BBBB").status)
		}
		for _, web := range []http.Handler{r.web, r.replica} {
			b.web = web
			p := r.enter(b, userCode)
			require.Equal(t, http.StatusTooManyRequests, p.status)
			require.NotEmpty(t, p.header.Get("Retry-After"))
		}
		elsewhere := r.browser(t)
		elsewhere.address = "198.51.100.7:1000"
		for range 15 { // codes that are right count for nothing
			require.Equal(t, http.StatusOK, r.enter(elsewhere, userCode).status)
		}
		r.Clock.Advance(11 * time.Minute)
		_, userCode = r.device(t, both)
		require.Equal(t, http.StatusOK, r.enter(b, userCode).status)
	})
}

func TestDevice_RunsOut(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.6#18")
	each(t, func(t *testing.T, r *rig) {
		deviceCode, userCode := r.device(t, both)
		b, p := r.deviceConsent(t, userCode)
		r.Clock.Advance(10*time.Minute + time.Second)
		b.submit(p, "approve", ticked("poppy:read")).shows(t, http.StatusGone, "This sign-in is over")
		r.enter(b, userCode).shows(t, http.StatusUnprocessableEntity, "There is no such code")
		require.Equal(t, "expired_token", r.poll(t, deviceCode)["error"])
	})
}

func TestDevice_DecidedInAnotherBrowser(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		deviceCode, userCode := r.device(t, both)
		first, p := r.deviceConsent(t, userCode)
		second, q := r.deviceConsent(t, userCode)
		require.Equal(t, http.StatusOK, first.submit(p, "decline", nil).status)
		second.submit(q, "approve", ticked("poppy:read")).shows(t, http.StatusGone, "This sign-in is over")
		require.Equal(t, "access_denied", r.poll(t, deviceCode)["error"])
	})
}

func TestDevice_FormOfAnotherSite(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		_, userCode := r.device(t, both)
		b := r.browser(t)
		at := r.company.Issuer.VerificationURI()
		form := url.Values{"user_code": {userCode}}
		b.send(at, form, nil).shows(t, http.StatusForbidden, "Please use the same browser")
		p := b.get(at)
		b.send(at, form, nil).shows(t, http.StatusForbidden, "This request came from another site")
		form.Set("csrf", p.hidden().Get("csrf"))
		b.send(at, form, http.Header{"Sec-Fetch-Site": {"cross-site"}}).shows(t, http.StatusForbidden, "This request came from another site")
		r.browser(t).send(at, form, nil).shows(t, http.StatusForbidden, "Please use the same browser")
		require.Equal(t, http.StatusSeeOther, b.send(at, form, nil).status)
	})
}
