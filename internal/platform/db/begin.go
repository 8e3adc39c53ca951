package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// connector makes PostgreSQL connections that save round trips, since a unit of work
// is short and every request has several: its transaction begins with its first
// statement, the statements marked by Later go out with the next one or the commit, and
// a question marked by Last ends it.
type connector struct{ driver.Connector }

func newConnector(dsn string) (driver.Connector, error) {
	d, ok := stdlib.GetDefaultDriver().(driver.DriverContext)
	if !ok {
		return nil, fmt.Errorf("driver %T has no connectors", stdlib.GetDefaultDriver())
	}
	c, err := d.OpenConnector(dsn)
	return connector{c}, err
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	got, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	pg, ok := got.(*stdlib.Conn)
	if !ok {
		return nil, fmt.Errorf("connection is a %T", got)
	}
	return &conn{Conn: pg}, nil
}

// conn is a connection with the state of the transaction of its unit.
type conn struct {
	*stdlib.Conn
	later    []statement // wait to be sent; what opens the transaction is first among them
	begun    bool        // what opens it was sent
	readOnly bool
	ended    bool // by its last question
}

// statement is one that waits to be sent.
type statement struct {
	sql  string
	args []any
}

// BeginTx implements driver.ConnBeginTx. A transaction outside of a unit sees no
// tenant's rows: nothing is set for it.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	u, ok := unitFrom(ctx)
	if !ok {
		c.later = nil
		return c.Conn.BeginTx(ctx, opts)
	}
	if c.Conn.Conn().IsClosed() {
		return nil, driver.ErrBadConn
	}
	c.later, c.begun, c.readOnly, c.ended = u.begin(opts.ReadOnly), false, opts.ReadOnly, false
	return transaction{ctx, c}, nil
}

// opening is how many statements open the transaction of a unit.
const opening = 2

// begin is these. The settings are local to the transaction: a pooled connection
// carries nothing over.
func (u unit) begin(readOnly bool) []statement {
	begin, system := "begin", ""
	if readOnly {
		begin = "begin read only"
	}
	if u.system != "" {
		system = "on"
	}
	return []statement{
		{sql: begin},
		{sql: "select set_config('app.company', $1, true), set_config('app.system', $2, true)", args: []any{u.scope.CompanyID(), system}},
	}
}

// transaction is a driver.Tx; the driver interface has no context at the end of a transaction.
type transaction struct {
	ctx  context.Context
	conn *conn
}

// Commit implements driver.Tx.
func (t transaction) Commit() error {
	c := t.conn
	if c.ended || !c.begun && len(c.later) == opening { // nothing was asked of it
		c.later = nil
		return nil
	}
	if c.begun && c.Conn.Conn().PgConn().TxStatus() != 'T' { // a statement failed, and fn didn't say so
		return errors.Join(pgx.ErrTxCommitRollback, t.Rollback())
	}
	if _, _, err := c.send(t.ctx, nil, true); err != nil {
		_ = t.Rollback()
		return err
	}
	return nil
}

// Rollback implements driver.Tx.
func (t transaction) Rollback() error {
	pg := t.conn.Conn.Conn()
	t.conn.later = nil
	if pg.IsClosed() || pg.PgConn().TxStatus() == 'I' {
		return nil
	}
	if _, err := pg.Exec(t.ctx, "rollback"); err != nil {
		_ = pg.Close(t.ctx) // nobody knows what state it is in
		return err
	}
	return nil
}
