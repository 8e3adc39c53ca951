package identity

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
)

const (
	testIssuer   = "https://accounts.example.com"
	testRedirect = "https://client.example.com/callback"
)

// kept is a data directory in memory.
type kept map[string]string

func (k kept) keep(name string, fresh func() (string, error)) (string, error) {
	if k[name] == "" {
		made, err := fresh()
		if err != nil {
			return "", err
		}
		k[name] = made
	}
	return k[name], nil
}

// rig is a served provider with one client, which looks at it through go-oidc.
type rig struct {
	t        *testing.T
	provider *Provider
	server   *httptest.Server
	client   Client
	found    *oidc.Provider
	config   oauth2.Config
	ctx      context.Context
	ahead    atomic.Int64 // nanoseconds: how far the provider's clock is ahead
}

func serve(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t}
	var err error
	g.provider, err = New(Config{Issuer: testIssuer, Accounts: Demo(), Keep: kept{}.keep, Now: func() time.Time { return time.Now().Add(time.Duration(g.ahead.Load())) }})
	require.NoError(t, err)
	g.client, err = g.provider.Client("test")
	require.NoError(t, err)
	g.client.RedirectURIs = []string{testRedirect}
	g.provider.Register(g.client)
	g.server = httptest.NewTLSServer(g.provider)
	t.Cleanup(g.server.Close)

	g.ctx = oidc.ClientContext(t.Context(), g.browser())
	g.found, err = oidc.NewProvider(g.ctx, testIssuer)
	require.NoError(t, err)
	g.config = oauth2.Config{
		ClientID: g.client.ID, ClientSecret: g.client.Secret, Endpoint: g.found.Endpoint(), RedirectURL: testRedirect,
		Scopes: []string{oidc.ScopeOpenID, "email", "profile"},
	}
	return g
}

// browser is a client with cookies of its own, which stops before it leaves the provider.
func (g *rig) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	require.NoError(g.t, err)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, g.server.Listener.Addr().String())
		},
	}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if "https://"+r.URL.Host != testIssuer {
			return http.ErrUseLastResponse
		}
		return nil
	}}
}

// answer is a page, or the redirect that leads away.
type answer struct {
	status   int
	body     string
	header   http.Header
	location *url.URL
}

func (g *rig) do(browser *http.Client, r *http.Request) answer {
	g.t.Helper()
	res, err := browser.Do(r)
	require.NoError(g.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(g.t, err)
	a := answer{status: res.StatusCode, body: string(body), header: res.Header}
	a.location, _ = res.Location()
	return a
}

func (g *rig) get(browser *http.Client, at string) answer {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, at, nil)
	require.NoError(g.t, err)
	return g.do(browser, r)
}

// fields are the hidden fields of a page's form.
func (a answer) fields() url.Values {
	form := url.Values{}
	for _, m := range regexp.MustCompile(`type="hidden" name="([a-z]+)" value="([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		form.Set(m[1], m[2])
	}
	return form
}

func (g *rig) submit(browser *http.Client, page answer, email, password string, change ...func(*http.Request, url.Values)) answer {
	g.t.Helper()
	form := page.fields()
	form.Set("email", email)
	form.Set("password", password)
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, testIssuer+"/login", nil)
	require.NoError(g.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, c := range change {
		c(r, form)
	}
	r.Body = io.NopCloser(strings.NewReader(form.Encode()))
	return g.do(browser, r)
}

func (g *rig) authURL(verifier string, options ...oauth2.AuthCodeOption) string {
	options = append([]oauth2.AuthCodeOption{oidc.Nonce("nonce-1"), oauth2.S256ChallengeOption(verifier)}, options...)
	return g.config.AuthCodeURL("state-1", options...)
}

// exchange is what a client does with a code.
func (g *rig) exchange(code, verifier string) (*oidc.IDToken, *oauth2.Token, error) {
	token, err := g.config.Exchange(g.ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, nil, err
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := g.found.Verifier(&oidc.Config{ClientID: g.client.ID}).Verify(g.ctx, raw)
	return id, token, err
}

func (g *rig) signIn(browser *http.Client, email string, options ...oauth2.AuthCodeOption) (*oidc.IDToken, *oauth2.Token) {
	g.t.Helper()
	verifier := oauth2.GenerateVerifier()
	page := g.get(browser, g.authURL(verifier, options...))
	if page.status == http.StatusOK {
		page = g.submit(browser, page, email, "noodles")
	}
	require.NotNil(g.t, page.location, page.body)
	require.Equal(g.t, "state-1", page.location.Query().Get("state"))
	id, token, err := g.exchange(page.location.Query().Get("code"), verifier)
	require.NoError(g.t, err)
	return id, token
}

func TestProvider_Discovery(t *testing.T) {
	g := serve(t)
	var metadata struct {
		Issuer     string   `json:"issuer"`
		Challenges []string `json:"code_challenge_methods_supported"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
		Methods    []string `json:"token_endpoint_auth_methods_supported"`
	}
	require.NoError(t, g.found.Claims(&metadata))
	require.Equal(t, testIssuer, metadata.Issuer)
	require.Contains(t, metadata.Challenges, "S256")
	require.Equal(t, []string{"RS256"}, metadata.Algorithms)
	require.Contains(t, metadata.Methods, "client_secret_basic")
	keys := g.get(g.browser(), testIssuer+"/keys")
	require.Contains(t, keys.body, g.provider.store.key.id)
	require.NotContains(t, keys.body, `"d"`, "the private half stays here")
	require.Empty(t, keys.header.Get("Access-Control-Allow-Origin"))
}

