package store

import (
	"context"
	"errors"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// ErrTaken says that another transaction was first with the same message id or the
// same sequence number. Who gets it reads again and finds what the other wrote.
var ErrTaken = errors.New("another transaction was first")

// Store opens units of work on the rows of this service.
type Store struct{ db *db.DB }

// New makes a store on d.
func New(d *db.DB) *Store { return &Store{db: d} }

// Tx is a unit of work on the rows of one Company.
type Tx struct {
	tx       *ent.Tx
	postgres bool
}

// Write runs fn in a transaction that commits when fn returns nil. fn may run
// again, so it has no effect outside of the transaction.
func (s *Store) Write(ctx context.Context, scope tenancy.Scope, fn func(context.Context, Tx) error) error {
	return taken(s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return fn(ctx, Tx{tx, s.db.Postgres()})
	}))
}

// Read runs fn in a transaction that changes nothing.
func (s *Store) Read(ctx context.Context, scope tenancy.Scope, fn func(context.Context, Tx) error) error {
	return s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return fn(ctx, Tx{tx, s.db.Postgres()})
	})
}

func taken(err error) error {
	if ent.IsConstraintError(err) {
		return errors.Join(ErrTaken, err)
	}
	return err
}
