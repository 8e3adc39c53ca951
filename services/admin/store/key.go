package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/apikey"
	"github.com/poppyfield/poppyfield/ent/company"
	"github.com/poppyfield/poppyfield/ent/operatorkey"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/admin/app"
)

// Keys implements app.Store.
type Keys struct{ db *db.DB }

var _ app.Store = (*Keys)(nil)

// NewKeys makes a store on d.
func NewKeys(d *db.DB) *Keys { return &Keys{db: d} }

// ByHash implements app.Store.
func (s *Keys) ByHash(ctx context.Context, hash string) (*app.Key, error) {
	return s.find(ctx, func(ctx context.Context, tx *ent.Tx) (*app.Key, error) {
		row, err := tx.ApiKey.Query().Where(apikey.Hash(hash)).Only(ctx)
		if err == nil {
			return fromAPIKey(row), nil
		}
		if !ent.IsNotFound(err) {
			return nil, err
		}
		op, err := tx.OperatorKey.Query().Where(operatorkey.Hash(hash)).Only(ctx)
		if err != nil {
			return nil, err
		}
		return fromOperatorKey(op), nil
	})
}

// Reload implements app.Store.
func (s *Keys) Reload(ctx context.Context, k *app.Key) (*app.Key, error) {
	return s.find(ctx, func(ctx context.Context, tx *ent.Tx) (*app.Key, error) {
		if k.Operator() {
			row, err := tx.OperatorKey.Get(ctx, k.ID)
			if err != nil {
				return nil, err
			}
			return fromOperatorKey(row), nil
		}
		row, err := tx.ApiKey.Get(ctx, k.ID)
		if err != nil {
			return nil, err
		}
		return fromAPIKey(row), nil
	})
}

func (s *Keys) find(ctx context.Context, fn func(context.Context, *ent.Tx) (*app.Key, error)) (*app.Key, error) {
	var out *app.Key
	err := s.db.SystemRead(ctx, db.Authenticate, func(ctx context.Context, tx *ent.Tx) error {
		var err error
		out, err = fn(ctx, tx)
		return err
	})
	return out, missing(err)
}

// Used implements app.Store.
func (s *Keys) Used(ctx context.Context, k *app.Key, now time.Time) error {
	before := now.Add(-time.Minute)
	return s.db.SystemWrite(ctx, db.Authenticate, func(ctx context.Context, tx *ent.Tx) error {
		if k.Operator() {
			return tx.OperatorKey.Update().Where(operatorkey.ID(k.ID), operatorkey.Or(operatorkey.LastUsedAtIsNil(), operatorkey.LastUsedAtLTE(before))).
				SetLastUsedAt(now).Exec(ctx)
		}
		return tx.ApiKey.Update().Where(apikey.ID(k.ID), apikey.Or(apikey.LastUsedAtIsNil(), apikey.LastUsedAtLTE(before))).
			SetLastUsedAt(now).Exec(ctx)
	})
}

// CompanyExists implements app.Store.
func (s *Keys) CompanyExists(ctx context.Context, scope tenancy.Scope) (bool, error) {
	found := false
	err := s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		var err error
		found, err = tx.Company.Query().Where(company.ID(scope.CompanyID())).Exist(db.Last(ctx))
		return err
	})
	return found, err
}

// Create implements app.Store.
func (s *Keys) Create(ctx context.Context, scope tenancy.Scope, k *app.Key) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.ApiKey.Create().SetID(k.ID).SetCompanyID(scope.CompanyID()).SetDisplayName(k.DisplayName).SetScopes(k.Scopes).
			SetHash(k.Hash).SetPrefix(k.Prefix).SetNillableExpiresAt(k.ExpiresAt).SetCreatedAt(k.CreatedAt).SetCreator(k.Creator).Exec(ctx)
	})
}

// CreateOperator adds an operator's key.
func (s *Keys) CreateOperator(ctx context.Context, k *app.Key) error {
	return s.db.SystemWrite(ctx, db.Authenticate, func(ctx context.Context, tx *ent.Tx) error {
		return tx.OperatorKey.Create().SetID(k.ID).SetDisplayName(k.DisplayName).SetHash(k.Hash).SetPrefix(k.Prefix).
			SetNillableExpiresAt(k.ExpiresAt).SetCreatedAt(k.CreatedAt).SetCreator(k.Creator).Exec(ctx)
	})
}

// Key implements app.Store.
func (s *Keys) Key(ctx context.Context, scope tenancy.Scope, id string) (*app.Key, error) {
	var out *app.Key
	err := s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		row, err := tx.ApiKey.Query().Where(apikey.ID(id)).Only(ctx)
		if err != nil {
			return err
		}
		out = fromAPIKey(row)
		return nil
	})
	return out, missing(err)
}

// List implements app.Store.
func (s *Keys) List(ctx context.Context, scope tenancy.Scope, afterTime time.Time, afterID string, n int) ([]*app.Key, error) {
	var out []*app.Key
	err := s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		q := tx.ApiKey.Query()
		if afterID != "" {
			q.Where(apikey.Or(apikey.CreatedAtGT(afterTime), apikey.And(apikey.CreatedAt(afterTime), apikey.IDGT(afterID))))
		}
		rows, err := q.Order(apikey.ByCreatedAt(), apikey.ByID()).Limit(n).All(ctx)
		if err != nil {
			return err
		}
		out = make([]*app.Key, 0, len(rows))
		for _, row := range rows {
			out = append(out, fromAPIKey(row))
		}
		return nil
	})
	return out, err
}

// Revoke implements app.Store.
func (s *Keys) Revoke(ctx context.Context, scope tenancy.Scope, id string, now time.Time) (*app.Key, error) {
	var out *app.Key
	err := s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		if err := tx.ApiKey.Update().Where(apikey.ID(id), apikey.RevokedAtIsNil()).SetRevokedAt(now).Exec(ctx); err != nil {
			return err
		}
		row, err := tx.ApiKey.Query().Where(apikey.ID(id)).Only(ctx)
		if err != nil {
			return err
		}
		out = fromAPIKey(row)
		return nil
	})
	return out, missing(err)
}

func missing(err error) error {
	if ent.IsNotFound(err) {
		return resource.NotFound()
	}
	return err
}

func fromAPIKey(row *ent.ApiKey) *app.Key {
	return &app.Key{
		ID: row.ID, CompanyID: row.CompanyID, DisplayName: row.DisplayName, Scopes: row.Scopes, Hash: row.Hash, Prefix: row.Prefix,
		ExpiresAt: utc(row.ExpiresAt), RevokedAt: utc(row.RevokedAt), LastUsedAt: utc(row.LastUsedAt), CreatedAt: row.CreatedAt.UTC(), Creator: row.Creator,
	}
}

func fromOperatorKey(row *ent.OperatorKey) *app.Key {
	return &app.Key{
		ID: row.ID, DisplayName: row.DisplayName, Hash: row.Hash, Prefix: row.Prefix,
		ExpiresAt: utc(row.ExpiresAt), RevokedAt: utc(row.RevokedAt), LastUsedAt: utc(row.LastUsedAt), CreatedAt: row.CreatedAt.UTC(), Creator: row.Creator,
	}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
