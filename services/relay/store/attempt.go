package store

import (
	"context"
	"encoding/json"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/attempt"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

// SaveAttempts implements app.Store.
func (s *Store) SaveAttempts(ctx context.Context, batch []app.Logged) error {
	evidence := make([]json.RawMessage, len(batch))
	for i, one := range batch {
		var err error
		if evidence[i], err = json.Marshal(one.Evidence); err != nil {
			return err
		}
	}
	return s.db.SystemWrite(ctx, db.LogAttempts, func(ctx context.Context, tx *ent.Tx) error {
		creates := make([]*ent.AttemptCreate, len(batch))
		for i, one := range batch {
			creates[i] = tx.Attempt.Create().SetID(one.ID).SetCompanyID(one.Scope.CompanyID()).SetDeliveryID(one.DeliveryID).SetEndpointID(one.EndpointID).
				SetStatus(one.Status).SetOutcome(one.Outcome).SetReason(one.Reason).SetDurationUs(one.Duration).SetEvidence(evidence[i]).SetCreatedAt(one.At)
		}
		return tx.Attempt.CreateBulk(creates...).Exec(ctx)
	})
}

// Attempts implements app.Store.
func (s *Store) Attempts(ctx context.Context, scope tenancy.Scope, q app.AttemptQuery) (out []app.Logged, err error) {
	err = s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		find := tx.Attempt.Query()
		if q.DeliveryID != "" {
			find.Where(attempt.DeliveryID(q.DeliveryID))
		}
		if q.EndpointID != "" {
			find.Where(attempt.EndpointID(q.EndpointID))
		}
		if q.BeforeID != "" {
			find.Where(attempt.Or(attempt.CreatedAtLT(q.BeforeTime), attempt.And(attempt.CreatedAtEQ(q.BeforeTime), attempt.IDLT(q.BeforeID))))
		}
		rows, err := find.Order(attempt.ByCreatedAt(sql.OrderDesc()), attempt.ByID(sql.OrderDesc())).Limit(q.Limit).All(ctx)
		if err != nil {
			return err
		}
		out = make([]app.Logged, len(rows))
		for i, r := range rows {
			out[i] = app.Logged{
				ID: r.ID, Scope: scope, DeliveryID: r.DeliveryID, EndpointID: r.EndpointID, At: r.CreatedAt.UTC(), Duration: r.DurationUs,
				Status: r.Status, Outcome: r.Outcome, Reason: r.Reason,
			}
			if err := json.Unmarshal(r.Evidence, &out[i].Evidence); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// PruneAttempts implements app.Store.
func (s *Store) PruneAttempts(ctx context.Context, scope tenancy.Scope, before time.Time, limit int) (n int, err error) {
	err = s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		ids, err := tx.Attempt.Query().Where(attempt.CreatedAtLT(before)).Order(attempt.ByCreatedAt()).Limit(limit).IDs(ctx)
		if err != nil || len(ids) == 0 {
			n = 0
			return err
		}
		n, err = tx.Attempt.Delete().Where(attempt.IDIn(ids...)).Exec(ctx)
		return err
	})
	return n, err
}

// NextCompany implements app.Store.
func (s *Store) NextCompany(ctx context.Context, after string) (tenancy.Scope, bool, error) {
	return s.db.FirstCompany(ctx, db.Prune, func(ctx context.Context, tx *ent.Tx) (string, error) {
		row, err := tx.Attempt.Query().Where(attempt.CompanyIDGT(after)).Order(attempt.ByCompanyID()).Select(attempt.FieldCompanyID).First(ctx)
		if err != nil {
			return "", err
		}
		return row.CompanyID, nil
	})
}