func TestProvider_CodeFlow(t *testing.T) {
	g := serve(t)
	browser, verifier := g.browser(), oauth2.GenerateVerifier()
	page := g.get(browser, g.authURL(verifier))
	require.Equal(t, http.StatusOK, page.status, page.body)
	for _, text := range []string{"Mia", "mia@noodle-bar.example", "Ken", "ken@noodle-bar.example", "noodles"} {
		require.Contains(t, page.body, text)
	}
	require.NotContains(t, page.body, "<script")
	require.Equal(t, "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self' https://client.example.com",
		page.header.Get("Content-Security-Policy"))
	require.Equal(t, "no-store", page.header.Get("Cache-Control"))

	back := g.submit(browser, page, "mia@noodle-bar.example", "noodles")
	require.NotNil(t, back.location, back.body)
	require.Equal(t, testRedirect, back.location.Scheme+"://"+back.location.Host+back.location.Path)
	require.Equal(t, "state-1", back.location.Query().Get("state"))
	code := back.location.Query().Get("code")

	id, token, err := g.exchange(code, verifier)
	require.NoError(t, err)
	require.Equal(t, "customer-1001", id.Subject)
	require.Equal(t, "nonce-1", id.Nonce)
	require.NoError(t, id.VerifyAccessToken(token.AccessToken))
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
		Name     string `json:"name"`
		AuthTime int64  `json:"auth_time"`
	}
	require.NoError(t, id.Claims(&claims))
	require.Equal(t, "mia@noodle-bar.example", claims.Email)
	require.True(t, claims.Verified)
	require.Equal(t, "Mia", claims.Name)
	require.NotZero(t, claims.AuthTime)
	info, err := g.found.UserInfo(g.ctx, oauth2.StaticTokenSource(token))
	require.NoError(t, err)
	require.Equal(t, "customer-1001", info.Subject)
	require.Equal(t, "mia@noodle-bar.example", info.Email)

	_, _, err = g.exchange(code, verifier)
	require.ErrorContains(t, err, "invalid_grant", "a code works once")
}

func TestProvider_WrongPassword(t *testing.T) {
	g := serve(t)
	browser, verifier := g.browser(), oauth2.GenerateVerifier()
	page := g.get(browser, g.authURL(verifier))
	for email, password := range map[string]string{
		"mia@noodle-bar.example": "noodle", "nobody@noodle-bar.example": "noodles", "": "",
	} {
		again := g.submit(browser, page, email, password)
		require.Equal(t, http.StatusUnprocessableEntity, again.status)
		require.Contains(t, again.body, `role="alert"`)
		require.Nil(t, again.location)
		page = again
	}
	page = g.get(browser, testIssuer+"/authorize/callback?id="+url.QueryEscape(page.fields().Get("id")))
	require.Nil(t, page.location, "nothing goes on before a sign-in")
	back := g.submit(browser, page, "KEN@noodle-bar.example", "noodles")
	id, _, err := g.exchange(back.location.Query().Get("code"), verifier)
	require.NoError(t, err)
	require.Equal(t, "customer-1002", id.Subject)
}

