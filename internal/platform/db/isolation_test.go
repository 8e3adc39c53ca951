package db_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/migrate"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// sharedTables have no company_id. Adding to this list is a decision.
var sharedTables = map[string]bool{"companies": true, "operator_keys": true, "answered_requests": true}

// referredTo are the tables whose rows others refer to by composite foreign keys.
var referredTo = map[string]bool{"conversations": true, "sessions": true, "grants": true, "endpoints": true}

// neverChanged are the tables whose rows have nothing to set.
var neverChanged = map[string]bool{"attempts": true, "browser_cookies": true}

// row inserts a row with made-up values into any table, below ent.
func row(t *testing.T, d *db.DB, table *schema.Table, company string, seq int, parents map[string]string) any {
	t.Helper()
	var cols, marks []string
	var args []any
	var id any
	for _, c := range table.Columns {
		if c.Nullable || c.Default != nil && c.Name != "id" {
			continue
		}
		var v any
		switch {
		case c.Name == "company_id":
			v = company
		case parents[c.Name] != "":
			v = parents[c.Name]
		case len(c.Enums) > 0:
			v = c.Enums[0]
		default:
			v = value(c, seq)
		}
		if c.Name == "id" {
			id = v
		}
		cols = append(cols, `"`+c.Name+`"`)
		args = append(args, v)
		marks = append(marks, mark(d, len(args)))
	}
	tx, err := d.Raw().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	if d.Postgres() {
		_, err = tx.ExecContext(t.Context(), "SELECT set_config('app.system', 'on', true)")
		require.NoError(t, err)
	}
	_, err = tx.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO %q (%s) VALUES (%s)`, table.Name, strings.Join(cols, ","), strings.Join(marks, ",")), args...)
	require.NoError(t, err, table.Name)
	require.NoError(t, tx.Commit())
	return id
}

func mark(d *db.DB, n int) string {
	if d.Postgres() {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}

func value(c *schema.Column, seq int) any {
	switch c.Type {
	case field.TypeBool:
		return true
	case field.TypeInt, field.TypeInt64:
		return seq
	case field.TypeTime:
		return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	case field.TypeBytes:
		return []byte{byte(seq)}
	case field.TypeJSON:
		return "[]"
	case field.TypeUUID:
		return uuid.NewSHA1(uuid.Nil, fmt.Appendf(nil, "%s-%d", c.Name, seq))
	default:
		return fmt.Sprintf("%s-%d", c.Name, seq)
	}
}

func tenantTables(t *testing.T) []*schema.Table {
	t.Helper()
	var out []*schema.Table
	for _, table := range migrate.Tables {
		has := false
		for _, c := range table.Columns {
			has = has || c.Name == "company_id"
		}
		require.Equal(t, !sharedTables[table.Name], has, "%s must carry company_id or be listed as shared", table.Name)
		if has {
			out = append(out, table)
		}
	}
	require.Len(t, out, len(migrate.Tables)-len(sharedTables))
	return out
}

// entity returns the generated client of a table, for example tx.Domain.
func entity(t *testing.T, tx *ent.Tx, table string) reflect.Value {
	t.Helper()
	v := reflect.ValueOf(tx).Elem()
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() {
			continue
		}
		name := strings.ToLower(v.Type().Field(i).Name)
		flat := strings.ReplaceAll(table, "_", "")
		if flat == name || flat == name+"s" || strings.HasSuffix(name, "y") && flat == name[:len(name)-1]+"ies" {
			return v.Field(i)
		}
	}
	t.Fatalf("no client for table %s", table)
	return reflect.Value{}
}

func call(v reflect.Value, method string, args ...any) []reflect.Value {
	in := make([]reflect.Value, len(args))
	for i, a := range args {
		in[i] = reflect.ValueOf(a)
	}
	return v.MethodByName(method).Call(in)
}

// change sets some field of an update, so that it isn't a no-op.
func change(t *testing.T, update reflect.Value) reflect.Value {
	t.Helper()
	for i := range update.NumMethod() {
		m, typ := update.Type().Method(i), update.Method(i).Type()
		if !strings.HasPrefix(m.Name, "Set") || strings.HasPrefix(m.Name, "SetNillable") || typ.NumIn() != 1 || typ.IsVariadic() {
			continue
		}
		switch in := typ.In(0); in.Kind() {
		case reflect.String:
			if in.Name() != "string" {
				continue
			}
			return update.Method(i).Call([]reflect.Value{reflect.ValueOf("changed")})[0]
		case reflect.Slice, reflect.Bool, reflect.Int64:
			return update.Method(i).Call([]reflect.Value{reflect.New(in).Elem()})[0]
		case reflect.Struct:
			if in == reflect.TypeFor[time.Time]() {
				return update.Method(i).Call([]reflect.Value{reflect.ValueOf(time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC))})[0]
			}
		default:
		}
	}
	t.Fatalf("%s has nothing to set", update.Type())
	return reflect.Value{}
}

// Every entity × read, count, bulk update, update by id, bulk delete, delete by id, as another Company (MT-01, MT-03).
func TestIsolation_OneCompanyNeverReachesAnothersRows(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a, b := dbtest.Company(t, d), dbtest.Company(t, d)
		tables := tenantTables(t)
		parents := map[string]map[string]string{a.CompanyID(): {}, b.CompanyID(): {}}
		rows := map[string]any{} // of company a, by table
		seq := 0
		// Those that others refer to first.
		for pass := range 2 {
			for _, table := range tables {
				parent := referredTo[table.Name]
				if parent != (pass == 0) {
					continue
				}
				for _, company := range []string{a.CompanyID(), b.CompanyID()} {
					seq++
					id := row(t, d, table, company, seq, parents[company])
					if company == a.CompanyID() {
						rows[table.Name] = id
					}
					if parent {
						parents[company][strings.TrimSuffix(table.Name, "s")+"_id"] = fmt.Sprint(id)
					}
				}
			}
		}
		count := func(scope tenancy.Scope, table string) int {
			var n int
			require.NoError(t, d.Read(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error {
				out := call(call(entity(t, tx, table), "Query")[0], "Count", ctx)
				n = int(out[0].Int())
				err, _ := out[1].Interface().(error)
				return err
			}))
			return n
		}
		for _, table := range tables {
			require.Equal(t, 1, count(a, table.Name), "%s: own row", table.Name)
			id := rows[table.Name]
			asB := func(what string, op func(ctx context.Context, c reflect.Value, key any)) {
				err := d.Write(t.Context(), b, func(ctx context.Context, tx *ent.Tx) error {
					c := entity(t, tx, table.Name)
					op(ctx, c, reflect.ValueOf(id).Convert(c.MethodByName("Get").Type().In(1)).Interface())
					return context.Canceled // roll back
				})
				require.ErrorIs(t, err, context.Canceled, "%s: %s", table.Name, what)
			}
			notFound := func(what string, out reflect.Value) {
				err, _ := out.Interface().(error)
				require.True(t, ent.IsNotFound(err), "%s: %s: %v", table.Name, what, err)
			}
			asB("get", func(ctx context.Context, c reflect.Value, key any) {
				notFound("get by id", call(c, "Get", ctx, key)[1])
			})
			asB("delete", func(ctx context.Context, c reflect.Value, key any) {
				notFound("delete by id", call(call(c, "DeleteOneID", key)[0], "Exec", ctx)[0])
			})
			if !neverChanged[table.Name] {
				asB("update", func(ctx context.Context, c reflect.Value, key any) {
					notFound("update by id", call(change(t, call(c, "UpdateOneID", key)[0]), "Exec", ctx)[0])
				})
				asB("bulk update", func(ctx context.Context, c reflect.Value, _ any) {
					out := call(change(t, call(c, "Update")[0]), "Save", ctx)
					require.Equal(t, 1, int(out[0].Int()), "%s: bulk update reaches only the own row: %v", table.Name, out[1])
				})
			}
			if !referredTo[table.Name] {
				asB("bulk delete", func(ctx context.Context, c reflect.Value, _ any) {
					require.Equal(t, 1, int(call(call(c, "Delete")[0], "Exec", ctx)[0].Int()), "%s: bulk delete reaches only the own row", table.Name)
				})
			}
			require.Equal(t, 1, count(a, table.Name), "%s: still there", table.Name)
			require.Equal(t, 1, count(b, table.Name), "%s: rolled back", table.Name)
		}
	})
}

func TestIsolation_RowOfAnotherCompanyCannotBeMade(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a, b := dbtest.Company(t, d), dbtest.Company(t, d)
		err := d.Write(t.Context(), a, func(ctx context.Context, tx *ent.Tx) error {
			return tx.Domain.Create().SetID("dom_1").SetCompanyID(b.CompanyID()).SetDomain("x.example").SetChallenge("c").Exec(ctx)
		})
		require.ErrorContains(t, err, "row of another company")
		require.NoError(t, d.Write(t.Context(), a, func(ctx context.Context, tx *ent.Tx) error {
			return tx.Domain.Create().SetID("dom_1").SetDomain("x.example").SetChallenge("c").SetCompanyID(a.CompanyID()).Exec(ctx)
		}))
	})
}

// MT-11: no Company in the unit, or no unit, is a hard error and never all rows.
func TestMT11_NoCompanyFailsClosed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := dbtest.Company(t, d)
		never := func(context.Context, *ent.Tx) error { t.Error("unit ran without a company"); return nil }
		require.Error(t, d.Read(t.Context(), tenancy.Scope{}, never))
		require.Error(t, d.Write(t.Context(), tenancy.Scope{}, never))
		// A query that leaves its unit's context behind.
		outer := t.Context()
		err := d.Read(outer, a, func(_ context.Context, tx *ent.Tx) error {
			_, err := tx.Domain.Query().All(outer)
			return err
		})
		require.ErrorContains(t, err, "outside a unit of work")
		// A unit inside a unit can't widen what the first may see.
		err = d.Read(t.Context(), a, func(ctx context.Context, _ *ent.Tx) error {
			return d.SystemRead(ctx, db.Prune, never)
		})
		require.ErrorContains(t, err, "inside another")
		// Shared tables are no Company's.
		err = d.Read(t.Context(), a, func(ctx context.Context, tx *ent.Tx) error {
			_, err := tx.OperatorKey.Query().All(ctx)
			return err
		})
		require.ErrorContains(t, err, "is not a company's")
	})
}

// The catalogue itself: every table is under forced row-level security, and raw SQL without a Company sees nothing.
func TestIsolation_RowLevelSecurityOnEveryTable(t *testing.T) {
	d := dbtest.Postgres(t)
	scope := dbtest.Company(t, d)
	for _, table := range migrate.Tables {
		var on, forced bool
		require.NoError(t, d.Raw().QueryRowContext(t.Context(), `SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = $1::regclass`, table.Name).Scan(&on, &forced))
		require.True(t, on && forced, table.Name)
		var n int
		require.NoError(t, d.Raw().QueryRowContext(t.Context(), `SELECT count(*) FROM `+table.Name).Scan(&n))
		require.Zero(t, n, table.Name)
	}
	tx, err := d.Raw().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback() //nolint:errcheck // the test is over
	_, err = tx.ExecContext(t.Context(), `SELECT set_config('app.company', $1, true)`, scope.CompanyID())
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM companies`).Scan(&n))
	require.Equal(t, 1, n)
	_, err = tx.ExecContext(t.Context(), `INSERT INTO domains (id, company_id, domain, challenge, created_at, updated_at) VALUES ('d', 'cmp_other', 'x', 'y', now(), now())`)
	require.ErrorContains(t, err, "row-level security")
}

func TestMigrations_PostgresGoesDownAndUpAgain(t *testing.T) {
	d := dbtest.Postgres(t)
	require.NoError(t, d.Migrated(t.Context()))
	require.NoError(t, d.Down(t.Context()))
	require.NoError(t, d.Down(t.Context()))
	require.Error(t, d.Migrated(t.Context()))
	require.NoError(t, d.Migrate(t.Context()))
	require.NoError(t, d.Migrated(t.Context()))
}
