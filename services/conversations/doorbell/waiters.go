package doorbell

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
)

// Waiter waits for the rings of one conversation, of one Session or of one Company.
type Waiter struct {
	// Rung gets a value when there may be news. Several rings between two receives are
	// one value. It is nil for who follows.
	Rung   <-chan struct{}
	wake   func()
	newest atomic.Int64
	look   atomic.Bool

	// OnPiece, if set before listening, gets the pieces of messages that are being
	// written. It must return at once.
	OnPiece func(Piece)

	// Where it is listed; at is guarded by the shard's lock.
	shard *shard
	key   string
	at    int
}

// awaited makes a waiter that is woken by its channel.
func awaited() (*Waiter, func()) {
	rung := make(chan struct{}, 1)
	return &Waiter{Rung: rung}, func() {
		select {
		case rung <- struct{}{}:
		default: // one is waiting to be received already
		}
	}
}

// News reports whether the rings so far leave it possible that there is an event
// after the given sequence number, and forgets rings that said no number.
func (w *Waiter) News(after int64) bool {
	unknown := w.look.Swap(false)
	return w.newest.Load() > after || unknown
}

// Close ends the wait; it must be called. It may be called more than once.
func (w *Waiter) Close() {
	if s := w.shard; s != nil {
		s.remove(w)
	}
}

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
	w.wake()
}

const shards = 32

// waiters finds who waits for a key. A waiter costs an entry in a slice.
type waiters struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu sync.Mutex
	on map[string][]*Waiter
}

func newWaiters() *waiters {
	ws := &waiters{seed: maphash.MakeSeed()}
	for i := range ws.shards {
		ws.shards[i].on = map[string][]*Waiter{}
	}
	return ws
}

func (ws *waiters) listen(key string, w *Waiter) {
	s := ws.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.shard, w.key, w.at = s, key, len(s.on[key])
	s.on[key] = append(s.on[key], w)
}

func (s *shard) remove(w *Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	on := s.on[w.key]
	if w.at < 0 {
		return
	}
	last := on[len(on)-1]
	on[w.at], last.at = last, w.at
	on[len(on)-1] = nil
	w.at = -1
	if len(on) == 1 {
		delete(s.on, w.key)
		return
	}
	s.on[w.key] = on[:len(on)-1]
}

func (ws *waiters) ring(key string, seq int64) {
	s := ws.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.on[key] {
		w.ring(seq)
	}
}

// pass gives a piece to those who show pieces.
func (ws *waiters) pass(key string, p Piece) {
	s := ws.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.on[key] {
		if w.OnPiece != nil {
			w.OnPiece(p)
		}
	}
}

// of returns who waits for a key.
func (ws *waiters) of(key string) []*Waiter {
	s := ws.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.on[key])
}

// all returns everybody who waits.
func (ws *waiters) all() []*Waiter {
	var out []*Waiter
	for i := range ws.shards {
		s := &ws.shards[i]
		s.mu.Lock()
		for _, on := range s.on {
			out = append(out, on...)
		}
		s.mu.Unlock()
	}
	return out
}

func (ws *waiters) count() int {
	n := 0
	for i := range ws.shards {
		s := &ws.shards[i]
		s.mu.Lock()
		for _, on := range s.on {
			n += len(on)
		}
		s.mu.Unlock()
	}
	return n
}

func (ws *waiters) shard(key string) *shard {
	return &ws.shards[maphash.String(ws.seed, key)%shards]
}
