package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/pgtest"
)

func migrate(ctx context.Context, url string) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, `CREATE TABLE thing (id int PRIMARY KEY)`)
	return errors.Join(err, c.Close(ctx))
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

func TestNew_DatabasesShareTheSchemaAndNoRows(t *testing.T) {
	first, second := connect(t, pgtest.New(t, migrate)), connect(t, pgtest.New(t, migrate))
	_, err := first.Exec(t.Context(), `INSERT INTO thing VALUES (1)`)
	require.NoError(t, err)
	var n int
	require.NoError(t, second.QueryRow(t.Context(), `SELECT count(*) FROM thing`).Scan(&n))
	require.Zero(t, n)
}

func TestNew_RoleIsBoundByRowLevelSecurity(t *testing.T) {
	c := connect(t, pgtest.New(t, migrate))
	var name string
	var super, bypass bool
	require.NoError(t, c.QueryRow(t.Context(),
		`SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user`).Scan(&name, &super, &bypass))
	require.Equal(t, pgtest.Role, name)
	require.False(t, super)
	require.False(t, bypass)
}

func TestNew_GoesWithItsTest(t *testing.T) {
	var url string
	t.Run("inner", func(t *testing.T) {
		url = pgtest.New(t, migrate)
		_ = connect(t, url)
	})
	_, err := pgx.Connect(t.Context(), url)
	require.ErrorContains(t, err, "does not exist")
}

func TestRestart_KeepsCommittedRows(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{Durable: true})
	url := s.Database(t, "kept")
	require.NoError(t, migrate(t.Context(), url))
	c, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = c.Exec(t.Context(), `INSERT INTO thing VALUES (1)`)
	require.NoError(t, err)
	s.Crash(t)
	require.Error(t, c.Ping(t.Context()))
	s.Restart(t)
	var n int
	require.NoError(t, connect(t, url).QueryRow(t.Context(), `SELECT count(*) FROM thing`).Scan(&n))
	require.Equal(t, 1, n)
}

func BenchmarkNew(b *testing.B) {
	for i := range b.N {
		b.Run(fmt.Sprint(i), func(b *testing.B) { pgtest.New(b, migrate) })
	}
}
