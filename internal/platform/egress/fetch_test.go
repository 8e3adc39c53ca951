package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestFetch_DevHostIsReachedAndConnectionUsedAgain(t *testing.T) {
	ca := newCA(t)
	for _, http2 := range []bool{true, false} {
		s := startSite(t, ca, "agent.example", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "Application/JSON; charset=utf-8")
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Set-Cookie", "a=b")
			fmt.Fprintf(w, `{"proto":%q,"host":%q,"path":%q,"accept":%q,"agent":%q}`, r.Proto, r.Host, r.URL.RequestURI(), r.Header.Get("Accept"), r.UserAgent())
		}, http2)
		c := newClient(t, ca, nil, s.dev())
		proto := "HTTP/1.1"
		if http2 {
			proto = "HTTP/2.0"
		}
		for i := range 3 {
			r, err := c.Fetch(t.Context(), Request{URL: "https://Agent.Example./client.json?v=1"})
			require.NoError(t, err)
			require.Equal(t, 200, r.Status)
			require.NoError(t, r.CheckJSON())
			require.Equal(t, "application/json", r.ContentType)
			require.JSONEq(t, `{"proto":"`+proto+`","host":"agent.example","path":"/client.json?v=1","accept":"application/json","agent":"poppyfield-test"}`, string(r.Body))
			require.Equal(t, "max-age=60", r.Header.Get("Cache-Control"))
			require.Equal(t, `"1"`, r.Header.Get("ETag"))
			require.NotEmpty(t, r.Header.Get("Date"))
			require.Empty(t, r.Header.Get("Set-Cookie"))
			require.Equal(t, i > 0, r.Timing.Reused)
			require.Positive(t, r.Timing.Total)
		}
		require.Equal(t, int64(1), s.conns.Load())
	}
}

func TestFetch_DevHostWithoutPortUsesTheURLs(t *testing.T) {
	ca := newCA(t)
	s := newSite(t, ca, "agent.example", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	c := newClient(t, ca, nil, "AGENT.example.=127.0.0.1")
	r, err := c.Fetch(t.Context(), Request{URL: fmt.Sprintf("https://agent.example:%d/", s.port)})
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, r.Status)
	// Only the name opens loopback: neither the address itself nor a name below it.
	for _, host := range []string{"127.0.0.1", "x.agent.example", "localhost"} {
		_, err = c.Fetch(t.Context(), Request{URL: fmt.Sprintf("https://%s:%d/", host, s.port)})
		require.Error(t, err, host)
	}
	require.Equal(t, int64(1), s.conns.Load())
}

