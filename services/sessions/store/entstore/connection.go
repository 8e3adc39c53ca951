package entstore

import (
	"context"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/grant"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Grant implements store.Connections.
func (s *Store) Grant(ctx context.Context, scope tenancy.Scope, id string) (store.Grant, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.Grant, error) {
		g, err := findGrant(ctx, tx, id)
		if err != nil {
			return store.Grant{}, err
		}
		if g == nil {
			return store.Grant{}, store.ErrNotFound
		}
		return *g, nil
	})
}

// Grants implements store.Connections.
func (s *Store) Grants(ctx context.Context, scope tenancy.Scope, f store.GrantFilter, after store.Place, limit int) ([]store.Grant, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) ([]store.Grant, error) {
		q := tx.Grant.Query().Order(grant.ByCreatedAt(sql.OrderDesc()), grant.ByID(sql.OrderDesc())).Limit(limit)
		if f.Account != "" {
			q.Where(grant.Account(f.Account))
		}
		if f.ClientID != "" {
			q.Where(grant.ClientID(f.ClientID))
		}
		if !f.InForceAt.IsZero() {
			q.Where(inForce(f.InForceAt))
		}
		if after.ID != "" {
			q.Where(grant.Or(grant.CreatedAtLT(after.CreatedAt), grant.And(grant.CreatedAt(after.CreatedAt), grant.IDLT(after.ID))))
		}
		rows, err := q.All(ctx)
		if err != nil {
			return nil, err
		}
		out := make([]store.Grant, 0, len(rows))
		for _, row := range rows {
			out = append(out, grantOf(row))
		}
		return out, nil
	})
}

// RevokeAgent implements store.Connections.
func (s *Store) RevokeAgent(ctx context.Context, scope tenancy.Scope, r store.Rule, how store.Ending) (store.Ended, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.Ended, error) {
		if err := putRule(ctx, tx, r); err != nil {
			return store.Ended{}, err
		}
		ended, err := s.endGrants(ctx, tx, scope, store.Selection{ClientID: r.ClientID}, store.Ending{At: how.At, Reason: how.Reason})
		if err != nil {
			return store.Ended{}, err
		}
		q := tx.Session.Query().Where(session.ClientID(r.ClientID), session.EndedAtIsNil()).Order(session.ByID())
		if s.db.Postgres() {
			q.ForUpdate()
		}
		if ended.Sessions, err = q.IDs(ctx); err != nil {
			return store.Ended{}, err
		}
		// A sign-in that held a Session until now has made its Grant since.
		late, err := s.endGrants(ctx, tx, scope, store.Selection{ClientID: r.ClientID}, store.Ending{At: how.At, Reason: how.Reason})
		if err != nil {
			return store.Ended{}, err
		}
		ended.Grants += late.Grants
		if err := s.ended(ctx, tx, scope, session.And(session.ClientID(r.ClientID), session.EndedAtIsNil()), how.At, string(how.Reason)); err != nil {
			return store.Ended{}, err
		}
		if err := tx.Session.Update().Where(session.ClientID(r.ClientID), session.EndedAtIsNil()).SetEndedAt(how.At).Exec(ctx); err != nil {
			return store.Ended{}, err
		}
		return ended, noteAll(ctx, tx, how.At)
	})
}
