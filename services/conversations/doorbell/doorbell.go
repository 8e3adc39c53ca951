// Package doorbell wakes those who wait for a conversation to change. A ring says
// where to look and nothing else; one that gets lost is made up for by the caller's
// own time-outs and, while NATS is away, by a ring for everybody every second.
package doorbell

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Bells are the doorbells of conversations and Sessions in one process.
type Bells struct {
	bus           *bus.Bus
	conversations *bus.Hub
	sessions      *bus.Hub
}

// New subscribes to both kinds.
func New(b *bus.Bus) (*Bells, error) {
	conversations, err := bus.NewHub(b, bus.AllConversations)
	if err != nil {
		return nil, err
	}
	sessions, err := bus.NewHub(b, bus.AllSessions)
	if err != nil {
		conversations.Close()
		return nil, err
	}
	return &Bells{bus: b, conversations: conversations, sessions: sessions}, nil
}

// Ring tells every process that a conversation has new events. Call it after the
// commit: who is woken earlier finds nothing.
func (b *Bells) Ring(ctx context.Context, scope tenancy.Scope, conversationID string) {
	subject, err := bus.ConversationSubject(scope.CompanyID(), conversationID)
	if err != nil { // both ids are ours
		return
	}
	b.conversations.Wake(subject)
	b.bus.Publish(ctx, subject, nil)
}

// Conversation listens for rings of a conversation; cancel must be called.
func (b *Bells) Conversation(scope tenancy.Scope, conversationID string) (rung <-chan struct{}, cancel func()) {
	return listen(b.conversations, bus.ConversationSubject, scope, conversationID)
}

// Session listens for the end of a Session or of one of its tokens; cancel must be called.
func (b *Bells) Session(scope tenancy.Scope, sessionID string) (rung <-chan struct{}, cancel func()) {
	return listen(b.sessions, bus.SessionSubject, scope, sessionID)
}

func listen(h *bus.Hub, name func(company, id string) (string, error), scope tenancy.Scope, id string) (<-chan struct{}, func()) {
	subject, err := name(scope.CompanyID(), id)
	if err != nil { // no such id is ever rung for
		return nil, func() {}
	}
	return h.Listen(subject)
}

// Listeners returns how many are listening for a conversation.
func (b *Bells) Listeners() int { return b.conversations.Listeners() }

// awayInterval is how often everybody looks again while NATS is away.
const awayInterval = time.Second

// Run makes up for rings of other processes while NATS is away, until ctx ends.
func (b *Bells) Run(ctx context.Context) {
	tick := time.NewTicker(awayInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !b.bus.Connected() {
				b.conversations.WakeAll()
			}
		}
	}
}

// Close ends both subscriptions.
func (b *Bells) Close() {
	b.conversations.Close()
	b.sessions.Close()
}
