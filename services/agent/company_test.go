package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/devca"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
)

const (
	shopDomain = "shop.example"
	shopIssuer = "https://auth.shop.example"
	shopToken  = shopIssuer + "/oauth/token"
	shopTalk   = "https://api.shop.example/poppy/conversations"
	testClient = "https://agent.example/agent.json"
)

// testClock stands still until something waits; a wait moves it on at once.
type testClock struct {
	*clock.Manual
	mu    sync.Mutex
	waits []time.Duration
}

func newTestClock() *testClock {
	return &testClock{Manual: clock.NewManual(time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC))}
}

func (c *testClock) Wait(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = append(c.waits, d)
	c.Advance(d)
	return ctx.Err()
}

// seenRequest is what the fake Company got.
type seenRequest struct {
	method, host, path, query string
	header                    http.Header
	form                      url.Values
	body                      string
}

// fakeCompany speaks the company side of the protocol, checks what it is sent with the
// protocol core, and can be told to misbehave.
type fakeCompany struct {
	t        *testing.T
	clock    *testClock
	addr     string
	ca       *devca.CA
	identity Identity
	clientID string
	// published, when set, returns the agent's identity from where it is published.
	published func() Identity

	mu       sync.Mutex
	document map[string]any
	metadata map[string]any
	routes   map[string]http.HandlerFunc // "host/path", before anything else
	seen     []seenRequest
	nonce    string // wanted in proofs when not empty
	jtis     map[string]bool
	tokens   map[string]string // token → thumbprint of its key
	sessions int
	lifetime int
	ended    bool              // sessions are over: renewal gets invalid_session
	revoked  map[string]bool   // tokens that are no good any more
	sent     map[string]string // message id → conversation
	events   map[string][]map[string]any
	status   string
	answer   func(n int, text string) []map[string]any // events after a message
	pageSize int
	expired  map[string]bool // cursors without events
	signIns  fakeSignIns
}

func newFakeCompany(t *testing.T) *fakeCompany {
	t.Helper()
	c := &fakeCompany{
		t: t, clock: newTestClock(), clientID: testClient, lifetime: 3600, status: statusIdle, pageSize: 100,
		routes: map[string]http.HandlerFunc{}, jtis: map[string]bool{}, tokens: map[string]string{},
		revoked: map[string]bool{}, sent: map[string]string{}, events: map[string][]map[string]any{}, expired: map[string]bool{},
	}
	c.signIns = newFakeSignIns()
	c.document = map[string]any{
		"protocol_version": "0.1",
		"organization":     map[string]any{"name": "Shop", "domain": shopDomain},
		"auth":             map[string]any{"issuer": shopIssuer},
		"agent":            map[string]any{"protocols": []any{map[string]any{"type": "poppy", "endpoint": shopTalk}}},
	}
	c.metadata = map[string]any{
		"issuer": shopIssuer, "token_endpoint": shopToken, "revocation_endpoint": shopIssuer + "/oauth/revoke",
		"poppy_domains": []string{shopDomain},
	}
	c.answer = func(n int, text string) []map[string]any {
		return []map[string]any{
			{"type": "state", "status": "working", "responder": "agent"},
			companySays(fmt.Sprintf("answer %d to %s", n, text)),
			{"type": "state", "status": "idle", "responder": "agent"},
		}
	}
	var err error
	c.ca, err = devca.Load(t.TempDir(), time.Now)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.addr = ln.Addr().String()
	srv := &http.Server{Handler: c, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(tls.NewListener(ln, c.ca.ServerConfig(func(string) bool { return true })))
	}()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return c
}

func companySays(text string) map[string]any {
	return map[string]any{"type": "message", "message": map[string]any{"id": "msg_c" + randomText(6), "role": "company", "sender": "agent", "text": text}}
}

// agent makes an agent with an identity that the Company knows; dir may be used again.
func (c *fakeCompany) agent(dir string, reporter Reporter) *Agent {
	c.t.Helper()
	id, err := InitIdentity(dir, testClient, Profile{Name: "Test agent", RedirectURIs: []string{testRedirect}})
	require.NoError(c.t, err)
	c.identity = id
	hosts := map[string]string{}
	for _, h := range []string{
		shopDomain, "www." + shopDomain, "auth.shop.example", "api.shop.example", "docs.shop.example",
		"other.example", "auth.other.example",
	} {
		hosts[h] = c.addr
	}
	a, err := New(Config{Dir: dir, User: "me", Identity: id, Roots: c.ca.Pool(), Resolve: hosts, Reporter: reporter, Clock: c.clock})
	require.NoError(c.t, err)
	c.t.Cleanup(a.Close)
	return a
}

// requests returns what the Company got at host+path.
func (c *fakeCompany) requests(hostPath string) []seenRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []seenRequest
	for _, r := range c.seen {
		if r.host+r.path == hostPath {
			out = append(out, r)
		}
	}
	return out
}

