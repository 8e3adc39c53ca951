package app

import (
	"context"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Read returns the events after q's cursor that there are now. Who waits for more follows.
func (a *App) Read(ctx context.Context, caller Caller, id string, q conversation.ReadQuery) (conversation.ReadResponse, error) {
	if err := checkID(id); err != nil {
		return conversation.ReadResponse{}, err
	}
	p, err := a.page(ctx, caller, id, q.Cursor, nil)
	return p.response(q.Cursor), err
}

// ReadReply is the read that answers a POST with wait. It holds on until there is an
// event, the wait is over, the conversation is closed, the Session ended, or drain is
// closed; nothing of the database is held meanwhile. When ctx ends, its error is
// returned. The message's own events don't end the hold; neither do, without a cursor, those from before it, which an
// agent that keeps no cursor gets again every time.
func (a *App) ReadReply(ctx context.Context, caller Caller, accepted Accepted, q conversation.ReadQuery, drain <-chan struct{}) (conversation.ReadResponse, error) {
	own := accepted.own
	return a.hold(ctx, caller, accepted, q, drain, func(p page) bool {
		for _, e := range p.events {
			if e.Sequence > own.last || e.Sequence < own.first && q.Cursor != "" {
				return true
			}
		}
		return p.hasMore
	})
}

// hold reads, and goes on from what an accepted message left behind where it did.
func (a *App) hold(ctx context.Context, caller Caller, from Accepted, q conversation.ReadQuery, drain <-chan struct{}, enough func(page) bool) (conversation.ReadResponse, error) {
	id, seen, waiter := from.ConversationID, from.seen, from.waiter
	if q.Wait <= 0 {
		if waiter != nil {
			waiter.Close()
		}
		p, err := a.page(ctx, caller, id, q.Cursor, seen)
		return p.response(q.Cursor), err
	}
	if waiter == nil {
		// Listen first: what is committed between the first read and the wait rings.
		seen = nil
		var err error
		if waiter, err = a.bells.Conversation(caller.Scope, id); err != nil {
			return conversation.ReadResponse{}, conversation.NotFound("poppy-0.1/7.2#16")
		}
	}
	defer waiter.Close()
	ended, cancel := a.bells.Session(caller.Scope, caller.SessionID)
	defer cancel()
	timer := time.NewTimer(q.Wait)
	defer timer.Stop()
	for last := false; ; {
		p, err := a.page(ctx, caller, id, q.Cursor, seen)
		if err != nil || last || enough(p) || p.conversation.Status == conversation.Closed {
			return p.response(q.Cursor), err
		}
		seen = nil
		for news := false; !news; {
			select {
			case more := <-from.told:
				seen, news = p.and(more), true
			case <-waiter.Rung:
				// The ring of an event that was read already, such as the caller's own message, is none.
				if news = waiter.News(p.conversation.LastSequence); news {
					select {
					case more := <-from.told: // what this process did itself is told before it is rung for
						seen = p.and(more)
					default:
					}
				}
			case <-timer.C:
				news, last = true, true // a ring may have been lost
			case <-ended:
				return p.response(q.Cursor), nil
			case <-drain:
				return p.response(q.Cursor), nil
			case <-ctx.Done():
				return conversation.ReadResponse{}, ctx.Err()
			}
		}
	}
}

// page is what one read found.
type page struct {
	conversation *store.Conversation
	after        int64 // where it starts
	events       []store.Event
	hasMore      bool
}

// and is the page with the events that were added to it; nil where they don't follow
// on, or don't fit.
func (p page) and(more page) *page {
	if p.hasMore || more.events[0].Sequence != p.conversation.LastSequence+1 || len(p.events)+len(more.events) > conversation.MaxPage {
		return nil
	}
	return &page{conversation: more.conversation, events: slices.Concat(p.events, more.events)}
}

// page reads what is after cursor, unless seen is just that.
func (a *App) page(ctx context.Context, caller Caller, id, cursor string, seen *page) (page, error) {
	if seen != nil {
		return *seen, conversation.CheckOwner(seen.conversation.Owner(), caller.owner())
	}
	return a.together.page(ctx, caller, id, AtOnce, func(c *store.Conversation) (int64, error) { return startOf(c, cursor) })
}

// startOf returns the sequence number after which a read starts: that of cursor, 0 for none.
func startOf(c *store.Conversation, cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	seq, err := conversation.ParseCursor(c.CursorKey, c.ID, cursor)
	if err != nil {
		return 0, err
	}
	return seq, conversation.CheckCursor(seq, c.OldestSequence, c.LastSequence)
}

func (p page) response(cursor string) conversation.ReadResponse {
	if p.conversation == nil {
		return conversation.ReadResponse{}
	}
	c := p.conversation
	r := conversation.ReadResponse{ConversationID: c.ID, Cursor: cursor, HasMore: p.hasMore, Status: c.Status, Responder: c.Responder}
	for _, e := range p.events {
		r.Cursor = conversation.EventID(c.CursorKey, c.ID, e.Sequence)
		r.Events = append(r.Events, conversation.Event{ID: r.Cursor, CreatedAt: e.CreatedAt, Payload: e.Payload})
	}
	if r.Cursor == "" { // everything was pruned: the end of what there was
		r.Cursor = conversation.EventID(c.CursorKey, c.ID, max(c.LastSequence, 1))
	}
	return r
}
