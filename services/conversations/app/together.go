package app

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

const (
	// maxTogether is how many reads share a unit of work.
	maxTogether = 32
	// maxUnits is how many units read for one Company at once: those who come meanwhile
	// share the next.
	maxUnits = 2
	// maxReads is how many units of a process read at once.
	maxReads = 64
	// shortSpan is how many events are read together with those of others; a reader who
	// is further behind has a page of its own.
	shortSpan = 4
	// readTimeout bounds a unit, and how long a follower waits for its own.
	readTimeout = 10 * time.Second
)

// Urgency is how long a read may wait for others to share a unit of work with.
type Urgency time.Duration

// The urgencies.
const (
	// AtOnce is for who was told of something new, or asked without a wait.
	AtOnce Urgency = 0
	// Soon is for who is about to wait.
	Soon = Urgency(5 * time.Millisecond)
	// AtLeisure is for who looks only because a ring may have been lost.
	AtLeisure = Urgency(50 * time.Millisecond)
)

// together reads for many at once. A commit that wakes thousands, or thousands of
// commits, would have as many units of work; of one Company they share a few: alone, a
// read is on its way at once, and the more there are, the more go together.
type together struct {
	store *store.Store
	units chan struct{} // has a value for each unit that reads

	mu    sync.Mutex
	lines map[string]*line // by Company
}

// line is the reads of a Company that wait for a unit.
type line struct {
	waiting []*reading
	units   int
	timers  int       // that have not begun a unit yet
	due     time.Time // when the next one does; zero where there is none
}

// reading is one read, which may wait.
type reading struct {
	ctx    context.Context
	caller Caller
	id     string
	start  func(*store.Conversation) (int64, error)

	page page
	err  error
	done chan struct{}
}

func newTogether(s *store.Store) *together {
	return &together{store: s, units: make(chan struct{}, maxReads), lines: map[string]*line{}}
}

// page reads as caller what a conversation has after the sequence number that start says.
// start has no effects: it may be called again, and after page has returned because ctx ended.
func (t *together) page(ctx context.Context, caller Caller, id string, u Urgency, start func(*store.Conversation) (int64, error)) (page, error) {
	one := &reading{ctx: ctx, caller: caller, id: id, start: start, done: make(chan struct{})}
	t.add(one, u)
	select {
	case <-one.done:
		return one.page, one.err
	case <-ctx.Done():
		return page{}, ctx.Err()
	}
}

func (t *together) add(one *reading, u Urgency) {
	company := one.caller.Scope.CompanyID()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[company]
	if l == nil {
		l = &line{}
		t.lines[company] = l
	}
	l.waiting = append(l.waiting, one)
	due := clock.System().Add(time.Duration(u))
	switch {
	case u == AtOnce || len(l.waiting) >= maxTogether:
		t.begin(company, l)
	case l.due.IsZero() || due.Before(l.due):
		l.timers++
		l.due = due
		time.AfterFunc(time.Duration(u), func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			l.timers--
			l.due = time.Time{}
			t.begin(company, l)
		})
	}
}

// begin has one more unit read for the line, if it may have one; t.mu is held.
func (t *together) begin(company string, l *line) {
	if l.units < maxUnits {
		l.units++
		go t.work(company, l)
	}
}

// work reads for those in line until nobody is.
func (t *together) work(company string, l *line) {
	for {
		t.units <- struct{}{}
		batch := t.next(company, l)
		if batch != nil {
			t.unit(batch)
		}
		<-t.units
		if batch == nil {
			return
		}
	}
}

func (t *together) next(company string, l *line) []*reading {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(l.waiting), maxTogether)
	if n == 0 {
		if l.units--; l.units == 0 && l.timers == 0 {
			delete(t.lines, company)
		}
		return nil
	}
	batch := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	return batch
}

// unit answers a batch of one Company.
func (t *together) unit(batch []*reading) {
	var err error
	defer func() {
		if v := recover(); v != nil {
			err = problem.New(problem.Internal, problem.ServerError, "", "internal error").WithCause(fmt.Errorf("panic while reading: %v\n%s", v, debug.Stack()))
		}
		for _, one := range batch {
			if err != nil {
				one.page, one.err = page{}, err
			}
			close(one.done)
		}
	}()
	// Who shares the unit does not depend on who happens to be the first.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), readTimeout)
	defer cancel()
	err = t.store.Read(ctx, batch[0].caller.Scope, func(ctx context.Context, tx store.Tx) error { return readAll(ctx, tx, batch) })
}

// readAll fills in what each of a batch gets. What is wrong with one of them is its own error.
func readAll(ctx context.Context, tx store.Tx, batch []*reading) error {
	ids := make([]string, len(batch))
	for i, one := range batch {
		ids[i] = one.id
	}
	heads, err := tx.Heads(ctx, ids)
	if err != nil {
		return err
	}
	var spans []store.Span
	spanOf := map[*reading]store.Span{}
	for _, one := range batch {
		c := heads[one.id]
		if one.page, one.err = one.begin(c); one.err != nil || one.page.after >= c.LastSequence { // the common case of a poll
			continue
		}
		span := store.Span{ConversationID: c.ID, After: max(one.page.after, c.OldestSequence-1), Last: c.LastSequence}
		if span.Last-span.After <= shortSpan {
			spans, spanOf[one] = append(spans, span), span
			continue
		}
		if one.page.events, err = tx.Events(ctx, c, one.page.after, conversation.MaxPage); err != nil {
			return err
		}
	}
	if len(spans) > 0 {
		events, err := tx.Spans(ctx, spans)
		if err != nil {
			return err
		}
		for one, span := range spanOf {
			one.page.events = events[span]
		}
	}
	for _, one := range batch {
		if n := len(one.page.events); n > 0 {
			one.page.hasMore = one.page.events[n-1].Sequence < one.page.conversation.LastSequence
		}
	}
	return nil
}

// begin checks whose conversation it is and says where the page starts.
func (r *reading) begin(c *store.Conversation) (page, error) {
	if c == nil {
		return page{}, conversation.NotFound("poppy-0.1/7.13#3")
	}
	if err := conversation.CheckOwner(c.Owner(), r.caller.owner()); err != nil {
		return page{}, err
	}
	after, err := r.start(c)
	if err != nil {
		return page{}, err
	}
	return page{conversation: c, after: after}, nil
}
