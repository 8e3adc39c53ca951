package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	entgo "entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/company"
	"github.com/poppyfield/poppyfield/ent/intercept"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

type driverValue = driver.NamedValue

// unit is what a transaction may touch: one Company, or everything for a reason.
type unit struct {
	scope  tenancy.Scope
	system Reason
}

type unitKey struct{}

func into(ctx context.Context, u unit) context.Context { return context.WithValue(ctx, unitKey{}, u) }

func unitFrom(ctx context.Context) (unit, bool) {
	u, ok := ctx.Value(unitKey{}).(unit)
	return u, ok
}

// shared are the entities without a company_id. Everything else is a tenant's, so
// that a new entity is confined unless somebody decides otherwise.
func shared(entity string) bool {
	return entity == ent.TypeOperatorKey || entity == ent.TypeAnsweredRequest
}

const companyColumn = "company_id"

// column returns the column that holds the Company of an entity's rows.
func column(entity string) string {
	if entity == ent.TypeCompany {
		return company.FieldID
	}
	return companyColumn
}

var errOutside = errors.New("query outside a unit of work")

// guarded makes the client and puts the tenant rules on it.
func guarded(drv dialect.Driver) *ent.Client {
	c := ent.NewClient(ent.Driver(drv)) //nolint:forbidigo // the one place that makes a client
	c.Intercept(intercept.TraverseFunc(func(ctx context.Context, q intercept.Query) error {
		u, ok := unitFrom(ctx)
		if !ok {
			return errOutside
		}
		if u.system != "" {
			return nil
		}
		if shared(q.Type()) {
			return fmt.Errorf("%s is not a company's", q.Type())
		}
		q.WhereP(entsql.FieldEQ(column(q.Type()), u.scope.CompanyID()))
		return nil
	}))
	c.Use(confine)
	return c
}

// confine keeps mutations within the unit's Company: new rows get its id, and
// updates and deletes, by id or in bulk, only reach its rows.
func confine(next ent.Mutator) ent.Mutator {
	return entgo.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
		u, ok := unitFrom(ctx)
		if !ok {
			return nil, errOutside
		}
		if u.system != "" {
			return next.Mutate(ctx, m)
		}
		if shared(m.Type()) {
			return nil, fmt.Errorf("%s is not a company's", m.Type())
		}
		if m.Op().Is(ent.OpCreate) {
			if err := own(m, u.scope); err != nil {
				return nil, err
			}
			return next.Mutate(ctx, m)
		}
		w, ok := m.(interface {
			WhereP(...func(*entsql.Selector))
		})
		if !ok {
			return nil, fmt.Errorf("%s can't be confined", m.Type())
		}
		w.WhereP(entsql.FieldEQ(column(m.Type()), u.scope.CompanyID()))
		return next.Mutate(ctx, m)
	})
}

// own gives a new row the unit's Company, and refuses one that names another.
func own(m ent.Mutation, scope tenancy.Scope) error {
	if m.Type() == ent.TypeCompany {
		return errors.New("companies are made by operators")
	}
	if v, ok := m.Field(companyColumn); ok && v != scope.CompanyID() {
		return errors.New("row of another company")
	}
	return m.SetField(companyColumn, scope.CompanyID())
}

func isConnect(err error) bool {
	var ne net.Error
	var ce *pgconn.ConnectError
	return errors.As(err, &ne) || errors.As(err, &ce) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, sql.ErrConnDone) || errors.Is(err, pgconn.ErrConnClosed)
}
