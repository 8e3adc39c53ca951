package gateways_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/whole"
)

// request is one through the gateway, of which every byte of the target is the test's.
type request struct {
	method, target string
	host           string
	header         map[string][]string // in the case that they have on the way
	body           string
}

// to makes a right request of the agent's.
func (r *rig) to(method, target string, changes ...fixture.Change) request {
	path, _, _ := strings.Cut(target, "?")
	return request{method: method, target: target, host: apiHost, header: map[string][]string{
		"Authorization": {"DPoP " + r.agent.Token}, "DPoP": {r.agent.Proof(method, apiOrigin+path, r.agent.Token, changes...)},
	}}
}

func (q request) with(name string, values ...string) request {
	q.header = maps.Clone(q.header)
	q.header[name] = values
	return q
}

// send writes the request to the gateway as it is, past what a client would tidy up.
func (r *rig) send(t *testing.T, q request) whole.Answer {
	t.Helper()
	c, err := tls.Dial("tcp", apiHost+":443", &tls.Config{RootCAs: r.roots, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	var b strings.Builder
	b.WriteString(q.method + " " + q.target + " HTTP/1.1\r\nHost: " + q.host + "\r\nConnection: close\r\n")
	for name, values := range q.header {
		for _, v := range values {
			b.WriteString(name + ": " + v + "\r\n")
		}
	}
	if q.body != "" {
		b.WriteString("Content-Length: " + strconv.Itoa(len(q.body)) + "\r\n")
	}
	_, err = io.WriteString(c, b.String()+"\r\n"+q.body)
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: q.method})
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return whole.Answer{Status: response.StatusCode, Header: response.Header, Body: body}
}

// isServed sends a request and returns it as the API got it.
func (r *rig) isServed(t *testing.T, q request) (*http.Request, whole.Answer) {
	t.Helper()
	answer := r.send(t, q)
	require.Equal(t, http.StatusOK, answer.Status, "%s", answer.Body)
	require.JSONEq(t, `{"served":true}`, string(answer.Body))
	got := r.orders.take()
	require.Len(t, got, 1)
	require.Equal(t, []string{q.method, q.target, q.host}, []string{got[0].Method, got[0].RequestURI, got[0].Host}, "what was judged is what comes")
	return got[0], answer
}

// isRefused sends a request that the API must not get, and checks all that the agent is told.
func (r *rig) isRefused(t *testing.T, q request, status int, code, challenge string) whole.Answer {
	t.Helper()
	answer := r.send(t, q)
	require.Empty(t, r.orders.take(), "%s %s", q.method, q.target)
	require.Equal(t, status, answer.Status, "%s", answer.Body)
	if q.method != http.MethodHead {
		var body struct{ Error string }
		require.NoError(t, json.Unmarshal(answer.Body, &body), "%s", answer.Body)
		require.Equal(t, code, body.Error)
		require.Contains(t, answer.Header.Get("Content-Type"), "application/json")
	}
	if challenge == "" {
		require.Empty(t, answer.Header.Values("WWW-Authenticate"))
	} else {
		require.Len(t, answer.Header.Values("WWW-Authenticate"), 1)
		require.Contains(t, answer.Header.Get("WWW-Authenticate"), challenge)
	}
	require.Equal(t, []string{"no-store"}, answer.Header.Values("Cache-Control"))
	require.Empty(t, answer.Header.Get("X-Poppy-Session"))
	return answer
}

// everyCase goes through what a gateway has to let pass and what not.
func (r *rig) everyCase(t *testing.T) {
	t.Helper()
	clausetest.Covers(t, "poppy-0.1/6#10", "poppy-0.1/6#19", "poppy-0.1/6#20", "poppy-0.1/6#23", "poppy-0.1/6#25", "poppy-0.1/6#26", "poppy-0.1/6#27", "poppy-0.1/6#32")
	clausetest.Refuses(t, "poppy-0.1/6#10", "poppy-0.1/6#20", "poppy-0.1/6#23", "poppy-0.1/6#25", "poppy-0.1/6#27", "poppy-0.1/4.3#33")
	r.startSession(t)
	r.signedOut(t)
	r.badRequests(t)
	r.oddPaths(t)
	r.signedIn(t)
	r.nonces(t)
}

