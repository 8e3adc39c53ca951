package entstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/signinattempt"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// errUsedUp rolls a unit back that counted for some keys before it came to one that is used up.
var errUsedUp = errors.New("a key is used up")

// Take implements store.Attempts. Counting and looking are one write of each row, which
// holds the row until the unit ends: whoever comes second sees the first one's count.
func (s *Store) Take(ctx context.Context, scope tenancy.Scope, now time.Time, taken ...store.Key) (time.Duration, error) {
	var wait time.Duration
	counters := countersOf(scope, taken)
	err := s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		wait = 0
		for _, c := range counters {
			w, err := c.take(ctx, tx, now)
			if err != nil {
				return err
			}
			wait = max(wait, w)
		}
		if wait > 0 {
			return errUsedUp
		}
		return nil
	})
	if errors.Is(err, errUsedUp) {
		return wait, nil
	}
	return 0, err
}

// Return implements store.Attempts.
func (s *Store) Return(ctx context.Context, scope tenancy.Scope, now time.Time, given ...store.Key) error {
	counters := countersOf(scope, given)
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		for _, c := range counters {
			err := tx.SignInAttempt.Update().Where(signinattempt.ID(c.id), signinattempt.WindowEndsAtGT(now), signinattempt.CountGT(0)).
				AddCount(-1).Exec(ctx)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// PruneAttempts implements store.Attempts.
func (s *Store) PruneAttempts(ctx context.Context, before time.Time, limit int) (int, error) {
	n := 0
	err := s.db.SystemWrite(ctx, db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		found, err := tx.SignInAttempt.Query().Where(signinattempt.WindowEndsAtLT(before)).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			n = 0
			return err
		}
		// A counter may have begun a new window since it was found.
		n, err = tx.SignInAttempt.Delete().Where(signinattempt.IDIn(found...), signinattempt.WindowEndsAtLT(before)).Exec(ctx)
		return err
	})
	return n, err
}

// counter is a key and the id of its row, which doesn't tell what is limited.
type counter struct {
	store.Key
	id string
}

// countersOf returns the counters of keys in one order for all callers, so that no two
// units wait for each other.
func countersOf(scope tenancy.Scope, of []store.Key) []counter {
	out := make([]counter, 0, len(of))
	for _, k := range of {
		out = append(out, counter{k, keys.HashToken(scope.CompanyID(), k.Kind+"\x00"+k.Value)})
	}
	slices.SortFunc(out, func(a, b counter) int { return cmp.Compare(a.id, b.id) })
	return out
}

// take counts one try, and returns how long its window still lasts where that was one too many.
func (c counter) take(ctx context.Context, tx *ent.Tx, now time.Time) (time.Duration, error) {
	ends := now.Add(c.Window)
	err := tx.SignInAttempt.Create().SetID(c.id).SetCount(1).SetWindowEndsAt(ends).
		OnConflictColumns(signinattempt.FieldID).Update(func(u *ent.SignInAttemptUpsert) { u.AddCount(1) }).Exec(ctx)
	if err != nil {
		return 0, err
	}
	row, err := tx.SignInAttempt.Get(ctx, c.id)
	if err != nil {
		return 0, err
	}
	if !row.WindowEndsAt.After(now) { // the window is over, so this is the first try of a new one
		row, err = tx.SignInAttempt.UpdateOneID(c.id).SetCount(1).SetWindowEndsAt(ends).Save(ctx)
		if err != nil {
			return 0, err
		}
	}
	if row.Count > c.Limit {
		return row.WindowEndsAt.Sub(now), nil
	}
	return 0, nil
}
