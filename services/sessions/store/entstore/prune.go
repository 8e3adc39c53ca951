package entstore

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/ent/sessiontoken"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// PruneTokens implements store.Pruning.
func (s *Store) PruneTokens(ctx context.Context, before time.Time, limit int) (int, error) {
	n := 0
	err := s.db.SystemWrite(ctx, db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		found, err := tx.SessionToken.Query().Where(sessiontoken.ExpiresAtLT(before)).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			n = 0
			return err
		}
		n, err = tx.SessionToken.Delete().Where(sessiontoken.IDIn(found...)).Exec(ctx)
		return err
	})
	return n, err
}

// Unused implements store.Pruning.
func (s *Store) Unused(ctx context.Context, before time.Time) ([]tenancy.Scope, error) {
	var companies []string
	err := s.db.SystemRead(ctx, db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		var err error
		companies, err = tx.Session.Query().Where(session.LastUsedAtLT(before)).Unique(true).Select(session.FieldCompanyID).Strings(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]tenancy.Scope, 0, len(companies))
	for _, id := range companies {
		scope, err := tenancy.For(id)
		if err != nil {
			return nil, err
		}
		out = append(out, scope)
	}
	return out, nil
}

// PruneSessions implements store.Pruning.
func (s *Store) PruneSessions(ctx context.Context, scope tenancy.Scope, endedBefore, usedBefore time.Time, limit int) (int, error) {
	return write(ctx, s, scope, func(ctx context.Context, tx *ent.Tx) (int, error) {
		found, err := tx.Session.Query().Where(session.Or(session.EndedAtLT(endedBefore), session.LastUsedAtLT(usedBefore))).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		if _, err := tx.SessionToken.Delete().Where(sessiontoken.SessionIDIn(found...)).Exec(ctx); err != nil {
			return 0, err
		}
		return tx.Session.Delete().Where(session.IDIn(found...)).Exec(ctx)
	})
}
