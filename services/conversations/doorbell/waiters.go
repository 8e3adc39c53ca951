package doorbell

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Waiter waits for events of one conversation.
type Waiter struct {
	// Rung gets a value when there may be news. Several rings between two receives are one value.
	Rung   <-chan struct{}
	rung   chan struct{}
	newest atomic.Int64
	look   atomic.Bool
	close  func()
}

// News reports whether the rings so far leave it possible that there is an event
// after the given sequence number, and forgets rings that said no number.
func (w *Waiter) News(after int64) bool {
	unknown := w.look.Swap(false)
	return w.newest.Load() > after || unknown
}

// Close ends the wait; it must be called.
func (w *Waiter) Close() { w.close() }

// ring tells w of the event with sequence number seq, or with 0 that something may have happened.
func (w *Waiter) ring(seq int64) {
	if seq <= 0 {
		w.look.Store(true)
	}
	for {
		old := w.newest.Load()
		if seq <= old || w.newest.CompareAndSwap(old, seq) {
			break
		}
	}
	select {
	case w.rung <- struct{}{}:
	default: // one is waiting to be received already
	}
}

const shards = 32

// waiters finds who waits for a subject.
type waiters struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu sync.Mutex
	on map[string]map[*Waiter]struct{}
}

func newWaiters() *waiters {
	ws := &waiters{seed: maphash.MakeSeed()}
	for i := range ws.shards {
		ws.shards[i].on = map[string]map[*Waiter]struct{}{}
	}
	return ws
}

func (ws *waiters) listen(subject string) *Waiter {
	w := &Waiter{rung: make(chan struct{}, 1)}
	w.Rung = w.rung
	s := ws.shard(subject)
	w.close = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.on[subject], w)
		if len(s.on[subject]) == 0 {
			delete(s.on, subject)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on[subject] == nil {
		s.on[subject] = map[*Waiter]struct{}{}
	}
	s.on[subject][w] = struct{}{}
	return w
}

func (ws *waiters) ring(subject string, seq int64) {
	s := ws.shard(subject)
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.on[subject] {
		w.ring(seq)
	}
}

// all returns everybody who waits.
func (ws *waiters) all() []*Waiter {
	var out []*Waiter
	for i := range ws.shards {
		s := &ws.shards[i]
		s.mu.Lock()
		for _, on := range s.on {
			for w := range on {
				out = append(out, w)
			}
		}
		s.mu.Unlock()
	}
	return out
}

func (ws *waiters) shard(subject string) *shard {
	return &ws.shards[maphash.String(ws.seed, subject)%shards]
}
