// Package store keeps endpoints, webhook secrets and the log of attempts in the database.
package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/endpoint"
	"github.com/poppyfield/poppyfield/ent/webhooksecret"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

// Store implements app.Store.
type Store struct {
	db     *db.DB
	events *outbox.Recorder
	now    clock.Clock
}

var _ app.Store = (*Store)(nil)

// New makes a store. events may be nil: then nobody is told.
func New(d *db.DB, events *outbox.Recorder, now clock.Clock) *Store {
	return &Store{db: d, events: events, now: now}
}

// of finds the endpoint that id names.
func of(tx *ent.Tx, id string) *ent.EndpointQuery {
	if id == app.Backend {
		return tx.Endpoint.Query().Where(endpoint.RoleEQ(endpoint.RoleAnswers))
	}
	return tx.Endpoint.Query().Where(endpoint.RoleEQ(endpoint.RoleListens), endpoint.ID(id))
}

// Endpoint implements app.Store.
func (s *Store) Endpoint(ctx context.Context, scope tenancy.Scope, id string, now time.Time) (e app.Endpoint, secrets []app.Secret, err error) {
	err = s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		e = app.NewBackend()
		row, err := of(tx, id).Only(ctx)
		switch {
		case err == nil:
			if e, err = toEndpoint(row); err != nil {
				return err
			}
		case id != app.Backend || !ent.IsNotFound(err):
			return notFound(err)
		}
		signs := webhooksecret.EndpointID(id)
		if id != app.Backend {
			signs = webhooksecret.Or(signs, webhooksecret.KindEQ(webhooksecret.KindEd25519))
		}
		rows, err := tx.WebhookSecret.Query().
			Where(signs, webhooksecret.Or(webhooksecret.ExpiresAtIsNil(), webhooksecret.ExpiresAtGT(now))).
			Order(webhooksecret.ByCreatedAt(), webhooksecret.ByID()).All(db.Last(ctx))
		if err != nil {
			return err
		}
		secrets = make([]app.Secret, len(rows))
		for i, r := range rows {
			secrets[i] = toSecret(r)
		}
		return nil
	})
	return e, secrets, err
}

// UpdateEndpoint implements app.Store.
func (s *Store) UpdateEndpoint(ctx context.Context, scope tenancy.Scope, id string, change func(*app.Endpoint) error) (app.Endpoint, error) {
	out, err := s.updateEndpoint(ctx, scope, id, change)
	if ent.IsConstraintError(err) { // another process made the row at the same time: now it is there
		return s.updateEndpoint(ctx, scope, id, change)
	}
	return out, err
}

func (s *Store) updateEndpoint(ctx context.Context, scope tenancy.Scope, id string, change func(*app.Endpoint) error) (out app.Endpoint, err error) {
	err = s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		row, err := s.lock(ctx, tx, id)
		if err != nil && (id != app.Backend || !ent.IsNotFound(err)) {
			return notFound(err)
		}
		now := s.now()
		if row == nil {
			e := app.NewBackend()
			if err := change(&e); err != nil {
				return err
			}
			if e.ID == "" {
				e.ID = ids.New(ids.Backend)
			}
			e.CreatedAt = now
			row, err = s.create(ctx, tx, e)
		} else {
			var e app.Endpoint
			if e, err = toEndpoint(row); err != nil {
				return err
			}
			if err := change(&e); err != nil {
				return err
			}
			row, err = s.save(ctx, row, e)
		}
		if err != nil {
			return err
		}
		out, err = toEndpoint(row)
		return err
	})
	return out, err
}

func (s *Store) lock(ctx context.Context, tx *ent.Tx, id string) (*ent.Endpoint, error) {
	q := of(tx, id)
	if s.db.Postgres() {
		q = q.ForUpdate()
	}
	return q.Only(ctx)
}

func (s *Store) create(ctx context.Context, tx *ent.Tx, e app.Endpoint) (*ent.Endpoint, error) {
	settings, err := json.Marshal(e.Settings)
	if err != nil {
		return nil, err
	}
	return tx.Endpoint.Create().SetID(e.ID).SetRole(endpoint.Role(e.Role)).SetKind(endpoint.Kind(e.Kind)).SetDisplayName(e.DisplayName).SetURL(e.URL).
		SetEnabled(e.Enabled).SetDisableReason(e.DisableReason).SetAckTimeoutMs(e.AckTimeout.Milliseconds()).
		SetAttemptTimeoutMs(e.AttemptTimeout.Milliseconds()).SetDeliverLate(e.DeliverLate).SetSettings(settings).SetSealedCredentials(e.Sealed).
		SetCreatedAt(e.CreatedAt).SetUpdatedAt(e.CreatedAt).Save(ctx)
}

