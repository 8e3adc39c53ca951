package limit

import (
	"container/list"
	"hash/maphash"
	"sync"
	"time"
)

// DefaultKeys is how many keys a Limiter remembers unless told otherwise.
const DefaultKeys = 100_000

const shards = 16

// Limiter is a rate limiter (GCRA) for many keys. When it is full, the key that
// was asked for longest ago is forgotten, as if it had been quiet. It is safe for
// concurrent use.
type Limiter struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	max   int
	keys  map[string]*list.Element
	order list.List // of *entry, the latest asked for in front
}

type entry struct {
	key string
	// due is the theoretical arrival time: when the key would be as good as new.
	due time.Time
}

// New makes a Limiter that remembers at most maxKeys keys; 0 is DefaultKeys.
func New(maxKeys int) *Limiter {
	if maxKeys <= 0 {
		maxKeys = DefaultKeys
	}
	l := &Limiter{seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].max = max(1, maxKeys/shards)
		l.shards[i].keys = map[string]*list.Element{}
	}
	return l
}

// Allow reports whether key may go on at now, and otherwise how long it has to
// wait. A key that was quiet may go perMinute times at once, and then once every
// 60/perMinute seconds. 0 or less is no limit. A refused try costs nothing.
func (l *Limiter) Allow(key string, perMinute int, now time.Time) (ok bool, retryAfter time.Duration) {
	if perMinute <= 0 {
		return true, 0
	}
	interval := time.Minute / time.Duration(perMinute)
	burst := interval * time.Duration(perMinute-1)
	s := &l.shards[maphash.String(l.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key)
	due := e.due
	if due.Before(now) {
		due = now
	}
	if wait := due.Sub(now) - burst; wait > 0 {
		return false, wait
	}
	e.due = due.Add(interval)
	return true, 0
}

// Len returns how many keys are remembered.
func (l *Limiter) Len() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.keys)
		s.mu.Unlock()
	}
	return n
}

func (s *shard) entry(key string) *entry {
	if el, ok := s.keys[key]; ok {
		s.order.MoveToFront(el)
		return el.Value.(*entry) // the list holds nothing else
	}
	if len(s.keys) >= s.max {
		oldest := s.order.Back()
		delete(s.keys, s.order.Remove(oldest).(*entry).key) // the list holds nothing else
	}
	e := &entry{key: key}
	s.keys[key] = s.order.PushFront(e)
	return e
}