func (r *rig) signedOut(t *testing.T) {
	t.Helper()
	q := r.to(http.MethodPost, "/products/7?x=%20y")
	q.body = "a body"
	got, answer := r.isServed(t, q)
	body, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.Equal(t, "a body", string(body))
	require.Empty(t, answer.Header.Get("X-Poppy-Session"), "that is between us and the API")
	h := got.Header
	require.True(t, strings.HasPrefix(h.Get("X-Poppy-Session"), r.company.Name+"/sessions/"), h)
	require.Equal(t, []string{r.agent.ClientID, r.agent.User, "false", ""},
		[]string{h.Get("X-Poppy-Client-Id"), h.Get("X-Poppy-User"), h.Get("X-Poppy-Signed-In"), h.Get("X-Poppy-Account")})
	// The agent says that it is somebody else, in every way that an API may take for ours.
	q = r.to(http.MethodGet, "/products")
	for _, name := range []string{"Session", "Client-Id", "User", "Account", "Scope", "Signed-In", "Agent-Name"} {
		q = q.with("X-Poppy-"+name, "forged").with("X_Poppy_"+strings.ReplaceAll(name, "-", "_"), "forged")
		q = q.with("x-poppy-"+strings.ToLower(name), "forged")
	}
	got, _ = r.isServed(t, q)
	for name, values := range got.Header {
		require.NotContains(t, values, "forged", name)
	}
	require.Equal(t, r.agent.User, got.Header.Get("X-Poppy-User"))
	r.isRefused(t, r.to(http.MethodGet, "/orders/7"), http.StatusForbidden, "sign_in_required", `error="sign_in_required"`)
	r.isRefused(t, r.to(http.MethodGet, "/admin"), http.StatusForbidden, "access_denied", "")
	r.isRefused(t, r.to(http.MethodHead, "/orders/7"), http.StatusForbidden, "", `error="sign_in_required"`)
}

func (r *rig) badRequests(t *testing.T) {
	t.Helper()
	const target = "/products/7"
	good := func() request { return r.to(http.MethodGet, target) }
	refused := func(q request, code string) {
		t.Helper()
		r.isRefused(t, q, http.StatusUnauthorized, code, `DPoP error="`+code+`"`)
	}
	none := good()
	none.header = nil
	refused(none, "invalid_token")
	refused(good().with("Authorization", "DPoP pst_unknown"), "invalid_token")
	bearer := good().with("Authorization", "Bearer "+r.agent.Token)
	refused(bearer, "invalid_token")
	delete(bearer.header, "DPoP")
	refused(bearer, "invalid_token")
	replayed := good()
	r.isServed(t, replayed)
	refused(replayed, "invalid_dpop_proof")
	unproven := good()
	delete(unproven.header, "DPoP")
	refused(unproven, "invalid_dpop_proof")
	refused(good().with("DPoP", fixture.Proof(t, fixture.NewKey(t), http.MethodGet, apiOrigin+target, r.agent.Token, time.Now())), "invalid_dpop_proof")
	refused(r.to(http.MethodGet, target, fixture.Claim("iat", time.Now().Add(-10*time.Minute).Unix())), "invalid_dpop_proof")
	refused(r.to(http.MethodGet, target, fixture.Claim("htm", "POST")), "invalid_dpop_proof")
	refused(r.to(http.MethodGet, target, fixture.Claim("htu", apiOrigin+"/products/8")), "invalid_dpop_proof")
	// A second proof makes no difference to nobody, whatever is made of the two on the way.
	first, second := good(), good()
	two := first.with("DPoP", first.header["DPoP"][0], second.header["DPoP"][0])
	answer := r.send(t, two)
	require.Contains(t, []int{http.StatusBadRequest, http.StatusUnauthorized}, answer.Status, "%s", answer.Body)
	refused(first.with("DPoP", first.header["DPoP"][0]+", "+second.header["DPoP"][0]), "invalid_dpop_proof")
	answer = r.send(t, good().with("Authorization", "DPoP "+r.agent.Token, "DPoP "+r.agent.Token))
	require.Equal(t, http.StatusBadRequest, answer.Status, "%s", answer.Body)
	require.Empty(t, r.orders.take())
	// What only gateways say, an agent can't.
	for name, values := range map[string]string{
		"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/products", "X-Forwarded-Host": "other.example", "X-Forwarded-Proto": "http",
		"X-Original-Method": "GET", "X-Original-URL": apiOrigin + "/products", "Poppyfield-Key": r.other.Key, "poppyfield-company": r.other.Name,
	} {
		r.isServed(t, good().with(name, values))
		r.isRefused(t, r.to(http.MethodGet, "/orders/7").with(name, values), http.StatusForbidden, "sign_in_required", "sign_in_required")
	}
	all := r.to(http.MethodGet, "/orders/7").with("X-Forwarded-Method", "GET").with("X-Forwarded-Uri", "/products").with("X-Forwarded-Host", apiHost).
		with("X-Forwarded-Proto", "https").with("X-Original-Method", "GET").with("X-Original-URL", apiOrigin+"/products")
	r.isRefused(t, all, http.StatusForbidden, "sign_in_required", "sign_in_required")
}

