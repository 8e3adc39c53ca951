// Package doorbell wakes those who wait for a conversation to change. A ring says
// where to look and how far the events go, and nothing else; one that gets lost is
// made up for by the caller's own time-outs, by a ring for everybody after NATS
// came back, and by one every second while it is away. What changes of a Company has
// its streams judged again, some at a time. The pieces of a message that
// is being written travel beside the rings: they are shown or lost, never kept.
package doorbell

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Bells are the doorbells of conversations, Sessions and Companies in one process.
type Bells struct {
	bus           *bus.Bus
	conversations *waiters
	sessions      *waiters
	companies     *waiters
	changed       changed
	written       *written
	again         chan struct{}
	leave         []func()
}

// New subscribes to all kinds.
func New(b *bus.Bus) (*Bells, error) {
	bells := &Bells{
		bus: b, conversations: newWaiters(), sessions: newWaiters(), companies: newWaiters(), written: newWritten(),
		again: make(chan struct{}, 1), changed: newChanged(),
	}
	for pattern, handle := range map[string]func(key string, data []byte){
		bus.AllConversations: func(key string, data []byte) {
			seq, err := strconv.ParseInt(string(data), 10, 64)
			if err != nil {
				seq = 0
			}
			bells.conversations.ring(key, seq)
		},
		bus.AllSessions: func(key string, _ []byte) { bells.sessions.ring(key, 0) },
		bus.AllCompanies: func(key string, _ []byte) {
			if len(bells.companies.of(key)) > 0 {
				bells.changed.add(key)
			}
		},
		bus.AllDeltas: bells.received,
	} {
		unsubscribe, err := b.Subscribe(pattern, func(_ context.Context, subject string, data []byte) { handle(keyOf(subject), data) })
		if err != nil {
			bells.Close()
			return nil, err
		}
		bells.leave = append(bells.leave, unsubscribe)
	}
	bells.leave = append(bells.leave, b.OnReconnect(func() {
		select {
		case bells.again <- struct{}{}:
		default: // a round is about to start
		}
	}))
	return bells, nil
}

// keyOf returns what the subjects of a conversation, or of a Session, have in common:
// "company.id"; of a Company's it is "company".
func keyOf(subject string) string {
	_, rest, _ := strings.Cut(subject, ".")
	_, key, _ := strings.Cut(rest, ".")
	return key
}

// Ring tells every process that a conversation has events up to the sequence number
// last. Call it after the commit: who is woken earlier finds nothing.
func (b *Bells) Ring(ctx context.Context, scope tenancy.Scope, conversationID string, last int64) {
	subject, err := bus.ConversationSubject(scope.CompanyID(), conversationID)
	if err != nil { // both ids are ours
		return
	}
	b.conversations.ring(keyOf(subject), last)
	b.bus.Publish(ctx, subject, strconv.AppendInt(nil, last, 10))
}

// Conversation listens for rings of a conversation. Listen first and read then, or
// what is committed in between is missed.
func (b *Bells) Conversation(scope tenancy.Scope, conversationID string) (*Waiter, error) {
	w, wake := awaited()
	if err := b.FollowConversation(scope, conversationID, w, wake); err != nil {
		return nil, err
	}
	return w, nil
}

// FollowConversation is Conversation for those who have no goroutine that waits: wake
// is called for every ring and must return at once. w is the caller's to keep.
func (b *Bells) FollowConversation(scope tenancy.Scope, conversationID string, w *Waiter, wake func()) error {
	subject, err := bus.ConversationSubject(scope.CompanyID(), conversationID)
	if err != nil {
		return err
	}
	w.wake = wake
	b.conversations.listen(keyOf(subject), w)
	return nil
}

// Session listens for the end of a Session or of one of its tokens; cancel must be called.
func (b *Bells) Session(scope tenancy.Scope, sessionID string) (rung <-chan struct{}, cancel func()) {
	w, wake := awaited()
	b.FollowSession(scope, sessionID, w, wake)
	return w.Rung, w.Close
}

// FollowSession is Session for those who have no goroutine that waits: wake is called
// when the Session's tokens have to be judged again.
func (b *Bells) FollowSession(scope tenancy.Scope, sessionID string, w *Waiter, wake func()) {
	w.wake = wake
	subject, err := bus.SessionSubject(scope.CompanyID(), sessionID)
	if err != nil { // no such id is ever rung for
		return
	}
	b.sessions.listen(keyOf(subject), w)
}

// FollowCompany has wake called when something changed of the Company that its callers
// have to be judged by again: its settings, or whom it admits.
func (b *Bells) FollowCompany(scope tenancy.Scope, w *Waiter, wake func()) {
	w.wake = wake
	subject, err := bus.CompanySubject(scope.CompanyID())
	if err != nil { // no such id is ever rung for
		return
	}
	b.companies.listen(keyOf(subject), w)
}

// Listeners returns how many are listening for a conversation.
func (b *Bells) Listeners() int { return b.conversations.count() }

const (
	// awayInterval is how often everybody looks again while NATS is away.
	awayInterval = time.Second
	// After a reconnect everybody looks once, in steps: the database must not get the questions of all of them in one moment.
	step         = 500
	stepInterval = 50 * time.Millisecond
	// Whose Session may have ended, or whose Company changed, comes back with a request of its own, which is dearer.
	sessionStep         = 100
	sessionStepInterval = 500 * time.Millisecond
)

// Run makes up for rings of other processes that got lost, until ctx ends.
func (b *Bells) Run(ctx context.Context) {
	tick := time.NewTicker(awayInterval)
	defer tick.Stop()
	sessions := make(chan struct{}, 1)
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-sessions:
				wakeAll(ctx, b.sessions.all(), sessionStep, sessionStepInterval)
			}
		}
	})
	others.Go(func() { b.judgeAgain(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.again:
			select {
			case sessions <- struct{}{}:
			default:
			}
		case <-tick.C:
			b.written.forget()
			if b.bus.Connected() {
				continue
			}
		}
		wakeAll(ctx, b.conversations.all(), step, stepInterval)
	}
}

// judgeAgain wakes those whose Company changed, one Company after the other.
func (b *Bells) judgeAgain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.changed.some:
			for _, company := range b.changed.take() {
				wakeAll(ctx, b.companies.of(company), sessionStep, sessionStepInterval)
			}
		}
	}
}

func wakeAll(ctx context.Context, all []*Waiter, step int, interval time.Duration) {
	pause := time.NewTicker(interval)
	defer pause.Stop()
	for i, w := range all {
		if i > 0 && i%step == 0 {
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
		}
		w.ring(0)
	}
}

// changed are the Companies that changed and whose readers were not woken yet. A
// Company that changes often is there once.
type changed struct {
	some chan struct{}
	mu   *sync.Mutex
	keys map[string]struct{}
}

func newChanged() changed {
	return changed{some: make(chan struct{}, 1), mu: &sync.Mutex{}, keys: map[string]struct{}{}}
}

func (c changed) add(key string) {
	c.mu.Lock()
	c.keys[key] = struct{}{}
	c.mu.Unlock()
	select {
	case c.some <- struct{}{}:
	default: // it is known that there are some
	}
}

func (c changed) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Collect(maps.Keys(c.keys))
	clear(c.keys)
	return out
}

// Close ends the subscriptions.
func (b *Bells) Close() {
	for _, leave := range b.leave {
		leave()
	}
}
