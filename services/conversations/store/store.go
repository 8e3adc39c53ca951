package store

import (
	"context"
	"errors"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// ErrTaken says that another transaction was first with the same message id or the
// same sequence number. Who gets it reads again and finds what the other wrote.
var ErrTaken = errors.New("another transaction was first")

// Store opens units of work on the rows of this service.
type Store struct {
	db     *db.DB
	events *outbox.Recorder
}

// New makes a store on d, which tells events of what happens to conversations; nil for nobody.
func New(d *db.DB, events *outbox.Recorder) *Store { return &Store{db: d, events: events} }

// Tx is a unit of work on the rows of one Company.
type Tx struct {
	tx       *ent.Tx
	postgres bool
	events   *outbox.Recorder
}

// Write runs fn in a transaction that commits when fn returns nil. fn may run
// again, so it has no effect outside of the transaction.
func (s *Store) Write(ctx context.Context, scope tenancy.Scope, fn func(context.Context, Tx) error) error {
	return taken(s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return fn(ctx, Tx{tx, s.db.Postgres(), s.events})
	}))
}

// Read runs fn in a transaction that changes nothing.
func (s *Store) Read(ctx context.Context, scope tenancy.Scope, fn func(context.Context, Tx) error) error {
	return s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return fn(ctx, Tx{tx, s.db.Postgres(), nil})
	})
}

// Quiet reports that nobody at the Company listens, so that nothing needs to be made for Tell.
func (t Tx) Quiet(scope tenancy.Scope) bool { return t.events.Quiet(scope) }

// Tell records events for the Company's listeners, together with what this unit of work changes.
func (t Tx) Tell(ctx context.Context, scope tenancy.Scope, events ...outbox.Event) error {
	return t.events.Add(ctx, t.tx, scope, events...)
}

func taken(err error) error {
	if db.IsTaken(err) {
		return errors.Join(ErrTaken, err)
	}
	return err
}