func (c *fakeCompany) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body))
	c.mu.Lock()
	defer c.mu.Unlock()
	host := strings.ToLower(r.Host)
	c.seen = append(c.seen, seenRequest{r.Method, host, r.URL.Path, r.URL.RawQuery, r.Header.Clone(), form, string(body)})
	key := host + r.URL.Path
	if h, ok := c.routes[key]; ok {
		h(w, r)
		return
	}
	switch {
	case r.URL.Path == "/.well-known/poppy.json":
		writeJSON(w, 200, c.document)
	case r.URL.Path == "/.well-known/oauth-authorization-server":
		writeJSON(w, 200, c.metadata)
	case key == "auth.shop.example/oauth/token":
		c.token(w, r, form)
	case key == "auth.shop.example/oauth/device":
		c.deviceAuthorization(w, r, form)
	case key == "auth.shop.example/oauth/revoke":
		c.revoke(w, r, form)
	case strings.HasPrefix(key, mediatedAt):
		c.mediated(w, r, body)
	case strings.HasPrefix(key, "api.shop.example/poppy/conversations"):
		c.conversations(w, r, body)
	default:
		writeJSON(w, 404, map[string]any{"error": "not_found"})
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func oauthError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("WWW-Authenticate", `DPoP error="`+code+`"`)
	writeJSON(w, status, map[string]any{"error": code})
}

// proof checks a request's DPoP Proof as section 4.3 says; false means it was answered.
func (c *fakeCompany) proof(w http.ResponseWriter, r *http.Request, at, token string, status int) (dpop.VerifiedProof, bool) {
	req := dpop.Request{Method: r.Method, URL: at}
	if token != "" {
		req.TokenHash, req.KeyThumbprint = dpop.TokenHash(token), c.tokens[token]
	}
	policy := dpop.Policy{}
	if c.nonce != "" {
		policy.NonceRequired, policy.Nonces = true, []string{c.nonce}
		w.Header().Set("DPoP-Nonce", c.nonce)
	}
	p, err := dpop.CheckProof(r.Header.Get("DPoP"), req, c.clock.Now(), policy)
	switch {
	case err != nil && strings.Contains(err.Error(), "USE_DPOP_NONCE"):
		oauthError(w, status, "use_dpop_nonce")
		return p, false
	case err != nil:
		c.t.Errorf("proof refused: %v", err)
		oauthError(w, status, "invalid_dpop_proof")
		return p, false
	case c.jtis[p.JTI()]:
		c.t.Errorf("proof used twice")
		oauthError(w, status, "invalid_dpop_proof")
		return p, false
	}
	c.jtis[p.JTI()] = true
	return p, true
}