// oddPaths are those that rules and servers may take for different ones.
func (r *rig) oddPaths(t *testing.T) {
	t.Helper()
	for _, target := range []string{
		"/products/../orders/7", "/products/%2e%2e/orders/7", "/products/..%2Forders/7", "/products%2F..%2Forders/7", "/products/%5c..%5corders", "//orders/7",
		"/products//orders", "/products/..;/orders/7", "/products/%00", "/./orders/7", "/products/.", "/products#/../orders/7",
	} {
		answer := r.send(t, r.to(http.MethodGet, target))
		require.Empty(t, r.orders.take(), target)
		require.GreaterOrEqual(t, answer.Status, 400, target)
		require.Less(t, answer.Status, 500, target)
	}
	for _, host := range []string{"other.example", apiHost + ":444", "x@" + apiHost, apiHost + "?", apiHost + "/products", ""} {
		q := r.to(http.MethodGet, "/products")
		q.host = host
		answer := r.send(t, q)
		require.NotEqual(t, `{"served":true}`, string(answer.Body), host)
		require.Empty(t, r.orders.take(), host)
	}
	// What both read alike arrives as it was sent.
	for _, target := range []string{"/products/a%20b", "/products/%C3%BC", "/products/%41", "/products/7/", "/products/a+b=c&d", "/products/7?next=/../orders"} {
		r.isServed(t, r.to(http.MethodGet, target))
	}
	r.isRefused(t, r.to(http.MethodGet, "/%6Frders/7"), http.StatusForbidden, "sign_in_required", "sign_in_required")
}

func (r *rig) signedIn(t *testing.T) {
	t.Helper()
	tokens := r.signIn(t)
	got, _ := r.isServed(t, r.to(http.MethodGet, "/orders/7"))
	require.Equal(t, []string{"true", "acc-1", "poppy:read"},
		[]string{got.Header.Get("X-Poppy-Signed-In"), got.Header.Get("X-Poppy-Account"), got.Header.Get("X-Poppy-Scope")})
	answer := r.isRefused(t, r.to(http.MethodPost, "/orders/7/exchanges"), http.StatusForbidden, "insufficient_scope", `error="insufficient_scope"`)
	require.Contains(t, answer.Header.Get("WWW-Authenticate"), `scope="poppy:read poppy:write"`)
	r.signOut(t, tokens)
	r.isRefused(t, r.to(http.MethodGet, "/orders/7"), http.StatusForbidden, "sign_in_required", "sign_in_required")
}

// nonces and limits come to the agent through the gateway.
func (r *rig) nonces(t *testing.T) {
	t.Helper()
	set := func(needed bool) {
		t.Helper()
		require.NoError(t, r.server.Admin(t.Context(), r.client, r.server.OperatorAPIKey, http.MethodPatch, r.company.Name+"/admission", object{"require_dpop_nonce": needed}, nil))
	}
	set(true)
	defer set(false)
	answer := r.isRefused(t, r.to(http.MethodGet, "/products"), http.StatusUnauthorized, "use_dpop_nonce", `error="use_dpop_nonce"`)
	nonce := answer.Header.Get("DPoP-Nonce")
	require.NotEmpty(t, nonce)
	_, answer = r.isServed(t, r.to(http.MethodGet, "/products", fixture.Claim("nonce", nonce)))
	require.Equal(t, r.passesNonces, answer.Header.Get("DPoP-Nonce") != "")
	limit := func(perMinute int) {
		t.Helper()
		require.NoError(t, r.server.Admin(t.Context(), r.client, r.server.OperatorAPIKey, http.MethodPatch, r.company.Name+"/limits", object{"requests_per_minute": perMinute}, nil))
	}
	limit(1)
	defer limit(60_000)
	require.Eventually(t, func() bool {
		answer = r.send(t, r.to(http.MethodGet, "/products", fixture.Claim("nonce", nonce)))
		return answer.Status == http.StatusTooManyRequests
	}, 20*time.Second, 20*time.Millisecond, "%d %s", answer.Status, answer.Body)
	require.NotEmpty(t, answer.Header.Get("Retry-After"))
	require.Contains(t, string(answer.Body), `"error":"rate_limited"`)
	r.orders.take()
}

// otherKeys starts a gateway with each key that may not ask. No request passes, and no
// agent is told that its token is no good.
func (r *rig) otherKeys(t *testing.T, startWith func(t *testing.T, key string)) {
	t.Helper()
	for name, key := range map[string]string{
		"an unknown key": "pfk_" + strings.Repeat("x", 43), "another Company's key": r.other.Key, "no key": "none",
	} {
		t.Run("with "+name, func(t *testing.T) {
			startWith(t, key)
			r.startSession(t)
			answer := r.send(t, r.to(http.MethodGet, "/products"))
			// By Envoy a key knows its Company, which has no such API.
			require.True(t, answer.Status >= http.StatusInternalServerError || answer.Status == http.StatusBadRequest, "%d %s", answer.Status, answer.Body)
			require.Empty(t, answer.Header.Get("WWW-Authenticate"))
			require.Empty(t, r.orders.take())
		})
	}
}
