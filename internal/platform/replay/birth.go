package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// birthKey marks when the memory began. The marker lives in the bucket and not in
// its configuration: a server that kept the configuration and lost the contents
// has lost the marker with them. Keys of claims have 43 characters.
const (
	birthKey   = "birth"
	birthFresh = "fresh"
	birthLost  = "lost"
)

// A birth is when the memory began and whether anything can have been used before.
type birth struct {
	revision uint64
	at       time.Time // by the NATS server's clock
	fresh    bool
}

// vouchesFor reports whether a value issued at t cannot have been used before the
// memory began. Issue times are whole seconds, so the second of the birth is in doubt.
func (b birth) vouchesFor(t time.Time, ahead time.Duration) bool {
	if b.fresh {
		ahead = 0
	}
	return t.Unix() > b.at.Add(ahead).Unix()
}

// look reads the birth marker, and makes the bucket and the marker where they are
// missing. Only the holder of m.looking may call it.
func (m *Memory) look(ctx context.Context) (*bucket, error) {
	old := m.bucket.Load()
	b := &bucket{connections: reconnects(m.js.Conn()), lookedAt: m.cfg.Now()}
	var entry jetstream.KeyValueEntry
	var err error
	if old != nil {
		b.kv = old.kv
		entry, err = b.kv.Get(ctx, birthKey)
	}
	if old == nil || err != nil {
		if b.kv, entry, err = m.findOrCreate(ctx); err != nil {
			m.bucket.Store(nil)
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	b.birth = birth{revision: entry.Revision(), at: entry.Created().UTC(), fresh: string(entry.Value()) == birthFresh}
	b.saw(entry.Revision())
	if old != nil && old.birth == b.birth {
		b.saw(old.last.Load())
	}
	m.opened.Store(true)
	m.bucket.Store(b)
	return b, nil
}

func (m *Memory) findOrCreate(ctx context.Context) (jetstream.KeyValue, jetstream.KeyValueEntry, error) {
	kv, err := m.js.KeyValue(ctx, m.cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = m.create(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	entry, err := kv.Get(ctx, birthKey)
	if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return kv, entry, err
	}
	value := birthLost
	if m.cfg.Fresh && !m.opened.Load() {
		value = birthFresh
	}
	// Whoever creates the marker first decides; the others read it.
	if _, err = kv.Create(ctx, birthKey, []byte(value)); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return nil, nil, err
	}
	entry, err = kv.Get(ctx, birthKey)
	return kv, entry, err
}

func (m *Memory) create(ctx context.Context) (jetstream.KeyValue, error) {
	storage := jetstream.FileStorage
	if m.cfg.Memory {
		storage = jetstream.MemoryStorage
	}
	kv, err := m.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:         m.cfg.Bucket,
		Description:    "once-only keys: jti of assertions and DPoP proofs",
		History:        1,
		Storage:        storage,
		Replicas:       m.cfg.Replicas,
		LimitMarkerTTL: markerTTL,
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // another process was faster
		return m.js.KeyValue(ctx, m.cfg.Bucket)
	}
	return kv, err
}
