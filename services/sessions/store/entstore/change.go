package entstore

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/sessionchange"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// maxNoted is how many Sessions one unit of work names; of more it says that any may have changed.
const maxNoted = 100

// noteAll leaves a change of all the Company's Sessions with the unit of work.
func noteAll(ctx context.Context, tx *ent.Tx, at time.Time) error { return note(ctx, tx, at, "") }

// note leaves a change of each of the Sessions with the unit of work.
func note(ctx context.Context, tx *ent.Tx, at time.Time, sessions ...string) error {
	if len(sessions) == 0 {
		return nil
	}
	if len(sessions) > maxNoted {
		sessions = []string{""}
	}
	creates := make([]*ent.SessionChangeCreate, 0, len(sessions))
	for _, id := range sessions {
		creates = append(creates, tx.SessionChange.Create().SetID(ids.UUID()).SetSessionID(id).SetCreatedAt(at))
	}
	return tx.SessionChange.CreateBulk(creates...).Exec(db.Later(ctx))
}

// Changes implements store.Changes.
func (s *Store) Changes(ctx context.Context, after time.Time, limit int) ([]store.Change, error) {
	var out []store.Change
	err := s.db.SystemRead(ctx, db.WatchSessions, func(ctx context.Context, tx *ent.Tx) error {
		rows, err := tx.SessionChange.Query().Where(sessionchange.CreatedAtGT(after)).Limit(limit).All(ctx)
		if err != nil {
			return err
		}
		out = make([]store.Change, 0, len(rows))
		for _, row := range rows {
			out = append(out, store.Change{ID: row.ID, CompanyID: row.CompanyID, SessionID: row.SessionID})
		}
		return nil
	})
	return out, err
}

// PruneChanges implements store.Changes.
func (s *Store) PruneChanges(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.prune(ctx, func(ctx context.Context, tx *ent.Tx) (int, error) {
		found, err := tx.SessionChange.Query().Where(sessionchange.CreatedAtLT(before)).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		return tx.SessionChange.Delete().Where(sessionchange.IDIn(found...)).Exec(ctx)
	})
}
