package demo

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVisits_ShowWhoseBrowserItIs(t *testing.T) {
	a := newFakeAdmin(t)
	cfg := shopConfig(t, a, t.TempDir())
	s := startShop(t, cfg)
	defer stopShop(t, s)
	require.Equal(t, browserSettings{Endpoint: cfg.origin(testDomain) + "/poppy/browser-session", Cookie: &browserCookie{}}, a.browser)
	v := browse(t, cfg)
	page, body := v.get("/visit")
	require.Contains(t, body, "An ordinary visitor.")
	require.Equal(t, "no-store", page.Header.Get("Cache-Control"))
	require.Empty(t, a.cookies, "without a cookie there is nothing to ask")

	at, err := url.Parse(cfg.origin(testDomain))
	require.NoError(t, err)
	v.c.Jar.SetCookies(at, []*http.Cookie{{Name: "__Host-poppy", Value: "x", Path: "/", Secure: true}})
	_, body = v.get("/visit")
	require.Contains(t, body, "An ordinary visitor.")
	require.Equal(t, []string{"__Host-poppy=x"}, a.cookies)

	show := func(visit agentVisit) string {
		a.mu.Lock()
		a.visit = &visit
		a.mu.Unlock()
		_, body := v.get("/visit")
		return body
	}
	body = show(agentVisit{Agent: "Example <Agent>", ClientID: "https://agent.example/agent.json"})
	require.Contains(t, body, "Example &lt;Agent&gt;</strong>, signed out.")
	require.NotContains(t, body, "Orders today")
	body = show(agentVisit{Agent: "Example", SignedIn: true, Account: mia, Scopes: []string{"poppy:write"}})
	require.Contains(t, body, "signed in for "+mia)
	require.NotContains(t, body, "Orders today")
	require.NotContains(t, body, "Kastanienallee")
	body = show(agentVisit{Agent: "Example", SignedIn: true, Account: mia, Scopes: []string{"poppy:read"}})
	require.Contains(t, body, "1042")
	require.NotContains(t, body, "Kastanienallee", "without addresses")
	body = show(agentVisit{Agent: "Example", SignedIn: true, Account: mia, Scopes: []string{"poppy:read", "addresses"}})
	require.Contains(t, body, "Kastanienallee")
}

func TestVisits_BrowsersThatJoinAreForwardedToTheIssuer(t *testing.T) {
	var got string
	issuer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.Host + r.URL.Path + " " + string(body)
		http.SetCookie(w, &http.Cookie{Name: "__Host-poppy", Value: "x", Path: "/", Secure: true})
		http.Redirect(w, r, "https://noodle-bar.localhost/visit", http.StatusSeeOther)
	}))
	defer issuer.Close()
	a := newFakeAdmin(t)
	cfg := shopConfig(t, a, t.TempDir())
	cfg.Roots.AddCert(issuer.Certificate())
	// Both test servers have certificates for example.com and below.
	cfg.Hosts["noodle-bar.example.com"] = issuer.Listener.Addr().String()
	d, err := doorOf(cfg, Result{Issuer: "https://noodle-bar.example.com"})
	require.NoError(t, err)
	require.NoError(t, cfg.Listener.Close())
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://noodle-bar.localhost/poppy/browser-session", nil)
	r.Body = io.NopCloser(http.NoBody)
	d.join.ServeHTTP(w, r)
	require.Equal(t, "POST noodle-bar.example.com/poppy/browser-session ", got)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Contains(t, w.Header().Get("Set-Cookie"), "__Host-poppy=x")

	closed := newVisits(nil, quiet())
	w = httptest.NewRecorder()
	closed.join(w, r)
	require.Equal(t, http.StatusNotFound, w.Code)
}
