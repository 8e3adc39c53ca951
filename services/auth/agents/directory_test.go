package agents

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/devca"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func TestAgent_DocumentAndKeysAreFetchedAndKept(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#2", "poppy-0.1/4.1#3")
	d, w, _, key := newWorld(t)
	for range 3 {
		a, err := d.Agent(t.Context(), clientID)
		require.NoError(t, err)
		require.Equal(t, clientID, a.Document.ClientID)
		require.Equal(t, "Agent", a.Document.Name)
		require.NoError(t, key.verify(t, a))
	}
	require.Equal(t, 1, w.fetches(clientID))
	require.Equal(t, 1, w.fetches(keysURL))
}

func TestAgent_FaultsAreInvalidClientAndSayWhat(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#d43", "poppy-0.1/4.1#10", "poppy-0.1/4.1#d9", "poppy-0.1/4.1#7")
	html := answer("<html>")
	html.ContentType = "text/html"
	plain := answer(keySet(newSigner(t, "k")))
	plain.ContentType = "text/plain"
	for name, c := range map[string]struct {
		url    string
		answer Response
		err    error
		detail string
	}{
		"document 404":       {clientID, Response{Status: 404}, nil, "the client document could not be fetched: the answer was 404 instead of 200"},
		"document 201":       {clientID, Response{Status: 201, ContentType: "application/json", Body: []byte(document())}, nil, "201 instead of 200"},
		"document redirect":  {clientID, Response{Status: 302, Header: http.Header{"Location": {"https://b.example/"}}}, nil, "302, and redirects are not followed"},
		"document html":      {clientID, html, nil, "not application/json"},
		"document not JSON":  {clientID, answer("<html>"), nil, "not a sound JSON object"},
		"document of others": {clientID, answer(strings.ReplaceAll(document(), "client.json", "other.json")), nil, "client_id of the client document is not the URL"},
		"document too large": {clientID, answer(strings.Repeat(" ", 64<<10) + document()), nil, "larger than allowed"},
		"document unreached": {clientID, Response{}, remoteError("the host does not resolve"), "could not be fetched: the host does not resolve"},
		"document our fault": {clientID, Response{}, errOurs, "the client document could not be fetched"},
		"keys 500":           {keysURL, Response{Status: 500}, nil, "the key set at jwks_uri could not be fetched: the answer was 500"},
		"keys redirect":      {keysURL, Response{Status: 308}, nil, "308, and redirects"},
		"keys plain":         {keysURL, plain, nil, "not application/json"},
		"keys malformed":     {keysURL, answer(`{"keys":{}}`), nil, "not a sound JWK set"},
		"keys none":          {keysURL, answer(`{"keys":[]}`), nil, "no usable public key"},
		"keys private":       {keysURL, answer(`{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","d":"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"}]}`), nil, "publishes a private"},
		"keys symmetric":     {keysURL, answer(`{"keys":[{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ"}]}`), nil, "publishes a private"},
		"keys unreached":     {keysURL, Response{}, remoteError("the server took too long"), "could not be fetched: the server took too long"},
	} {
		t.Run(name, func(t *testing.T) {
			d, w, _, _ := newWorld(t)
			w.set(c.url, c.answer)
			w.fail(c.url, c.err)
			_, err := d.Agent(t.Context(), clientID)
			require.True(t, problem.Is(err, problem.InvalidClient), "%v", err)
			p := problem.As(err)
			require.Equal(t, problem.Unauthenticated, p.Kind)
			require.Contains(t, p.Detail, c.detail)
			require.NotContains(t, p.Detail, "10.0.0")
			require.NotEmpty(t, p.Clause)
		})
	}
}

func TestAgent_BadClientIDCausesNoFetch(t *testing.T) {
	d, w, _, _ := newWorld(t)
	for _, id := range []string{"", "agent", "http://agent.example/", "https://agent.example/#a", "https://127.1/"} {
		_, err := d.Agent(t.Context(), id)
		require.True(t, problem.Is(err, problem.InvalidClient), id)
		_, err = d.RefreshKeys(t.Context(), id)
		require.True(t, problem.Is(err, problem.InvalidClient), id)
	}
	require.Empty(t, w.count)
}

