// Package doorbell wakes those who wait for a conversation to change. A ring says
// where to look and how far the events go, and nothing else; one that gets lost is
// made up for by the caller's own time-outs, by a ring for everybody after NATS
// came back, and by one every second while it is away.
package doorbell

import (
	"context"
	"strconv"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Bells are the doorbells of conversations and Sessions in one process.
type Bells struct {
	bus           *bus.Bus
	conversations *waiters
	sessions      *bus.Hub
	again         chan struct{}
	leave         []func()
}

// New subscribes to both kinds.
func New(b *bus.Bus) (*Bells, error) {
	bells := &Bells{bus: b, conversations: newWaiters(), again: make(chan struct{}, 1)}
	var err error
	if bells.sessions, err = bus.NewHub(b, bus.AllSessions); err != nil {
		return nil, err
	}
	unsubscribe, err := b.Subscribe(bus.AllConversations, func(_ context.Context, subject string, data []byte) {
		seq, err := strconv.ParseInt(string(data), 10, 64)
		if err != nil {
			seq = 0
		}
		bells.conversations.ring(subject, seq)
	})
	if err != nil {
		bells.sessions.Close()
		return nil, err
	}
	bells.leave = []func(){unsubscribe, b.OnReconnect(func() {
		select {
		case bells.again <- struct{}{}:
		default: // a round is about to start
		}
	})}
	return bells, nil
}

// Ring tells every process that a conversation has events up to the sequence number
// last. Call it after the commit: who is woken earlier finds nothing.
func (b *Bells) Ring(ctx context.Context, scope tenancy.Scope, conversationID string, last int64) {
	subject, err := bus.ConversationSubject(scope.CompanyID(), conversationID)
	if err != nil { // both ids are ours
		return
	}
	b.conversations.ring(subject, last)
	b.bus.Publish(ctx, subject, strconv.AppendInt(nil, last, 10))
}

// Conversation listens for rings of a conversation. Listen first and read then, or
// what is committed in between is missed.
func (b *Bells) Conversation(scope tenancy.Scope, conversationID string) (*Waiter, error) {
	subject, err := bus.ConversationSubject(scope.CompanyID(), conversationID)
	if err != nil {
		return nil, err
	}
	return b.conversations.listen(subject), nil
}

// Session listens for the end of a Session or of one of its tokens; cancel must be called.
func (b *Bells) Session(scope tenancy.Scope, sessionID string) (rung <-chan struct{}, cancel func()) {
	subject, err := bus.SessionSubject(scope.CompanyID(), sessionID)
	if err != nil { // no such id is ever rung for
		return nil, func() {}
	}
	return b.sessions.Listen(subject)
}

// Listeners returns how many are listening for a conversation.
func (b *Bells) Listeners() int { return len(b.conversations.all()) }

const (
	// awayInterval is how often everybody looks again while NATS is away.
	awayInterval = time.Second
	// After a reconnect everybody looks once, in steps: the database must not get the questions of all of them in one moment.
	step         = 500
	stepInterval = 50 * time.Millisecond
)

// Run makes up for rings of other processes that got lost, until ctx ends.
func (b *Bells) Run(ctx context.Context) {
	tick := time.NewTicker(awayInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.again:
		case <-tick.C:
			if b.bus.Connected() {
				continue
			}
		}
		b.wakeAll(ctx)
	}
}

func (b *Bells) wakeAll(ctx context.Context) {
	pause := time.NewTicker(stepInterval)
	defer pause.Stop()
	for i, w := range b.conversations.all() {
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

// Close ends both subscriptions.
func (b *Bells) Close() {
	for _, leave := range b.leave {
		leave()
	}
	b.sessions.Close()
}
