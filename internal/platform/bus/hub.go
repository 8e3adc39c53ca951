package bus

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
)

const (
	hubShards = 64
	// After a reconnect everybody has to look again; in steps, so that a database
	// does not get the questions of 20,000 waiters in one moment.
	wakeStep     = 500
	wakeInterval = 50 * time.Millisecond
)

// Hub wakes those who wait for one subject. It has one subscription, whatever the
// number of waiters; a waiter costs a channel and an entry in a map.
type Hub struct {
	seed   maphash.Seed
	shards [hubShards]hubShard
	again  chan struct{}
	stop   chan struct{}
	done   sync.WaitGroup
	once   sync.Once
	leave  []func()
}

type hubShard struct {
	mu      sync.Mutex
	waiters map[string][]chan struct{}
}

// NewHub subscribes to pattern on b.
func NewHub(b *Bus, pattern string) (*Hub, error) {
	h := &Hub{seed: maphash.MakeSeed(), again: make(chan struct{}, 1), stop: make(chan struct{})}
	for i := range h.shards {
		h.shards[i].waiters = map[string][]chan struct{}{}
	}
	unsubscribe, err := b.Subscribe(pattern, func(_ context.Context, subject string, _ []byte) { h.Wake(subject) })
	if err != nil {
		return nil, err
	}
	h.leave = []func(){unsubscribe, b.OnReconnect(func() {
		select {
		case h.again <- struct{}{}:
		default: // a round is about to start, which covers this one too
		}
	})}
	h.done.Add(1)
	go h.wakeAfterReconnects()
	return h, nil
}

// Listen returns a channel that gets a value when subject was rung, or may have
// been. Several rings between two receives are one value. Listen first and read
// the state then, or a change in between is missed. cancel must be called; the
// channel is never closed.
func (h *Hub) Listen(subject string) (ch <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	s := h.shard(subject)
	s.mu.Lock()
	s.waiters[subject] = append(s.waiters[subject], c)
	s.mu.Unlock()
	return c, func() { s.remove(subject, c) }
}

// Wake rings subject for the listeners of this process alone.
func (h *Hub) Wake(subject string) {
	s := h.shard(subject)
	s.mu.Lock()
	for _, c := range s.waiters[subject] {
		ring(c)
	}
	s.mu.Unlock()
}

// WakeAll rings for every listener at once, as a drain needs it.
func (h *Hub) WakeAll() {
	for _, c := range h.snapshot() {
		ring(c)
	}
}

// Listeners returns how many Listen calls were not cancelled yet.
func (h *Hub) Listeners() int { return len(h.snapshot()) }

// Close ends the subscription; listeners are woken no more. It may be called more than once.
func (h *Hub) Close() {
	h.once.Do(func() {
		for _, f := range h.leave {
			f()
		}
		close(h.stop)
	})
	h.done.Wait()
}

func (h *Hub) wakeAfterReconnects() {
	defer h.done.Done()
	for {
		select {
		case <-h.again:
			if !h.wakeInSteps() {
				return
			}
		case <-h.stop:
			return
		}
	}
}

func (h *Hub) wakeInSteps() bool {
	tick := time.NewTicker(wakeInterval)
	defer tick.Stop()
	for i, c := range h.snapshot() {
		if i > 0 && i%wakeStep == 0 {
			select {
			case <-tick.C:
			case <-h.stop:
				return false
			}
		}
		ring(c)
	}
	return true
}

func (h *Hub) snapshot() []chan struct{} {
	var all []chan struct{}
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		for _, cs := range s.waiters {
			all = append(all, cs...)
		}
		s.mu.Unlock()
	}
	return all
}

func (h *Hub) shard(subject string) *hubShard {
	return &h.shards[maphash.String(h.seed, subject)%hubShards]
}

func (s *hubShard) remove(subject string, c chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cs := s.waiters[subject]
	for i := range cs {
		if cs[i] != c {
			continue
		}
		if len(cs) == 1 {
			delete(s.waiters, subject)
			return
		}
		cs[i] = cs[len(cs)-1]
		cs[len(cs)-1] = nil
		s.waiters[subject] = cs[:len(cs)-1]
		return
	}
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is waiting to be received already
	}
}
