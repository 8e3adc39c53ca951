package replay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Config says where and how the memory is kept.
type Config struct {
	Bucket   string // "" is "poppyfield_replay"
	Replicas int    // 0 is 1; 3 or 5 in a NATS cluster
	// Memory keeps the bucket in the servers' memory instead of their disks: faster,
	// and a single server that restarts has lost it.
	Memory bool
	Now    func() time.Time
	// Timeout bounds a Claim; 0 is 500 ms.
	Timeout time.Duration
	// Ahead is how far in the future a value may say it was issued and still be
	// accepted. What was used just before a memory was lost may say so, hence a
	// memory that began at E refuses what was issued up to E + Ahead.
	Ahead time.Duration
	// Fresh says that this installation has accepted nothing yet, so that a bucket
	// made now has forgotten nothing and Ahead does not count for it.
	Fresh bool
}

const (
	defaultBucket  = "poppyfield_replay"
	defaultTimeout = 500 * time.Millisecond
	// Replicas read clocks of their own; a key outlives its value by this much.
	clockSlack = 5 * time.Second
	// The shortest time to live of a marker that NATS leaves for an expired key.
	markerTTL = time.Second
	// After lookAgain somebody looks at the birth marker while the others go on; a
	// look older than lookExpires is good for nobody.
	lookAgain   = time.Second
	lookExpires = 3 * time.Second
)

// Memory is the shared once-only memory. It is safe for concurrent use.
type Memory struct {
	cfg     Config
	js      jetstream.JetStream
	bucket  atomic.Pointer[bucket]
	looking chan struct{} // holds a value while somebody looks at the bucket
	opened  atomic.Bool   // a look succeeded before
}

// A bucket is what is known of the key-value bucket, for one connection to NATS.
type bucket struct {
	kv          jetstream.KeyValue
	birth       birth
	connections uint64    // reconnects of the connection when it was looked at
	lookedAt    time.Time // by Config.Now
	last        atomic.Uint64
}

// Open makes the bucket where there is none. While NATS cannot be reached it
// succeeds all the same, and Claim is unavailable until it can.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Memory, error) {
	if cfg.Now == nil {
		return nil, errors.New("replay: no clock")
	}
	if cfg.Bucket == "" {
		cfg.Bucket = defaultBucket
	}
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	m := &Memory{cfg: cfg, js: js, looking: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(ctx, 10*cfg.Timeout)
	defer cancel()
	if _, err := m.current(ctx); err != nil && js.Conn().IsConnected() {
		return nil, err
	}
	return m, nil
}

// Claim returns nil to exactly one caller for each (company, kind, owner, value)
// until the time until; the owner is the client_id of an assertion or the key
// thumbprint of a proof. Call it last, when everything else about the value has
// been checked. Errors are those of this package; a claim that failed with
// ErrUnavailable may have been recorded.
func (m *Memory) Claim(ctx context.Context, companyID, kind, owner, value string, issuedAt, until time.Time) error {
	now := m.cfg.Now()
	if !until.After(now) {
		return ErrExpired
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	b, err := m.current(ctx)
	if err != nil {
		return err
	}
	if !b.birth.vouchesFor(issuedAt, m.cfg.Ahead) {
		return ErrBeforeMemory
	}
	before := b.last.Load()
	// NATS counts whole seconds and cuts off the rest.
	ttl := (until.Sub(now) + clockSlack + time.Second - 1).Truncate(time.Second)
	revision, err := b.kv.Create(ctx, key(companyID, kind, owner, value), nil, jetstream.KeyTTL(ttl))
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		return ErrSeen
	case err != nil:
		if !errors.Is(err, context.Canceled) {
			m.forget(b)
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case revision <= before, b.connections != reconnects(m.js.Conn()):
		// Revisions only grow, so this is another bucket than the one looked at, or may
		// be: what it has forgotten is not known yet.
		m.forget(b)
		return fmt.Errorf("%w: the bucket changed during the claim", ErrUnavailable)
	}
	b.saw(revision)
	return nil
}

// Ready returns nil when values issued now can be claimed. ErrUnavailable says
// that the bucket cannot be reached, ErrBeforeMemory that it is too young.
func (m *Memory) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	b, err := m.current(ctx)
	if err != nil {
		return err
	}
	if !b.birth.vouchesFor(m.cfg.Now(), m.cfg.Ahead) {
		return ErrBeforeMemory
	}
	return nil
}

// current returns the bucket if it was looked at lately over the present
// connection, and looks again otherwise: a server that came back may have lost it.
func (m *Memory) current(ctx context.Context) (*bucket, error) {
	conn := m.js.Conn()
	if !conn.IsConnected() {
		return nil, fmt.Errorf("%w: no connection to NATS", ErrUnavailable)
	}
	b, age := m.known()
	switch {
	case b != nil && age < lookAgain:
		return b, nil
	case b != nil:
		select {
		case m.looking <- struct{}{}:
		default:
			return b, nil // somebody is looking already
		}
	default:
		select {
		case m.looking <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	}
	defer func() { <-m.looking }()
	if b, age = m.known(); b != nil && age < lookAgain {
		return b, nil
	}
	return m.look(ctx)
}

// known returns what the last look saw, nil where that counts no more, and its age.
func (m *Memory) known() (*bucket, time.Duration) {
	b := m.bucket.Load()
	if b == nil || b.connections != reconnects(m.js.Conn()) {
		return nil, 0
	}
	age := m.cfg.Now().Sub(b.lookedAt)
	if age < 0 || age >= lookExpires {
		return nil, 0
	}
	return b, age
}

func (m *Memory) forget(b *bucket) { m.bucket.CompareAndSwap(b, nil) }

func (b *bucket) saw(revision uint64) {
	for {
		last := b.last.Load()
		if revision <= last || b.last.CompareAndSwap(last, revision) {
			return
		}
	}
}

func reconnects(c *nats.Conn) uint64 { return c.Stats().Reconnects }
