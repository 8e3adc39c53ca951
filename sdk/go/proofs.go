package poppy

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
)

const (
	// remembered is for how long a proof that was taken may come again: its iat may be up
	// to DefaultMaxFuture ahead, and it is good for DefaultMaxAge after that.
	remembered = dpop.DefaultMaxAge + dpop.DefaultMaxFuture
	bucketTime = 10 * time.Second
	// One bucket more than fit into the time: the oldest is in use until its last proof is too old.
	buckets       = int(remembered/bucketTime) + 2
	defaultProofs = 2_000_000
)

type proofKey [16]byte

type claimed uint8

const (
	fresh claimed = iota
	seen
	full
)

// proofMemory remembers the proofs that were taken, within a fixed number.
type proofMemory struct {
	mu      sync.Mutex
	max     int
	count   int
	buckets [buckets]map[proofKey]struct{} // by the time at which they were taken
	newest  int64                          // number of the time of the newest bucket
	// until is when the last proof is too old that could not be remembered.
	until time.Time
}

func newProofMemory(most int) *proofMemory {
	if most <= 0 {
		most = defaultProofs
	}
	return &proofMemory{max: most}
}

// claim remembers a proof that is new.
func (m *proofMemory) claim(p dpop.VerifiedProof, now time.Time) claimed {
	sum := sha256.Sum256([]byte(p.JKT() + "\x00" + p.JTI()))
	key := proofKey(sum[:16])
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.advance(now)
	for _, b := range m.buckets {
		if _, ok := b[key]; ok {
			return seen
		}
	}
	if m.count >= m.max {
		m.until = now.Add(2 * remembered)
		return full
	}
	b := &m.buckets[int(at%int64(buckets))]
	if *b == nil {
		*b = map[proofKey]struct{}{}
	}
	(*b)[key] = struct{}{}
	m.count++
	return fresh
}

// advance drops what is too old, and returns the number of the time.
func (m *proofMemory) advance(now time.Time) int64 {
	at := now.UnixNano() / int64(bucketTime)
	if at <= m.newest {
		return m.newest // a clock that was set back forgets nothing
	}
	for n := max(m.newest+1, at-int64(buckets)+1); n <= at; n++ {
		i := int(n % int64(buckets))
		m.count -= len(m.buckets[i])
		m.buckets[i] = nil
	}
	m.newest = at
	return at
}

// saturate leaves everything to the server until a proof of now is too old.
func (m *proofMemory) saturate(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until = now.Add(2 * remembered)
}

// saturated reports whether a proof may be good that is remembered nowhere here.
func (m *proofMemory) saturated(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Before(m.until)
}
