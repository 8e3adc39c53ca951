package db

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// connector makes PostgreSQL connections that save round trips, since a unit of work
// is short and every request has several: its transaction begins bound to the unit's
// Company in one, and the statements marked by Later go out together, with the commit.
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

// conn is a connection with the statements of its transaction that were put off.
type conn struct {
	*stdlib.Conn
	later []statement
}

// BeginTx implements driver.ConnBeginTx. A transaction outside of a unit sees no
// tenant's rows: nothing is set for it.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.later = nil
	u, ok := unitFrom(ctx)
	if !ok {
		return c.Conn.BeginTx(ctx, opts)
	}
	begin, err := u.begin(opts.ReadOnly)
	if err != nil {
		return nil, err
	}
	if c.Conn.Conn().IsClosed() {
		return nil, driver.ErrBadConn
	}
	tx, err := c.Conn.Conn().BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		if pgconn.SafeToRetry(err) { // nothing was sent: the pool takes another connection
			return nil, driver.ErrBadConn
		}
		return nil, err
	}
	return transaction{ctx, c, tx}, nil
}

// begin is the statements that open the unit's transaction. The settings are local to
// it: a pooled connection carries nothing over.
func (u unit) begin(readOnly bool) (string, error) {
	company, system := u.scope.CompanyID(), ""
	if u.system != "" {
		system = "on"
	}
	// Several statements take no parameters. A Scope holds nothing but checked ids, which is checked again here.
	if strings.ContainsFunc(company, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return "", fmt.Errorf("%q is no company id", company)
	}
	begin := "begin"
	if readOnly {
		begin = "begin read only"
	}
	return begin + "; select set_config('app.company', '" + company + "', true), set_config('app.system', '" + system + "', true)", nil
}

// transaction is a driver.Tx; the driver interface has no context at the end of a transaction.
type transaction struct {
	ctx  context.Context
	conn *conn
	tx   pgx.Tx
}

// Commit implements driver.Tx.
func (t transaction) Commit() error {
	if len(t.conn.later) == 0 {
		return t.tx.Commit(t.ctx)
	}
	if err := t.conn.send(t.ctx, "commit"); err != nil {
		// After a failed statement the transaction is only waiting to be rolled back.
		_ = t.tx.Rollback(t.ctx)
		return err
	}
	return nil
}

// Rollback implements driver.Tx.
func (t transaction) Rollback() error {
	t.conn.later = nil
	return t.tx.Rollback(t.ctx)
}
