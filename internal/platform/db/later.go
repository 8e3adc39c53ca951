package db

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/poppyfield/poppyfield/ent"
)

type (
	laterKey struct{}
	lastKey  struct{}
)

// Later returns ctx for a statement of a unit of work whose result nobody looks at: a
// row that is written. On PostgreSQL it is sent with the next query of the unit, or
// with the commit, which fails if it does; on SQLite at once. What it would have
// reported, such as how many rows it changed, can't be relied on.
func Later(ctx context.Context) context.Context { return context.WithValue(ctx, laterKey{}, true) }

// Last returns ctx for the last question of a unit that only reads. On PostgreSQL the
// transaction ends with it, without a further round trip, and anything that is asked
// after it fails; on SQLite it changes nothing.
func Last(ctx context.Context) context.Context { return context.WithValue(ctx, lastKey{}, true) }

func is(ctx context.Context, key any) bool {
	set, _ := ctx.Value(key).(bool)
	return set
}

// maxLater bounds what waits: the server has to answer it all before anything else.
const maxLater = 50

var errEnded = errors.New("a question after the last one of a unit of work")

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	_, inUnit := unitFrom(ctx)
	switch {
	case !inUnit:
		return c.Conn.ExecContext(ctx, query, args)
	case c.ended:
		return nil, errEnded
	case is(ctx, laterKey{}) && len(c.later) < maxLater:
		c.later = append(c.later, newStatement(query, args))
		return driver.RowsAffected(1), nil
	case len(c.later) == 0:
		return c.Conn.ExecContext(ctx, query, args)
	}
	s := newStatement(query, args)
	tag, _, err := c.send(ctx, &s, false)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// QueryContext implements driver.QueryerContext. It sees what was put off.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	_, inUnit := unitFrom(ctx)
	if inUnit && c.ended {
		return nil, errEnded
	}
	last := inUnit && c.readOnly && is(ctx, lastKey{})
	if len(c.later) == 0 && !last {
		return c.Conn.QueryContext(ctx, query, args)
	}
	s := newStatement(query, args)
	_, got, err := c.send(ctx, &s, last)
	if err != nil {
		return nil, err // not a nil *rows
	}
	c.ended = last
	return got, nil
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if len(c.later) > 0 {
		if _, _, err := c.send(ctx, nil, false); err != nil {
			return nil, err
		}
	}
	return c.Conn.PrepareContext(ctx, query)
}

// ResetSession implements driver.SessionResetter.
func (c *conn) ResetSession(ctx context.Context) error {
	c.later, c.ended = nil, false
	return c.Conn.ResetSession(ctx)
}

func newStatement(query string, args []driver.NamedValue) statement {
	s := statement{sql: query, args: make([]any, len(args))}
	for i, a := range args {
		s.args[i] = a.Value
	}
	return s
}

// send sends what waits, then s, where there is one, and the commit, in one round trip,
// and returns what came of s. The first statement that fails keeps the server from doing
// those after it.
func (c *conn) send(ctx context.Context, s *statement, commit bool) (pgconn.CommandTag, *rows, error) {
	batch := &pgx.Batch{}
	for _, l := range c.later {
		batch.Queue(l.sql, l.args...)
	}
	before := len(c.later)
	c.later, c.begun = nil, true
	if s != nil {
		batch.Queue(s.sql, s.args...)
	}
	if commit {
		batch.Queue("commit")
	}
	results := c.Conn.Conn().SendBatch(ctx, batch)
	tag, got, err := receive(results, before, s != nil, c.Conn.Conn().TypeMap())
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err != nil && c.Conn.Conn().IsClosed() && ctx.Err() == nil && (!commit || c.readOnly) {
		err = lostError{err}
	}
	return tag, got, err
}

// lostError is that of a connection that was lost before its transaction could have been
// committed: nothing of the unit has happened.
type lostError struct{ error }

// Unwrap returns what the driver says.
func (e lostError) Unwrap() error { return e.error }

// IsTaken reports that a row collided with another one's unique values, told by a
// statement of the unit or, for one that was put off, by its commit.
func IsTaken(err error) bool {
	var pg *pgconn.PgError
	return ent.IsConstraintError(err) || errors.As(err, &pg) && pg.Code == uniqueViolation
}

const uniqueViolation = "23505"
