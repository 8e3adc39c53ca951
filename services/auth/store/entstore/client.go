package entstore

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/registeredclient"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Register implements store.Clients. Several at once may all find the last place free.
func (s *Store) Register(ctx context.Context, scope tenancy.Scope, c store.RegisteredClient, most int) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		n, err := tx.RegisteredClient.Query().Where(registeredclient.ExpiresAtGT(c.CreatedAt)).Count(ctx)
		if err != nil {
			return err
		}
		if n >= most {
			return store.ErrFull
		}
		return tx.RegisteredClient.Create().SetID(c.ID).SetName(c.Name).SetRedirectUris(c.RedirectURIs).
			SetCreatedAt(c.CreatedAt).SetExpiresAt(c.ExpiresAt).Exec(ctx)
	})
}

// Client implements store.Clients.
func (s *Store) Client(ctx context.Context, scope tenancy.Scope, id string) (store.RegisteredClient, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.RegisteredClient, error) {
		row, err := tx.RegisteredClient.Get(ctx, id)
		if ent.IsNotFound(err) {
			return store.RegisteredClient{}, store.ErrNotFound
		}
		if err != nil {
			return store.RegisteredClient{}, err
		}
		return store.RegisteredClient{
			ID: row.ID, Name: row.Name, RedirectURIs: row.RedirectUris, CreatedAt: row.CreatedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(),
		}, nil
	})
}

// KeepClient implements store.Clients.
func (s *Store) KeepClient(ctx context.Context, scope tenancy.Scope, id string, until time.Time) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.RegisteredClient.Update().Where(registeredclient.ID(id), registeredclient.ExpiresAtLT(until)).SetExpiresAt(until).Exec(ctx)
	})
}

// PruneClients implements store.Clients.
func (s *Store) PruneClients(ctx context.Context, before time.Time, limit int) (int, error) {
	n := 0
	err := s.db.SystemWrite(ctx, db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		found, err := tx.RegisteredClient.Query().Where(registeredclient.ExpiresAtLT(before)).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			n = 0
			return err
		}
		// One of them may have been used since it was found.
		n, err = tx.RegisteredClient.Delete().Where(registeredclient.IDIn(found...), registeredclient.ExpiresAtLT(before)).Exec(ctx)
		return err
	})
	return n, err
}
