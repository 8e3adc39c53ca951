package httpx_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const patience = 20 * time.Second

// serve runs a server for the test and returns it with its address.
func serve(t testing.TB, cfg httpx.Config) (server *httpx.Server, addr string, served <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server = httpx.NewServer(t.Context(), cfg)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel() // what a test left open is cut
		_ = server.Shutdown(ctx)
	})
	return server, l.Addr().String(), done
}

func await(t testing.TB, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		require.FailNow(t, "waited in vain")
	}
}

// poll answers when the drain begins, as a long poll does.
func poll(waiting *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		waiting.Add(1)
		select {
		case <-httpx.DrainDone(r.Context()):
			if r.Context().Err() != nil {
				httpx.WriteJSON(w, http.StatusInternalServerError, []byte(`{}`))
				return
			}
			httpx.WriteJSON(w, http.StatusOK, []byte(`{"events":[]}`))
		case <-r.Context().Done():
		}
	})
}

func TestLP02_OpenPollsAnswerAtOnceWhenDraining(t *testing.T) {
	const polls = 200
	var waiting atomic.Int32
	drainer := httpx.NewDrainer()
	ready := make(chan struct{})
	drainer.OnBegin(func() { close(ready) })
	s, addr, served := serve(t, httpx.Config{Handler: httpx.Standard(poll(&waiting), httpx.Options{Name: "t"}), Drainer: drainer})

	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: polls}}
	defer client.CloseIdleConnections()
	var wait sync.WaitGroup
	answers := make(chan string, polls)
	for range polls {
		wait.Go(func() {
			resp, err := client.Post("http://"+addr+"/poll", "application/json", strings.NewReader("{}"))
			if err != nil {
				answers <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			answers <- fmt.Sprintf("%d %s %v %t", resp.StatusCode, b, err, resp.Close)
		})
	}
	require.Eventually(t, func() bool { return waiting.Load() == polls }, patience, time.Millisecond)
	require.NoError(t, s.Shutdown(t.Context()))
	await(t, ready)
	wait.Wait()
	close(answers)
	for a := range answers {
		require.Equal(t, `200 {"events":[]} <nil> true`, a)
	}
	require.NoError(t, <-served)
}

func TestSH01_AnswersDuringTheDrainDelayAndSaysClose(t *testing.T) {
	drainer := httpx.NewDrainer()
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { httpx.WriteJSON(w, http.StatusOK, []byte(`{}`)) })
	s, addr, _ := serve(t, httpx.Config{Handler: h, Drainer: drainer, DrainDelay: time.Hour})
	get := func() *http.Response {
		resp, err := http.Get("http://" + addr)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return resp
	}
	require.False(t, get().Close)

	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(ctx) }()
	await(t, drainer.Done()) // hooks run before, and see no drain yet
	require.True(t, drainer.Draining())
	for range 3 {
		require.True(t, get().Close)
	}
	cancel() // the orchestrator's patience is over
	if err := <-stopped; err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := net.Dial("tcp", addr)
	require.Error(t, err)
}

func TestShutdown_CutsWhatIsLeftAtTheDeadline(t *testing.T) {
	entered, cut := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(cut)
	})
	s, addr, _ := serve(t, httpx.Config{Handler: h})
	go func() {
		resp, err := http.Get("http://" + addr)
		if err == nil {
			resp.Body.Close()
		}
	}()
	await(t, entered)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Shutdown(ctx), context.DeadlineExceeded)
	await(t, cut)
}

func TestDrainer_HooksRunOnceAndLateOnesAtOnce(t *testing.T) {
	d := httpx.NewDrainer()
	n := 0
	d.OnBegin(func() { n++; require.False(t, d.Draining()) })
	require.False(t, d.Draining())
	d.Begin()
	d.Begin()
	require.Equal(t, 1, n)
	d.OnBegin(func() { n++ })
	require.Equal(t, 2, n)
	await(t, d.Done())
	require.Nil(t, httpx.DrainDone(t.Context()))
}