func TestProvider_PKCEIsRequiredAndChecked(t *testing.T) {
	g := serve(t)
	for name, at := range map[string]string{
		"none":  g.config.AuthCodeURL("state-1"),
		"plain": g.config.AuthCodeURL("state-1", oauth2.SetAuthURLParam("code_challenge", "x"), oauth2.SetAuthURLParam("code_challenge_method", "plain")),
		"unset": g.config.AuthCodeURL("state-1", oauth2.SetAuthURLParam("code_challenge", "x")),
	} {
		t.Run(name, func(t *testing.T) {
			back := g.get(g.browser(), at)
			require.NotNil(t, back.location, back.body)
			require.Equal(t, "invalid_request", back.location.Query().Get("error"))
		})
	}
	browser, verifier := g.browser(), oauth2.GenerateVerifier()
	back := g.submit(browser, g.get(browser, g.authURL(verifier)), "mia@noodle-bar.example", "noodles")
	code := back.location.Query().Get("code")
	_, _, err := g.exchange(code, oauth2.GenerateVerifier())
	require.ErrorContains(t, err, "invalid_grant")
	_, _, err = g.exchange(code, verifier)
	require.ErrorContains(t, err, "invalid_grant", "a code that was tried is gone")
}

func TestProvider_RefusesOtherClientsAndRedirects(t *testing.T) {
	g := serve(t)
	verifier := oauth2.GenerateVerifier()
	for name, option := range map[string]oauth2.AuthCodeOption{
		"redirect_uri": oauth2.SetAuthURLParam("redirect_uri", testRedirect+"/other"),
		"client_id":    oauth2.SetAuthURLParam("client_id", "other"),
	} {
		t.Run(name, func(t *testing.T) {
			got := g.get(g.browser(), g.authURL(verifier, option))
			require.Equal(t, http.StatusBadRequest, got.status)
			require.Nil(t, got.location)
		})
	}
	browser := g.browser()
	back := g.submit(browser, g.get(browser, g.authURL(verifier)), "mia@noodle-bar.example", "noodles")
	g.config.ClientSecret, g.config.Endpoint.AuthStyle = "wrong", oauth2.AuthStyleInHeader
	_, _, err := g.exchange(back.location.Query().Get("code"), verifier)
	require.ErrorContains(t, err, "invalid_client")
}

func TestProvider_RemembersWhoIsSignedIn(t *testing.T) {
	g := serve(t)
	browser := g.browser()
	first, _ := g.signIn(browser, "mia@noodle-bar.example")
	again := g.get(browser, g.authURL(oauth2.GenerateVerifier()))
	require.NotNil(t, again.location, "no page")
	second, _ := g.signIn(browser, "nobody")
	require.Equal(t, first.Subject, second.Subject)

	require.Equal(t, http.StatusOK, g.get(g.browser(), g.authURL("v")).status, "another browser is asked")
	g.ahead.Store(int64(sessionLifetime))
	require.Equal(t, http.StatusOK, g.get(browser, g.authURL("v")).status, "and this one after a while")
}

func TestProvider_AsksAgainWhereTheClientWantsIt(t *testing.T) {
	g := serve(t)
	browser := g.browser()
	g.signIn(browser, "mia@noodle-bar.example")
	for name, option := range map[string]oauth2.AuthCodeOption{
		"prompt login":   oauth2.SetAuthURLParam("prompt", "login"),
		"select_account": oauth2.SetAuthURLParam("prompt", "select_account"),
		"max_age 0":      oauth2.SetAuthURLParam("max_age", "0"),
	} {
		t.Run(name, func(t *testing.T) {
			id, _ := g.signIn(browser, "ken@noodle-bar.example", option)
			require.Equal(t, "customer-1002", id.Subject)
		})
	}
	g.ahead.Store(int64(time.Hour))
	old := oauth2.SetAuthURLParam("max_age", strconv.Itoa(int(time.Hour/time.Second)-1))
	require.Equal(t, http.StatusOK, g.get(browser, g.authURL("v", old)).status)
	g.ahead.Store(int64(time.Minute))
	require.NotNil(t, g.get(browser, g.authURL("v", old)).location)
	none := g.get(browser, g.authURL("v", oauth2.SetAuthURLParam("prompt", "none")))
	require.Equal(t, "login_required", none.location.Query().Get("error"))
}

