package gateways_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/devserver"
	"github.com/poppyfield/poppyfield/test/peer"
	"github.com/poppyfield/poppyfield/test/publicnet"
	"github.com/poppyfield/poppyfield/test/whole"
)

const (
	apiOrigin = "https://" + apiHost
	// behind is where the API runs, in docs/gateways.md.
	behind = "127.0.0.1:8080"
)

type object = map[string]any

// rig is a server with a Company, an agent, and the Company's API, without a gateway yet.
type rig struct {
	server   *devserver.Server
	outside  *whole.Outside
	company  *whole.Company
	other    *whole.Company
	key      string // may have requests judged, and nothing else
	agent    *whole.Agent
	accounts *whole.Accounts
	client   *http.Client
	roots    *x509.CertPool
	// certificate is the gateway's.
	certificate peer.Certificate
	// passesNonces says that the gateway gives the agent a nonce with what the API answers.
	passesNonces bool
	orders       *orders
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{passesNonces: true, outside: whole.StartOutside(t, publicnet.Outside+":443"), certificate: peer.NewCertificate(t, apiHost), orders: serveOrders(t)}
	r.server = devserver.Start(t, devserver.Options{TrustCA: []string{r.outside.CAFile}})
	r.client = r.server.Client(t)
	transport, ok := r.client.Transport.(*http.Transport)
	require.True(t, ok)
	r.roots = transport.TLSClientConfig.RootCAs
	r.trust(t, r.outside.CAFile)
	r.trust(t, r.certificate.CA)

	api := whole.API{Origin: r.server.APIOrigin, Key: r.server.OperatorAPIKey, Client: r.client}
	r.company = whole.Onboard(t, api, r.outside, whole.Spec{Slug: "noodles", Domain: whole.Websites()[0]})
	r.other = whole.Onboard(t, api, r.outside, whole.Spec{Slug: "books"})
	ctx := t.Context()
	var made struct{ Key string }
	require.NoError(t, api.Call(ctx, http.MethodPost, r.company.Name+"/apiKeys", object{"display_name": "gateway", "scopes": []string{"access.verify"}}, &made))
	r.key = made.Key
	require.NoError(t, api.Call(ctx, http.MethodPatch, r.company.Name+"/discoverySettings", object{"apis": []any{object{
		"type": "openapi", "url": apiOrigin + "/openapi.json", "base_urls": []string{apiOrigin}, "rules": []any{
			object{"methods": []string{"GET", "POST"}, "path": "/products/**"},
			object{"methods": []string{"GET"}, "path": "/orders/**", "scopes": []string{"poppy:read"}},
			object{"methods": []string{"POST"}, "path": "/orders/*/exchanges", "scopes": []string{"poppy:read", "poppy:write"}},
		},
	}}}, nil))
	endpoints, err := whole.FindCompany(ctx, r.client, "https://"+r.company.Domain)
	require.NoError(t, err)
	r.agent = whole.NewAgent(t, r.outside, r.client, endpoints)
	everybody := whole.Everybody{
		API: api, Company: r.company, Agent: r.agent, Outside: r.outside, Client: r.client,
		Recorder: whole.Record(&http.Client{Transport: http.DefaultTransport}), // for what it makes up
	}
	r.accounts = everybody.Accounts(t)
	return r
}

func (r *rig) trust(t *testing.T, file string) {
	t.Helper()
	pem, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, r.roots.AppendCertsFromPEM(pem))
}

// startSession gives the agent a Session that is signed out.
func (r *rig) startSession(t *testing.T) {
	t.Helper()
	require.NoError(t, r.agent.StartSession(t.Context()))
}

// signIn signs the agent's Session in, with poppy:read, and returns the tokens.
func (r *rig) signIn(t *testing.T) whole.Tokens {
	t.Helper()
	post := func(path string, body any) whole.Tokens {
		t.Helper()
		answer, err := r.agent.Call(t.Context(), http.MethodPost, r.company.Issuer+"/poppy/sign-in"+path, body)
		require.NoError(t, err)
		var got whole.Tokens
		require.NoError(t, json.Unmarshal(answer.Body, &got), "%s", answer.Body)
		return got
	}
	var asked whole.Tokens
	// The settings reach the endpoint within moments.
	require.Eventually(t, func() bool {
		asked = post("", object{"scope": "poppy:read", "credentials": object{"email": r.accounts.Email, "password": r.accounts.Password}})
		return asked.Status == "code_required"
	}, 20*time.Second, 50*time.Millisecond, "%+v", asked)
	got := post("/"+asked.SignInID, object{"code": r.accounts.Code})
	require.Equal(t, "complete", got.Status)
	r.agent.Token = got.AccessToken
	return got
}

