package connect_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/devca"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/auth/connect"
)

const (
	idpIssuer = "https://login.example"
	clientID  = "poppyfield"
	secret    = "canary-secret: +&é"
)

// outside stands in for relay: it sends as relay does, and answers checks as a test says.
type outside struct {
	client *egress.Client

	mu     sync.Mutex
	scopes []tenancy.Scope
	checks []*relayv1.CheckCredentialsRequest
	answer *relayv1.CheckCredentialsResponse
	err    error
}

func (o *outside) SendRequest(ctx context.Context, req *relayv1.SendRequestRequest, _ ...grpc.CallOption) (*relayv1.SendRequestResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	o.scopes = append(o.scopes, scope)
	err = o.err
	o.mu.Unlock()
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, value := range req.GetHeaders() {
		if !slices.Contains([]string{"Accept", "Authorization", "Content-Type"}, name) {
			panic("relay refuses " + name)
		}
		header.Set(name, value)
	}
	res, err := o.client.Send(ctx, egress.SendRequest{
		Method: req.GetMethod(), URL: req.GetUrl(), Header: header, Body: req.GetBody(), MaxBytes: 1 << 20, Timeout: req.GetTimeout().AsDuration(),
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return &relayv1.SendRequestResponse{Failure: string(egress.KindOf(err)), Detail: egress.DetailOf(err)}, nil
	}
	return &relayv1.SendRequestResponse{Status: int32(res.Status), ContentType: res.ContentType, Body: res.Body}, nil
}

func (o *outside) CheckCredentials(ctx context.Context, req *relayv1.CheckCredentialsRequest, _ ...grpc.CallOption) (*relayv1.CheckCredentialsResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.scopes = append(o.scopes, scope)
	o.checks = append(o.checks, req)
	return o.answer, o.err
}

// says sets the answer to checks.
func (o *outside) says(answer *relayv1.CheckCredentialsResponse, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer, o.err = answer, err
}

// idp is an identity provider whose every fault can be chosen.
type idp struct {
	mu       sync.Mutex
	metadata map[string]any
	signer   *jose.Signer
	kid      string
	jwks     []byte
	claims   map[string]any
	idToken  string // instead of one that signer signs
	userinfo map[string]any
	fault    map[string]http.HandlerFunc // by path
	seen     []request
}

type request struct {
	path, authorization string
	form                url.Values
}

func newIDP(t testing.TB, now time.Time) *idp {
	t.Helper()
	p := &idp{
		metadata: map[string]any{
			"issuer": idpIssuer, "authorization_endpoint": idpIssuer + "/authorize?tenant=1", "token_endpoint": idpIssuer + "/token", "jwks_uri": idpIssuer + "/keys",
			"userinfo_endpoint": idpIssuer + "/userinfo", "token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic"},
		},
		claims: map[string]any{"iss": idpIssuer, "sub": "mia-1", "aud": clientID, "exp": now.Add(time.Minute).Unix(), "iat": now.Unix(), "email": "mia@example.com"},
		fault:  map[string]http.HandlerFunc{},
	}
	p.rotate(t, "k1")
	return p
}

// rotate signs from now on with a new key, the only one published.
func (p *idp) rotate(t testing.TB, kid string) {
	t.Helper()
	signer, err := jose.GenerateSigner()
	require.NoError(t, err)
	p.signWith(signer, kid)
}

func (p *idp) signWith(signer *jose.Signer, kid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signer, p.kid, p.jwks = signer, kid, jose.PublicKeySet(signer.PublicJWK(kid))
}

// ServeHTTP implements http.Handler.
func (p *idp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, request{path: r.URL.Path, authorization: r.Header.Get("Authorization"), form: r.PostForm})
	if f := p.fault[r.URL.Path]; f != nil {
		f(w, r)
		return
	}
	var body any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		body = p.metadata
	case "/keys":
		body = json.RawMessage(p.jwks)
	case "/userinfo":
		body = p.userinfo
	case "/token":
		token := p.idToken
		if token == "" {
			payload, err := json.Marshal(p.claims)
			if err != nil {
				panic(err)
			}
			if token, err = p.signer.Sign(jose.SignHeader{KID: p.kid}, payload); err != nil {
				panic(err)
			}
		}
		body = map[string]any{"access_token": "canary-access", "token_type": "Bearer", "id_token": token}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// fails has a path answer with status and body; status 0 breaks the connection.
