// Command diff writes the migration from the schema as migrated to the entities as
// they are, for each database: go run ./ent/migrate/diff NAME. DEV_PG_DSN names an
// empty PostgreSQL database to try the files on.
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"os"
	"slices"
	"strings"

	"ariga.io/atlas/sql/migrate"
	atlas "ariga.io/atlas/sql/schema"
	"ariga.io/atlas/sql/sqltool"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql/schema"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	entmigrate "github.com/poppyfield/poppyfield/ent/migrate"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: diff NAME")
	}
	// The driver names that ent opens.
	sql.Register("sqlite3", &sqlite.Driver{})
	sql.Register("postgres", stdlib.GetDefaultDriver())
	for _, d := range []struct{ dialect, dir, url string }{
		{dialect.Postgres, "ent/migrate/migrations/postgres", os.Getenv("DEV_PG_DSN")},
		{dialect.SQLite, "ent/migrate/migrations/sqlite", "sqlite://dev?mode=memory&cache=shared&_pragma=foreign_keys(1)"},
	} {
		dir, err := sqltool.NewGooseDir(d.dir)
		if err != nil {
			return err
		}
		// Files may have been completed by hand since the last run.
		sum, err := dir.Checksum()
		if err != nil {
			return err
		}
		if err := migrate.WriteSumFile(dir, sum); err != nil {
			return err
		}
		err = entmigrate.NamedDiff(ctx, d.url, args[0],
			schema.WithDir(dir), schema.WithFormatter(sqltool.GooseFormatter), schema.WithMigrationMode(schema.ModeReplay),
			schema.WithDialect(d.dialect), schema.WithDropColumn(true), schema.WithDropIndex(true),
			schema.WithDiffHook(keepHandmade))
		if err != nil && !errors.Is(err, migrate.ErrNoPlan) {
			return err
		}
	}
	return nil
}

// keepHandmade leaves alone what the entities can't express: the composite foreign
// keys, and the unique constraints they need.
func keepHandmade(next schema.Differ) schema.Differ {
	return schema.DiffFunc(func(current, desired *atlas.Schema) ([]atlas.Change, error) {
		changes, err := next.Diff(current, desired)
		if err != nil {
			return nil, err
		}
		var out []atlas.Change
		for _, c := range changes {
			m, ok := c.(*atlas.ModifyTable)
			if !ok {
				out = append(out, c)
				continue
			}
			m.Changes = slices.DeleteFunc(m.Changes, func(c atlas.Change) bool {
				switch c := c.(type) {
				case *atlas.DropForeignKey:
					return true
				case *atlas.DropIndex:
					return strings.HasSuffix(c.I.Name, "_of_company")
				}
				return false
			})
			if len(m.Changes) > 0 {
				out = append(out, m)
			}
		}
		return out, nil
	})
}