// signOut revokes the Account Token.
func (r *rig) signOut(t *testing.T, tokens whole.Tokens) {
	t.Helper()
	form := r.agent.ClientForm(t, r.agent.Endpoints.Token, time.Now())
	form.Set("token", tokens.RefreshToken)
	answer, err := r.agent.Form(t.Context(), r.agent.Revocation, r.agent.Revocation, form)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.Status, "%s", answer.Body)
}

// configuration is the block of docs/gateways.md in a language, with the rig's own
// names, key and files in the place of those that every reader has to replace.
func (r *rig) configuration(t *testing.T, language string) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/gateways.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(raw), "```"+language+"\n")
	require.True(t, found, "docs/gateways.md has no block of %s", language)
	text, _, found = strings.Cut(text, "```\n")
	require.True(t, found)
	api, err := url.Parse(r.server.APIOrigin)
	require.NoError(t, err)
	_, grpcPort, err := net.SplitHostPort(r.server.GRPCAddress)
	require.NoError(t, err)
	for _, replace := range [][2]string{
		{"server api.example.net:443;", "server " + api.Host + ";"},
		{"proxy_ssl_name api.example.net;", "proxy_ssl_name " + api.Hostname() + ";"},
		{"Host api.example.net;", "Host " + api.Host + ";"},
		{"https://api.example.net/", r.server.APIOrigin + "/"},
		{"https://api.example.net ", r.server.APIOrigin + " "},
		{"address: api.example.net, port_value: 8443", "address: " + api.Hostname() + ", port_value: " + grpcPort},
		// The outside world has the port too, at another address.
		{"listen 443 ssl;", "listen " + publicnet.Proxy + ":443 ssl;"},
		{"cmp_ID", strings.TrimPrefix(r.company.Name, "companies/")},
		{"pfk_KEY", r.key},
		{"/etc/ssl/api.pem", r.certificate.Chain},
		{"/etc/ssl/api.key", r.certificate.Key},
		{"/etc/ssl/certs/ca-certificates.crt", r.server.CAFile},
	} {
		text = strings.ReplaceAll(text, replace[0], replace[1])
	}
	return text
}

// orders is the Company's API, which knows nothing of agents and tokens.
type orders struct {
	mu  sync.Mutex
	got []*http.Request
}

func serveOrders(t *testing.T) *orders {
	t.Helper()
	o := &orders{}
	lis, err := net.Listen("tcp4", behind)
	require.NoError(t, err)
	serve(t, lis, o)
	return o
}

// ServeHTTP implements http.Handler.
func (o *orders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	kept := r.Clone(r.Context())
	kept.Body = io.NopCloser(strings.NewReader(string(body)))
	o.mu.Lock()
	o.got = append(o.got, kept)
	o.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"served":true}`)
}

// take returns what came since the last time.
func (o *orders) take() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	got := o.got
	o.got = nil
	return got
}

// serveGateway serves a gateway that is a program of the test's, until the test ends.
func serveGateway(t *testing.T, r *rig, h http.Handler) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(r.certificate.Chain, r.certificate.Key)
	require.NoError(t, err)
	lis, err := tls.Listen("tcp4", publicnet.Proxy+":443", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	serve(t, lis, h)
}

// serve serves HTTP until the test ends.
func serve(t *testing.T, lis net.Listener, h http.Handler) {
	t.Helper()
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(lis) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
}

// pass is a proxy to a server, which gets the request's target and host as they came.
func pass(server string) http.Handler {
	return &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.Out.URL = &url.URL{Scheme: "http", Host: server, Opaque: p.In.RequestURI}
		p.Out.Host = p.In.Host
	}}
}

// awaitListener waits until somebody answers at the gateway's address.
func awaitListener(t *testing.T, roots *x509.CertPool) {
	t.Helper()
	require.Eventually(t, func() bool {
		c, err := tls.Dial("tcp", apiHost+":443", &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
		return err == nil && c.Close() == nil
	}, 20*time.Second, 20*time.Millisecond, "the gateway does not answer")
}

// logFile is a file for a gateway's output, which is shown where the test fails.
func logFile(t *testing.T) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "gateway.log"))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, file.Close())
		if t.Failed() {
			text, _ := os.ReadFile(file.Name()) // what there is helps
			t.Logf("the gateway said:\n%s", text)
		}
	})
	return file
}
