package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/devca"
)

const streamURL = "https://backend.example/hook"

// streamed begins a stream to what h answers, over HTTP/1.1 and HTTP/2.
func streamed(t *testing.T, r StreamRequest, h http.HandlerFunc, then func(t *testing.T, res *StreamResponse, err error)) {
	t.Helper()
	ca := newCA(t)
	for name, http2 := range map[string]bool{"h1": false, "h2": true} {
		t.Run(name, func(t *testing.T) {
			s := startSite(t, ca, "backend.example", h, http2)
			c := newClient(t, ca, nil, s.dev())
			r.URL = streamURL
			res, err := c.Stream(t.Context(), r)
			if res != nil && res.Body != nil {
				defer func() { require.NoError(t, res.Body.Close()) }()
			}
			then(t, res, err)
		})
	}
}

func piece(w http.ResponseWriter, text string) {
	_, _ = io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

func TestStream_PiecesComeWhileTheAnswerGoesOn(t *testing.T) {
	next := make(chan struct{})
	streamed(t, StreamRequest{Body: []byte("{}"), Header: http.Header{"Accept": {"text/event-stream"}, "Host": {"other.example"}}}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("Retry-After", "3")
		w.Header().Set("Set-Cookie", "a=b")
		piece(w, r.Method+" "+r.Host+" "+r.Header.Get("Accept")+" "+string(body))
		<-next
		piece(w, "more")
	}, func(t *testing.T, res *StreamResponse, err error) {
		require.NoError(t, err)
		require.Equal(t, 200, res.Status)
		require.Equal(t, "text/event-stream", res.ContentType)
		require.Equal(t, "3", res.Header.Get("Retry-After"))
		require.Empty(t, res.Header.Get("Set-Cookie"))
		host, _, err := net.SplitHostPort(res.Address)
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1", host)
		const first = "POST backend.example text/event-stream {}"
		buf := make([]byte, len(first))
		_, err = io.ReadFull(res.Body, buf)
		require.NoError(t, err)
		require.Equal(t, first, string(buf), "before the answer goes on")
		next <- struct{}{}
		rest, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "more", string(rest))
		timing := res.Timing()
		require.Positive(t, timing.FirstByte)
		require.Greater(t, timing.Total, timing.FirstByte)
		whole := res.Answer([]byte("seen"))
		require.Equal(t, res.Address, whole.Address)
		require.Equal(t, 200, whole.Status)
	})
}

func TestStream_ConnectionIsUsedAgainAfterTheEnd(t *testing.T) {
	ca := newCA(t)
	s := startSite(t, ca, "backend.example", func(w http.ResponseWriter, _ *http.Request) { piece(w, "data: x\n\n") }, false)
	c := newClient(t, ca, nil, s.dev())
	for range 3 {
		res, err := c.Stream(t.Context(), StreamRequest{URL: streamURL})
		require.NoError(t, err)
		_, err = io.ReadFull(res.Body, make([]byte, len("data: x\n\n")))
		require.NoError(t, err)
		require.NoError(t, res.Body.Close(), "the end itself was not read")
	}
	require.Equal(t, int64(1), s.conns.Load())
}