// raw sends bytes and returns the first line of the answer.
func raw(t testing.TB, addr, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	line, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// echoHost answers 404 for hosts that belong to nobody and the name otherwise.
func echoHost() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, ok := httpx.NormalizeHost(r.Host)
		if !ok {
			httpx.WriteNotFound(w)
			return
		}
		httpx.WriteJSON(w, http.StatusOK, []byte(`"`+name+`"`))
	})
}

func TestDP11_AMalformedHostIsRefusedQuietly(t *testing.T) {
	var log bytes.Buffer
	_, addr, _ := serve(t, httpx.Config{
		Handler: httpx.Standard(echoHost(), httpx.Options{Name: "t"}),
		Log:     slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	for request, want := range map[string]string{
		"POST / HTTP/1.1\r\nHost: exa mple:abc\r\nContent-Length: 0\r\n\r\n":                     "HTTP/1.1 400 Bad Request",
		"GET / HTTP/1.1\r\nHost: acme.example:abc\r\n\r\n":                                       "HTTP/1.1 404 Not Found",
		"GET / HTTP/1.1\r\nHost: a..b\r\n\r\n":                                                   "HTTP/1.1 404 Not Found",
		"GET / HTTP/1.1\r\nHost: acme.example\r\nHost: other.example\r\n\r\n":                    "HTTP/1.1 400 Bad Request",
		"GET / HTTP/1.1\r\n\r\n":                                                                 "HTTP/1.1 400 Bad Request",
		"GET http://b\x7fd.example/ HTTP/1.1\r\nHost: acme.example\r\n\r\n":                      "HTTP/1.1 400 Bad Request",
		"GET / HTTP/1.1\r\nHost: acme.example\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n": "HTTP/1.1 431 Request Header Fields Too Large",
	} {
		require.True(t, strings.HasPrefix(raw(t, addr, request), want), "%.60q", request)
	}
	require.Empty(t, log.String())
}

func TestMT07_AbsoluteFormNamesTheHost(t *testing.T) {
	_, addr, _ := serve(t, httpx.Config{Handler: echoHost()})
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET http://Other.Example/x HTTP/1.1\r\nHost: acme.example\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, `"other.example"`, string(b)) // RFC9112/3.2.2
}

func TestRecover_AnswersWithAnOpaqueError(t *testing.T) {
	var log bytes.Buffer
	w := inRequest(t, &log, func(http.ResponseWriter, *http.Request) { panic("canary of a secret") })
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Equal(t, map[string]any{"error": "server_error", "error_description": "internal error, request req_1"}, body(t, w))
	require.Contains(t, log.String(), "handler panicked")
	require.Contains(t, log.String(), "request_id=req_1")
	require.NotContains(t, log.String(), "canary")

	log.Reset()
	var m map[string]int
	inRequest(t, &log, func(http.ResponseWriter, *http.Request) { m["x"] = 1 })
	require.Contains(t, log.String(), "assignment to entry in nil map")
}

func TestRecover_CutsAnAnswerThatHasBegun(t *testing.T) {
	_, addr, _ := serve(t, httpx.Config{Handler: httpx.Standard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: half an ev")
		w.(http.Flusher).Flush()
		panic("x")
	}), httpx.Options{Name: "t"})})
	resp, err := http.Get("http://" + addr)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestStandard_HeadersAndIDs(t *testing.T) {
	var id string
	w := inRequest(t, nil, func(w http.ResponseWriter, r *http.Request) {
		id = httpx.RequestIDFrom(r.Context())
		httpx.LoggerFrom(r.Context()).Info("never nil")
		httpx.WriteJSON(w, http.StatusOK, []byte(`{}`))
	})
	require.Equal(t, "req_1", id)
	require.Equal(t, "req_1", w.Header().Get("X-Request-Id"))
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'")
	require.Empty(t, w.Header().Get("Strict-Transport-Security"))

	w = httptest.NewRecorder()
	httpx.Standard(http.NotFoundHandler(), httpx.Options{HSTS: true}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.NotEmpty(t, w.Header().Get("Strict-Transport-Security"))
	require.Regexp(t, `^req_[0-9a-z]{26}$`, w.Header().Get("X-Request-Id"))
}

func TestLG01_SpansAreNamedByRouteAndHoldNoQuery(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /poppy/conversations/{id}/events", func(w http.ResponseWriter, _ *http.Request) {
		httpx.WriteJSON(w, http.StatusOK, []byte(`{}`))
	})
	h := httpx.Standard(mux, httpx.Options{Name: "public", Traces: provider, Propagator: propagation.TraceContext{}})
	for _, path := range []string{"/poppy/conversations/cnv_1/events?access_token=canary", "/unknown?code=canary"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "canary.example"
		r.Header.Set("Authorization", "DPoP canary")
		r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	spans := recorder.Ended()
	require.Len(t, spans, 2)
	require.Equal(t, "GET /poppy/conversations/{id}/events", spans[0].Name())
	require.Equal(t, "GET", spans[1].Name())
	for _, s := range spans {
		for _, a := range s.Attributes() {
			require.NotContains(t, a.Value.String(), "canary", string(a.Key))
		}
		// A stranger's trace is linked and not continued.
		require.NotEqual(t, "4bf92f3577b34da6a3ce929d0e0e4736", s.SpanContext().TraceID().String())
		require.Len(t, s.Links(), 1)
		require.Contains(t, s.Attributes(), attribute.String("server.address", "public"))
	}
}