func (p *idp) fails(path string, status int, contentType, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault[path] = func(w http.ResponseWriter, _ *http.Request) {
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Location", idpIssuer+"/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// count returns how many requests came to path.
func (p *idp) count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, r := range p.seen {
		if r.path == path {
			n++
		}
	}
	return n
}

func (p *idp) last(t testing.TB, path string) request {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range slices.Backward(p.seen) {
		if r.path == path {
			return r
		}
	}
	require.FailNow(t, "nothing came to "+path)
	return request{}
}

type rig struct {
	idp     *idp
	outside *outside
	clock   *clock.Manual
	keys    *keys.Ring
	oidc    *connect.OIDC
	creds   *connect.Credentials
	company *directory.Company
	browser *http.Client // reaches the provider alone, and follows no redirect
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{clock: clock.NewManual(time.Date(2026, 12, 2, 9, 30, 0, 0, time.UTC))}
	r.idp = newIDP(t, r.clock.Now())
	r.with(t, r.idp, "login.example")
	return r
}

// with makes everything around a provider that h is, under name.
func (r *rig) with(t testing.TB, h http.Handler, name string) {
	t.Helper()
	ca, err := devca.Load(t.TempDir(), time.Now)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(h)
	server.TLS = ca.ServerConfig(func(n string) bool { return n == name })
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	server.TLS.Certificates = nil
	t.Cleanup(server.Close)
	hosts, err := egress.ParseDevHosts([]string{name + "=" + server.Listener.Addr().String()})
	require.NoError(t, err)
	roots, err := egress.LoadRootsPEM(ca.PEM())
	require.NoError(t, err)
	client, err := egress.New(egress.Config{UserAgent: "poppyfield-test", Now: time.Now, Roots: roots}, egress.NewGuard(egress.GuardConfig{DevHosts: hosts}))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	root := make([]byte, keys.RootSize)
	_, _ = rand.Read(root) // never fails
	r.keys, err = keys.NewRing(1, map[byte][]byte{1: root})
	require.NoError(t, err)
	r.outside = &outside{client: client}
	dial := &net.Dialer{}
	r.browser = &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return dial.DialContext(ctx, network, server.Listener.Addr().String())
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(r.browser.CloseIdleConnections)
	r.oidc, r.creds = connect.NewOIDC(r.outside, r.keys, r.clock.Now), connect.NewCredentials(r.outside, r.keys)
	r.company = r.newCompany(t, "cmp_0123456789abcdefghijklmnop")
}

func (r *rig) newCompany(t testing.TB, id string) *directory.Company {
	t.Helper()
	scope, err := tenancy.For(id)
	require.NoError(t, err)
	issuer, err := discovery.ParseIssuer("https://shop.example")
	require.NoError(t, err)
	sealed, err := r.keys.Seal(id, "oidc client secret", "oidc", []byte(secret))
	require.NoError(t, err)
	return &directory.Company{Scope: scope, Issuer: issuer, SignIn: &directory.SignIn{
		Method: directory.OIDC, OIDC: directory.OIDCProvider{Issuer: idpIssuer, ClientID: clientID, SealedSecret: sealed},
	}}
}

// begin begins a login; the provider will put its nonce into the ID token.
func (r *rig) begin(t testing.TB) (connect.Upstream, url.Values) {
	t.Helper()
	redirect, up, err := r.oidc.Begin(t.Context(), r.company, false)
	require.NoError(t, err)
	u, err := url.Parse(redirect)
	require.NoError(t, err)
	r.idp.mu.Lock()
	defer r.idp.mu.Unlock()
	r.idp.claims["nonce"] = u.Query().Get("nonce")
	return up, url.Values{"state": {u.Query().Get("state")}, "code": {"canary-code"}}
}

// login does all of a login whose ID token has claims beside the usual ones; nil takes one away.
func (r *rig) login(t testing.TB, claims map[string]any) (connect.Account, error) {
	t.Helper()
	up, query := r.begin(t)
	r.idp.mu.Lock()
	usual := maps.Clone(r.idp.claims)
	for name, value := range claims {
		r.idp.claims[name] = value
		if value == nil {
			delete(r.idp.claims, name)
		}
	}
	r.idp.mu.Unlock()
	got, err := r.oidc.Finish(t.Context(), r.company, up, query)
	r.idp.mu.Lock()
	r.idp.claims = usual
	r.idp.mu.Unlock()
	if err != nil {
		requireClean(t, err)
		require.Zero(t, got)
	}
	return got, err
}

// requireClean checks that err tells nothing that was secret.
func requireClean(t testing.TB, err error) {
	t.Helper()
	require.NotContains(t, err.Error(), "canary")
}

func requireRefused(t testing.TB, err error, code string) {
	t.Helper()
	require.ErrorIs(t, err, connect.ErrRefused)
	require.NotErrorIs(t, err, connect.ErrUnavailable)
	var refused *connect.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, code, refused.Code)
	requireClean(t, err)
}

func requireUnavailable(t testing.TB, err error) {
	t.Helper()
	require.ErrorIs(t, err, connect.ErrUnavailable)
	require.NotErrorIs(t, err, connect.ErrRefused)
	requireClean(t, err)
}
