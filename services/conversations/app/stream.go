package app

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/conversations/doorbell"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

const (
	// maxPending is the most bytes of pieces that are kept for a reader who doesn't take them.
	maxPending = 64 << 10
	// maxWritten is how many messages are shown while they are being written, at once.
	maxWritten = 16
	// maxComplete is how many complete messages are remembered because of pieces that come late.
	maxComplete = 16
)

// Follower reads a conversation on for a reader who waits for more: a long poll or a
// stream. It has no goroutine and holds nothing of the database; it says when to look
// by wake. Its methods are one goroutine's at a time.
type Follower struct {
	app     *App
	caller  Caller
	id      string
	cursor  string // of the request, until an event was read
	begun   bool
	after   int64
	hasMore bool
	head    head
	events  doorbell.Waiter
	session doorbell.Waiter
	company doorbell.Waiter
	ended   bool
	wake    func()
	typed   typed
}

// head is what the last read said of the conversation itself.
type head struct {
	newest    int64
	status    conversation.Status
	responder conversation.Responder
}

// Follow begins to listen; what is read from then on misses nothing. wake is called
// whenever there may be something to do, by anybody, and must return at once. With
// pieces the follower also shows messages while they are being written, and ends when
// its Company changes, as it may go on for long.
func (a *App) Follow(caller Caller, id string, q conversation.ReadQuery, pieces bool, wake func()) (*Follower, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	// What is kept is little: there are many followers, and the strings of a request are parts of longer ones.
	f := &Follower{
		app: a, id: strings.Clone(id), cursor: strings.Clone(q.Cursor), wake: wake,
		caller: Caller{Scope: caller.Scope, SessionID: caller.SessionID, ClientID: caller.ClientID, UserID: caller.UserID, Account: caller.Account},
	}
	if pieces {
		f.events.OnPiece = f.hear
	}
	if err := a.bells.FollowConversation(caller.Scope, f.id, &f.events, wake); err != nil {
		return nil, conversation.NotFound("poppy-0.1/7.2#16")
	}
	a.bells.FollowSession(caller.Scope, f.caller.SessionID, &f.session, wake)
	if pieces {
		a.bells.FollowCompany(caller.Scope, &f.company, wake)
	}
	return f, nil
}

// Close ends the following; it must be called.
func (f *Follower) Close() {
	f.events.Close()
	f.session.Close()
	f.company.Close()
}

// News reports whether Next may find something new. A piece that answers a message
// which was not read is as good as a ring.
func (f *Follower) News() bool {
	return f.hasMore || f.events.News(f.head.newest) || f.typed.after() > f.head.newest
}

// Ended reports whether the Session ended, or a token of it, or what the Company
// admits changed: the caller has to be judged again.
func (f *Follower) Ended() bool {
	f.ended = f.ended || f.session.News(0) || f.company.News(0)
	return f.ended
}

// ConversationID returns what is followed.
func (f *Follower) ConversationID() string { return f.id }

// Caller returns whose the follower is.
func (f *Follower) Caller() Caller { return f.caller }

// Next reads the next page. Every one is read as the caller: a conversation may have
// become another owner's.
func (f *Follower) Next(ctx context.Context, u Urgency) (conversation.ReadResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	promised := f.typed.after()
	p, err := f.app.together.page(ctx, f.caller, f.id, u, f.start())
	switch {
	case err != nil && ctx.Err() != nil:
		return conversation.ReadResponse{}, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the service is briefly unavailable").
			WithRetryAfter(time.Second).WithCause(ctx.Err())
	case err != nil:
		return conversation.ReadResponse{}, err
	}
	c := p.conversation
	f.typed.refuse(c.LastSequence, promised) // what was there before the read and answers a message that isn't
	f.begun, f.hasMore, f.after = true, p.hasMore, p.after
	f.head = head{newest: c.LastSequence, status: c.Status, responder: c.Responder}
	out := p.response(f.cursor)
	if n := len(p.events); n > 0 {
		f.after = p.events[n-1].Sequence
		f.typed.complete(p.events)
	}
	f.cursor = out.Cursor
	return out, nil
}

// start says after which sequence number the next page starts.
func (f *Follower) start() func(*store.Conversation) (int64, error) {
	if !f.begun {
		cursor := f.cursor
		return func(c *store.Conversation) (int64, error) { return startOf(c, cursor) }
	}
	after := f.after
	return func(c *store.Conversation) (int64, error) {
		// Events may have been dropped that a slow reader never got.
		if after == 0 {
			return 0, nil
		}
		return after, conversation.CheckCursor(after, c.OldestSequence, c.LastSequence)
	}
}

