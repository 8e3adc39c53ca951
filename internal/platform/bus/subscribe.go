package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
)

// Handler is called for one message at a time per pattern and must return fast;
// ctx carries the publisher's trace and is never cancelled.
type Handler func(ctx context.Context, subject string, data []byte)

// A topic is the one NATS subscription of a process for a pattern, and who wants its messages here.
type topic struct {
	sub      *nats.Subscription
	handlers map[*Handler]struct{}
	order    atomic.Pointer[[]Handler] // what handlers holds, for reading without the lock
}

// Subscribe calls fn for every message whose subject matches the pattern, in
// which "*" stands for one token. However many subscribe to the same pattern,
// the process has one NATS subscription for it; it ends with the last of them.
// Messages sent while the connection was away are lost: see OnReconnect.
func (b *Bus) Subscribe(pattern string, fn Handler) (unsubscribe func(), err error) {
	if err := checkSubject(pattern, true); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("bus: closed")
	}
	t := b.topics[pattern]
	if t == nil {
		t = &topic{handlers: map[*Handler]struct{}{}}
		t.order.Store(&[]Handler{})
		if t.sub, err = b.conn.Subscribe(pattern, func(m *nats.Msg) { b.deliver(t, m) }); err != nil {
			return nil, fmt.Errorf("bus: subscribing to %s: %w", pattern, err)
		}
		b.topics[pattern] = t
	}
	key := &fn
	t.handlers[key] = struct{}{}
	t.publishOrder()
	var once sync.Once
	return func() { once.Do(func() { b.unsubscribe(pattern, t, key) }) }, nil
}

func (b *Bus) unsubscribe(pattern string, t *topic, key *Handler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(t.handlers, key)
	t.publishOrder()
	if len(t.handlers) > 0 {
		return
	}
	delete(b.topics, pattern)
	if err := t.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		b.log.WarnContext(b.ctx, "unsubscribing failed", "subject", pattern, "error", err)
	}
}

func (t *topic) publishOrder() {
	order := make([]Handler, 0, len(t.handlers))
	for h := range t.handlers {
		order = append(order, *h)
	}
	t.order.Store(&order)
}

func (b *Bus) deliver(t *topic, m *nats.Msg) {
	b.received.Add(1)
	ctx := b.ctx
	if len(m.Header) > 0 {
		ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.HeaderCarrier(m.Header))
	}
	for _, h := range *t.order.Load() {
		h(ctx, m.Subject, m.Data)
	}
}
