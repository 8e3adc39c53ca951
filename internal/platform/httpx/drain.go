package httpx

import (
	"context"
	"net/http"
	"sync"
)

// Drainer tells everybody once that the process is about to go. It is shared by
// the servers of a process and its readiness endpoint.
type Drainer struct {
	once  sync.Once
	begun chan struct{}
	mu    sync.Mutex
	hooks []func()
}

// NewDrainer returns a Drainer that has not begun.
func NewDrainer() *Drainer { return &Drainer{begun: make(chan struct{})} }

// OnBegin calls fn when the drain begins, before those who wait for Done see it:
// readiness belongs here. Called after Begin it runs fn at once.
func (d *Drainer) OnBegin(fn func()) {
	d.mu.Lock()
	begun := d.Draining()
	if !begun {
		d.hooks = append(d.hooks, fn)
	}
	d.mu.Unlock()
	if begun {
		fn()
	}
}

// Begin starts the drain. It may be called more than once and returns when the hooks have run.
func (d *Drainer) Begin() {
	d.once.Do(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, fn := range d.hooks {
			fn()
		}
		close(d.begun)
	})
}

// Draining reports whether the drain has begun.
func (d *Drainer) Draining() bool {
	select {
	case <-d.begun:
		return true
	default:
		return false
	}
}

// Done is closed when the drain begins.
func (d *Drainer) Done() <-chan struct{} { return d.begun }

type drainKey struct{}

// DrainDone returns a channel that is closed when the server that answers the
// request begins to drain; nil, which blocks for ever, outside one. A handler that
// waits on purpose selects on it and answers at once. The request's own context
// goes on, so that work in progress is finished.
func DrainDone(ctx context.Context) <-chan struct{} {
	d, ok := ctx.Value(drainKey{}).(*Drainer)
	if !ok {
		return nil
	}
	return d.Done()
}

// lastAnswers makes every answer during a drain the last one of its connection, so
// that clients come back to another process.
func lastAnswers(d *Drainer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&lastAnswer{ResponseWriter: w, drainer: d}, r)
	})
}

// lastAnswer looks at the moment of the answer: a poll may have waited since before the drain.
type lastAnswer struct {
	http.ResponseWriter
	drainer *Drainer
	wrote   bool
}

func (l *lastAnswer) begin() {
	if !l.wrote && l.drainer.Draining() {
		l.Header().Set("Connection", "close")
	}
	l.wrote = true
}

func (l *lastAnswer) WriteHeader(status int) {
	if status >= http.StatusOK {
		l.begin()
	}
	l.ResponseWriter.WriteHeader(status)
}

func (l *lastAnswer) Write(p []byte) (int, error) {
	l.begin()
	return l.ResponseWriter.Write(p)
}

func (l *lastAnswer) Flush() {
	l.begin()
	// An error here means that the client has gone, which the next Write tells.
	_ = http.NewResponseController(l.ResponseWriter).Flush()
}

func (l *lastAnswer) Unwrap() http.ResponseWriter { return l.ResponseWriter }
