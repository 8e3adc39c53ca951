package discovery_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkServeDocument measures a poppy.json served through the router beside a bare
// net/http handler that writes the same bytes: called directly, and over loopback on
// one kept connection.
func BenchmarkServeDocument(b *testing.B) {
	r := newRig(b)
	c := r.company(b, "noodle", "", "noodle.example")
	at := documentURL(b, c, "noodle.example")
	w := r.get(b, at)
	require.Equal(b, http.StatusOK, w.Code)
	for _, h := range []struct {
		name    string
		handler http.Handler
	}{
		{"router", r.router},
		{"bare", bare(w.Header(), w.Body.Bytes())},
	} {
		b.Run("direct/"+h.name, func(b *testing.B) { serveDirectly(b, h.handler, at) })
		b.Run("loopback/"+h.name, func(b *testing.B) { serveOverLoopback(b, h.handler, at) })
	}
}

// bare writes the same answer without asking what for.
func bare(header http.Header, body []byte) http.Handler {
	etag, cache, cors, exposed, kind := header["Etag"], header["Cache-Control"], header["Access-Control-Allow-Origin"], header["Access-Control-Expose-Headers"], header["Content-Type"]
	size := []string{strconv.Itoa(len(body))}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Etag"], h["Cache-Control"], h["Access-Control-Allow-Origin"], h["Access-Control-Expose-Headers"], h["Content-Type"] = etag, cache, cors, exposed, kind
		h["Content-Length"] = size
		_, _ = w.Write(body)
	})
}

// sink is a ResponseWriter that keeps nothing.
type sink struct {
	header http.Header
	status int
	n      int
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(c int)   { s.status = c }
func (s *sink) Write(b []byte) (int, error) {
	s.n += len(b)
	return len(b), nil
}

func serveDirectly(b *testing.B, h http.Handler, at string) {
	b.Helper()
	u, err := url.Parse(at)
	require.NoError(b, err)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		w := &sink{header: http.Header{}}
		req := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{}, Proto: "HTTP/1.1"}).WithContext(b.Context())
		for pb.Next() {
			w.status, w.n = http.StatusOK, 0
			clear(w.header)
			h.ServeHTTP(w, req)
			if w.status != http.StatusOK || w.n == 0 {
				b.Errorf("status %d, %d bytes", w.status, w.n)
				return
			}
		}
	})
}

func serveOverLoopback(b *testing.B, h http.Handler, at string) {
	b.Helper()
	u, err := url.Parse(at)
	require.NoError(b, err)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(b, err)
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	b.Cleanup(func() {
		if err := errors.Join(s.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			b.Error(err)
		}
	})
	conn, err := net.Dial("tcp4", l.Addr().String())
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	request := []byte("GET " + u.Path + " HTTP/1.1\r\nHost: " + u.Host + "\r\n\r\n")
	in := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		if err != nil || n == 0 || res.StatusCode != http.StatusOK {
			b.Fatal(res.StatusCode, n, err)
		}
	}
}