func TestReadBody_Limits(t *testing.T) {
	read := func(r *http.Request, limit int64) ([]byte, error) {
		return httpx.ReadBody(httptest.NewRecorder(), r, limit)
	}
	got, err := read(httptest.NewRequest(http.MethodPost, "/", strings.NewReader("12345")), 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(got))
	got, err = read(httptest.NewRequest(http.MethodPost, "/", nil), 5)
	require.NoError(t, err)
	require.Empty(t, got)

	_, err = read(httptest.NewRequest(http.MethodPost, "/", strings.NewReader("123456")), 5)
	require.True(t, problem.Is(err, problem.RequestTooLarge))
	chunked := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("123"), strings.NewReader("456")))
	chunked.ContentLength = -1
	_, err = read(chunked, 5)
	require.True(t, problem.Is(err, problem.RequestTooLarge))
	_, err = read(httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("1"), brokenReader{})), 5)
	require.True(t, problem.Is(err, problem.InvalidRequest))
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestLimitBody_EndsLongBodies(t *testing.T) {
	h := httpx.LimitBody(4)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := httpx.ReadBody(w, r, 100)
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
	}))
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("12345"))
	r.ContentLength = -1
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	require.Contains(t, w.Body.String(), "more than 4 bytes")
}

func TestServer_HTTP2KeepsStreamsOfADrain(t *testing.T) {
	var waiting atomic.Int32
	certs := httptest.NewUnstartedServer(nil)
	certs.EnableHTTP2 = true
	certs.StartTLS()
	defer certs.Close()
	s, addr, _ := serve(t, httpx.Config{Handler: httpx.Standard(poll(&waiting), httpx.Options{Name: "t"}), TLS: &tls.Config{Certificates: certs.TLS.Certificates, MinVersion: tls.VersionTLS12}})
	client := certs.Client()
	done := make(chan string, 1)
	go func() {
		resp, err := client.Get("https://" + addr)
		if err != nil {
			done <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		done <- resp.Proto + " " + string(b)
	}()
	require.Eventually(t, func() bool { return waiting.Load() == 1 }, patience, time.Millisecond)
	require.NoError(t, s.Shutdown(t.Context()))
	require.Equal(t, `HTTP/2.0 {"events":[]}`, <-done)
}
