package entstore

import (
	"context"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/browsercookie"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// SaveBrowserCookie implements store.Browsers.
func (s *Store) SaveBrowserCookie(ctx context.Context, scope tenancy.Scope, c store.BrowserCookie) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		// The Session's row first: browsers that join at once come one after the other.
		n, err := tx.Session.Update().Where(session.ID(c.SessionID), session.EndedAtIsNil()).SetLastUsedAt(c.CreatedAt).Save(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			return store.ErrEnded
		}
		if _, err := tx.BrowserCookie.Delete().Where(browsercookie.SessionID(c.SessionID)).Exec(ctx); err != nil {
			return err
		}
		return tx.BrowserCookie.Create().SetID(c.Hash).SetSessionID(c.SessionID).SetCreatedAt(c.CreatedAt).SetExpiresAt(c.ExpiresAt).Exec(ctx)
	})
}

// Visits implements store.Browsers.
func (s *Store) Visits(ctx context.Context, scope tenancy.Scope, hashes []string) ([]store.Visit, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) ([]store.Visit, error) {
		rows, err := tx.BrowserCookie.Query().Where(browsercookie.IDIn(hashes...)).
			Order(browsercookie.ByCreatedAt(sql.OrderDesc()), browsercookie.ByID()).All(ctx)
		if err != nil {
			return nil, err
		}
		out := make([]store.Visit, len(rows))
		for i, row := range rows {
			v := store.Visit{Cookie: store.BrowserCookie{
				Hash: row.ID, SessionID: row.SessionID, CreatedAt: row.CreatedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(),
			}}
			if v.Session, err = viewSession(ctx, tx, row.SessionID); err != nil {
				return nil, err
			}
			if v.Standing, err = standing(ctx, tx, v.Session.ClientID); err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	})
}

// PruneBrowserCookies implements store.Browsers.
func (s *Store) PruneBrowserCookies(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.prune(ctx, func(ctx context.Context, tx *ent.Tx) (int, error) {
		found, err := tx.BrowserCookie.Query().Where(browsercookie.ExpiresAtLT(before)).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		return tx.BrowserCookie.Delete().Where(browsercookie.IDIn(found...)).Exec(ctx)
	})
}