func TestStream_Bounds(t *testing.T) {
	for name, tc := range map[string]struct {
		r       StreamRequest
		h       http.HandlerFunc
		kind    Kind
		over2   Kind // over HTTP/2, where it is another
		detail  string
		atStart bool // the error comes in place of headers
	}{
		"no headers": {
			r: StreamRequest{AckTimeout: 50 * time.Millisecond}, kind: Timeout, detail: "the server took too long to begin its answer", atStart: true,
			h: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		},
		"headers alone": {
			r: StreamRequest{AckTimeout: time.Second, Timeout: 100 * time.Millisecond}, kind: Timeout, detail: "the server took too long",
			h: func(w http.ResponseWriter, r *http.Request) { piece(w, ""); <-r.Context().Done() },
		},
		"silence": {
			r: StreamRequest{IdleTimeout: 50 * time.Millisecond}, kind: Timeout, detail: "the answer stopped for too long",
			h: func(w http.ResponseWriter, r *http.Request) { piece(w, "data: a\n\n"); <-r.Context().Done() },
		},
		"slow drip": {
			r: StreamRequest{IdleTimeout: time.Second, Timeout: 150 * time.Millisecond}, kind: Timeout, detail: "the server took too long",
			h: func(w http.ResponseWriter, r *http.Request) {
				for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
					if piece(w, "."); r.Context().Err() != nil {
						return
					}
				}
			},
		},
		"endless": {
			r: StreamRequest{MaxBytes: 100 << 10}, kind: TooLarge,
			h: func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					piece(w, strings.Repeat("x", 4<<10))
				}
			},
		},
		"a length above the cap": {
			r: StreamRequest{MaxBytes: 10}, kind: TooLarge, atStart: true,
			h: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "eleven byte") },
		},
		"compressed": {
			kind: Encoding, atStart: true,
			h: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "br"); piece(w, "x") },
		},
		"huge header": { // over HTTP/2 the library gives up before it knows how large
			kind: TooLarge, over2: Protocol, atStart: true,
			h: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X", strings.Repeat("x", 64<<10))
			},
		},
		"cut": {
			kind: Protocol,
			h:    func(w http.ResponseWriter, _ *http.Request) { piece(w, "data: a\n\n"); panic(http.ErrAbortHandler) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			streamed(t, tc.r, tc.h, func(t *testing.T, res *StreamResponse, err error) {
				start := time.Now()
				require.NotNil(t, res, "also beside an error")
				if !tc.atStart {
					require.NoError(t, err)
					_, err = io.Copy(io.Discard, res.Body)
					_, again := res.Body.Read(make([]byte, 1))
					require.Equal(t, err, again, "the end is the end")
				}
				kind := tc.kind
				if tc.over2 != "" && strings.HasSuffix(t.Name(), "/h2") {
					kind = tc.over2
				}
				require.Equal(t, kind, KindOf(err), "%v", err)
				require.Equal(t, "127.0.0.1", res.Address[:9], "the address is known")
				if tc.detail != "" {
					require.Equal(t, tc.detail, DetailOf(err))
				}
				require.Less(t, time.Since(start), 2*time.Second)
			})
		})
	}
}

func TestStream_CutOfALength(t *testing.T) {
	ca := newCA(t)
	dev := rawTLS(t, ca, "backend.example", func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
	})
	c := newClient(t, ca, nil, dev)
	res, err := c.Stream(t.Context(), StreamRequest{URL: streamURL})
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.Equal(t, Protocol, KindOf(err))
	require.Equal(t, "half", string(body))
	require.NoError(t, res.Body.Close())
}

func TestStream_ExactlyTheCap(t *testing.T) {
	streamed(t, StreamRequest{MaxBytes: 8}, func(w http.ResponseWriter, _ *http.Request) { piece(w, "eight"); piece(w, "byt") }, func(t *testing.T, res *StreamResponse, err error) {
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Len(t, body, 8)
	})
}

func TestStream_RedirectsAreNotFollowed(t *testing.T) {
	var asked atomic.Int64
	streamed(t, StreamRequest{}, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, "https://backend.example/other", http.StatusTemporaryRedirect)
	}, func(t *testing.T, res *StreamResponse, err error) {
		require.NoError(t, err)
		require.Equal(t, http.StatusTemporaryRedirect, res.Status)
		require.NoError(t, res.Body.Close())
		require.Equal(t, int64(1), asked.Swap(0))
	})
}

func TestStream_GuardDecides(t *testing.T) {
	c := newClient(t, nil, nil)
	tried := spy(c)
	for _, url := range []string{"https://127.0.0.1/", "https://localhost/", "https://169.254.169.254/", "http://backend.example/"} {
		res, err := c.Stream(t.Context(), StreamRequest{URL: url})
		require.Contains(t, []Kind{Blocked, InvalidURL}, KindOf(err), url)
		require.Nil(t, res.Body)
	}
	require.Empty(t, tried.all())
}

func TestStream_StatusSurvivesABadBody(t *testing.T) {
	streamed(t, StreamRequest{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusGone)
		piece(w, "xxx")
	}, func(t *testing.T, res *StreamResponse, err error) {
		require.NoError(t, err)
		require.Equal(t, http.StatusGone, res.Status)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Empty(t, body)
	})
}

func TestStream_CancellingTellsTheServer(t *testing.T) {
	ca := newCA(t)
	for _, http2 := range []bool{false, true} {
		gone := make(chan struct{})
		s := startSite(t, ca, "backend.example", func(w http.ResponseWriter, r *http.Request) {
			piece(w, "x")
			<-r.Context().Done()
			close(gone)
		}, http2)
		c := newClient(t, ca, nil, s.dev())
		ctx, cancel := context.WithCancel(t.Context())
		res, err := c.Stream(ctx, StreamRequest{URL: streamURL})
		require.NoError(t, err)
		_, err = res.Body.Read(make([]byte, 1))
		require.NoError(t, err)
		cancel()
		_, err = io.ReadAll(res.Body)
		require.Equal(t, Canceled, KindOf(err))
		<-gone
		require.NoError(t, res.Body.Close())
	}
}

