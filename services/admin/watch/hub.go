package watch

import (
	"context"
	"sync"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// maxPending is how many conversations a stream may lag behind before it has to look
// at all that changed.
const maxPending = 1000

const (
	keyKind = "apikey"
	allKeys = "pf.apikey.*.*"
)

// Hub knows the open streams.
type Hub struct {
	bus     *bus.Bus
	mu      sync.Mutex
	streams map[string]map[*Stream]struct{} // by Company
	leave   []func()
}

// Stream is what waits for one open stream.
type Stream struct {
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]struct{}
	all     bool
}

// NewHub subscribes on b to changes of conversations and to revocations of keys.
func NewHub(b *bus.Bus) (*Hub, error) {
	h := &Hub{bus: b, streams: map[string]map[*Stream]struct{}{}}
	conversations, err := b.Subscribe(bus.AllConversations, func(_ context.Context, subject string, _ []byte) {
		if t := bus.Tokens(subject); len(t) == 2 {
			h.each(t[0], func(s *Stream) { s.add(t[1]) })
		}
	})
	if err != nil {
		return nil, err
	}
	keys, err := b.Subscribe(allKeys, func(_ context.Context, subject string, _ []byte) {
		if t := bus.Tokens(subject); len(t) == 2 {
			h.each(t[0], (*Stream).ring)
		}
	})
	if err != nil {
		conversations()
		return nil, err
	}
	h.leave = []func(){conversations, keys, b.OnReconnect(h.missed)}
	return h, nil
}

// Revoked lets streams of the Company look at their keys again, in every process.
func (h *Hub) Revoked(ctx context.Context, scope tenancy.Scope, keyID string) {
	subject, err := bus.Subject(keyKind, scope.CompanyID(), keyID)
	if err != nil { // both ids are ours
		return
	}
	h.each(scope.CompanyID(), (*Stream).ring)
	h.bus.Publish(ctx, subject, nil)
}

// Open begins to collect changes of the Company; cancel must be called.
func (h *Hub) Open(scope tenancy.Scope) (s *Stream, cancel func()) {
	s = &Stream{wake: make(chan struct{}, 1), pending: map[string]struct{}{}}
	company := scope.CompanyID()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[company] == nil {
		h.streams[company] = map[*Stream]struct{}{}
	}
	h.streams[company][s] = struct{}{}
	return s, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.streams[company], s)
		if len(h.streams[company]) == 0 {
			delete(h.streams, company)
		}
	}
}

// Len returns how many streams are open.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, streams := range h.streams {
		n += len(streams)
	}
	return n
}

// Close ends the subscriptions.
func (h *Hub) Close() {
	for _, f := range h.leave {
		f()
	}
}

func (h *Hub) each(company string, do func(*Stream)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams[company] {
		do(s)
	}
}

// missed marks every stream as one that has to look for itself.
func (h *Hub) missed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, streams := range h.streams {
		for s := range streams {
			s.lost()
		}
	}
}

// Wake gets a value when there may be something to do.
func (s *Stream) Wake() <-chan struct{} { return s.wake }

// Take returns the conversations that may have changed since the last Take. all says
// that others may have changed too.
func (s *Stream) Take() (ids []string, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.pending {
		ids = append(ids, id)
	}
	all = s.all
	clear(s.pending)
	s.all = false
	return ids, all
}

func (s *Stream) add(id string) {
	s.mu.Lock()
	if len(s.pending) < maxPending {
		s.pending[id] = struct{}{}
	} else {
		s.all = true
	}
	s.mu.Unlock()
	s.ring()
}

func (s *Stream) lost() {
	s.mu.Lock()
	s.all = true
	s.mu.Unlock()
	s.ring()
}

func (s *Stream) ring() {
	select {
	case s.wake <- struct{}{}:
	default: // one is waiting to be received already
	}
}
