package entstore

import (
	"context"
	"strings"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/grant"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Session implements store.Sessions.
func (s *Store) Session(ctx context.Context, scope tenancy.Scope, id string) (store.SessionView, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.SessionView, error) {
		return viewSession(ctx, tx, id)
	})
}

// Sessions implements store.Sessions.
func (s *Store) Sessions(ctx context.Context, scope tenancy.Scope, after store.Place, limit int) ([]store.SessionView, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) ([]store.SessionView, error) {
		q := tx.Session.Query().Order(session.ByCreatedAt(sql.OrderDesc()), session.ByID(sql.OrderDesc())).Limit(limit)
		if after.ID != "" {
			q.Where(session.Or(session.CreatedAtLT(after.CreatedAt), session.And(session.CreatedAt(after.CreatedAt), session.IDLT(after.ID))))
		}
		rows, err := q.All(ctx)
		if err != nil {
			return nil, err
		}
		out := make([]store.SessionView, 0, len(rows))
		for _, row := range rows {
			out = append(out, store.SessionView{Session: sessionOf(row)})
		}
		return out, addGrants(ctx, tx, out)
	})
}

// End implements store.Sessions.
func (s *Store) End(ctx context.Context, scope tenancy.Scope, id string, at time.Time) (store.SessionView, bool, error) {
	ended := false
	v, err := db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.SessionView, error) {
		n, err := tx.Session.Update().Where(session.ID(id), session.EndedAtIsNil()).SetEndedAt(at).Save(ctx)
		if err != nil {
			return store.SessionView{}, err
		}
		if ended = n > 0; ended {
			if err := s.ended(ctx, tx, scope, session.ID(id), at, endedByCompany); err != nil {
				return store.SessionView{}, err
			}
			if err := note(ctx, tx, at, id); err != nil {
				return store.SessionView{}, err
			}
		}
		return viewSession(ctx, tx, id)
	})
	return v, ended, err
}

// EndIdle implements store.Sessions.
func (s *Store) EndIdle(ctx context.Context, scope tenancy.Scope, usedBefore, at time.Time, limit int) (int, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (int, error) {
		q := tx.Session.Query().Where(session.EndedAtIsNil(), session.LastUsedAtLT(usedBefore)).Order(session.ByID()).Limit(limit)
		if s.db.Postgres() {
			q.ForUpdate(sql.WithLockAction(sql.SkipLocked)) // of several processes each has its own
		}
		ids, err := q.IDs(ctx)
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		if err := s.ended(ctx, tx, scope, session.IDIn(ids...), at, endedByIdleness); err != nil {
			return 0, err
		}
		return tx.Session.Update().Where(session.IDIn(ids...)).SetEndedAt(at).Save(ctx)
	})
}

func viewSession(ctx context.Context, tx *ent.Tx, id string) (store.SessionView, error) {
	sn, err := findSession(ctx, tx, id)
	if err != nil {
		return store.SessionView{}, err
	}
	if sn == nil {
		return store.SessionView{}, store.ErrNotFound
	}
	v := []store.SessionView{{Session: *sn}}
	err = addGrants(ctx, tx, v)
	return v[0], err
}

// addGrants adds to each Session the Grant that last signed it in.
func addGrants(ctx context.Context, tx *ent.Tx, list []store.SessionView) error {
	var ids []string
	for _, v := range list {
		if v.GrantID != "" {
			ids = append(ids, v.GrantID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := tx.Grant.Query().Where(grant.IDIn(ids...)).All(ctx)
	if err != nil {
		return err
	}
	found := make(map[string]*store.Grant, len(rows))
	for _, row := range rows {
		g := grantOf(row)
		found[g.ID] = &g
	}
	for i := range list {
		list[i].Grant = found[list[i].GrantID]
	}
	return nil
}

// findSession returns nil when there is no such Session.
func findSession(ctx context.Context, tx *ent.Tx, id string) (*store.Session, error) {
	row, err := tx.Session.Get(ctx, id)
	if ent.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	if err != nil {
		return nil, err
	}
	sn := sessionOf(row)
	return &sn, nil
}

// sessionOfGrant returns the newest Session that the Grant signed in and that goes on, nil where there is none.
func sessionOfGrant(ctx context.Context, tx *ent.Tx, grantID string) (*store.Session, error) {
	row, err := tx.Session.Query().Where(session.GrantID(grantID), session.EndedAtIsNil()).
		Order(session.ByCreatedAt(sql.OrderDesc()), session.ByID(sql.OrderDesc())).First(ctx)
	if ent.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	if err != nil {
		return nil, err
	}
	sn := sessionOf(row)
	return &sn, nil
}

func sessionOf(row *ent.Session) store.Session {
	sn := store.Session{
		ID: row.ID, ClientID: row.ClientID, AgentName: row.AgentName, UserID: row.UserID, Account: row.Account, GrantID: row.GrantID,
		CreatedAt: row.CreatedAt.UTC(), LastUsedAt: row.LastUsedAt.UTC(), EndedAt: timeOf(row.EndedAt),
	}
	if row.Extensions != "" {
		sn.Extensions = strings.Split(row.Extensions, " ")
	}
	return sn
}