func TestProvider_ARequestBelongsToOneBrowser(t *testing.T) {
	g := serve(t)
	attacker, victim := g.browser(), g.browser()
	page := g.get(attacker, g.authURL(oauth2.GenerateVerifier()))
	id := page.fields().Get("id")

	g.signIn(victim, "mia@noodle-bar.example")
	seen := g.get(victim, testIssuer+"/login?id="+url.QueryEscape(id))
	require.Equal(t, http.StatusBadRequest, seen.status, "Mia is not signed in to the attacker's request")
	require.Contains(t, seen.body, "another browser")
	require.Equal(t, http.StatusBadRequest, g.submit(victim, page, "mia@noodle-bar.example", "noodles").status)
	g.submit(attacker, page, "ken@noodle-bar.example", "noodles")
	require.Equal(t, http.StatusBadRequest, g.get(victim, testIssuer+"/authorize/callback?id="+url.QueryEscape(id)).status)
}

func TestProvider_FormsOfOtherSitesAreRefused(t *testing.T) {
	g := serve(t)
	browser := g.browser()
	page := g.get(browser, g.authURL(oauth2.GenerateVerifier()))
	for name, change := range map[string]func(*http.Request, url.Values){
		"another site":  func(r *http.Request, _ url.Values) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a sub domain":  func(r *http.Request, _ url.Values) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"no token":      func(_ *http.Request, form url.Values) { form.Del("csrf") },
		"another token": func(_ *http.Request, form url.Values) { form.Set("csrf", form.Get("id")) },
	} {
		t.Run(name, func(t *testing.T) {
			got := g.submit(browser, page, "mia@noodle-bar.example", "noodles", change)
			require.Equal(t, http.StatusForbidden, got.status)
			require.Nil(t, got.location)
		})
	}
	require.Equal(t, http.StatusBadRequest, g.submit(browser, page, "x", "x", func(_ *http.Request, f url.Values) { f.Set("id", "other") }).status)
}

func TestProvider_RequestsAndCodesExpire(t *testing.T) {
	g := serve(t)
	browser, verifier := g.browser(), oauth2.GenerateVerifier()
	page := g.get(browser, g.authURL(verifier))
	g.ahead.Store(int64(requestLifetime))
	require.Equal(t, http.StatusBadRequest, g.submit(browser, page, "mia@noodle-bar.example", "noodles").status)

	back := g.submit(browser, g.get(browser, g.authURL(verifier)), "mia@noodle-bar.example", "noodles")
	g.ahead.Add(int64(codeLifetime))
	_, _, err := g.exchange(back.location.Query().Get("code"), verifier)
	require.ErrorContains(t, err, "invalid_grant")
}

func TestNew_KeepsItsKeyAndClient(t *testing.T) {
	data := kept{}
	conf := Config{Issuer: testIssuer, Accounts: Demo(), Keep: data.keep, Now: time.Now}
	first, err := New(conf)
	require.NoError(t, err)
	client, err := first.Client("test")
	require.NoError(t, err)
	second, err := New(conf)
	require.NoError(t, err)
	require.Equal(t, first.store.key.id, second.store.key.id)
	same, err := second.Client("test")
	require.NoError(t, err)
	require.Equal(t, client, same)

	delete(data, "client-test")
	other, err := second.Client("test")
	require.NoError(t, err)
	require.NotEqual(t, client.ID, other.ID, "another secret has another id")
	data["client-test"], data["signing-key"] = "nonsense", "nonsense"
	_, err = second.Client("test")
	require.Error(t, err)
	_, err = New(conf)
	require.ErrorContains(t, err, "signing key")
}
