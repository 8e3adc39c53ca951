package conversations_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/services/conversations/web"
)

// transport is a way from the agent to the service.
type transport struct {
	name   string
	scheme string
	client *http.Client
	web    *httpx.Server
	addr   string
}

// stall is how long a reader may block a write in these tests; streams are quiet for longer.
const stall = time.Second

// overEach runs fn with every transport: parked connections of plain HTTP, HTTP/1 over TLS, HTTP/2.
func overEach(t *testing.T, streams web.Streams, fn func(*testing.T, *installation, transport)) {
	t.Helper()
	overEachWith(t, streams, stall, fn)
}

// overEachWith is overEach for tests so busy that nobody is slow on purpose.
func overEachWith(t *testing.T, streams web.Streams, stall time.Duration, fn func(*testing.T, *installation, transport)) {
	t.Helper()
	cfg := impatient
	cfg.Streams = streams
	in := newInstallationWith(t, dbtest.SQLite(t), cfg)
	for _, version := range []string{"plain", "tls", "h2"} {
		t.Run(version, func(t *testing.T) { fn(t, in, in.transport(t, version, stall)) })
	}
}

func (in *installation) transport(t *testing.T, version string, stall time.Duration) transport {
	t.Helper()
	ts := httptest.NewUnstartedServer(nil)
	ts.StartTLS()
	cert := ts.TLS.Certificates[0]
	roots := x509.NewCertPool()
	roots.AddCert(ts.Certificate())
	ts.Close()

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	tr := transport{name: version, scheme: "https", addr: lis.Addr().String()}
	cfg := httpx.Config{Log: in.Log, Stall: stall, Handler: httpx.Standard(publicweb.New(in.Directory, in.service.Routes()), httpx.Options{
		Name: "public", Log: in.Log, NewID: func() string { return ids.New(ids.Request) }, MaxBody: 1 << 20, Traces: in.tracing,
	})}
	dial := &http.Transport{MaxIdleConnsPerHost: 256, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}}
	switch version {
	case "plain":
		tr.scheme = "http"
	case "h2":
		dial.ForceAttemptHTTP2 = true
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	default:
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	}
	tr.client = &http.Client{Transport: dial}
	tr.web = httpx.NewServer(context.WithoutCancel(t.Context()), cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tr.web.Serve(lis) // ends with Shutdown
	}()
	t.Cleanup(func() {
		dial.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = tr.web.Shutdown(ctx)
		<-done
	})
	return tr
}

// item is what a stream had up to an empty line.
type item struct {
	comment        bool
	id, name, data string
	event          event
	delta          struct {
		MessageID string `json:"message_id"`
		Text      string `json:"text"`
	}
}

// sse is an open stream.
type sse struct {
	res   *http.Response
	items chan item // closed at the end of the stream
	end   error     // how it ended; nil at the end of a whole body
	stop  context.CancelFunc
}

// open asks for a stream, and returns it or the answer that came instead.
func (u *user) open(t testing.TB, tr transport, conversation, query string, changes ...func(*http.Request)) (*sse, answer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := u.request(ctx, http.MethodGet, endpoint+"/"+conversation+"/events"+query, "")
	require.NoError(t, err)
	req.Body, req.ContentLength = nil, 0
	req.URL.Scheme, req.URL.Host = tr.scheme, tr.addr
	req.Header.Set("Accept", "text/event-stream")
	for _, c := range changes {
		c(req)
	}
	res, err := tr.client.Do(req)
	require.NoError(t, err)
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		raw, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		out := answer{Status: res.StatusCode, Header: res.Header, Raw: string(raw)}
		require.NoError(t, json.Unmarshal(raw, &out))
		return nil, out
	}
	s := &sse{res: res, items: make(chan item, 10_000), stop: cancel}
	go s.read()
	return s, answer{}
}

// stream is open where nothing is refused.
func (u *user) stream(t testing.TB, tr transport, conversation, query string, changes ...func(*http.Request)) *sse {
	t.Helper()
	s, refused := u.open(t, tr, conversation, query, changes...)
	require.NotNil(t, s, refused.Raw)
	require.Equal(t, http.StatusOK, s.res.StatusCode)
	return s
}

func (s *sse) read() {
	defer close(s.items)
	defer s.res.Body.Close()
	lines := bufio.NewReader(s.res.Body)
	var next item
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if err != io.EOF || line != "" {
				s.end = err
			}
			return
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			_ = json.Unmarshal([]byte(next.data), &next.event) // the test looks at what it got
			_ = json.Unmarshal([]byte(next.data), &next.delta)
			s.items <- next
			next = item{}
		case name == "":
			next.comment = true
		case name == "id":
			next.id = value
		case name == "event":
			next.name = value
		case name == "data":
			next.data = value
		}
	}
}

// next returns the next item that is no comment; false at the end of the stream.
func (s *sse) next(t testing.TB) (item, bool) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case i, ok := <-s.items:
			if !ok || !i.comment {
				return i, ok
			}
		case <-limit:
			require.FailNow(t, "nothing came")
		}
	}
}

// ends requires that the stream ends in order, with nothing but comments before.
func (s *sse) ends(t testing.TB) {
	t.Helper()
	i, ok := s.next(t)
	require.False(t, ok, "%+v", i)
	require.NoError(t, s.end, "a stream ends after a whole event")
}

// events returns the next n items, which have to be events.
func (s *sse) events(t testing.TB, n int) []item {
	t.Helper()
	var out []item
	for range n {
		i, ok := s.next(t)
		require.True(t, ok, "the stream ended")
		require.Empty(t, i.name)
		require.NotEmpty(t, i.id)
		out = append(out, i)
	}
	return out
}

func lastEventID(id string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Last-Event-ID", id) }
}
