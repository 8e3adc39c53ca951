package egress

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// Resolver looks names up. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupTXT(ctx context.Context, name string) ([]string, error)
}

const (
	// maxDialled bounds how many addresses of one name are tried.
	maxDialled = 6
	// fallbackDelay is how long an attempt may take before the next address is tried
	// beside it (RFC 8305, section 5).
	fallbackDelay = 250 * time.Millisecond
)

// dialer connects to checked addresses alone.
type dialer struct {
	guard    *Guard
	resolver Resolver
	timeout  time.Duration // of look-up and connecting together
	// connect opens the socket; control has to be asked before connect(2).
	connect func(ctx context.Context, addr netip.AddrPort, control controlFunc) (net.Conn, error)
}

type controlFunc func(ctx context.Context, network, address string, c syscall.RawConn) error

func connectTCP(ctx context.Context, addr netip.AddrPort, control controlFunc) (net.Conn, error) {
	d := net.Dialer{ControlContext: control, FallbackDelay: -1, KeepAlive: 30 * time.Second}
	return d.DialContext(ctx, "tcp", addr.String())
}

// target is one address that passed the guard. dev says that it passed as a dev host.
type target struct {
	addr netip.AddrPort
	dev  bool
}

// DialContext fits http.Transport. hostport comes from a URL that passed CheckURL.
func (d *dialer) DialContext(ctx context.Context, _, hostport string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	host, portText, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, newError(InvalidURL, "the host is malformed", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, newError(InvalidURL, "the port is not a number from 1 to 65535", err)
	}
	targets, err := d.targets(ctx, host, uint16(port))
	if err != nil {
		return nil, err
	}
	return d.race(ctx, targets)
}

// targets resolves host and returns the addresses of it that may be dialled.
func (d *dialer) targets(ctx context.Context, host string, port uint16) ([]target, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if err := d.guard.CheckAddr(addr); err != nil {
			return nil, err
		}
		return []target{{addr: netip.AddrPortFrom(addr, port)}}, nil
	}
	if h, ok := d.guard.dev[host]; ok {
		return []target{{addr: h.target(port), dev: true}}, nil
	}
	if localName(host) {
		return nil, newError(Blocked, "the host is not a name of the public Internet", nil)
	}
	// The trailing dot keeps the resolver from trying its search list, which would
	// turn a stranger's name into one of our own network.
	addrs, err := d.lookup(ctx, host+".")
	if err != nil {
		return nil, dnsError(ctx, err)
	}
	var out []target
	var refused error
	for _, addr := range interleave(addrs) {
		if err := d.guard.CheckAddr(addr); err != nil {
			refused = err
			continue
		}
		if len(out) < maxDialled {
			out = append(out, target{addr: netip.AddrPortFrom(addr, port)})
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case refused != nil:
		return nil, newError(Blocked, "the host resolves to no address on the public Internet", errors.Unwrap(refused))
	default:
		return nil, newError(DNS, "the host has no address", nil)
	}
}

// lookup resolves name and tells a trace in ctx about it, as net.Dialer would.
func (d *dialer) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	trace := httptrace.ContextClientTrace(ctx)
	if trace != nil && trace.DNSStart != nil {
		trace.DNSStart(httptrace.DNSStartInfo{Host: name})
	}
	addrs, err := d.resolver.LookupNetIP(ctx, "ip", name)
	if trace != nil && trace.DNSDone != nil {
		trace.DNSDone(httptrace.DNSDoneInfo{Err: err})
	}
	return addrs, err
}

// interleave orders addresses by turns of family and drops repetitions. Resolvers
// give IPv4 addresses in their mapped form at times; that form has no meaning here.
func interleave(addrs []netip.Addr) []netip.Addr {
	var v6, v4 []netip.Addr
	seen := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		a = a.Unmap()
		if seen[a] {
			continue
		}
		seen[a] = true
		if a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	out := make([]netip.Addr, 0, len(v6)+len(v4))
	for i := range max(len(v6), len(v4)) {
		if i < len(v6) {
			out = append(out, v6[i])
		}
		if i < len(v4) {
			out = append(out, v4[i])
		}
	}
	return out
}

func dnsError(ctx context.Context, err error) *Error {
	var de *net.DNSError
	switch {
	case errors.As(err, &de) && de.IsNotFound:
		return newError(DNS, "the host does not resolve", err)
	case ctx.Err() != nil || errors.As(err, &de) && de.IsTimeout:
		return newError(DNS, "the look-up of the host took too long", err)
	default:
		return newError(DNS, "the look-up of the host failed", err)
	}
}

type dialled struct {
	conn net.Conn
	err  error
}

// race dials the targets in order, each beside the one before when that fails or
// takes longer than fallbackDelay, and keeps the first connection.
func (d *dialer) race(ctx context.Context, targets []target) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialled, len(targets))
	next, open := 0, 0
	start := func() {
		t := targets[next]
		next++
		open++
		go func() {
			conn, err := d.connect(ctx, t.addr, d.control(t))
			results <- dialled{conn: conn, err: err}
		}()
	}
	timer := time.NewTimer(fallbackDelay)
	defer timer.Stop()
	start()
	var failure error
	for open > 0 {
		select {
		case r := <-results:
			open--
			if r.err == nil {
				go closeLate(results, open)
				return r.conn, nil
			}
			if failure == nil {
				failure = r.err
			}
			if next < len(targets) {
				start()
				timer.Reset(fallbackDelay)
			}
		case <-timer.C:
			if next < len(targets) {
				start()
				timer.Reset(fallbackDelay)
			}
		}
	}
	return nil, connectError(failure)
}

// closeLate closes connections that came after the one that won.
func closeLate(results <-chan dialled, open int) {
	for range open {
		if r := <-results; r.conn != nil {
			_ = r.conn.Close() // never used: nothing can be lost
		}
	}
}

func connectError(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	var ne net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return newError(Connect, "the connection was refused", err)
	case errors.As(err, &ne) && ne.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return newError(Connect, "connecting took too long", err)
	default:
		return newError(Connect, "no connection could be made", err)
	}
}

// control looks at the address once more when the socket exists and nothing has
// been sent: whatever happened between the check and the connection, the address
// connected to is the address that was checked.
func (d *dialer) control(t target) controlFunc {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil || netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()) != t.addr {
			return newError(Blocked, "the address is not the one that was checked", err)
		}
		if t.dev {
			return nil
		}
		return d.guard.CheckAddr(t.addr.Addr())
	}
}
