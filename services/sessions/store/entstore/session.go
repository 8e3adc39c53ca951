package entstore

import (
	"context"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Session implements store.Sessions.
func (s *Store) Session(ctx context.Context, scope tenancy.Scope, id string) (store.Session, error) {
	return read(ctx, s, scope, func(ctx context.Context, tx *ent.Tx) (store.Session, error) {
		sn, err := findSession(ctx, tx, id)
		if err != nil {
			return store.Session{}, err
		}
		if sn == nil {
			return store.Session{}, store.ErrNotFound
		}
		return *sn, nil
	})
}

// Sessions implements store.Sessions.
func (s *Store) Sessions(ctx context.Context, scope tenancy.Scope, after store.Place, limit int) ([]store.Session, error) {
	return read(ctx, s, scope, func(ctx context.Context, tx *ent.Tx) ([]store.Session, error) {
		q := tx.Session.Query().Order(session.ByCreatedAt(sql.OrderDesc()), session.ByID(sql.OrderDesc())).Limit(limit)
		if after.ID != "" {
			q.Where(session.Or(session.CreatedAtLT(after.CreatedAt), session.And(session.CreatedAt(after.CreatedAt), session.IDLT(after.ID))))
		}
		rows, err := q.All(ctx)
		if err != nil {
			return nil, err
		}
		out := make([]store.Session, 0, len(rows))
		for _, row := range rows {
			out = append(out, sessionOf(row))
		}
		return out, nil
	})
}

// End implements store.Sessions.
func (s *Store) End(ctx context.Context, scope tenancy.Scope, id string, at time.Time) (store.Session, bool, error) {
	ended := false
	sn, err := write(ctx, s, scope, func(ctx context.Context, tx *ent.Tx) (store.Session, error) {
		n, err := tx.Session.Update().Where(session.ID(id), session.EndedAtIsNil()).SetEndedAt(at).Save(ctx)
		if err != nil {
			return store.Session{}, err
		}
		ended = n > 0
		sn, err := findSession(ctx, tx, id)
		if err != nil {
			return store.Session{}, err
		}
		if sn == nil {
			return store.Session{}, store.ErrNotFound
		}
		return *sn, nil
	})
	return sn, ended, err
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

func sessionOf(row *ent.Session) store.Session {
	return store.Session{
		ID: row.ID, ClientID: row.ClientID, AgentName: row.AgentName, UserID: row.UserID, Account: row.Account,
		CreatedAt: row.CreatedAt.UTC(), LastUsedAt: row.LastUsedAt.UTC(), EndedAt: timeOf(row.EndedAt),
	}
}