// client checks the client authentication of a form; false means it was answered.
func (c *fakeCompany) client(w http.ResponseWriter, r *http.Request, form url.Values) bool {
	if c.published != nil {
		c.identity = c.published()
	}
	keys, err := jose.ParseKeySet(c.identity.KeySet)
	if err != nil {
		c.t.Errorf("key set: %v", err)
	}
	client, err := oauth.CheckClientAssertion(form.Get("client_assertion"), keys, c.clientID, []string{shopToken}, c.clock.Now())
	if err != nil || c.jtis[client.JTI()] || form.Get("client_assertion_type") != assertionTypeBearer || form.Get("client_id") != c.clientID {
		c.t.Errorf("client assertion refused: %v", err)
		oauthError(w, 401, "invalid_client")
		return false
	}
	if r.Method != http.MethodPost || r.URL.RawQuery != "" || r.Header.Get("Content-Type") != formType {
		c.t.Errorf("%s %s with %q", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	for name, values := range form {
		if len(values) != 1 {
			c.t.Errorf("%s was sent %d times", name, len(values))
		}
	}
	c.jtis[client.JTI()] = true
	return true
}

func (c *fakeCompany) token(w http.ResponseWriter, r *http.Request, form url.Values) {
	proof, ok := c.proof(w, r, shopToken, "", 400)
	if !ok || !c.client(w, r, form) {
		return
	}
	switch form.Get("grant_type") {
	case "authorization_code":
		c.codeGrant(w, form, proof)
		return
	case "urn:ietf:params:oauth:grant-type:device_code":
		c.deviceGrant(w, form, proof)
		return
	case "refresh_token":
		c.refreshGrant(w, form, proof)
		return
	}
	keys, err := jose.ParseKeySet(c.identity.KeySet)
	if err != nil {
		c.t.Errorf("key set: %v", err)
	}
	session, err := oauth.CheckSessionAssertion(form.Get("assertion"), keys, c.clientID, shopToken, c.clock.Now())
	if err != nil || c.jtis[session.JTI()] || oauth.CheckDistinctAssertions(form.Get("client_assertion"), form.Get("assertion")) != nil {
		c.t.Errorf("session assertion refused: %v", err)
		oauthError(w, 400, "invalid_grant")
		return
	}
	c.jtis[session.JTI()] = true
	if form.Get("session_id") != "" && c.ended {
		c.ended = false
		oauthError(w, 400, "invalid_session")
		return
	}
	id := form.Get("session_id")
	if id == "" {
		id = c.newSession()
	}
	writeJSON(w, 200, c.sessionToken(id, proof.JKT(), ""))
}

func (c *fakeCompany) newSession() string {
	c.sessions++
	return "ses_" + strconv.Itoa(c.sessions)
}

// sessionToken issues a token: a signed-in one where grant names an Account Token.
func (c *fakeCompany) sessionToken(id, thumbprint, grant string) map[string]any {
	token := "tok_" + randomText(24)
	c.tokens[token], c.signIns.sessions[token] = thumbprint, id
	if grant != "" {
		c.signIns.by[token] = grant
	}
	return map[string]any{
		"access_token": token, "token_type": "DPoP", "expires_in": c.lifetime, "scope": "", "session_id": id, "signed_in": grant != "",
	}
}

func (c *fakeCompany) conversations(w http.ResponseWriter, r *http.Request, body []byte) {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "DPoP ")
	if _, known := c.tokens[token]; !found || !known || c.revoked[token] {
		oauthError(w, 401, "invalid_token")
		return
	}
	if _, ok := c.proof(w, r, "https://"+r.Host+r.URL.Path, token, 401); !ok {
		return
	}
	if c.signIns.needed && !c.signedIn(token) {
		oauthError(w, 403, "sign_in_required")
		return
	}
	parts := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.Path, "/poppy/conversations"), "/"), "/")
	switch {
	case r.Method == http.MethodPost && parts[0] == "":
		id := "cnv_" + strconv.Itoa(len(c.events)+1)
		c.events[id] = nil
		c.message(w, r, id, body, 201)
	case len(parts) != 2 || c.events[parts[0]] == nil:
		writeJSON(w, 404, map[string]any{"error": "conversation_not_found"})
	case r.Method == http.MethodPost && parts[1] == "messages" && c.status == statusClosed:
		c.status = statusIdle
		writeJSON(w, 409, map[string]any{"error": "conversation_closed"})
	case r.Method == http.MethodPost && parts[1] == "messages":
		c.message(w, r, parts[0], body, 202)
	case r.Method == http.MethodPost && parts[1] == "close":
		c.status = statusClosed
		writeJSON(w, 200, map[string]any{"status": "closed", "responder": "agent"})
	case r.Method == http.MethodGet && parts[1] == "events":
		c.read(w, r, parts[0], 200)
	default:
		writeJSON(w, 405, map[string]any{"error": "invalid_request"})
	}
}

func (c *fakeCompany) message(w http.ResponseWriter, r *http.Request, id string, body []byte, status int) {
	var in struct {
		Message map[string]any `json:"message"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		c.t.Errorf("message body: %v", err)
	}
	mid, _ := in.Message["id"].(string)
	text, _ := in.Message["text"].(string)
	if c.sent[mid] == "" {
		c.sent[mid] = id
		own := map[string]any{"id": mid, "role": "user", "sender": in.Message["sender"], "text": text}
		c.add(id, map[string]any{"type": "message", "message": own})
		for _, ev := range c.answer(len(c.sent), text) {
			c.add(id, ev)
		}
	}
	if r.URL.Query().Get("wait") == "" {
		writeJSON(w, status, map[string]any{"conversation_id": id, "status": c.status, "responder": "agent"})
		return
	}
	c.read(w, r, c.sent[mid], status)
}

func (c *fakeCompany) add(id string, ev map[string]any) {
	if ev["id"] == nil {
		ev["id"] = fmt.Sprintf("evt_%s_%d", id, len(c.events[id])+1)
	}
	ev["created_at"] = c.clock.Now().Format(time.RFC3339)
	c.events[id] = append(c.events[id], ev)
}

func (c *fakeCompany) read(w http.ResponseWriter, r *http.Request, id string, status int) {
	cursor := r.URL.Query().Get("cursor")
	if c.expired[cursor] {
		writeJSON(w, 410, map[string]any{"error": "cursor_expired"})
		return
	}
	from := 0
	for i, ev := range c.events[id] {
		if ev["id"] == cursor {
			from = i + 1
		}
	}
	to := min(from+c.pageSize, len(c.events[id]))
	out := c.events[id][from:to]
	if len(out) > 0 {
		cursor, _ = out[len(out)-1]["id"].(string)
	}
	writeJSON(w, status, map[string]any{
		"conversation_id": id, "events": append([]map[string]any{}, out...), "cursor": cursor,
		"has_more": to < len(c.events[id]), "status": c.status, "responder": "agent",
	})
}

// collect keeps every step.
type collect struct {
	mu    sync.Mutex
	steps []Step
}

func (c *collect) Report(s Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, s)
}

func (c *collect) titled(title string) []Step {
	var out []Step
	for _, s := range c.steps {
		if strings.Contains(s.Title, title) {
			out = append(out, s)
		}
	}
	return out
}