// Latest is the answer of a read that found nothing more: what the last Next said, without events.
func (f *Follower) Latest() conversation.ReadResponse {
	return conversation.ReadResponse{ConversationID: f.id, Cursor: f.cursor, Status: f.head.status, Responder: f.head.responder}
}

// Pieces returns what came of messages that are being written since the last call: of
// none that Next has returned, none while a person answers, and none of answers to
// what Next has not read: the conversation may be another owner's since.
func (f *Follower) Pieces() []doorbell.Piece {
	if f.head.responder == conversation.ResponderHuman {
		f.typed.refuse(-1, math.MaxInt64)
		return nil
	}
	return f.typed.take(f.head.newest)
}

// hear gets a piece from the bells.
func (f *Follower) hear(p doorbell.Piece) {
	if f.typed.hear(p) {
		f.wake()
	}
}

// typed is what a reader was shown of messages that are being written. A message is
// shown from its first piece on and without a gap, or not at all.
type typed struct {
	mu      sync.Mutex
	pending []doorbell.Piece
	bytes   int
	open    []doorbell.Piece // the number that comes next, of each message under way; the newest last
	done    []string
}

// hear keeps a piece if it is the next one of a message that the reader may see.
func (t *typed) hear(p doorbell.Piece) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.done, p.MessageID) {
		return false
	}
	i := slices.IndexFunc(t.open, func(o doorbell.Piece) bool { return o.MessageID == p.MessageID })
	if i < 0 && p.Number == 0 {
		if len(t.open) == maxWritten {
			t.open = slices.Delete(t.open, 0, 1)
		}
		i = len(t.open)
		t.open = append(t.open, doorbell.Piece{MessageID: p.MessageID})
	}
	switch {
	case i < 0 || p.Number < t.open[i].Number: // begun before the reader came, or seen
		return false
	case p.Number > t.open[i].Number || t.bytes+len(p.Text) > maxPending: // one is missing for ever
		t.open[i].Number = math.MaxInt
		return false
	}
	t.open[i].Number++
	t.bytes += len(p.Text)
	if n := len(t.pending); n > 0 && t.pending[n-1].MessageID == p.MessageID {
		t.pending[n-1].Text += p.Text
	} else {
		t.pending = append(t.pending, p)
	}
	return true
}

// complete says that the reader gets these events: nothing of their messages follows them.
func (t *typed) complete(events []store.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range events {
		m, ok := e.Payload.(conversation.MessagePayload)
		if !ok || m.Role != conversation.RoleCompany {
			continue
		}
		isOf := func(p doorbell.Piece) bool { return p.MessageID == m.ID }
		t.open, t.pending = slices.DeleteFunc(t.open, isOf), slices.DeleteFunc(t.pending, isOf)
		if len(t.done) == maxComplete {
			t.done = slices.Delete(t.done, 0, 1)
		}
		t.done = append(t.done, m.ID)
	}
	t.bytes = 0
	for _, p := range t.pending {
		t.bytes += len(p.Text)
	}
}

// after returns the latest message that pieces answer which were not taken yet.
func (t *typed) after() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	latest := int64(0)
	for _, p := range t.pending {
		latest = max(latest, p.After)
	}
	return latest
}

// take returns the pieces of answers to messages up to newest, and keeps the others.
func (t *typed) take(newest int64) []doorbell.Piece {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out, kept []doorbell.Piece
	t.bytes = 0
	for _, p := range t.pending {
		if p.After <= newest {
			out = append(out, p)
			continue
		}
		kept, t.bytes = append(kept, p), t.bytes+len(p.Text)
	}
	t.pending = kept
	return out
}

// refuse drops what was not taken of answers to messages above one sequence number and
// up to another, and what is still to come of those answers.
func (t *typed) refuse(above, upTo int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = slices.DeleteFunc(t.pending, func(p doorbell.Piece) bool {
		if p.After <= above || p.After > upTo {
			return false
		}
		t.bytes -= len(p.Text)
		for i := range t.open {
			if t.open[i].MessageID == p.MessageID {
				t.open[i].Number = math.MaxInt
			}
		}
		return true
	})
}