func TestStream_ClosingEarlyTellsTheServer(t *testing.T) {
	gone := make(chan struct{}, 1)
	streamed(t, StreamRequest{}, func(w http.ResponseWriter, r *http.Request) {
		piece(w, "x")
		<-r.Context().Done()
		gone <- struct{}{}
	}, func(t *testing.T, res *StreamResponse, err error) {
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		<-gone
		_, err = res.Body.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, io.EOF, "what was given up has no end")
	})
}

// certificate returns a client certificate of ca.
func certificate(t *testing.T, ca *devca.CA, name string) *tls.Certificate {
	t.Helper()
	cert, err := ca.ServerConfig(func(string) bool { return true }).GetCertificate(&tls.ClientHelloInfo{ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13}, CipherSuites: []uint16{tls.TLS_AES_128_GCM_SHA256}, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}})
	require.NoError(t, err)
	return cert
}

func TestCertificate_EachHasItsOwnConnections(t *testing.T) {
	ca := newCA(t)
	s := startSite(t, ca, "backend.example", func(w http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].DNSNames[0]
		}
		fmt.Fprint(w, name)
	}, true)
	s.TLS.ClientAuth = tls.RequestClientCert
	c := newClient(t, ca, nil, s.dev())
	one, two := certificate(t, ca, "one.example"), certificate(t, ca, "two.example")
	for range 2 {
		for name, cert := range map[string]*tls.Certificate{"one.example": one, "two.example": two, "nobody": nil} {
			res, err := c.Post(t.Context(), PostRequest{URL: streamURL, Certificate: cert})
			require.NoError(t, err)
			require.Equal(t, name, string(res.Body))
			require.NotEmpty(t, res.Address)
			stream, err := c.Stream(t.Context(), StreamRequest{URL: streamURL, Certificate: cert})
			require.NoError(t, err)
			body, err := io.ReadAll(stream.Body)
			require.NoError(t, err)
			require.Equal(t, name, string(body))
			require.NoError(t, stream.Body.Close())
		}
	}
	require.Equal(t, int64(3), s.conns.Load())
	// A copy of the same certificate is the same one.
	again := *one
	_, err := c.Post(t.Context(), PostRequest{URL: streamURL, Certificate: &again})
	require.NoError(t, err)
	require.Equal(t, int64(3), s.conns.Load())
}

func TestCertificate_IsAskedFor(t *testing.T) {
	ca := newCA(t)
	s := startSite(t, ca, "backend.example", func(http.ResponseWriter, *http.Request) {}, false)
	s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	require.True(t, s.TLS.ClientCAs.AppendCertsFromPEM(ca.PEM()))
	c := newClient(t, ca, nil, s.dev())
	_, err := c.Post(t.Context(), PostRequest{URL: streamURL})
	require.Equal(t, TLS, KindOf(err), "%v", err)
}

func TestCertificate_TheCacheIsBounded(t *testing.T) {
	ca := newCA(t)
	c := newClient(t, ca, nil)
	first := c.transportFor(&tls.Certificate{Certificate: [][]byte{{0}}})
	for i := range maxCertified {
		require.Same(t, first, c.transportFor(&tls.Certificate{Certificate: [][]byte{{0}}}), "what is used stays")
		c.transportFor(&tls.Certificate{Certificate: [][]byte{{1, byte(i)}}})
	}
	require.Len(t, c.showing.list, maxCertified)
	require.NotSame(t, c.transportFor(&tls.Certificate{Certificate: [][]byte{{0}}}), c.transportFor(&tls.Certificate{Certificate: [][]byte{{0}, {1}}}))
	_, err := c.Post(t.Context(), PostRequest{URL: "https://127.0.0.1/", Certificate: &tls.Certificate{Certificate: [][]byte{{7}}}})
	require.Equal(t, Blocked, KindOf(err), "the guard asks nobody for a certificate")
}

// Where a server's alert comes after the handshake, the transport reports it from its read loop.
func TestCertificate_AnAlertAfterTheHandshakeIsTLS(t *testing.T) {
	late := fmt.Errorf("readLoopPeekFailLocked: %w", &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")})
	require.Equal(t, "the TLS handshake failed", tlsDetail(late))
	require.Empty(t, tlsDetail(&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}))
}
