package entstore

import (
	"context"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/accounttoken"
	"github.com/poppyfield/poppyfield/ent/authorizationcode"
	"github.com/poppyfield/poppyfield/ent/browsercookie"
	"github.com/poppyfield/poppyfield/ent/deviceauthorization"
	"github.com/poppyfield/poppyfield/ent/grant"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/ent/sessiontoken"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// PruneTokens implements store.Pruning.
func (s *Store) PruneTokens(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.prune(ctx, func(ctx context.Context, tx *ent.Tx) (int, error) {
		found, err := tx.SessionToken.Query().Where(sessiontoken.ExpiresAtLT(before)).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		return tx.SessionToken.Delete().Where(sessiontoken.IDIn(found...)).Exec(ctx)
	})
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
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (int, error) {
		found, err := tx.Session.Query().Where(session.Or(session.EndedAtLT(endedBefore), session.LastUsedAtLT(usedBefore))).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		if _, err := tx.SessionToken.Delete().Where(sessiontoken.SessionIDIn(found...)).Exec(ctx); err != nil {
			return 0, err
		}
		if _, err := tx.BrowserCookie.Delete().Where(browsercookie.SessionIDIn(found...)).Exec(ctx); err != nil {
			return 0, err
		}
		return tx.Session.Delete().Where(session.IDIn(found...)).Exec(ctx)
	})
}

// PruneCodes implements store.SignInPruning.
func (s *Store) PruneCodes(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.prune(ctx, func(ctx context.Context, tx *ent.Tx) (int, error) {
		found, err := tx.AuthorizationCode.Query().Where(authorizationcode.ExpiresAtLT(before)).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		return tx.AuthorizationCode.Delete().Where(authorizationcode.IDIn(found...)).Exec(ctx)
	})
}

// PruneDevices implements store.SignInPruning.
func (s *Store) PruneDevices(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.prune(ctx, func(ctx context.Context, tx *ent.Tx) (int, error) {
		found, err := tx.DeviceAuthorization.Query().Where(deviceauthorization.ExpiresAtLT(before)).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		return tx.DeviceAuthorization.Delete().Where(deviceauthorization.IDIn(found...)).Exec(ctx)
	})
}

// PruneGrants implements store.SignInPruning.
func (s *Store) PruneGrants(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.prune(ctx, func(ctx context.Context, tx *ent.Tx) (int, error) {
		found, err := tx.Grant.Query().Where(grant.Or(grant.EndedAtLT(before), grant.ExpiresAtLT(before))).Limit(limit).All(ctx)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		ids, companies := make([]string, 0, len(found)), make([]string, 0, len(found))
		for _, g := range found {
			ids, companies = append(ids, g.ID), append(companies, g.CompanyID)
		}
		slices.Sort(companies)
		companies = slices.Compact(companies) // by Company, for the index begins with it
		if _, err := tx.AccountToken.Delete().Where(accounttoken.CompanyIDIn(companies...), accounttoken.GrantIDIn(ids...)).Exec(ctx); err != nil {
			return 0, err
		}
		return tx.Grant.Delete().Where(grant.IDIn(ids...)).Exec(ctx)
	})
}

// prune runs fn on the rows of all Companies.
func (s *Store) prune(ctx context.Context, fn func(context.Context, *ent.Tx) (int, error)) (int, error) {
	n := 0
	err := s.db.SystemWrite(ctx, db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		var err error
		n, err = fn(ctx, tx)
		return err
	})
	return n, err
}
