package changes

import (
	"context"
	"sync"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// maxPending is how many conversations a stream may lag behind before it has to look
// at all of them.
const maxPending = 1000

// Hub knows the open streams.
type Hub struct {
	mu      sync.Mutex
	streams map[string]map[*Stream]struct{} // by Company
	leave   []func()
}

// Stream collects changes for one open stream.
type Stream struct {
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]struct{}
	all     bool
}

// NewHub subscribes on b to changes of conversations.
func NewHub(b *bus.Bus) (*Hub, error) {
	h := &Hub{streams: map[string]map[*Stream]struct{}{}}
	unsubscribe, err := b.Subscribe(bus.AllConversations, func(_ context.Context, subject string, _ []byte) {
		if t := bus.Tokens(subject); len(t) == 2 {
			h.ring(t[0], t[1])
		}
	})
	if err != nil {
		return nil, err
	}
	h.leave = []func(){unsubscribe, b.OnReconnect(h.missed)}
	return h, nil
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

// Close ends the subscription.
func (h *Hub) Close() {
	for _, f := range h.leave {
		f()
	}
}

func (h *Hub) ring(company, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams[company] {
		s.add(id)
	}
}

// missed marks every stream as one that has to look for itself.
func (h *Hub) missed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, streams := range h.streams {
		for s := range streams {
			s.add("")
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

// add notes a conversation, or with "" that nobody knows which.
func (s *Stream) add(id string) {
	s.mu.Lock()
	if id != "" && len(s.pending) < maxPending {
		s.pending[id] = struct{}{}
	} else {
		s.all = true
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // one is waiting to be received already
	}
}
