package store

import (
	"context"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// ListUsage implements app.Store.
func (s *Store) ListUsage(ctx context.Context, scope tenancy.Scope, from, before string, n int) ([]usage.DayCounts, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) ([]usage.DayCounts, error) {
		return usage.Days(ctx, tx, from, before, n)
	})
}

// Quotas implements app.Store.
func (s *Store) Quotas(ctx context.Context, scope tenancy.Scope, since string) (app.Quotas, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (app.Quotas, error) {
		_, q, err := quotasOf(ctx, tx, scope, since)
		return q, err
	})
}

// UpdateQuotas implements app.Store.
func (s *Store) UpdateQuotas(ctx context.Context, scope tenancy.Scope, since string, change func(*app.Quotas) error) (app.Quotas, error) {
	out, err := db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (app.Quotas, error) {
		if _, _, err := s.lockCompany(ctx, tx, scope); err != nil {
			return app.Quotas{}, err
		}
		row, q, err := quotasOf(ctx, tx, scope, since)
		if err != nil {
			return app.Quotas{}, err
		}
		if err := change(&q); err != nil {
			return app.Quotas{}, err
		}
		q.UpdatedAt = s.now()
		q.Version++
		if row == nil {
			return q, tx.Quota.Create().SetID(ids.New(ids.Quota)).SetCompanyID(scope.CompanyID()).SetVersion(q.Version).SetCreatedAt(q.UpdatedAt).SetUpdatedAt(q.UpdatedAt).
				SetSessions(q.Most[usage.SessionQuota]).SetMessages(q.Most[usage.MessageQuota]).
				SetDeliveries(q.Most[usage.DeliveryQuota]).SetVerifications(q.Most[usage.VerificationQuota]).Exec(ctx)
		}
		return q, row.Update().SetVersion(q.Version).SetUpdatedAt(q.UpdatedAt).
			SetSessions(q.Most[usage.SessionQuota]).SetMessages(q.Most[usage.MessageQuota]).
			SetDeliveries(q.Most[usage.DeliveryQuota]).SetVerifications(q.Most[usage.VerificationQuota]).Exec(ctx)
	})
	return out, notFound(err)
}

// quotasOf reads the unit's quotas, which may never have been set, and what was used since a day.
func quotasOf(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, since string) (*ent.Quota, app.Quotas, error) {
	var q app.Quotas
	sums, err := usage.SumByCompany(ctx, tx, since)
	if err != nil {
		return nil, q, err
	}
	q.Used = sums[scope.CompanyID()].Amounts()
	row, err := tx.Quota.Query().Only(ctx)
	if ent.IsNotFound(err) {
		return nil, q, nil
	}
	if err != nil {
		return nil, q, err
	}
	q.Most = usage.Amounts{row.Sessions, row.Messages, row.Deliveries, row.Verifications}
	q.Version, q.UpdatedAt = row.Version, row.UpdatedAt.UTC()
	return row, q, nil
}
