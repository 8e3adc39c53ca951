// Package dbtest gives tests a fresh, migrated database of each kind.
package dbtest

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/test/pgtest"
)

// Each runs fn as a subtest on SQLite and on PostgreSQL.
func Each(t *testing.T, fn func(*testing.T, *db.DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { fn(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { fn(t, Postgres(t)) })
}

// SQLite opens a new SQLite database.
func SQLite(t testing.TB) *db.DB {
	t.Helper()
	return opened(t, "sqlite:"+filepath.Join(t.TempDir(), "poppyfield.db"), true)
}

// Postgres opens a new PostgreSQL database.
func Postgres(t testing.TB) *db.DB {
	t.Helper()
	return opened(t, pgtest.New(t, migrate), false)
}

func opened(t testing.TB, dsn string, up bool) *db.DB {
	t.Helper()
	d, err := db.Open(db.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the database: %v", err)
		}
	})
	if up {
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func migrate(ctx context.Context, url string) error {
	d, err := db.Open(db.Config{DSN: url})
	if err != nil {
		return err
	}
	return errors.Join(d.Migrate(ctx), d.Close())
}

// Company makes the row of an active Company and returns its scope. Its issuer is
// https://{slug}.poppyfield.test, where slug is made from the id.
func Company(t testing.TB, d *db.DB) tenancy.Scope {
	t.Helper()
	id := ids.New(ids.Company)
	slug := "c-" + id[len(id)-12:]
	err := d.SystemWrite(t.Context(), db.ManageTenants, func(ctx context.Context, tx *ent.Tx) error {
		host := slug + ".poppyfield.test"
		return tx.Company.Create().SetID(id).SetSlug(slug).SetDisplayName(slug).SetState("active").
			SetIssuer("https://" + host).SetIssuerHost(host).Exec(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	scope, err := tenancy.For(id)
	if err != nil {
		t.Fatal(err)
	}
	return scope
}