func TestAgent_JSONSuffixTypesAreAccepted(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#d43")
	d, w, _, key := newWorld(t)
	doc, keys := answer(document()), answer(keySet(key))
	doc.ContentType, keys.ContentType = "application/cimd+json; charset=utf-8", "application/jwk-set+json"
	w.set(clientID, doc)
	w.set(keysURL, keys)
	_, err := d.Agent(t.Context(), clientID)
	require.NoError(t, err)
}

func TestAgent_FailuresAreRememberedForHalfAMinute(t *testing.T) {
	d, w, c, _ := newWorld(t)
	w.set(clientID, Response{Status: 503})
	for range 3 {
		_, err := d.Agent(t.Context(), clientID)
		require.Error(t, err)
	}
	require.Equal(t, 1, w.fetches(clientID))
	w.set(clientID, answer(document()))
	c.add(29 * time.Second)
	_, err := d.Agent(t.Context(), clientID)
	require.Error(t, err)
	c.add(time.Second)
	_, err = d.Agent(t.Context(), clientID)
	require.NoError(t, err)
	require.Equal(t, 2, w.fetches(clientID))
}

func TestAgent_OurOwnFaultIsNotRemembered(t *testing.T) {
	d, w, _, _ := newWorld(t)
	w.fail(clientID, errOurs)
	_, err := d.Agent(t.Context(), clientID)
	require.ErrorIs(t, err, errOurs)
	w.set(clientID, answer(document()))
	_, err = d.Agent(t.Context(), clientID)
	require.NoError(t, err)
}

func TestAgent_PartsAreFetchedAgainWhenStale(t *testing.T) {
	d, w, c, key := newWorld(t)
	w.set(clientID, answer(document(), "Cache-Control", "max-age=600"))
	w.set(keysURL, answer(keySet(key), "Cache-Control", "max-age=120"))
	get := func() Agent {
		a, err := d.Agent(t.Context(), clientID)
		require.NoError(t, err)
		return a
	}
	get()
	c.add(119 * time.Second)
	get()
	require.Equal(t, 1, w.fetches(keysURL))
	next := newSigner(t, "k2")
	w.set(keysURL, answer(keySet(next), "Cache-Control", "max-age=86400"))
	c.add(time.Second)
	require.NoError(t, next.verify(t, get()))
	require.Equal(t, 2, w.fetches(keysURL))
	require.Equal(t, 1, w.fetches(clientID))
	// A document that moves its jwks_uri takes its keys from there at once.
	moved := newSigner(t, "k3")
	w.set("https://agent.example/other.json", answer(keySet(moved)))
	w.set(clientID, answer(strings.ReplaceAll(document(), "jwks.json", "other.json")))
	c.add(480 * time.Second)
	require.NoError(t, moved.verify(t, get()))
	require.Equal(t, 2, w.fetches(keysURL))
}

func TestAgent_StaleDocumentThatTurnsBadIsRefused(t *testing.T) {
	d, w, c, _ := newWorld(t)
	_, err := d.Agent(t.Context(), clientID)
	require.NoError(t, err)
	w.set(clientID, Response{Status: 410})
	c.add(defaultLifetime)
	_, err = d.Agent(t.Context(), clientID)
	require.True(t, problem.Is(err, problem.InvalidClient))
}

