package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/poppyfield/poppyfield/ent/migrate/migrations"
)

// Migrate brings the schema up to this release. Several processes may call it at once: PostgreSQL serialises them.
func (d *DB) Migrate(ctx context.Context) error {
	p, err := d.provider()
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrating: %w", err)
	}
	return nil
}

// Migrated reports an error unless the schema is exactly this release's or newer.
func (d *DB) Migrated(ctx context.Context) error {
	p, err := d.provider()
	if err != nil {
		return err
	}
	pending, err := p.HasPending(ctx)
	if err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if pending {
		return errors.New("the schema is older than this release: run the migrations first")
	}
	return nil
}

func (d *DB) provider() (*goose.Provider, error) {
	dialect, dir := goose.DialectSQLite3, "sqlite"
	var opts []goose.ProviderOption
	if d.Postgres() {
		dialect, dir = goose.DialectPostgres, "postgres"
		l, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return nil, err
		}
		opts = append(opts, goose.WithSessionLocker(l))
	}
	files, err := fs.Sub(migrations.FS, dir)
	if err != nil {
		return nil, err
	}
	opts = append(opts, goose.WithLogger(goose.NopLogger()))
	return goose.NewProvider(dialect, d.writer, files, opts...)
}

// Down takes the last migration back; only tests of the migrations call it.
func (d *DB) Down(ctx context.Context) error {
	p, err := d.provider()
	if err != nil {
		return err
	}
	_, err = p.Down(ctx)
	return err
}

// Raw gives the catalogue tests the pool itself.
func (d *DB) Raw() *sql.DB { return d.writer }
