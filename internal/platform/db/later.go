package db

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/poppyfield/poppyfield/ent"
)

type laterKey struct{}

// Later returns ctx for a statement of a unit of work whose result nobody looks at: a
// row that is written. On PostgreSQL it is sent with the next query of the unit, or
// with the commit, which fails if it does; on SQLite at once. What it would have
// reported, such as how many rows it changed, can't be relied on.
func Later(ctx context.Context) context.Context { return context.WithValue(ctx, laterKey{}, true) }

func isLater(ctx context.Context) bool {
	later, _ := ctx.Value(laterKey{}).(bool)
	return later
}

// statement is one that waits to be sent.
type statement struct {
	sql  string
	args []any
}

// maxLater bounds what waits: the server has to answer it all before anything else.
const maxLater = 50

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if _, inUnit := unitFrom(ctx); inUnit && isLater(ctx) && len(c.later) < maxLater {
		s := statement{sql: query, args: make([]any, len(args))}
		for i, a := range args {
			s.args[i] = a.Value
		}
		c.later = append(c.later, s)
		return driver.RowsAffected(1), nil
	}
	if err := c.flush(ctx); err != nil {
		return nil, err
	}
	return c.Conn.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext. It sees what was put off.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.flush(ctx); err != nil {
		return nil, err
	}
	return c.Conn.QueryContext(ctx, query, args)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.flush(ctx); err != nil {
		return nil, err
	}
	return c.Conn.PrepareContext(ctx, query)
}

// ResetSession implements driver.SessionResetter.
func (c *conn) ResetSession(ctx context.Context) error {
	c.later = nil
	return c.Conn.ResetSession(ctx)
}

func (c *conn) flush(ctx context.Context) error {
	if len(c.later) == 0 {
		return nil
	}
	return c.send(ctx)
}

// send sends what waits, and more statements after it, in one round trip. The first
// that fails keeps the server from doing those after it.
func (c *conn) send(ctx context.Context, more ...string) error {
	batch := &pgx.Batch{}
	for _, s := range c.later {
		batch.Queue(s.sql, s.args...)
	}
	for _, sql := range more {
		batch.Queue(sql)
	}
	c.later = nil
	results := c.Conn.Conn().SendBatch(ctx, batch)
	var failed error
	for range batch.Len() {
		if _, err := results.Exec(); err != nil {
			failed = err
			break
		}
	}
	if err := results.Close(); failed == nil {
		failed = err
	}
	return failed
}

// IsTaken reports that a row collided with another one's unique values, told by a
// statement of the unit or, for one that was put off, by its commit.
func IsTaken(err error) bool {
	var pg *pgconn.PgError
	return ent.IsConstraintError(err) || errors.As(err, &pg) && pg.Code == uniqueViolation
}

const uniqueViolation = "23505"
