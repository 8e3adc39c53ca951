package httpx

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

// Turns gives a held answer, bit by bit.
type Turns interface {
	// Turn says what there is to say now, and reports whether the answer goes on. One
	// goroutine calls it at a time: once at the beginning, after every Wake, when the
	// client has gone, and when the server begins to drain. ctx is not the request's:
	// it has no end.
	Turn(ctx context.Context, h *Held) (more bool)
	// Over is called once, after the last turn.
	Over()
}

// Held is an answer that takes its time: a poll that waits for news, or a stream.
// While it has nothing to say it holds no goroutine of a handler, no request and no
// buffer, where that can be had: a connection of plain HTTP/1 is taken out of net/http
// and parked, and goes back there for its next request. With TLS and HTTP/2 the
// handler waits in the usual way. What a turn writes is the same.
type Held struct {
	turns Turns
	state atomic.Int32
	gone  atomic.Bool
	line  line
}

// A line carries a held answer.
type line interface {
	// schedule has h.run called soon.
	schedule(h *Held)
	draining() bool
	begin(status int) error
	write(p []byte) error
	answer(fn http.HandlerFunc)
}

// The states. The zero Held runs already: what wakes it before Hold isn't lost.
const (
	running int32 = iota
	woken         // running, and to be run again
	idle
	over
)

// stallTimeout is how long a client may take over stallBytes before it is cut.
const (
	stallTimeout = 10 * time.Second
	stallBytes   = 32 << 10
)

// Hold answers the request by turns. The handler returns right after it, and touches
// neither w nor r again. Headers that are set on w are part of the answer.
func (h *Held) Hold(w http.ResponseWriter, r *http.Request, turns Turns) {
	h.turns = turns
	if p := park(w, r, h); p != nil {
		h.line = p
		p.schedule(h)
		return
	}
	flow(w, r, h)
}

// Wake has a turn taken. It never blocks, and may be called by anybody at any time.
func (h *Held) Wake() {
	for {
		switch s := h.state.Load(); s {
		case idle:
			if h.state.CompareAndSwap(idle, running) {
				h.line.schedule(h)
				return
			}
		case running:
			if h.state.CompareAndSwap(running, woken) {
				return
			}
		default:
			return
		}
	}
}

// Gone reports that the client has gone: there is nobody to write to.
func (h *Held) Gone() bool { return h.gone.Load() }

// Draining reports that the server is about to go: the answer has to come to its end.
func (h *Held) Draining() bool { return h.line.draining() }

// Begin sends the status and the headers of an answer of unknown length.
func (h *Held) Begin(status int) error { return h.line.begin(status) }

// Write sends a part of an answer that has begun, at once. It fails when the client
// has gone, or takes it too slowly.
func (h *Held) Write(p []byte) error { return h.line.write(p) }

// Answer sends a whole answer; it is for the last turn of one that has not begun. Of
// the request fn gets what answering needs: the context and the method.
func (h *Held) Answer(fn http.HandlerFunc) { h.line.answer(fn) }

// run takes turns until there is nothing more to say for now. It reports whether the answer goes on.
func (h *Held) run(ctx context.Context) bool {
	for {
		if !h.turns.Turn(ctx, h) {
			h.state.Store(over)
			return false
		}
		if h.state.CompareAndSwap(running, idle) {
			return true
		}
		h.state.Store(running)
	}
}

// flowing is a line through net/http.
type flowing struct {
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	drain   <-chan struct{}
	kick    chan struct{}
	stall   time.Duration
}

// flow takes the turns in the handler's goroutine until the answer is over.
func flow(w http.ResponseWriter, r *http.Request, h *Held) {
	f := &flowing{
		w: w, r: r, control: http.NewResponseController(w), drain: DrainDone(r.Context()), kick: make(chan struct{}, 1), stall: stallOf(r.Context()),
	}
	h.line = f
	defer func() {
		h.state.Store(over)
		h.turns.Over()
		// The next request's answer has no deadline; where there are none, there was none.
		_ = f.control.SetWriteDeadline(time.Time{})
	}()
	ctx := context.WithoutCancel(r.Context())
	drain, gone := f.drain, r.Context().Done()
	for h.run(ctx) {
		select {
		case <-f.kick:
			continue
		case <-drain:
			drain = nil
		case <-gone:
			gone = nil
			h.gone.Store(true)
		}
		h.Wake()
		<-f.kick
	}
}

func (f *flowing) schedule(*Held) { f.kick <- struct{}{} }

func (f *flowing) draining() bool {
	select {
	case <-f.drain:
		return true
	default:
		return false
	}
}

func (f *flowing) begin(status int) error {
	defer f.deadline()()
	f.w.WriteHeader(status)
	return f.control.Flush()
}

func (f *flowing) write(p []byte) error {
	for ; len(p) > 0; p = p[min(len(p), stallBytes):] {
		if err := f.part(p[:min(len(p), stallBytes)]); err != nil {
			return err
		}
	}
	return nil
}

func (f *flowing) part(p []byte) error {
	defer f.deadline()()
	if _, err := f.w.Write(p); err != nil {
		return err
	}
	return f.control.Flush()
}

// deadline is set for a write and taken back after it: one of HTTP/2 that passes ends
// the stream, written to or not. Writers of tests have none.
func (f *flowing) deadline() (takeBack func()) {
	_ = f.control.SetWriteDeadline(clock.System().Add(f.stall))
	return func() { _ = f.control.SetWriteDeadline(time.Time{}) }
}

func (f *flowing) answer(fn http.HandlerFunc) {
	f.deadline() // until the handler has returned, which sends the end
	fn(f.w, f.r)
}
