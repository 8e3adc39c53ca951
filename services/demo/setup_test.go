package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/devca"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

const (
	testDomain   = "noodle-bar.localhost"
	testAccounts = "accounts.noodle-bar.localhost"
	testCallback = "https://noodle-bar.hosted.example/oauth/callback"
	testTarget   = "https://noodle-bar.hosted.example/poppy/noodle-bar.localhost/poppy.json"
	operatorsKey = "pfk_operator"
)

// fakeAdmin is an admin API with one Company's worth of memory.
type fakeAdmin struct {
	t       *testing.T
	look    func() string // the Location that the domain's poppy.json has now
	server  *httptest.Server
	mu      sync.Mutex
	company company
	dom     domain
	set     discoverySettings
	browser browserSettings
	visit   *agentVisit // whose browser any cookie is of
	cookies []string    // header fields that were asked about
	back    backend
	connect signInConnection
	clients []string // secrets of the OIDC client that were stored
	pages   pageDesign
	inbox   inboxSettings
	posted  []map[string]any // answers that came by the API
	linked  []string         // accounts that a link was made for
	secret  string
	key     string
	writes  []string
	refuse  map[string]int // "METHOD path" → status, once
}

func newFakeAdmin(t *testing.T) *fakeAdmin {
	t.Helper()
	a := &fakeAdmin{t: t, refuse: map[string]int{}}
	a.server = httptest.NewTLSServer(a)
	t.Cleanup(a.server.Close)
	return a
}

