package watch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

const (
	// Every is the time between two looks.
	Every = 250 * time.Millisecond
	// lookBack is longer than any unit of work may take: a change has the time at which
	// its unit began, and can be seen only when that is committed.
	lookBack = 45 * time.Second
	// maxChanges bounds one look. Where there are more, everybody forgets everything.
	maxChanges = 10000
	// maxPending is how many Sessions a stream may lag behind before it forgets all of them.
	maxPending = 1000
)

// Changes is where changes are found.
type Changes interface {
	Changes(ctx context.Context, after time.Time, limit int) ([]store.Change, error)
}

// Hub knows the open watches, and looks for changes while there are any.
type Hub struct {
	changes Changes
	now     clock.Clock
	log     *slog.Logger
	every   time.Duration
	bell    chan struct{}

	mu      sync.Mutex
	watches map[string]map[*Watch]struct{} // by Company
	seen    map[uuid.UUID]struct{}         // of the look before
	stop    context.CancelFunc
	closed  chan struct{}
	looking sync.WaitGroup
}

// Watch collects changes for one open stream.
type Watch struct {
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]struct{}
	all     bool
	checked time.Time
}

// News is what a watch has to tell.
type News struct {
	Sessions []string
	// All says that anything may have changed.
	All bool
	// Checked is a time before which every change has been told; zero when none was added since the last news.
	Checked time.Time
}

// New makes a Hub that looks as often as every says; 0 is Every.
func New(changes Changes, now clock.Clock, log *slog.Logger, every time.Duration) *Hub {
	if every <= 0 {
		every = Every
	}
	return &Hub{
		changes: changes, now: now, log: log, every: every, bell: make(chan struct{}, 1),
		watches: map[string]map[*Watch]struct{}{}, closed: make(chan struct{}),
	}
}

// Start looks for changes until Stop.
func (h *Hub) Start(ctx context.Context) {
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.looking.Go(func() {
		tick := time.NewTicker(h.every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-h.bell:
			}
			if err := h.look(ctx); err != nil && ctx.Err() == nil {
				h.log.WarnContext(ctx, "changes of sessions not read", "error", err)
			}
		}
	})
}

// Stop ends what Start began, and says so on Stopping.
func (h *Hub) Stop() {
	if h.stop == nil {
		return
	}
	h.stop()
	h.looking.Wait()
	h.stop = nil
	close(h.closed)
}

// Stopping is closed when no more news come.
func (h *Hub) Stopping() <-chan struct{} { return h.closed }

// Ring has the Hub look at once.
func (h *Hub) Ring() { ring(h.bell) }

// Open begins to collect the changes of a Company: all that are committed after since.
// cancel must be called.
func (h *Hub) Open(scope tenancy.Scope) (w *Watch, since time.Time, cancel func()) {
	w = &Watch{wake: make(chan struct{}, 1), pending: map[string]struct{}{}}
	company := scope.CompanyID()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches[company] == nil {
		h.watches[company] = map[*Watch]struct{}{}
	}
	h.watches[company][w] = struct{}{}
	return w, h.now(), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watches[company], w)
		if len(h.watches[company]) == 0 {
			delete(h.watches, company)
		}
	}
}

func (h *Hub) look(ctx context.Context) error {
	h.mu.Lock()
	idle := len(h.watches) == 0
	h.mu.Unlock()
	if idle {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 4*h.every)
	defer cancel()
	at := h.now()
	found, err := h.changes.Changes(ctx, at.Add(-lookBack), maxChanges)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := make(map[uuid.UUID]struct{}, len(found))
	for _, c := range found {
		seen[c.ID] = struct{}{}
		if _, old := h.seen[c.ID]; old {
			continue
		}
		for w := range h.watches[c.CompanyID] {
			w.add(c.SessionID)
		}
	}
	h.seen = seen
	for _, watches := range h.watches {
		for w := range watches {
			if len(found) >= maxChanges {
				w.add("")
			}
			w.check(at)
		}
	}
	return nil
}

// Wake gets a value when there is news.
func (w *Watch) Wake() <-chan struct{} { return w.wake }

// Take returns what is new since the last Take.
func (w *Watch) Take() News {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := News{All: w.all, Checked: w.checked}
	if !w.all {
		for id := range w.pending {
			n.Sessions = append(n.Sessions, id)
		}
	}
	clear(w.pending)
	w.all, w.checked = false, time.Time{}
	return n
}

// add notes a changed Session, or with "" that any may have changed.
func (w *Watch) add(session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if session == "" || len(w.pending) >= maxPending {
		w.all = true
		return
	}
	w.pending[session] = struct{}{}
}

func (w *Watch) check(at time.Time) {
	w.mu.Lock()
	w.checked = at
	w.mu.Unlock()
	ring(w.wake)
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default: // one is waiting to be received already
	}
}
