package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

const damagedReason = "damaged in the database"

// Quarantine ends a delivery that can't be made from its rows, which owner has leased,
// so that those behind it go on. Its turn stays open: the agent is told at the deadline.
func (a *App) Quarantine(ctx context.Context, scope tenancy.Scope, d store.Damaged, owner string) error {
	err := a.store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		// Also when the conversation itself can't be read: nothing is added to such a one.
		if _, err := tx.Lock(ctx, d.ConversationID); err != nil && !store.IsDamage(err) {
			return err
		}
		live, err := tx.Live(ctx, d.ConversationID)
		if err != nil {
			return err
		}
		mine, others := split(live, d.ID)
		if mine == nil || !mine.Pending || mine.LeaseOwner != owner {
			return ErrLost
		}
		now := a.now()
		if err := tx.Finish(ctx, mine.ID, store.Failed, mine.Outcome, store.Attempt{Count: mine.Attempts, Reason: damagedReason}, now); err != nil {
			return err
		}
		return releaseFirst(ctx, tx, others, now)
	})
	if err == nil {
		a.meter.Delivered(ctx, "damaged")
	}
	return err
}

// releaseFirst makes the first pending delivery of a locked conversation due, once the one before it is done.
func releaseFirst(ctx context.Context, tx store.Tx, live []store.Live, now time.Time) error {
	for _, l := range live {
		if l.Pending {
			return tx.Release(ctx, l.ID, now)
		}
	}
	return nil
}

const outdatedReason = "older than the retention"

// giveUp ends the deliveries of a conversation that were pending for longer than the
// Company's retention: what they would bring may be kept no longer. One in flight ends by itself.
func (a *App) giveUp(ctx context.Context, scope tenancy.Scope, conversationID string, before time.Time) error {
	ended := 0
	err := a.store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		ended = 0
		if _, err := tx.Lock(ctx, conversationID); err != nil && !store.IsDamage(err) {
			return err
		}
		live, err := tx.Live(ctx, conversationID)
		if err != nil {
			return err
		}
		now := a.now()
		for i, l := range live {
			if !l.Pending {
				continue
			}
			if l.LeaseOwner != "" || !l.CreatedAt.Before(before) {
				if ended == 0 {
					return nil
				}
				return releaseFirst(ctx, tx, live[i:], now)
			}
			if err := tx.Finish(ctx, l.ID, store.Expired, l.Outcome, store.Attempt{Count: l.Attempts, Reason: outdatedReason}, now); err != nil {
				return err
			}
			ended++
		}
		return nil
	})
	if err == nil {
		for range ended {
			a.meter.Delivered(ctx, "outdated")
		}
	}
	return err
}
