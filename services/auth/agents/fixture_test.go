package agents

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

const (
	clientID = "https://agent.example/client.json"
	keysURL  = "https://agent.example/jwks.json"
)

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// web answers by URL and counts.
type web struct {
	mu      sync.Mutex
	answers map[string]Response
	errs    map[string]error
	count   map[string]int
	gate    chan struct{} // when set, a fetch waits until it is closed
	started chan struct{} // when set, a fetch that has begun sends here
	live    func(ctx context.Context)
}

func (w *web) Fetch(ctx context.Context, r Request) (Response, error) {
	w.mu.Lock()
	w.count[r.URL]++
	gate, started := w.gate, w.started
	w.mu.Unlock()
	if started != nil {
		started <- struct{}{}
	}
	if gate != nil {
		<-gate
	}
	if w.live != nil {
		w.live(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.errs[r.URL]; err != nil {
		return Response{}, err
	}
	a, ok := w.answers[r.URL]
	if !ok {
		a = Response{Status: http.StatusNotFound}
	}
	return a, nil
}

func (w *web) set(url string, r Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[url] = r
	delete(w.errs, url)
}

func (w *web) fail(url string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs[url] = err
}

func (w *web) fetches(url string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[url]
}

func document() string {
	return `{"client_id":"` + clientID + `","client_name":"Agent","jwks_uri":"` + keysURL + `"}`
}

func answer(body string, header ...string) Response {
	h := make(http.Header)
	for i := 0; i+1 < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return Response{Status: http.StatusOK, ContentType: "application/json", Header: h, Body: []byte(body)}
}

// signer is a key of an agent with a token of its own to be verified.
type signer struct {
	*jose.Signer
	kid string
}

func newSigner(t testing.TB, kid string) signer {
	t.Helper()
	s, err := jose.GenerateSigner()
	require.NoError(t, err)
	return signer{Signer: s, kid: kid}
}

func keySet(signers ...signer) string {
	jwks := make([][]byte, len(signers))
	for i, s := range signers {
		jwks[i] = s.PublicJWK(s.kid)
	}
	return string(jose.PublicKeySet(jwks...))
}

// verify checks a token of s with the keys of a.
func (s signer) verify(t testing.TB, a Agent) error {
	t.Helper()
	raw, err := s.Sign(jose.SignHeader{KID: s.kid}, []byte(`{}`))
	require.NoError(t, err)
	j, err := jose.ParseJWS(raw)
	require.NoError(t, err)
	_, err = a.Keys.Verify(&j)
	return err
}

func newWorld(t testing.TB) (*Directory, *web, *clock, signer) {
	t.Helper()
	key := newSigner(t, "k1")
	w := &web{answers: make(map[string]Response), errs: make(map[string]error), count: make(map[string]int)}
	w.set(clientID, answer(document()))
	w.set(keysURL, answer(keySet(key)))
	c := &clock{at: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)}
	d, err := New(Config{Now: c.now}, w)
	require.NoError(t, err)
	return d, w, c, key
}

type remoteError string

func (e remoteError) Error() string      { return "dial tcp 10.0.0.9:443: " + string(e) }
func (e remoteError) SafeDetail() string { return string(e) }

var errOurs = errors.New("relay 10.0.0.3 is down")

// startTLS serves h and returns the address.
func startTLS(t *testing.T, cfg *tls.Config, h http.Handler) string {
	t.Helper()
	l, err := tls.Listen("tcp4", "127.0.0.1:0", cfg)
	require.NoError(t, err)
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return l.Addr().String()
}