func TestPost_SendsBodyAndHeaders(t *testing.T) {
	ca := newCA(t)
	s := newSite(t, ca, "backend.example", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "7")
		fmt.Fprintf(w, `{"method":%q,"body":%q,"id":%q,"type":%q,"host":%q,"length":%d}`,
			r.Method, body, r.Header.Get("Webhook-Id"), r.Header.Get("Content-Type"), r.Host, r.ContentLength)
	})
	c := newClient(t, ca, nil, s.dev())
	r, err := c.Post(t.Context(), PostRequest{
		URL: "https://backend.example/hook", Body: []byte("{}"),
		Header: http.Header{"webhook-id": {"msg_1"}, "Host": {"other.example"}, "Content-Length": {"99"}, "Transfer-Encoding": {"chunked"}},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"method":"POST","body":"{}","id":"msg_1","type":"application/json","host":"backend.example","length":2}`, string(r.Body))
	require.Equal(t, "7", r.Header.Get("Retry-After"))
}

func TestFetch_StatusSurvivesABadBody(t *testing.T) {
	ca := newCA(t)
	s := newSite(t, ca, "backend.example", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusGone)
		_, _ = w.Write(make([]byte, 1<<20))
	})
	c := newClient(t, ca, nil, s.dev())
	r, err := c.Post(t.Context(), PostRequest{URL: "https://backend.example/"})
	require.NoError(t, err)
	require.Equal(t, http.StatusGone, r.Status)
	require.Empty(t, r.Body)
}

// ci07 fetches what h answers, over HTTP/1.1 and HTTP/2, and returns the kinds of the errors.
func ci07(t *testing.T, timeout time.Duration, h http.HandlerFunc) []Kind {
	t.Helper()
	ca := newCA(t)
	var kinds []Kind
	for _, http2 := range []bool{false, true} {
		s := startSite(t, ca, "agent.example", h, http2)
		c := newClient(t, ca, nil, s.dev())
		start := time.Now()
		_, err := c.Fetch(t.Context(), Request{URL: "https://agent.example/", Timeout: timeout})
		require.Less(t, time.Since(start), timeout+2*time.Second)
		kinds = append(kinds, KindOf(err))
	}
	return kinds
}

func TestCI07_EndlessChunksAreCutAtTheLimit(t *testing.T) {
	var sent atomic.Int64
	kinds := ci07(t, 5*time.Second, func(w http.ResponseWriter, r *http.Request) {
		chunk := bytes.Repeat([]byte("a"), 4096)
		for r.Context().Err() == nil && sent.Load() < 1<<30 {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	require.Equal(t, []Kind{TooLarge, TooLarge}, kinds)
	require.Less(t, sent.Load(), int64(64<<20), "the server could send on after the limit")
}

func TestCI07_DeclaredGigabyteIsRefusedUnread(t *testing.T) {
	kinds := ci07(t, 5*time.Second, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1073741824")
		_, _ = w.Write([]byte("{"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	require.Equal(t, []Kind{TooLarge, TooLarge}, kinds)
}

func TestCI07_DripIsCutByTheDeadline(t *testing.T) {
	kinds := ci07(t, 300*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
				_, _ = w.Write([]byte(" "))
				_ = http.NewResponseController(w).Flush()
			}
		}
	})
	require.Equal(t, []Kind{Timeout, Timeout}, kinds)
}

func TestCI07_SilentServerIsCutByTheDeadline(t *testing.T) {
	kinds := ci07(t, 200*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	require.Equal(t, []Kind{Timeout, Timeout}, kinds)
}

func TestCI07_GzipBombIsNotInflated(t *testing.T) {
	var bomb bytes.Buffer
	z, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	require.NoError(t, err)
	for range 64 {
		_, err = z.Write(make([]byte, 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	var asked atomic.Value
	kinds := ci07(t, 5*time.Second, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	require.Equal(t, []Kind{Encoding, Encoding}, kinds)
	require.Equal(t, "identity", asked.Load())
}

func TestCI07_HugeHeadersAreRefused(t *testing.T) {
	filler := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := range n {
				w.Header().Set(fmt.Sprintf("X-Filler-%d", i), strings.Repeat("a", 10<<10))
			}
			_, _ = w.Write([]byte("{}"))
		}
	}
	require.Equal(t, []Kind{TooLarge, TooLarge}, ci07(t, 5*time.Second, filler(4)))
	// So far above the limit the HTTP/2 client stops decoding and drops the connection.
	require.Equal(t, []Kind{TooLarge, Protocol}, ci07(t, 5*time.Second, filler(1000)))
	require.Equal(t, []Kind{"", ""}, ci07(t, 5*time.Second, filler(2)))
}

func TestCI07_ExactlyTheLimitIsAccepted(t *testing.T) {
	ca := newCA(t)
	size := 1000
	s := newSite(t, ca, "agent.example", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	c := newClient(t, ca, nil, s.dev())
	r, err := c.Fetch(t.Context(), Request{URL: "https://agent.example/", MaxBytes: 1000})
	require.NoError(t, err)
	require.Len(t, r.Body, 1000)
	size++
	_, err = c.Fetch(t.Context(), Request{URL: "https://agent.example/", MaxBytes: 1000})
	require.Equal(t, TooLarge, KindOf(err))
}

func TestFetch_BrokenHTTPIsAProtocolError(t *testing.T) {
	ca := newCA(t)
	for _, answer := range []string{
		"", "garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		dev := rawTLS(t, ca, "agent.example", func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, answer)
		})
		c := newClient(t, ca, nil, dev)
		_, err := c.Fetch(t.Context(), Request{URL: "https://agent.example/"})
		require.Equal(t, Protocol, KindOf(err), "%q: %v", answer, err)
	}
}

func TestFetch_TLSIsVerified(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }

	s := newSite(t, other, "agent.example", ok)
	_, err := newClient(t, ca, nil, s.dev()).Fetch(t.Context(), Request{URL: "https://agent.example/"})
	require.Equal(t, TLS, KindOf(err))
	require.Equal(t, "the certificate is signed by an unknown authority", DetailOf(err))

	cert, err := ca.Issue("somebody.example")
	require.NoError(t, err)
	old := &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	for detail, cfg := range map[string]*tls.Config{
		"the certificate is not valid for the host": {Certificates: []tls.Certificate{*cert}},
		"the TLS handshake failed":                  old,
	} {
		l, err := tls.Listen("tcp4", "127.0.0.1:0", cfg)
		require.NoError(t, err)
		srv := &http.Server{Handler: http.HandlerFunc(ok), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), ReadHeaderTimeout: time.Second}
		go func() { _ = srv.Serve(l) }()
		t.Cleanup(func() { _ = srv.Close() })
		_, err = newClient(t, ca, nil, "agent.example="+l.Addr().String()).Fetch(t.Context(), Request{URL: "https://agent.example/"})
		require.Equal(t, TLS, KindOf(err), "%v", err)
		require.Equal(t, detail, DetailOf(err), "%v", err)
	}

	plain, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(ok), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), ReadHeaderTimeout: time.Second}
	go func() { _ = srv.Serve(plain) }()
	t.Cleanup(func() { _ = srv.Close() })
	_, err = newClient(t, ca, nil, "agent.example="+plain.Addr().String()).Fetch(t.Context(), Request{URL: "https://agent.example/"})
	require.Equal(t, TLS, KindOf(err), "%v", err)
}

func TestWH08_DNSAndConnectErrorsAreTemporary(t *testing.T) {
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	z := &zone{}
	c := newClient(t, nil, z, "down.example="+closed.Addr().String())

	_, err = c.Post(t.Context(), PostRequest{URL: "https://nowhere.example/"})
	require.Equal(t, DNS, KindOf(err))
	require.Equal(t, "the host does not resolve", DetailOf(err))
	require.True(t, temporary(t, err))

	z.err = errors.New("read udp 10.0.0.2:53: server misbehaving")
	_, err = c.Post(t.Context(), PostRequest{URL: "https://nowhere.example/"})
	require.Equal(t, DNS, KindOf(err))
	require.NotContains(t, DetailOf(err), "10.0.0.2")
	require.True(t, temporary(t, err))

	_, err = c.Post(t.Context(), PostRequest{URL: "https://down.example/"})
	require.Equal(t, Connect, KindOf(err))
	require.Equal(t, "the connection was refused", DetailOf(err))
	require.True(t, temporary(t, err))

	_, err = c.Post(t.Context(), PostRequest{URL: "https://127.0.0.1/"})
	require.False(t, temporary(t, err))
}

func temporary(t *testing.T, err error) bool {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	return e.Temporary()
}

func TestFetch_CallerGivingUpIsCanceled(t *testing.T) {
	ca := newCA(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := newSite(t, ca, "agent.example", func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := newClient(t, ca, nil, s.dev()).Fetch(ctx, Request{URL: "https://agent.example/"})
	require.Equal(t, Canceled, KindOf(err))
	require.ErrorIs(t, err, context.Canceled)
}

func TestPJ10_RedirectsAreFollowedOverHTTPSAndBounded(t *testing.T) {
	ca := newCA(t)
	host := newSite(t, ca, "provider.example", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "%q", r.URL.Path)
	})
	company := newSite(t, ca, "company.example", func(w http.ResponseWriter, r *http.Request) {
		to := map[string]string{
			"/well-known": "https://provider.example/poppy/company.json#part",
			"/relative":   "well-known",
			"/scheme":     "//provider.example/x",
			"/http":       "http://provider.example/",
			"/private":    "https://10.0.0.1/",
			"/userinfo":   "https://a@provider.example/",
			"/loop":       "/loop2",
			"/loop2":      "/loop",
			"/none":       "",
			"/bad":        "https://[::1%25lo]/",
		}[r.URL.Path]
		if n := len(r.URL.Path); strings.HasPrefix(r.URL.Path, "/hop") {
			to = r.URL.Path + strings.Repeat("x", n%2+1)
		}
		if to != "" {
			w.Header().Set("Location", to)
		}
		w.WriteHeader(http.StatusFound)
	})
	c := newClient(t, ca, nil, host.dev(), company.dev())
	for path, want := range map[string]string{"/well-known": "/poppy/company.json", "/relative": "/poppy/company.json", "/scheme": "/x"} {
		r, err := c.FetchFollowing(t.Context(), Request{URL: "https://company.example" + path}, 3)
		require.NoError(t, err, path)
		require.Equal(t, "https://provider.example"+want, strings.TrimSuffix(r.URL, "#part"))
		require.Equal(t, `"`+want+`"`, string(r.Body))
	}
	for path, detail := range map[string]string{
		"/http": "not https", "/private": "not on the public Internet", "/userinfo": "user information", "/loop": "loop",
		"/none": "Location", "/bad": "percent", "/hop": "more than 3",
	} {
		_, err := c.FetchFollowing(t.Context(), Request{URL: "https://company.example" + path}, 3)
		require.Equal(t, Redirect, KindOf(err), "%s: %v", path, err)
		require.Contains(t, DetailOf(err), detail, path)
	}
}

func TestCheckJSON(t *testing.T) {
	for _, ct := range []string{"application/json", "application/cimd+json"} {
		require.NoError(t, Response{Status: 200, ContentType: ct}.CheckJSON())
	}
	for _, r := range []Response{
		{Status: 200, ContentType: "text/html"}, {Status: 200}, {Status: 200, ContentType: "application/jsonp"},
	} {
		require.Equal(t, ContentType, KindOf(r.CheckJSON()))
	}
	for _, status := range []int{201, 204, 206, 304, 404, 500} {
		require.Equal(t, Status, KindOf(Response{Status: status, ContentType: "application/json"}.CheckJSON()))
	}
	require.Equal(t, Redirect, KindOf(Response{Status: 302, ContentType: "application/json"}.CheckJSON()))
}

func TestLookupTXT(t *testing.T) {
	z := &zone{txt: map[string][]string{"_poppyfield.company.example.": {"token=1", "other"}}}
	c := newClient(t, nil, z)
	got, err := c.LookupTXT(t.Context(), "_poppyfield.Company.example.")
	require.NoError(t, err)
	require.Equal(t, []string{"token=1", "other"}, got)
	got, err = c.LookupTXT(t.Context(), "_poppyfield.other.example")
	require.NoError(t, err)
	require.Empty(t, got)
	for _, bad := range []string{"", "example", "a b.example", "a..example", "bü.example", strings.Repeat("a.", 130) + "example"} {
		_, err = c.LookupTXT(t.Context(), bad)
		require.Equal(t, InvalidURL, KindOf(err), bad)
	}
	z.txt["many.example."] = make([]string, 1000)
	got, err = c.LookupTXT(t.Context(), "many.example")
	require.NoError(t, err)
	require.Len(t, got, maxTXTRecords)
	z.err = &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	_, err = c.LookupTXT(t.Context(), "_poppyfield.company.example")
	require.Equal(t, DNS, KindOf(err))
}

func TestParseDevHost(t *testing.T) {
	for s, want := range map[string]string{
		"agent.localhost=127.0.0.1":       "agent.localhost 127.0.0.1 0",
		"Agent.Localhost.=127.0.0.1:8443": "agent.localhost 127.0.0.1 8443",
		"a=127.8.9.1:1":                   "a 127.8.9.1 1",
		"a=::1":                           "a ::1 0",
		"a=[::1]":                         "a ::1 0",
		"a=[::1]:8443":                    "a ::1 8443",
		"bücher.example=127.0.0.1":        "xn--bcher-kva.example 127.0.0.1 0",
	} {
		h, err := ParseDevHost(s)
		require.NoError(t, err, s)
		require.Equal(t, want, fmt.Sprint(h.Name, " ", h.Addr, " ", h.Port))
	}
	for _, s := range []string{
		"", "a", "a=", "=127.0.0.1", "a=10.0.0.1", "a=192.168.0.1:443", "a=8.8.8.8", "a=0.0.0.0", "a=::", "a=[::]:1", "a=::ffff:127.0.0.1",
		"a=localhost", "a=127.0.0.1:0", "a=127.0.0.1:70000", "a=127.1", "127.0.0.2=127.0.0.1", "a b=127.0.0.1", "a=169.254.169.254", "a=::1%lo",
		"*.example=127.0.0.1",
	} {
		_, err := ParseDevHost(s)
		require.Error(t, err, s)
	}
	_, err := ParseDevHosts([]string{"a=127.0.0.1", "A=127.0.0.1:1"})
	require.Error(t, err)
	hosts, err := ParseDevHosts([]string{"a=127.0.0.1", "A=127.0.0.1"})
	require.NoError(t, err)
	require.Len(t, hosts, 1)
	_, err = ParseDevHosts([]string{"a"})
	require.Error(t, err)
}

func TestLoadRoots(t *testing.T) {
	ca := newCA(t)
	_, err := LoadRoots([]string{ca.File()})
	require.NoError(t, err)
	_, err = LoadRoots([]string{filepath.Join(t.TempDir(), "missing.pem")})
	require.Error(t, err)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, []byte("nothing"), 0o600))
	_, err = LoadRoots([]string{empty})
	require.Error(t, err)
}

func TestFetch_TelemetryTellsNoQueryAndNothingIsSentAlong(t *testing.T) {
	ca := newCA(t)
	var header atomic.Value
	s := newSite(t, ca, "backend.example", func(w http.ResponseWriter, r *http.Request) {
		header.Store(r.Header.Clone())
		w.WriteHeader(http.StatusOK)
	})
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	hosts, err := ParseDevHosts([]string{s.dev()})
	require.NoError(t, err)
	roots, err := LoadRootsPEM(ca.PEM())
	require.NoError(t, err)
	c, err := New(Config{UserAgent: "x", Now: time.Now, Roots: roots, TracerProvider: tp}, NewGuard(GuardConfig{DevHosts: hosts}))
	require.NoError(t, err)
	defer c.Close()
	ctx, parent := tp.Tracer("test").Start(t.Context(), "parent")
	_, err = c.Post(ctx, PostRequest{URL: "https://backend.example/secret-path?key=secret-query", Body: []byte("secret-body")})
	require.NoError(t, err)
	parent.End()
	require.Len(t, spans.Ended(), 2)
	span := spans.Ended()[0]
	require.Equal(t, "egress POST", span.Name())
	text := fmt.Sprint(span.Attributes(), span.Events(), span.Status())
	require.NotContains(t, text, "secret")
	require.Contains(t, text, "backend.example")
	for _, name := range (propagation.TraceContext{}).Fields() {
		require.Empty(t, header.Load().(http.Header).Get(name))
	}
}

func TestPost_TracedSendsTheSpanAlong(t *testing.T) {
	ca := newCA(t)
	var got atomic.Value
	s := newSite(t, ca, "backend.example", func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Traceparent"))
		w.WriteHeader(http.StatusOK)
	})
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	hosts, err := ParseDevHosts([]string{s.dev()})
	require.NoError(t, err)
	roots, err := LoadRootsPEM(ca.PEM())
	require.NoError(t, err)
	c, err := New(Config{UserAgent: "x", Now: time.Now, Roots: roots, TracerProvider: tp}, NewGuard(GuardConfig{DevHosts: hosts}))
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Post(t.Context(), PostRequest{URL: "https://backend.example/", Traced: true})
	require.NoError(t, err)
	span := spans.Ended()[0].SpanContext()
	require.Equal(t, "00-"+span.TraceID().String()+"-"+span.SpanID().String()+"-01", got.Load())
}

func TestNew_MissingPartsAreErrors(t *testing.T) {
	g := NewGuard(GuardConfig{})
	for _, cfg := range []Config{{}, {UserAgent: "x"}, {Now: time.Now}} {
		_, err := New(cfg, g)
		require.Error(t, err)
	}
	_, err := New(Config{UserAgent: "x", Now: time.Now}, nil)
	require.Error(t, err)
}
