package egress

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/devca"
)

// zone is a resolver whose answers are written down. Several answers of one name
// come by turns, the last one for ever.
type zone struct {
	mu      sync.Mutex
	a       map[string][][]string
	txt     map[string][]string
	err     error
	queries []string
}

func (z *zone) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.queries = append(z.queries, host)
	if z.err != nil {
		return nil, z.err
	}
	answers := z.a[host]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		z.a[host] = answers[1:]
	}
	var out []netip.Addr
	for _, s := range answers[0] {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func (z *zone) LookupTXT(_ context.Context, name string) ([]string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.queries = append(z.queries, name)
	if z.err != nil {
		return nil, z.err
	}
	records, ok := z.txt[name]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return records, nil
}

func (z *zone) asked() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return append([]string(nil), z.queries...)
}

// inside is a listener that must not hear anything.
type inside struct {
	port    uint16
	accepts atomic.Int64
}

func newInside(t *testing.T) *inside {
	t.Helper()
	in := &inside{}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	in.port = uint16(l.Addr().(*net.TCPAddr).Port)
	listeners := []net.Listener{l}
	if l6, err := net.Listen("tcp6", "[::1]:"+strconv.Itoa(int(in.port))); err == nil {
		listeners = append(listeners, l6)
	}
	for _, l := range listeners {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				in.accepts.Add(1)
				_ = conn.Close()
			}
		}()
		t.Cleanup(func() { _ = l.Close(); <-done })
	}
	return in
}

// attempts records the addresses that connecting was begun for.
type attempts struct {
	mu   sync.Mutex
	list []string
}

func (a *attempts) add(s string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, s)
}

func (a *attempts) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.list...)
}

// spy makes c record its attempts to connect. Loopback is connected to as in
// production; anything else is refused without a packet leaving the machine.
func spy(c *Client) *attempts {
	a := &attempts{}
	c.dialer.connect = func(ctx context.Context, addr netip.AddrPort, control controlFunc) (net.Conn, error) {
		a.add(addr.String())
		if addr.Addr().IsLoopback() {
			return connectTCP(ctx, addr, control)
		}
		if err := control(ctx, "tcp", addr.String(), nil); err != nil {
			return nil, err
		}
		return nil, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	}
	return a
}

// site is a TLS server reached by name as a dev host.
type site struct {
	*httptest.Server
	name  string
	port  uint16
	conns atomic.Int64
}

func newSite(t *testing.T, ca *devca.CA, name string, h http.HandlerFunc) *site {
	t.Helper()
	return startSite(t, ca, name, h, true)
}

func startSite(t *testing.T, ca *devca.CA, name string, h http.HandlerFunc, http2 bool) *site {
	t.Helper()
	s := &site{Server: httptest.NewUnstartedServer(h), name: name}
	s.TLS = ca.ServerConfig(func(n string) bool { return n == name })
	if !http2 {
		s.TLS.NextProtos = []string{"http/1.1"}
	}
	s.EnableHTTP2 = http2
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	s.StartTLS()
	// httptest adds a certificate of its own, which would be preferred for clients without SNI.
	s.TLS.Certificates = nil
	t.Cleanup(s.Close)
	s.port = uint16(s.Listener.Addr().(*net.TCPAddr).Port)
	return s
}

func (s *site) dev() string { return s.name + "=127.0.0.1:" + strconv.Itoa(int(s.port)) }

func newCA(t *testing.T) *devca.CA {
	t.Helper()
	ca, err := devca.Load(t.TempDir(), time.Now)
	require.NoError(t, err)
	return ca
}

func newClient(t *testing.T, ca *devca.CA, z *zone, dev ...string) *Client {
	t.Helper()
	hosts, err := ParseDevHosts(dev)
	require.NoError(t, err)
	if z == nil {
		z = &zone{}
	}
	cfg := Config{UserAgent: "poppyfield-test", Now: time.Now, Resolver: z}
	if ca != nil {
		cfg.Roots, err = LoadRootsPEM(ca.PEM())
		require.NoError(t, err)
	}
	c, err := New(cfg, NewGuard(GuardConfig{DevHosts: hosts}))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// rawTLS answers every connection with what serve does, without HTTP in between.
func rawTLS(t *testing.T, ca *devca.CA, name string, serve func(net.Conn)) string {
	t.Helper()
	cfg := ca.ServerConfig(func(n string) bool { return n == name })
	cfg.NextProtos = []string{"http/1.1"}
	l, err := tls.Listen("tcp4", "127.0.0.1:0", cfg)
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return name + "=" + l.Addr().String()
}
