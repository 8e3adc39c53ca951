package app

import (
	"context"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// MaxResent is how many deliveries one call sends again.
const MaxResent = 1000

// Resend sends a delivery to the backend again, under the webhook-id it had. What the
// backend answers is added, if the conversation still takes it. One that waits for a
// later attempt is due now.
func (a *App) Resend(ctx context.Context, scope tenancy.Scope, id string) (store.BackendDelivery, error) {
	var out store.BackendDelivery
	err := a.store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		d, err := tx.BackendDelivery(ctx, id)
		if err != nil {
			return err
		}
		if d.Pending() {
			err = tx.Hasten(ctx, id, a.now())
		} else {
			var n int
			if n, err = a.reopen(ctx, tx, d.ConversationID, id); err == nil && n == 0 {
				err = problem.New(problem.Conflict, problem.FailedPrecondition, "", "the message is kept no longer")
			}
		}
		if err != nil {
			return err
		}
		out, err = tx.BackendDelivery(ctx, id)
		return err
	})
	return out, err
}

// reopen makes deliveries of a conversation that are done pending again, those whose
// messages are still there, and returns how many. The conversation's lock keeps them
// in order: they go before what is pending of later messages, but nothing overtakes one
// that is under way.
func (a *App) reopen(ctx context.Context, tx store.Tx, conversationID string, deliveryIDs ...string) (int, error) {
	c, err := tx.Lock(ctx, conversationID)
	if err != nil {
		return 0, err
	}
	before, err := tx.Live(ctx, conversationID)
	if err != nil {
		return 0, err
	}
	busy := false
	for _, l := range before {
		busy = busy || l.Pending
	}
	var again []string
	for _, id := range deliveryIDs {
		d, err := tx.BackendDelivery(ctx, id) // as it is under the lock
		if err != nil {
			return 0, err
		}
		kept, err := tx.MessageKept(ctx, c, d.Sequence)
		if err != nil {
			return 0, err
		}
		if kept && !d.Pending() {
			again = append(again, id)
		}
	}
	if len(again) == 0 {
		return 0, nil
	}
	if err := tx.Reopen(ctx, again...); err != nil || busy {
		return len(again), err // whoever ends what is pending makes the next one due
	}
	after, err := tx.Live(ctx, conversationID)
	if err != nil {
		return 0, err
	}
	return len(again), releaseFirst(ctx, tx, after, a.now())
}

// Resent is what was sent again, or would be. More says that there is more from Next on.
type Resent struct {
	Count int
	More  bool
	Next  resource.Place
}

// ResendUndelivered sends again what failed or expired of a time, the oldest first; with
// dry it only counts.
func (a *App) ResendUndelivered(ctx context.Context, scope tenancy.Scope, span resource.Span, dry bool) (Resent, error) {
	var found []store.BackendDelivery
	err := a.store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		var err error
		found, err = tx.Undelivered(ctx, span, resource.Place{}, MaxResent+1)
		return err
	})
	if err != nil {
		return Resent{}, err
	}
	var out Resent
	if len(found) > MaxResent {
		out.More, out.Next = true, resource.Place{CreatedAt: found[MaxResent].CreatedAt, ID: found[MaxResent].ID}
		found = found[:MaxResent]
	}
	if dry {
		out.Count = len(found)
		return out, nil
	}
	var conversations []string
	of := map[string][]string{}
	for _, d := range found {
		if of[d.ConversationID] == nil {
			conversations = append(conversations, d.ConversationID)
		}
		of[d.ConversationID] = append(of[d.ConversationID], d.ID)
	}
	for _, id := range conversations {
		n := 0
		err := a.store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
			var err error
			n, err = a.reopen(ctx, tx, id, of[id]...)
			return err
		})
		if err != nil {
			return out, err // those before are sent, and are not found by the next call
		}
		out.Count += n
	}
	return out, nil
}