func TestRefreshKeys_OncePerHalfMinute(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#d9")
	d, w, c, key := newWorld(t)
	a, err := d.Agent(t.Context(), clientID)
	require.NoError(t, err)
	next := newSigner(t, "k2")
	require.ErrorIs(t, next.verify(t, a), jose.ErrUnknownKID)
	w.set(keysURL, answer(keySet(key, next)))
	a, err = d.RefreshKeys(t.Context(), clientID)
	require.NoError(t, err)
	require.NoError(t, next.verify(t, a))
	require.NoError(t, key.verify(t, a))
	require.Equal(t, 2, w.fetches(keysURL))
	// Made-up kids cost nothing for the next 30 s.
	for range 5 {
		_, err = d.RefreshKeys(t.Context(), clientID)
		require.NoError(t, err)
	}
	c.add(29 * time.Second)
	_, err = d.RefreshKeys(t.Context(), clientID)
	require.NoError(t, err)
	require.Equal(t, 2, w.fetches(keysURL))
	c.add(time.Second)
	_, err = d.RefreshKeys(t.Context(), clientID)
	require.NoError(t, err)
	require.Equal(t, 3, w.fetches(keysURL))
	require.Equal(t, 1, w.fetches(clientID))
}

func TestRefreshKeys_UnreachableServerUsesUpTheTurnAndKeepsTheKeys(t *testing.T) {
	d, w, _, key := newWorld(t)
	_, err := d.Agent(t.Context(), clientID)
	require.NoError(t, err)
	w.fail(keysURL, remoteError("the connection was refused"))
	for range 3 {
		a, err := d.RefreshKeys(t.Context(), clientID)
		require.NoError(t, err)
		require.NoError(t, key.verify(t, a))
	}
	require.Equal(t, 2, w.fetches(keysURL))
}

func TestRefreshKeys_BadKeySetEndsTheOldOne(t *testing.T) {
	d, w, _, _ := newWorld(t)
	_, err := d.Agent(t.Context(), clientID)
	require.NoError(t, err)
	w.set(keysURL, answer(`{"keys":[{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ"}]}`))
	_, err = d.RefreshKeys(t.Context(), clientID)
	require.True(t, problem.Is(err, problem.InvalidClient))
	_, err = d.Agent(t.Context(), clientID)
	require.True(t, problem.Is(err, problem.InvalidClient))
}

func TestAgent_CallersAtOnceShareOneFetch(t *testing.T) {
	d, w, _, _ := newWorld(t)
	w.gate = make(chan struct{})
	w.started = make(chan struct{}, 16)
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() { _, errs[i] = d.Agent(t.Context(), clientID) })
	}
	<-w.started
	close(w.gate)
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, 1, w.fetches(clientID))
	require.Equal(t, 1, w.fetches(keysURL))
}

func TestAgent_FirstCallerGivingUpDoesNotCancelTheFetch(t *testing.T) {
	d, w, _, _ := newWorld(t)
	w.gate = make(chan struct{})
	w.started = make(chan struct{}, 2)
	w.live = func(ctx context.Context) {
		require.NoError(t, ctx.Err())
		_, ok := ctx.Deadline()
		require.True(t, ok, "the fetch has no deadline of its own")
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := d.Agent(ctx, clientID)
		first <- err
	}()
	<-w.started
	cancel()
	err := <-first
	require.True(t, problem.Is(err, problem.TemporarilyUnavailable), "%v", err)
	require.ErrorIs(t, err, context.Canceled)
	second := make(chan error)
	go func() {
		_, err := d.Agent(t.Context(), clientID)
		second <- err
	}()
	close(w.gate)
	require.NoError(t, <-second)
	require.Equal(t, 1, w.fetches(clientID))
}

func TestAgent_FetchesUnderWayAreBounded(t *testing.T) {
	_, w, c, _ := newWorld(t)
	w.gate = make(chan struct{})
	w.started = make(chan struct{}, 4)
	d, err := New(Config{Now: c.now, MaxFlights: 1}, w)
	require.NoError(t, err)
	done := make(chan error)
	go func() {
		_, err := d.Agent(t.Context(), clientID)
		done <- err
	}()
	<-w.started
	_, err = d.Agent(t.Context(), "https://other.example/client.json")
	require.True(t, problem.Is(err, problem.TemporarilyUnavailable))
	close(w.gate)
	require.NoError(t, <-done)
}

