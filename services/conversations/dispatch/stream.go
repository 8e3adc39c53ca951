package dispatch

import (
	"context"
	"sync"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// answeredKept is how many of its deliveries a stream remembers, to tell a second answer from an unknown one.
const answeredKept = 1024

// Event is a delivery on its way to a backend.
type Event struct {
	Delivery string
	Attempt  int
	Body     []byte
}

// Receipt is what became of an answer.
type Receipt struct {
	Recorded bool
	Reason   string
}

// Given is an answer to a delivery, unchecked.
type Given struct {
	Said
	// Later says that the answer comes by the API.
	Later bool
	// Failure is why the delivery could not be answered; empty for an answer.
	Failure string
	// Bad says that what came can't be read.
	Bad bool
}

// question is a delivery that waits for a stream's answer.
type question struct {
	stream *Stream
	id     string
	came   chan answer // has room for the one that comes
	piece  func(text string)
}

// answer is what came of a question: broken, if its stream ended before.
type answer struct {
	Given
	broken bool
	told   func(Receipt)
}

// Stream is a backend's open stream, to which deliveries go.
type Stream struct {
	// Events are to be sent to the backend.
	Events <-chan Event
	// Goodbye is closed when the stream is to end: the backend is told, and may still answer what it has.
	Goodbye <-chan struct{}
	// Idle is closed after Goodbye, as soon as no answer is awaited any more.
	Idle <-chan struct{}
	// Slow is closed when the backend doesn't take its events.
	Slow <-chan struct{}

	d                   *Dispatcher
	scope               tenancy.Scope
	max                 int
	events              chan Event
	goodbye, idle, slow chan struct{}

	// Guarded by the mutex of streams.
	open     map[string]*question
	answered map[string]struct{}
	order    []string // of answered, a ring
	next     int
	leaving  bool
	ended    bool
	used     uint64 // the turn in which it last got a delivery
}

// streams are the open streams of a process.
type streams struct {
	mu      sync.Mutex
	open    map[string][]*Stream // by Company
	leaving bool
	turn    uint64
}

// Connect opens a stream of a Company's backend that takes up to most deliveries at once. Close ends it.
func (d *Dispatcher) Connect(ctx context.Context, scope tenancy.Scope, most int) (*Stream, error) {
	d.mu.Lock()
	running := d.running
	d.mu.Unlock()
	if !running {
		return nil, leaving()
	}
	r, err := d.routes.get(ctx, scope)
	if err != nil {
		return nil, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the company's backend can't be looked up").WithCause(err)
	}
	if !r.stream {
		return nil, problem.New(problem.Conflict, problem.FailedPrecondition, "", "the company's backend is not of the kind that opens a stream")
	}
	s := &Stream{
		d: d, scope: scope, max: most, events: make(chan Event, most), goodbye: make(chan struct{}), idle: make(chan struct{}), slow: make(chan struct{}),
		open: map[string]*question{}, answered: map[string]struct{}{},
	}
	s.Events, s.Goodbye, s.Idle, s.Slow = s.events, s.goodbye, s.idle, s.slow
	if !d.streams.add(s) {
		return nil, leaving()
	}
	d.present(scope)
	return s, nil
}

func leaving() error {
	return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the server is going away: open the stream again")
}

func (ss *streams) add(s *Stream) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.leaving {
		return false
	}
	company := s.scope.CompanyID()
	ss.open[company] = append(ss.open[company], s)
	return true
}

// room returns how many deliveries a Company's streams take at once; 0 where there is none.
func (ss *streams) room(company string) int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	n := 0
	for _, s := range ss.open[company] {
		if !s.leaving {
			n += s.max
		}
	}
	return n
}

