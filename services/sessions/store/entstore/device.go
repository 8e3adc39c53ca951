package entstore

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/deviceauthorization"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// SaveDevice implements store.Devices.
func (s *Store) SaveDevice(ctx context.Context, scope tenancy.Scope, d store.Device) error {
	err := s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.DeviceAuthorization.Create().SetID(d.Hash).SetUserCodeHash(d.UserCodeHash).SetClientID(d.ClientID).SetAgentName(d.AgentName).
			SetScope(d.Scope).SetState(deviceauthorization.State(d.State)).SetPollInterval(int(d.Interval / time.Second)).
			SetCreatedAt(d.CreatedAt).SetExpiresAt(d.ExpiresAt).Exec(ctx)
	})
	if ent.IsConstraintError(err) {
		return store.ErrTaken
	}
	return err
}

// PendingDevice implements store.Devices.
func (s *Store) PendingDevice(ctx context.Context, scope tenancy.Scope, hashes []string, now time.Time) (store.Device, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.Device, error) {
		row, err := tx.DeviceAuthorization.Query().Where(deviceauthorization.UserCodeHashIn(hashes...),
			deviceauthorization.StateEQ(deviceauthorization.StatePending), deviceauthorization.ExpiresAtGT(now)).First(ctx)
		if ent.IsNotFound(err) {
			return store.Device{}, store.ErrNotFound
		}
		if err != nil {
			return store.Device{}, err
		}
		return deviceOf(row), nil
	})
}

// ChangeDevice implements store.Devices. SQLite has one writer; PostgreSQL locks the row.
func (s *Store) ChangeDevice(ctx context.Context, scope tenancy.Scope, hash string, change func(*store.Device) error) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		q := tx.DeviceAuthorization.Query().Where(deviceauthorization.ID(hash))
		if s.db.Postgres() {
			q.ForUpdate()
		}
		row, err := q.Only(ctx)
		if ent.IsNotFound(err) {
			return store.ErrNotFound
		}
		if err != nil {
			return err
		}
		was := deviceOf(row)
		d := was
		if err := change(&d); err != nil || d == was {
			return err
		}
		return tx.DeviceAuthorization.UpdateOneID(hash).SetState(deviceauthorization.State(d.State)).SetApprovedScope(d.ApprovedScope).
			SetAccount(d.Account).SetAccountLabel(d.AccountLabel).SetPollInterval(int(d.Interval / time.Second)).
			SetNillablePolledAt(optional(d.PolledAt)).Exec(ctx)
	})
}

// RedeemDevice implements store.Devices.
func (s *Store) RedeemDevice(ctx context.Context, scope tenancy.Scope, hash string, in store.SignedIn) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		n, err := tx.DeviceAuthorization.Update().
			Where(deviceauthorization.ID(hash), deviceauthorization.StateEQ(deviceauthorization.StateApproved)).
			SetState(deviceauthorization.StateConsumed).SetGrantID(in.Grant.ID).Save(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			return store.ErrConsumed
		}
		return s.signIn(ctx, tx, scope, in)
	})
}

// findDevice returns nil when there is no such Device Sign-In.
func findDevice(ctx context.Context, tx *ent.Tx, hash string) (*store.Device, error) {
	row, err := tx.DeviceAuthorization.Get(ctx, hash)
	if ent.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	if err != nil {
		return nil, err
	}
	d := deviceOf(row)
	return &d, nil
}

func deviceOf(row *ent.DeviceAuthorization) store.Device {
	return store.Device{
		Hash: row.ID, UserCodeHash: row.UserCodeHash, ClientID: row.ClientID, AgentName: row.AgentName, Scope: row.Scope,
		State: store.DeviceState(row.State), ApprovedScope: row.ApprovedScope, Account: row.Account, AccountLabel: row.AccountLabel,
		Interval: time.Duration(row.PollInterval) * time.Second, PolledAt: timeOf(row.PolledAt),
		CreatedAt: row.CreatedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(), GrantID: row.GrantID,
	}
}