func TestAgent_CacheIsBoundedAndMadeUpClientsDriveNobodyOut(t *testing.T) {
	_, w, c, _ := newWorld(t)
	d, err := New(Config{Now: c.now, MaxEntries: 3, MaxBytes: 1 << 20}, w)
	require.NoError(t, err)
	_, err = d.Agent(t.Context(), clientID)
	require.NoError(t, err)
	for i := range 50 {
		_, err = d.Agent(t.Context(), fmt.Sprintf("https://made-up.example/%d", i))
		require.Error(t, err)
	}
	_, err = d.Agent(t.Context(), clientID)
	require.NoError(t, err)
	require.Equal(t, 1, w.fetches(clientID))
	require.Len(t, d.failed.byID, 3)
}

func TestCache_EntriesAndCostAreBounded(t *testing.T) {
	c := newCache[int](3, 100)
	for i := range 3 {
		c.put(fmt.Sprint(i), i, 10)
	}
	_, ok := c.get("0")
	require.True(t, ok)
	c.put("3", 3, 10)
	_, ok = c.get("1")
	require.False(t, ok, "the least recently used one goes first")
	_, ok = c.get("0")
	require.True(t, ok)
	c.put("4", 4, 90)
	require.Equal(t, int64(100), c.cost)
	require.Len(t, c.byID, 2)
	c.put("5", 5, 101)
	_, ok = c.get("5")
	require.False(t, ok)
	c.put("4", 4, 1)
	require.Equal(t, int64(11), c.cost)
	c.remove("none")
	require.Len(t, c.byID, c.order.Len())
}

// guarded fetches through the real address guard, as the service does over gRPC.
type guarded struct{ c *egress.Client }

func (g guarded) Fetch(ctx context.Context, r Request) (Response, error) {
	resp, err := g.c.Fetch(ctx, egress.Request{URL: r.URL, MaxBytes: r.MaxBytes, Timeout: r.Timeout, Accept: r.Accept})
	if err != nil {
		return Response{}, err
	}
	return Response{Status: resp.Status, Header: resp.Header, ContentType: resp.ContentType, Body: resp.Body}, nil
}

func TestAgent_OverTLSThroughTheGuard(t *testing.T) {
	key := newSigner(t, "k1")
	ca, err := devca.Load(t.TempDir(), time.Now)
	require.NoError(t, err)
	mux := http.NewServeMux()
	serve := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		})
	}
	serve("/client.json", document())
	serve("/jwks.json", keySet(key))
	serve("/inside.json", `{"client_id":"https://agent.example/inside.json","jwks_uri":"https://agent.example/moved"}`)
	mux.Handle("GET /moved", http.RedirectHandler("https://127.0.0.1/jwks.json", http.StatusFound))
	l := startTLS(t, ca.ServerConfig(func(name string) bool { return name == "agent.example" }), mux)

	hosts, err := egress.ParseDevHosts([]string{"agent.example=" + l})
	require.NoError(t, err)
	roots, err := egress.LoadRootsPEM(ca.PEM())
	require.NoError(t, err)
	c, err := egress.New(egress.Config{UserAgent: "poppyfield-test", Now: time.Now, Roots: roots}, egress.NewGuard(egress.GuardConfig{DevHosts: hosts}))
	require.NoError(t, err)
	defer c.Close()
	d, err := New(Config{Now: time.Now}, guarded{c})
	require.NoError(t, err)

	a, err := d.Agent(t.Context(), clientID)
	require.NoError(t, err)
	require.NoError(t, key.verify(t, a))
	for id, detail := range map[string]string{
		"https://agent.example/inside.json": "redirects are not followed",
		"https://agent.example/missing":     "404",
		"https://127.0.0.1/client.json":     "not on the public Internet",
		"https://localhost/client.json":     "not a name of the public Internet",
	} {
		_, err = d.Agent(t.Context(), id)
		require.True(t, problem.Is(err, problem.InvalidClient), id)
		require.Contains(t, problem.As(err).Detail, detail)
	}
}