// save writes all that may change of a row, as a new version.
func (s *Store) save(ctx context.Context, row *ent.Endpoint, e app.Endpoint) (*ent.Endpoint, error) {
	settings, err := json.Marshal(e.Settings)
	if err != nil {
		return nil, err
	}
	now := s.now()
	u := row.Update().SetKind(endpoint.Kind(e.Kind)).SetDisplayName(e.DisplayName).SetURL(e.URL).SetEnabled(e.Enabled).SetDisableReason(e.DisableReason).
		SetAckTimeoutMs(e.AckTimeout.Milliseconds()).SetAttemptTimeoutMs(e.AttemptTimeout.Milliseconds()).SetDeliverLate(e.DeliverLate).
		SetSettings(settings).SetSealedCredentials(e.Sealed).
		SetFailures(e.Failures).SetNillableFailingSince(e.FailingSince).SetNillableLastSuccessAt(e.LastSuccessAt).SetUpdatedAt(now).AddVersion(1)
	if e.FailingSince == nil {
		u.ClearFailingSince()
	}
	switch {
	case e.Enabled:
		u.ClearDisabledAt()
	case row.Enabled:
		u.SetDisabledAt(now)
	}
	return u.Save(ctx)
}

// ChangeSeries implements app.Store.
func (s *Store) ChangeSeries(ctx context.Context, scope tenancy.Scope, id string, change func(*app.Endpoint) ([]app.Event, error)) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		q := tx.Endpoint.Query().Where(endpoint.ID(id))
		if s.db.Postgres() {
			q = q.ForUpdate()
		}
		row, err := q.Only(ctx)
		if err != nil {
			return notFound(err)
		}
		e, err := toEndpoint(row)
		if err != nil {
			return err
		}
		was := e
		events, err := change(&e)
		if err != nil {
			return err
		}
		if e.Enabled != was.Enabled || e.Recovering != was.Recovering {
			_, err = s.save(ctx, row, e)
		} else {
			u := row.Update().SetFailures(e.Failures).SetNillableFailingSince(e.FailingSince).SetNillableLastSuccessAt(e.LastSuccessAt)
			if e.FailingSince == nil {
				u.ClearFailingSince()
			}
			err = u.Exec(ctx)
		}
		if err != nil {
			return err
		}
		return s.events.Add(ctx, tx, scope, events...)
	})
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
			Where(webhooksecret.KindEQ(kind), webhooksecret.EndpointID(secret.EndpointID), webhooksecret.Or(webhooksecret.ExpiresAtIsNil(), webhooksecret.ExpiresAtGT(until))).
			SetExpiresAt(until).Exec(ctx)
		if err != nil {
			return err
		}
		return createSecret(ctx, tx, secret)
	})
}

func createSecret(ctx context.Context, tx *ent.Tx, s app.Secret) error {
	return tx.WebhookSecret.Create().SetID(s.ID).SetKind(webhooksecret.Kind(s.Kind)).SetEndpointID(s.EndpointID).SetSealed(s.Sealed).
		SetPublicKey(s.PublicKey).SetPrefix(s.Prefix).SetCreatedAt(s.CreatedAt).Exec(ctx)
}

func toEndpoint(r *ent.Endpoint) (app.Endpoint, error) {
	e := app.Endpoint{
		ID: r.ID, Role: string(r.Role), Kind: string(r.Kind), DisplayName: r.DisplayName, URL: r.URL, Enabled: r.Enabled, DisableReason: r.DisableReason,
		AckTimeout: time.Duration(r.AckTimeoutMs) * time.Millisecond, AttemptTimeout: time.Duration(r.AttemptTimeoutMs) * time.Millisecond,
		DeliverLate: r.DeliverLate, Sealed: r.SealedCredentials,
		Series:  app.Series{Failures: r.Failures, FailingSince: inUTC(r.FailingSince), LastSuccessAt: inUTC(r.LastSuccessAt)},
		Version: r.Version, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	if len(e.Sealed) == 0 {
		e.Sealed = nil
	}
	if len(r.Settings) > 0 && string(r.Settings) != "null" {
		// A member that isn't known is a setting that would silently not hold.
		dec := json.NewDecoder(bytes.NewReader(r.Settings))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&e.Settings); err != nil {
			return app.Endpoint{}, fmt.Errorf("settings of endpoint %s: %w", r.ID, err)
		}
	}
	return e, nil
}

func toSecret(r *ent.WebhookSecret) app.Secret {
	return app.Secret{
		ID: r.ID, Kind: string(r.Kind), EndpointID: r.EndpointID, Sealed: r.Sealed, PublicKey: r.PublicKey, Prefix: r.Prefix,
		CreatedAt: r.CreatedAt.UTC(), ExpiresAt: inUTC(r.ExpiresAt),
	}
}

func inUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	at := t.UTC()
	return &at
}

func notFound(err error) error {
	if ent.IsNotFound(err) {
		return resource.NotFound()
	}
	return err
}
