// Package store keeps backends and webhook secrets in the database.
package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/endpoint"
	"github.com/poppyfield/poppyfield/ent/webhooksecret"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

// Store implements app.Store.
type Store struct {
	db  *db.DB
	now clock.Clock
}

var _ app.Store = (*Store)(nil)

// New makes a store.
func New(d *db.DB, now clock.Clock) *Store { return &Store{db: d, now: now} }

// Endpoint implements app.Store.
func (s *Store) Endpoint(ctx context.Context, scope tenancy.Scope, now time.Time) (b app.Backend, secrets []app.Secret, err error) {
	err = s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		row, err := tx.Endpoint.Query().Where(endpoint.RoleEQ(endpoint.RoleAnswers)).Only(ctx)
		if err != nil && !ent.IsNotFound(err) {
			return err
		}
		b = app.NewBackend()
		if row != nil {
			b = toBackend(row)
		}
		rows, err := tx.WebhookSecret.Query().
			Where(webhooksecret.Or(webhooksecret.ExpiresAtIsNil(), webhooksecret.ExpiresAtGT(now))).
			Order(webhooksecret.ByCreatedAt(), webhooksecret.ByID()).All(ctx)
		if err != nil {
			return err
		}
		secrets = make([]app.Secret, len(rows))
		for i, r := range rows {
			secrets[i] = app.Secret{ID: r.ID, Kind: string(r.Kind), Sealed: r.Sealed, PublicKey: r.PublicKey, Prefix: r.Prefix, CreatedAt: r.CreatedAt.UTC()}
			if r.ExpiresAt != nil {
				at := r.ExpiresAt.UTC()
				secrets[i].ExpiresAt = &at
			}
		}
		return nil
	})
	return b, secrets, err
}

// UpdateBackend implements app.Store.
func (s *Store) UpdateBackend(ctx context.Context, scope tenancy.Scope, change func(*app.Backend) error) (app.Backend, error) {
	out, err := s.updateBackend(ctx, scope, change)
	if ent.IsConstraintError(err) { // another process made the row at the same time: now it is there
		return s.updateBackend(ctx, scope, change)
	}
	return out, err
}

func (s *Store) updateBackend(ctx context.Context, scope tenancy.Scope, change func(*app.Backend) error) (out app.Backend, err error) {
	err = s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		q := tx.Endpoint.Query().Where(endpoint.RoleEQ(endpoint.RoleAnswers))
		if s.db.Postgres() {
			q = q.ForUpdate()
		}
		row, err := q.Only(ctx)
		if err != nil && !ent.IsNotFound(err) {
			return err
		}
		now := s.now()
		if row == nil {
			b := app.NewBackend()
			if err := change(&b); err != nil {
				return err
			}
			row, err = tx.Endpoint.Create().SetRole(endpoint.RoleAnswers).SetID(ids.New(ids.Backend)).SetCompanyID(scope.CompanyID()).SetURL(b.URL).SetEnabled(b.Enabled).
				SetDisableReason(b.DisableReason).SetAttemptTimeoutMs(b.AttemptTimeout.Milliseconds()).SetDeliverLate(b.DeliverLate).
				SetCreatedAt(now).SetUpdatedAt(now).Save(ctx)
		} else {
			b := toBackend(row)
			if err := change(&b); err != nil {
				return err
			}
			row, err = row.Update().SetURL(b.URL).SetEnabled(b.Enabled).SetDisableReason(b.DisableReason).
				SetAttemptTimeoutMs(b.AttemptTimeout.Milliseconds()).SetDeliverLate(b.DeliverLate).SetUpdatedAt(now).AddVersion(1).Save(ctx)
		}
		if err != nil {
			return err
		}
		out = toBackend(row)
		return nil
	})
	return out, err
}

// AddSecret implements app.Store.
func (s *Store) AddSecret(ctx context.Context, scope tenancy.Scope, secret app.Secret, until time.Time) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		kind := webhooksecret.Kind(secret.Kind)
		// Nothing is signed any more with those that have ended, so that nobody can.
		if _, err := tx.WebhookSecret.Delete().Where(webhooksecret.ExpiresAtLTE(secret.CreatedAt)).Exec(ctx); err != nil {
			return err
		}
		// Those that end sooner anyway keep their own end.
		err := tx.WebhookSecret.Update().
			Where(webhooksecret.KindEQ(kind), webhooksecret.Or(webhooksecret.ExpiresAtIsNil(), webhooksecret.ExpiresAtGT(until))).
			SetExpiresAt(until).Exec(ctx)
		if err != nil {
			return err
		}
		return tx.WebhookSecret.Create().SetID(secret.ID).SetCompanyID(scope.CompanyID()).SetKind(kind).SetSealed(secret.Sealed).
			SetPublicKey(secret.PublicKey).SetPrefix(secret.Prefix).SetCreatedAt(secret.CreatedAt).Exec(ctx)
	})
}

func toBackend(r *ent.Endpoint) app.Backend {
	return app.Backend{
		ID: r.ID, URL: r.URL, Enabled: r.Enabled, DisableReason: r.DisableReason, AttemptTimeout: time.Duration(r.AttemptTimeoutMs) * time.Millisecond,
		DeliverLate: r.DeliverLate, Version: r.Version, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
}