func (a *fakeAdmin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	call := r.Method + " " + r.URL.Path
	if status, ok := a.refuse[call]; ok {
		delete(a.refuse, call)
		w.WriteHeader(status)
		return
	}
	if r.Method != http.MethodGet {
		a.writes = append(a.writes, call)
	}
	raw, _ := io.ReadAll(r.Body)
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	read := func(v any) {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(v); err != nil {
			a.t.Errorf("%s: %v in %s", call, err, raw)
		}
	}
	const c = "/v1/companies/cmp_1"
	switch {
	case call == "GET /v1/me" && key == a.key && key != "":
		answer(map[string]any{"company": "companies/cmp_1"})
	case strings.HasPrefix(call, "POST "+c+"/conversations/") && strings.HasSuffix(call, ":respond") && key == a.key && key != "":
		var in map[string]any
		read(&in)
		in["at"] = r.URL.Path
		a.posted = append(a.posted, in)
		answer(map[string]any{})
	case call == "POST "+c+"/connectedAgents:createLink" && key == a.key && key != "":
		var in struct {
			Account string `json:"account"`
			Embed   bool   `json:"embed"`
		}
		read(&in)
		if !in.Embed {
			a.t.Error("the link is to be embedded")
		}
		a.linked = append(a.linked, in.Account)
		answer(map[string]any{"url": "https://noodle-bar.hosted.example/account/agents?link=x", "expire_time": "2026-11-02T12:17:00Z"})
	case call == "POST "+c+":checkBrowserSession" && key == a.key && key != "":
		var in struct {
			Cookies string `json:"cookie_header"`
		}
		read(&in)
		a.cookies = append(a.cookies, in.Cookies)
		answer(map[string]any{"found": a.visit != nil, "session": a.visit, "cache_seconds": 1})
	case key != operatorsKey:
		w.WriteHeader(http.StatusUnauthorized)
		answer(map[string]any{"reason": "UNAUTHENTICATED"})
	case call == "GET /v1/companies":
		page := map[string]any{"companies": []company{{Name: "companies/cmp_0", Slug: "other"}}, "next_page_token": "more"}
		if r.URL.Query().Get("page_token") == "more" {
			page = map[string]any{}
			if a.company.Name != "" {
				page["companies"] = []company{a.company}
			}
		}
		answer(page)
	case call == "POST /v1/companies":
		read(&a.company)
		a.company.Name, a.company.State, a.company.Issuer = "companies/cmp_1", "COMPANY_STATE_SETTING_UP", "https://noodle-bar.hosted.example"
		answer(a.company)
	case call == "GET "+c+"/domains":
		list := []domain{}
		if a.dom.Name != "" {
			list = append(list, a.dom)
		}
		answer(map[string]any{"domains": list})
	case call == "POST "+c+"/domains":
		read(&a.dom)
		a.dom.Name, a.dom.State, a.dom.RedirectTarget = "companies/cmp_1/domains/dom_1", "DOMAIN_STATE_PENDING", testTarget
		answer(a.dom)
	case call == "POST "+c+"/domains/dom_1:check":
		if seen := a.look(); seen == testTarget {
			a.dom.State = "DOMAIN_STATE_VERIFIED"
		} else {
			a.dom.Observations = []observation{{Method: "PROOF_METHOD_REDIRECT", Seen: seen, Detail: "wrong"}}
		}
		answer(a.dom)
	case call == "GET "+c+"/discoverySettings":
		answer(struct {
			discoverySettings
			browserSettings
		}{a.set, a.browser})
	case call == "PATCH "+c+"/discoverySettings" && strings.HasPrefix(r.URL.Query().Get("update_mask"), "browser_"):
		if a.dom.State != "DOMAIN_STATE_VERIFIED" {
			a.t.Error("the browser session endpoint needs a verified domain")
		}
		a.browser = browserSettings{}
		read(&a.browser)
		answer(a.browser)
	case call == "PATCH "+c+"/discoverySettings":
		a.set = discoverySettings{}
		read(&a.set)
		answer(a.set)
	case call == "GET "+c+"/signInConnection":
		a.connect.OIDC.CallbackURL = testCallback
		answer(a.connect)
	case call == "PATCH "+c+"/signInConnection":
		a.connect = signInConnection{}
		read(&a.connect)
		if a.connect.OIDC.ClientSecret != "" {
			a.clients = append(a.clients, a.connect.OIDC.ClientSecret)
		}
		a.connect.OIDC.ClientSecret, a.connect.OIDC.HasClientSecret, a.connect.OIDC.CallbackURL = "", true, testCallback
		answer(a.connect)
	case call == "GET "+c+"/pageDesign":
		answer(a.pages)
	case call == "PATCH "+c+"/pageDesign":
		a.pages = pageDesign{}
		read(&a.pages)
		answer(a.pages)
	case call == "GET "+c+"/backend":
		answer(a.back)
	case call == "PATCH "+c+"/backend":
		read(&a.back)
		a.back.State = "BACKEND_STATE_ENABLED"
		answer(a.back)
	case call == "GET "+c+"/inbox/settings":
		answer(a.inbox)
	case call == "PATCH "+c+"/inbox/settings":
		read(&a.inbox)
		answer(a.inbox)
	case call == "POST "+c+"/backend:enable":
		a.back.State = "BACKEND_STATE_ENABLED"
		answer(a.back)
	case call == "POST "+c+"/backend:rotateSecret":
		s, _ := webhook.NewSecret(bytes.Repeat([]byte{byte(len(a.writes))}, 32))
		a.secret = s.Reveal()
		answer(backendSecret{Kind: "SECRET_KIND_HMAC", Secret: a.secret})
	case call == "GET "+c+"/backend/secrets":
		answer(map[string]any{"secrets": []backendSecret{{Kind: "SECRET_KIND_ED25519"}, {Kind: "SECRET_KIND_HMAC", Prefix: a.secret[:10]}}})
	case call == "POST "+c+":publish":
		a.company.State = "COMPANY_STATE_ACTIVE"
		answer(a.company)
	case call == "POST "+c+"/apiKeys":
		a.key = fmt.Sprintf("pfk_%d", len(a.writes))
		answer(map[string]any{"key": a.key})
	default:
		w.WriteHeader(http.StatusNotFound)
		answer(map[string]any{"reason": "NOT_FOUND", "detail": call})
	}
}

// shopConfig makes a Config for a fresh listener, with a certificate for the domain.
func shopConfig(t *testing.T, a *fakeAdmin, dir string) Config {
	t.Helper()
	ca, err := devca.Load(filepath.Join(dir, "ca"), time.Now)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	roots := ca.Pool()
	roots.AddCert(a.server.Certificate())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look = func() string {
		client := newHTTPClient(ca.Pool(), map[string]string{testDomain: ln.Addr().String()})
		defer client.CloseIdleConnections()
		res, err := client.Get("https://" + testDomain + "/.well-known/poppy.json")
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		return res.Header.Get("Location")
	}
	return Config{
		APIOrigin: "https://example.com/", OperatorKey: operatorsKey, Roots: roots,
		Hosts: map[string]string{
			"example.com": a.server.Listener.Addr().String(),
			testDomain:    ln.Addr().String(), testAccounts: ln.Addr().String(),
		},
		Domain: testDomain, AccountsDomain: testAccounts, Listener: ln,
		TLS:     ca.ServerConfig(func(name string) bool { return name == testDomain || name == testAccounts }),
		DataDir: dir, Now: time.Now, Log: quiet(),
	}
}

