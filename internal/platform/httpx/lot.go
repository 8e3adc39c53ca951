package httpx

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// lot holds a server's parked connections. It is the listener on which those with a
// next request come back.
type lot struct {
	ctx     context.Context // the base of what turns get
	log     *slog.Logger
	drainer *Drainer
	stall   time.Duration
	workers *workers

	back   chan net.Conn
	closed chan struct{}
	once   sync.Once
	// dismissed: no connection waits for a next request any more.
	dismissed atomic.Bool

	mu     sync.Mutex
	all    map[*parked]struct{}
	coming int           // who is between net/http and all
	change chan struct{} // closed with the next removal that leaves nothing; nil when nobody waits
}

func newLot(ctx context.Context, log *slog.Logger, d *Drainer, stall time.Duration) *lot {
	closed := make(chan struct{})
	return &lot{
		ctx: ctx, log: log, drainer: d, stall: stall, workers: newWorkers(closed),
		back: make(chan net.Conn), closed: closed, all: map[*parked]struct{}{},
	}
}

// expect announces a connection that net/http is about to let go of; add or turnAway follows.
func (l *lot) expect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.coming++
}

func (l *lot) turnAway() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.coming--
	l.tell()
}

func (l *lot) add(p *parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.coming--
	l.all[p] = struct{}{}
}

func (l *lot) remove(p *parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, p)
	l.tell()
}

// empty needs l.mu.
func (l *lot) empty() bool { return len(l.all)+l.coming == 0 }

// tell needs l.mu.
func (l *lot) tell() {
	if l.empty() && l.change != nil {
		close(l.change)
		l.change = nil
	}
}

func (l *lot) list() []*parked {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*parked, 0, len(l.all))
	for p := range l.all {
		out = append(out, p)
	}
	return out
}

// wakeOnDrain has everybody come to an end when the drain begins.
func (l *lot) wakeOnDrain() {
	select {
	case <-l.drainer.Done():
		for _, p := range l.list() {
			p.held.Wake()
		}
	case <-l.closed:
	}
}

// dismiss closes the connections that wait for a next request, and has those close
// that would.
func (l *lot) dismiss() {
	l.dismissed.Store(true) // before the look: who misses it is seen there
	for _, p := range l.list() {
		p.mu.Lock()
		answered := p.state == answered
		p.mu.Unlock()
		if answered {
			p.cut()
		}
	}
}

// wait returns when nobody is parked; at the end of ctx it cuts who is left.
func (l *lot) wait(ctx context.Context) error {
	l.mu.Lock()
	if l.empty() {
		l.mu.Unlock()
		return nil
	}
	if l.change == nil {
		l.change = make(chan struct{})
	}
	empty := l.change
	l.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		for _, p := range l.list() {
			p.cut()
		}
		return ctx.Err()
	}
}

// giveBack has net/http accept a connection again.
func (l *lot) giveBack(c net.Conn) {
	select {
	case l.back <- c:
	case <-l.closed:
		_ = c.Close() // its request was not read
	}
}

// Accept implements net.Listener.
func (l *lot) Accept() (net.Conn, error) {
	select {
	case c := <-l.back:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *lot) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *lot) Addr() net.Addr { return parkedAddr{} }

type parkedAddr struct{}

func (parkedAddr) Network() string { return "parked" }
func (parkedAddr) String() string  { return "parked" }

// resumed is a connection of which a part of the next request was read already.
type resumed struct {
	net.Conn
	ahead []byte
}

func (r *resumed) Read(p []byte) (int, error) {
	if len(r.ahead) > 0 {
		n := copy(p, r.ahead)
		r.ahead = r.ahead[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

// CloseWrite lets net/http say that it has written its last answer.
func (r *resumed) CloseWrite() error {
	if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