// ask gives an event to the stream of the Company that is least busy; nil when none has room.
func (ss *streams) ask(company string, e Event, piece func(string)) *question {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for {
		best := ss.least(company, e.Delivery)
		if best == nil {
			return nil
		}
		select {
		case best.events <- e:
		default:
			// As many events as it takes at once lie here unread, for longer than their deliveries waited.
			best.leaving = true
			close(best.slow)
			continue
		}
		ss.turn++
		best.used = ss.turn
		q := &question{stream: best, id: e.Delivery, came: make(chan answer, 1), piece: piece}
		best.open[e.Delivery] = q
		delete(best.answered, e.Delivery)
		return q
	}
}

// least returns the stream with most room that doesn't have the delivery; ss is locked.
func (ss *streams) least(company, delivery string) *Stream {
	var best *Stream
	for _, s := range ss.open[company] {
		if s.leaving || len(s.open) >= s.max || s.open[delivery] != nil {
			continue
		}
		if best == nil || busier(best, s) {
			best = s
		}
	}
	return best
}

// busier reports whether a has less to spare than b, for its size; of equals, who had the last one.
func busier(a, b *Stream) bool {
	x, y := len(a.open)*b.max, len(b.open)*a.max
	return x > y || x == y && a.used > b.used
}

// withdraw ends a question that nobody waits for any more; false when its answer is there already.
func (ss *streams) withdraw(q *question) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if q.stream.open[q.id] != q {
		return false
	}
	q.stream.done(q.id)
	return true
}

// done takes a question off the stream; streams is locked.
func (s *Stream) done(id string) {
	delete(s.open, id)
	if len(s.order) < answeredKept {
		s.order = append(s.order, id)
	} else {
		delete(s.answered, s.order[s.next])
		s.order[s.next] = id
		s.next = (s.next + 1) % answeredKept
	}
	s.answered[id] = struct{}{}
	s.rest()
}

// rest says that a stream which has to end has nothing to wait for; streams is locked.
func (s *Stream) rest() {
	if s.leaving && len(s.open) == 0 && !s.ended {
		s.ended = true
		close(s.idle)
	}
}

// leave has a stream end; streams is locked.
func (s *Stream) leave() {
	if s.leaving {
		return
	}
	s.leaving = true
	close(s.goodbye)
	s.rest()
}

// goodbye has every stream end, and lets none open.
func (ss *streams) goodbye() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.leaving = true
	for _, all := range ss.open {
		for _, s := range all {
			s.leave()
		}
	}
}

// Answer passes on the answer to a delivery, and returns where its receipt comes.
func (s *Stream) Answer(delivery string, g Given) <-chan Receipt {
	out := make(chan Receipt, 1)
	ss := s.d.streams
	ss.mu.Lock()
	defer ss.mu.Unlock()
	q := s.open[delivery]
	if q == nil {
		reason := "unknown delivery"
		if _, before := s.answered[delivery]; before {
			reason = "too late"
		}
		out <- Receipt{Reason: reason}
		return out
	}
	s.done(delivery)
	q.came <- answer{Given: g, told: func(r Receipt) { out <- r }}
	return out
}

// Piece passes on a piece of the text of an answer that is being written. One for a delivery that isn't awaited is dropped.
func (s *Stream) Piece(delivery, text string) {
	ss := s.d.streams
	ss.mu.Lock()
	q := s.open[delivery]
	ss.mu.Unlock()
	if q != nil {
		q.piece(text)
	}
}

// Close ends the stream. What still waits for its answers goes to another one.
func (s *Stream) Close() {
	ss := s.d.streams
	ss.mu.Lock()
	defer ss.mu.Unlock()
	company := s.scope.CompanyID()
	all := ss.open[company]
	for i, one := range all {
		if one == s {
			ss.open[company] = append(all[:i:i], all[i+1:]...)
		}
	}
	if len(ss.open[company]) == 0 {
		delete(ss.open, company)
	}
	s.leaving, s.ended = true, true // nobody is there to be told
	for id, q := range s.open {
		s.done(id)
		q.came <- answer{broken: true}
	}
}
