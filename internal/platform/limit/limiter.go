package limit

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

// DefaultKeys is how many keys a Limiter remembers unless told otherwise.
const DefaultKeys = 100_000

const shards = 16

// Hash names a key to other processes. It tells nothing of the key to whoever doesn't have the secret.
type Hash [16]byte

// Secret is what keys are hashed with. Limiters that count together have the same.
type Secret [32]byte

// Limiter is a rate limiter (GCRA) for many keys. When it is full, the key that
// was asked for longest ago is forgotten, as if it had been quiet. It is safe for
// concurrent use.
type Limiter struct {
	secret Secret
	shared bool
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	max   int
	keys  map[Hash]*list.Element
	order list.List // of *entry, the latest asked for in front
	told  told
}

type entry struct {
	key Hash
	// due is the theoretical arrival time: when the key would be as good as new.
	due     time.Time
	untold  time.Duration // what was taken here and not told
	waiting bool          // to be told
}

// New makes a Limiter that remembers at most maxKeys keys; 0 is DefaultKeys. It counts for itself.
func New(maxKeys int) *Limiter {
	var secret Secret
	rand.Read(secret[:]) // never fails
	return newLimiter(maxKeys, secret, false)
}

// Or returns l, or where there is none a new one that counts for itself.
func Or(l *Limiter) *Limiter {
	if l == nil {
		return New(0)
	}
	return l
}

// NewShared is New for one that counts together with others of the same secret.
// Somebody has to carry Spent of each to Spend of the others.
func NewShared(maxKeys int, secret Secret) *Limiter { return newLimiter(maxKeys, secret, true) }

func newLimiter(maxKeys int, secret Secret, shared bool) *Limiter {
	if maxKeys <= 0 {
		maxKeys = DefaultKeys
	}
	l := &Limiter{secret: secret, shared: shared}
	for i := range l.shards {
		l.shards[i].max = max(1, maxKeys/shards)
		l.shards[i].keys = map[Hash]*list.Element{}
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
	h := l.hash(key)
	s := l.shard(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(h)
	due := e.due
	if due.Before(now) {
		due = now
	}
	if wait := due.Sub(now) - burst; wait > 0 {
		return false, wait
	}
	e.due = due.Add(interval)
	if l.shared {
		s.told.take(e, interval)
	}
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

// hash has the secret in front of the key, which is enough where nothing is authenticated with it.
func (l *Limiter) hash(key string) Hash {
	var room [len(Secret{}) + 256]byte
	sum := sha256.Sum256(append(append(room[:0], l.secret[:]...), key...))
	return Hash(sum[:len(Hash{})])
}

func (l *Limiter) shard(h Hash) *shard { return &l.shards[binary.BigEndian.Uint64(h[:])%shards] }

func (s *shard) entry(key Hash) *entry {
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
