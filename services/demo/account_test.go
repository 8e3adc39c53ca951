package demo

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// visitor is a browser at the shop's two names.
type visitor struct {
	t   *testing.T
	cfg Config
	c   *http.Client
}

func browse(t *testing.T, cfg Config) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	c := newHTTPClient(cfg.Roots, cfg.Hosts)
	t.Cleanup(c.CloseIdleConnections)
	c.Jar, c.CheckRedirect = jar, nil
	return &visitor{t: t, cfg: cfg, c: c}
}

func (v *visitor) do(method, at string, form url.Values) (*http.Response, string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, at, strings.NewReader(form.Encode()))
	require.NoError(v.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	res, err := v.c.Do(r)
	require.NoError(v.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(v.t, err)
	return res, string(body)
}

func (v *visitor) get(path string) (*http.Response, string) {
	v.t.Helper()
	return v.do(http.MethodGet, v.cfg.origin(testDomain)+path, nil)
}

// signIn goes from the website to the identity provider and back.
func (v *visitor) signIn(email string) (*http.Response, string) {
	v.t.Helper()
	page, body := v.get("/account/sign-in")
	require.Equal(v.t, testAccounts, page.Request.URL.Hostname(), body)
	form := url.Values{"email": {email}, "password": {"noodles"}}
	for _, m := range regexp.MustCompile(`type="hidden" name="([a-z]+)" value="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		form.Set(m[1], m[2])
	}
	return v.do(http.MethodPost, v.cfg.origin(testAccounts)+"/login", form)
}

func TestAccount_SignsInAtTheIdentityProviderAndShowsTheAgents(t *testing.T) {
	a := newFakeAdmin(t)
	cfg := shopConfig(t, a, t.TempDir())
	s := startShop(t, cfg)
	defer stopShop(t, s)
	v := browse(t, cfg)
	_, body := v.get("/account")
	require.Contains(t, body, `href="/account/sign-in"`)
	require.NotContains(t, body, "iframe")

	page, body := v.signIn("mia@noodle-bar.example")
	require.Equal(t, http.StatusOK, page.StatusCode, body)
	require.Equal(t, cfg.origin(testDomain)+"/account", page.Request.URL.String())
	for _, text := range []string{"Mia", "Kastanienallee 12", "1042", "1041"} {
		require.Contains(t, body, text)
	}
	require.NotContains(t, body, "1043:", "it is Ken's")
	const link = "https://noodle-bar.hosted.example/account/agents?link=x"
	require.Contains(t, body, `<iframe class="agents" title="Connected agents" src="`+link+`">`)
	require.Contains(t, body, `<a href="`+link+`"`)
	require.Contains(t, page.Header.Get("Content-Security-Policy"), "frame-src https://noodle-bar.hosted.example")
	require.Equal(t, "no-store", page.Header.Get("Cache-Control"))
	require.Equal(t, []string{mia}, a.linked)

	_, body = browse(t, cfg).get("/account")
	require.NotContains(t, body, "Mia", "another browser is signed out")
	_, body = v.do(http.MethodPost, cfg.origin(testDomain)+"/account/sign-out", nil)
	require.NotContains(t, body, "Mia")
	_, body = v.get("/account")
	require.NotContains(t, body, "Mia")
}

func TestAccount_WithoutALinkTheRestIsShown(t *testing.T) {
	a := newFakeAdmin(t)
	cfg := shopConfig(t, a, t.TempDir())
	s := startShop(t, cfg)
	defer stopShop(t, s)
	a.mu.Lock()
	a.refuse["POST /v1/companies/cmp_1/connectedAgents:createLink"] = http.StatusForbidden
	a.mu.Unlock()
	_, body := browse(t, cfg).signIn("ken@noodle-bar.example")
	require.Contains(t, body, "Sonnenallee 64")
	require.Contains(t, body, "can’t be shown right now")
	require.NotContains(t, body, "iframe")
}

func TestAccount_AnswersOfOtherSignInsAreRefused(t *testing.T) {
	a := newFakeAdmin(t)
	cfg := shopConfig(t, a, t.TempDir())
	s := startShop(t, cfg)
	defer stopShop(t, s)
	// The attacker's own answer, before the attacker's browser follows it.
	attacker := browse(t, cfg)
	stolen := ""
	attacker.c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == callbackPath {
			stolen = r.URL.RequestURI()
			return http.ErrUseLastResponse
		}
		return nil
	}
	attacker.signIn("ken@noodle-bar.example")
	require.NotEmpty(t, stolen)

	victim := browse(t, cfg)
	for _, path := range []string{stolen, callbackPath, callbackPath + "?state=x&code=y", callbackPath + "?error=access_denied"} {
		page, body := victim.get(path)
		require.Equal(t, http.StatusBadRequest, page.StatusCode, path)
		require.Contains(t, body, "did not work")
	}
	_, body := victim.get("/account")
	require.NotContains(t, body, "Ken")
}

func TestAccount_SignOutIsOfItsOwnPageOnly(t *testing.T) {
	a := newFakeAdmin(t)
	cfg := shopConfig(t, a, t.TempDir())
	s := startShop(t, cfg)
	defer stopShop(t, s)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cfg.origin(testDomain)+"/account/sign-out", nil)
	require.NoError(t, err)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	res, err := browse(t, cfg).c.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusForbidden, res.StatusCode)
}

func TestAccount_VisitsEnd(t *testing.T) {
	a := newFakeAdmin(t)
	cfg := shopConfig(t, a, t.TempDir())
	var ahead atomic.Int64
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	s := startShop(t, cfg)
	defer stopShop(t, s)
	v := browse(t, cfg)
	_, body := v.signIn("mia@noodle-bar.example")
	require.Contains(t, body, "Mia")
	ahead.Store(int64(visitLifetime))
	_, body = v.get("/account")
	require.NotContains(t, body, "Mia")
}