func startShop(t *testing.T, cfg Config) *Shop {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	require.NoError(t, err)
	return s
}

func stopShop(t *testing.T, s *Shop) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	require.NoError(t, s.Shutdown(ctx))
}

func TestStart_OnboardsTheCompany(t *testing.T) {
	a, dir := newFakeAdmin(t), t.TempDir()
	cfg := shopConfig(t, a, dir)
	s := startShop(t, cfg)
	defer stopShop(t, s)
	require.Equal(t, Result{
		Company: "companies/cmp_1", Issuer: "https://noodle-bar.hosted.example", Domain: testDomain, Accounts: cfg.origin(testAccounts),
		RedirectTarget: testTarget, APIKey: a.key, BackendSecret: a.secret,
	}, s.Result())
	require.Equal(t, "COMPANY_STATE_ACTIVE", a.company.State)
	require.Equal(t, "DOMAIN_STATE_VERIFIED", a.dom.State)
	require.Equal(t, "https://noodle-bar.localhost/agent", a.back.URL)
	all := []string{"poppy:read", "poppy:write", "addresses"}
	require.Equal(t, discoverySettings{
		OrganizationName: displayName, ConversationsEnabled: true,
		CustomScopes: map[string]string{"addresses": "See and change your delivery addresses"},
		DirectScopes: all, DeviceScopes: all, MediatedScopes: []string{"poppy:read"}, MCPRegistration: true,
		APIs: []api{{
			Type: "mcp", URL: cfg.origin(testDomain) + "/mcp", Description: "Orders at Noodle Bar",
			Rules: []apiRule{{Path: "/", Scopes: []string{"poppy:read"}}},
		}},
	}, a.set)
	require.Equal(t, "SIGN_IN_METHOD_OIDC", a.connect.Method)
	require.Equal(t, cfg.origin(testAccounts), a.connect.OIDC.Issuer)
	require.Len(t, a.clients, 1)
	require.Equal(t, credentialCheck{
		URL:    "https://noodle-bar.localhost/agent/credentials",
		Fields: []credentialField{{Name: "email", Label: "E-mail"}, {Name: "password", Label: "Password", Secret: true}},
	}, a.connect.CredentialCheck)
	require.True(t, a.inbox.QueueWithoutPresence)
	require.Equal(t, wantedInbox(), a.inbox)
	require.Equal(t, "#a83f12", a.pages.AccentColor)
	require.Len(t, a.pages.Welcome, 5)
	for _, scope := range all {
		require.Len(t, a.pages.ScopeTexts[scope].Texts, 5)
	}
	require.NotEmpty(t, a.pages.Logo)
	for _, name := range []string{secretFile, keyFile, "client-poppyfield", "signing-key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
}

func TestStart_AgainChangesNothing(t *testing.T) {
	a, dir := newFakeAdmin(t), t.TempDir()
	first := startShop(t, shopConfig(t, a, dir))
	stopShop(t, first)
	a.writes = nil
	cfg := shopConfig(t, a, dir)
	// The identity provider's port is part of its issuer.
	a.connect.OIDC.Issuer, a.browser.Endpoint = cfg.origin(testAccounts), cfg.origin(testDomain)+joinPath
	a.set.APIs[0].URL = cfg.origin(testDomain) + mcpPath
	second := startShop(t, cfg)
	defer stopShop(t, second)
	want := first.Result()
	want.Accounts = cfg.origin(testAccounts)
	require.Equal(t, want, second.Result())
	require.Empty(t, a.writes)
}

func TestStart_StoresTheClientSecretAgainWhenItIsAnother(t *testing.T) {
	a, dir := newFakeAdmin(t), t.TempDir()
	stopShop(t, startShop(t, shopConfig(t, a, dir)))
	require.NoError(t, os.Remove(filepath.Join(dir, "client-poppyfield")))
	cfg := shopConfig(t, a, dir)
	a.connect.OIDC.Issuer, a.browser.Endpoint = cfg.origin(testAccounts), cfg.origin(testDomain)+joinPath
	a.set.APIs[0].URL, a.writes = cfg.origin(testDomain)+mcpPath, nil
	stopShop(t, startShop(t, cfg))
	require.Equal(t, []string{"PATCH /v1/companies/cmp_1/signInConnection"}, a.writes)
	require.Len(t, a.clients, 2)
	require.NotEqual(t, a.clients[0], a.clients[1])
}

func TestStart_RepairsWhatDiffers(t *testing.T) {
	a, dir := newFakeAdmin(t), t.TempDir()
	stopShop(t, startShop(t, shopConfig(t, a, dir)))
	a.back.State, a.set.ConversationsEnabled, a.key = "BACKEND_STATE_DISABLED", false, "pfk_revoked"
	require.NoError(t, os.Remove(filepath.Join(dir, secretFile)))
	cfg := shopConfig(t, a, dir)
	a.connect.Method, a.pages.AccentColor, a.writes = "SIGN_IN_METHOD_TEST_ACCOUNTS", "#000000", nil
	s := startShop(t, cfg)
	defer stopShop(t, s)
	require.Equal(t, []string{
		"POST /v1/companies/cmp_1/backend:enable",
		"POST /v1/companies/cmp_1/backend:rotateSecret",
		"PATCH /v1/companies/cmp_1/signInConnection",
		"PATCH /v1/companies/cmp_1/pageDesign",
		"PATCH /v1/companies/cmp_1/discoverySettings",
		"POST /v1/companies/cmp_1/apiKeys",
		"PATCH /v1/companies/cmp_1/discoverySettings", // the port is part of the browser session endpoint
	}, a.writes)
	require.Equal(t, a.key, s.Result().APIKey)
}

func TestStart_TriesAgainWhileTheAPIIsBusy(t *testing.T) {
	a := newFakeAdmin(t)
	a.refuse["POST /v1/companies"] = http.StatusServiceUnavailable
	s := startShop(t, shopConfig(t, a, t.TempDir()))
	stopShop(t, s)
}

func TestStart_SaysWhatFailed(t *testing.T) {
	a := newFakeAdmin(t)
	cfg := shopConfig(t, a, t.TempDir())
	cfg.OperatorKey = "pfk_wrong"
	_, err := Start(t.Context(), cfg)
	require.ErrorContains(t, err, "company")
	require.ErrorContains(t, err, "401 UNAUTHENTICATED")
	_, err = cfg.Listener.Accept()
	require.Error(t, err, "nothing is left listening")
}

// lines hands on what is logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestRun_EndsWithItsContext(t *testing.T) {
	a := newFakeAdmin(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	cfg := shopConfig(t, a, t.TempDir())
	log := make(lines, 100)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	go func() { done <- Run(ctx, cfg) }()
	for line := range log {
		if strings.Contains(line, "demo Company is ready") {
			break
		}
	}
	stop()
	require.NoError(t, <-done)
}

func TestWebsite_Pages(t *testing.T) {
	site, err := newWebsite(testDomain, newShop(), noon)
	require.NoError(t, err)
	mux := http.NewServeMux()
	site.Mount(mux)
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w
	}
	home := get("/")
	require.Equal(t, http.StatusOK, home.Code)
	require.Contains(t, home.Body.String(), "Tonkotsu Ramen")
	require.Contains(t, home.Body.String(), testDomain)
	require.Contains(t, home.Header().Get("Content-Security-Policy"), "default-src 'none'")
	orders := get("/orders")
	require.Contains(t, orders.Body.String(), "1042")
	require.Contains(t, orders.Body.String(), "on its way")
	require.Equal(t, http.StatusOK, get("/style.css").Code)
	require.Equal(t, http.StatusNotFound, get("/nothing").Code)

	require.Equal(t, http.StatusNotFound, get("/.well-known/poppy.json").Code)
	site.SetTarget(testTarget)
	moved := get("/.well-known/poppy.json")
	require.Equal(t, http.StatusFound, moved.Code)
	require.Equal(t, testTarget, moved.Header().Get("Location"))
}
