package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/companyevent"
	"github.com/poppyfield/poppyfield/ent/endpoint"
	"github.com/poppyfield/poppyfield/ent/endpointdelivery"
	"github.com/poppyfield/poppyfield/ent/webhooksecret"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

// CreateListener implements app.Store.
func (s *Store) CreateListener(ctx context.Context, scope tenancy.Scope, e app.Endpoint, secret app.Secret, limit int) (out app.Endpoint, err error) {
	err = s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		if s.db.Postgres() { // those who count wait for each other; SQLite has one writer anyway
			if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('poppyfield endpoints ' || $1, 0))", scope.CompanyID()); err != nil {
				return err
			}
		}
		n, err := tx.Endpoint.Query().Where(endpoint.RoleEQ(endpoint.RoleListens)).Count(ctx)
		if err != nil {
			return err
		}
		if n >= limit {
			return problem.New(problem.Conflict, problem.FailedPrecondition, "", "a company has at most %d endpoints", limit)
		}
		row, err := s.create(ctx, tx, e)
		if err != nil {
			return err
		}
		if err := createSecret(ctx, tx, secret); err != nil {
			return err
		}
		out, err = toEndpoint(row)
		return err
	})
	return out, err
}

// DeleteListener implements app.Store. Attempts stay in the log, as long as the Company keeps it.
func (s *Store) DeleteListener(ctx context.Context, scope tenancy.Scope, id string, check func(app.Endpoint) error) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		row, err := s.lock(ctx, tx, id)
		if err != nil {
			return notFound(err)
		}
		e, err := toEndpoint(row)
		if err != nil {
			return err
		}
		if err := check(e); err != nil {
			return err
		}
		if _, err := tx.EndpointDelivery.Delete().Where(endpointdelivery.EndpointID(id)).Exec(ctx); err != nil {
			return err
		}
		if _, err := tx.WebhookSecret.Delete().Where(webhooksecret.EndpointID(id)).Exec(ctx); err != nil {
			return err
		}
		return tx.Endpoint.DeleteOne(row).Exec(ctx)
	})
}

// Listeners implements app.Store.
func (s *Store) Listeners(ctx context.Context, scope tenancy.Scope, after time.Time, afterID string, n int) (out []app.Endpoint, err error) {
	err = s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		q := tx.Endpoint.Query().Where(endpoint.RoleEQ(endpoint.RoleListens))
		if afterID != "" {
			q.Where(endpoint.Or(endpoint.CreatedAtGT(after), endpoint.And(endpoint.CreatedAtEQ(after), endpoint.IDGT(afterID))))
		}
		rows, err := q.Order(endpoint.ByCreatedAt(), endpoint.ByID()).Limit(n).All(ctx)
		if err != nil {
			return err
		}
		out = make([]app.Endpoint, len(rows))
		for i, row := range rows {
			if out[i], err = toEndpoint(row); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// Pending implements app.Store.
func (s *Store) Pending(ctx context.Context, scope tenancy.Scope, id string) (n int, oldest *time.Time, err error) {
	err = s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		q := tx.EndpointDelivery.Query().Where(endpointdelivery.EndpointID(id), endpointdelivery.StateEQ(endpointdelivery.StatePending))
		var err error
		if n, err = q.Clone().Count(ctx); err != nil || n == 0 {
			return err
		}
		first, err := q.Order(endpointdelivery.ByCreatedAt()).First(ctx)
		if err != nil && !ent.IsNotFound(err) {
			return err
		}
		if first != nil {
			oldest = inUTC(&first.CreatedAt)
		}
		return nil
	})
	return n, oldest, err
}

// maxExpiring bounds one look; what is left is found by the next.
const maxExpiring = 1000

// Expiring implements app.Store.
func (s *Store) Expiring(ctx context.Context, after, until time.Time) (map[tenancy.Scope][]app.Secret, error) {
	out := map[tenancy.Scope][]app.Secret{}
	err := s.db.SystemRead(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		rows, err := tx.WebhookSecret.Query().Where(webhooksecret.ExpiresAtGT(after), webhooksecret.ExpiresAtLTE(until)).
			Order(webhooksecret.ByExpiresAt()).Limit(maxExpiring).All(ctx)
		if err != nil {
			return err
		}
		clear(out)
		for _, row := range rows {
			scope, err := tenancy.For(row.CompanyID)
			if err != nil {
				return err
			}
			out[scope] = append(out[scope], toSecret(row))
		}
		return nil
	})
	return out, err
}

// TellOnce implements app.Store.
func (s *Store) TellOnce(ctx context.Context, scope tenancy.Scope, e app.Event) error {
	if s.events.Quiet(scope) {
		return nil
	}
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		if s.db.Postgres() {
			if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('poppyfield event ' || $1, 0))", e.Subject); err != nil {
				return err
			}
		}
		there, err := tx.CompanyEvent.Query().Where(companyevent.Type(e.Type), companyevent.Subject(e.Subject), companyevent.CreatedAtGT(e.At.Add(-48*time.Hour))).Exist(ctx)
		if err != nil || there {
			return err
		}
		return s.events.Add(ctx, tx, scope, e)
	})
}
