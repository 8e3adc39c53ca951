package httpx

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

// parked is a line that was taken out of net/http: a connection, the head of its
// answer, and a goroutine with a small stack that waits for the client's next byte.
type parked struct {
	lot     *lot
	held    *Held
	conn    net.Conn
	head    []byte // the headers that were set when it was parked
	pattern string
	chunked bool // the client knows chunks
	keep    bool // the client has further requests

	mu     sync.Mutex
	ahead  []byte // what the client sent already of its next request
	state  place
	first  [1]byte
	begun  bool
	closed bool
}

// place is where a parked connection is in its life.
type place uint8

const (
	waiting  place = iota // for the answer
	answered              // for the next request
	left                  // gone, or back in net/http
)

// park takes a connection out of net/http; nil where that can't be done.
func park(w http.ResponseWriter, r *http.Request, h *Held) *parked {
	s, ok := r.Context().Value(serverKey{}).(*Server)
	// A body that nobody read would be taken for the next request.
	if !ok || s.lot == nil || r.TLS != nil || r.ProtoMajor != 1 || r.Method != http.MethodGet || r.Body != http.NoBody {
		return nil
	}
	var head bytes.Buffer
	if err := w.Header().Write(&head); err != nil { // memory takes everything
		return nil
	}
	s.lot.expect()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.lot.turnAway()
		return nil
	}
	if back, ok := conn.(*resumed); ok && len(back.ahead) == 0 {
		conn = back.Conn // or a connection would grow by a layer with every answer
	}
	p := &parked{
		lot: s.lot, held: h, conn: conn, head: bytes.Clone(head.Bytes()), pattern: r.Pattern,
		chunked: r.ProtoAtLeast(1, 1), keep: r.ProtoAtLeast(1, 1) && !r.Close,
	}
	if n := buffered.Reader.Buffered(); n > 0 {
		ahead, _ := buffered.Peek(n) // what is buffered can be had
		p.ahead = bytes.Clone(ahead)
	}
	s.lot.add(p)
	if len(p.ahead) == 0 {
		go p.watch()
	}
	return p
}

// watch waits for what the client does next: it goes, or sends its next request.
func (p *parked) watch() {
	n, err := p.conn.Read(p.first[:])
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 {
		p.ahead = append(p.ahead, p.first[:n]...)
	}
	switch {
	case p.state == answered && n > 0:
		p.resume()
	case p.state == answered || p.closed:
		p.leave()
	case n == 0 && err != nil || p.begun: // nobody asks anything while a stream goes on
		p.held.gone.Store(true)
		p.held.Wake()
	}
}

// resume gives the connection back to net/http, which reads the request that has begun to come.
func (p *parked) resume() {
	_ = p.conn.SetDeadline(time.Time{}) // a dead connection is noticed by who reads it
	conn := &resumed{Conn: p.conn, ahead: p.ahead}
	p.lot.remove(p)
	p.state = left
	go p.lot.giveBack(conn)
}

// leave closes the connection.
func (p *parked) leave() {
	p.closed = true
	_ = p.conn.Close() // nothing is on its way any more
	p.lot.remove(p)
	p.state = left
}

// run takes the turns that are due, and ends the connection or gives it back after the last one.
func (p *parked) run(h *Held) {
	ended := false
	defer func() {
		if v := recover(); v != nil {
			p.log().ErrorContext(p.lot.ctx, "held answer panicked", "route", p.pattern, "panic", panicText(v), "stack", string(debug.Stack()))
			h.state.Store(over)
			p.keep, ended = false, true
		}
		if ended {
			p.finish(h)
		}
	}()
	ended = !h.run(p.lot.ctx)
}

func (p *parked) finish(h *Held) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.state == left:
		case p.begun || !p.keep || p.closed || h.Gone():
			p.leave()
		case len(p.ahead) > 0:
			p.resume()
		case p.lot.dismissed.Load():
			p.leave()
		default:
			p.state, p.head = answered, nil
			_ = p.conn.SetDeadline(clock.System().Add(IdleTimeout)) // a dead connection is noticed by who reads it
		}
	}()
	if p.begun && p.chunked && !h.Gone() {
		_ = p.send([]byte("0\r\n\r\n")) // who has gone misses nothing
	}
	h.turns.Over()
}

// cut closes the connection, whatever it is doing; its watcher does the rest.
func (p *parked) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == left {
		return
	}
	p.closed = true
	_ = p.conn.Close()
	if p.state == waiting {
		p.held.gone.Store(true)
		p.held.Wake()
	}
}

func (p *parked) schedule(h *Held) { p.lot.workers.run(func() { p.run(h) }) }

func (p *parked) draining() bool { return p.lot.drainer.Draining() }

func (p *parked) begin(status int) error {
	p.mu.Lock()
	p.begun = true
	early := len(p.ahead) > 0
	p.mu.Unlock()
	if early { // a request behind a stream is never answered
		p.held.gone.Store(true)
		return net.ErrClosed
	}
	head := startOfAnswer(status, p.head)
	if p.chunked {
		head = append(head, "Transfer-Encoding: chunked\r\n"...)
	}
	p.head = nil
	return p.send(append(head, "Connection: close\r\n\r\n"...))
}

func (p *parked) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), stallBytes)
		out := b[:n]
		if p.chunked {
			out = append(strconv.AppendInt(make([]byte, 0, n+16), int64(n), 16), "\r\n"...)
			out = append(append(out, b[:n]...), "\r\n"...)
		}
		if err := p.send(out); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (p *parked) send(b []byte) error {
	if err := p.conn.SetWriteDeadline(clock.System().Add(p.lot.stall)); err != nil {
		return err
	}
	_, err := p.conn.Write(b)
	return err
}

func (p *parked) answer(fn http.HandlerFunc) {
	w := &recorded{header: p.header(), status: http.StatusOK}
	ctx := context.WithValue(p.lot.ctx, requestIDKey{}, w.header.Get(headerRequestID))
	ctx = context.WithValue(ctx, loggerKey{}, p.log())
	fn(w, (&http.Request{Method: http.MethodGet, Pattern: p.pattern}).WithContext(ctx))
	p.keep = p.keep && !p.draining()
	if !p.keep {
		w.header.Set("Connection", "close")
	}
	w.header.Set("Content-Length", strconv.Itoa(w.body.Len()))
	var head bytes.Buffer
	_ = w.header.Write(&head) // memory takes everything
	out := append(startOfAnswer(w.status, head.Bytes()), "\r\n"...)
	for rest := slices.Concat(out, w.body.Bytes()); len(rest) > 0; {
		n := min(len(rest), stallBytes)
		if p.send(rest[:n]) != nil { // the client has gone; there is nobody left to tell
			p.keep = false
			return
		}
		rest = rest[n:]
	}
}

// header is the one that was set before the connection was parked.
func (p *parked) header() http.Header {
	raw := append(bytes.Clone(p.head), "\r\n"...)
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(raw))).ReadMIMEHeader()
	if err != nil { // it was written by net/http
		return http.Header{}
	}
	return http.Header(h)
}

func (p *parked) log() *slog.Logger {
	return p.lot.log.With("request_id", p.header().Get(headerRequestID))
}

func startOfAnswer(status int, header []byte) []byte {
	out := make([]byte, 0, len(header)+256)
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(append(append(out, ' '), http.StatusText(status)...), "\r\nDate: "...)
	out = append(clock.System().AppendFormat(out, http.TimeFormat), "\r\n"...)
	return append(out, header...)
}

// recorded takes a whole answer.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(status int)      { r.status = status }
func (r *recorded) Write(p []byte) (int, error) { return r.body.Write(p) }
