package db_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/test/pgtest"
)

// read runs a unit of work that asks the database something.
func read(ctx context.Context, d *db.DB) error {
	return d.SystemRead(ctx, db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		_, err := tx.Company.Query().Count(ctx)
		return err
	})
}

func TestUnit_PostgreSQLThatIsAwayIsUnavailableAndComesBack(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{Durable: true})
	d, err := db.Open(db.Config{DSN: s.Database(t, "away"), MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	require.NoError(t, d.Migrate(t.Context()))
	results := make(chan error, 8)
	reads := func() {
		for range cap(results) {
			go func() { results <- read(t.Context(), d) }()
		}
	}
	reads() // so that the pool has several connections
	for range cap(results) {
		require.NoError(t, <-results)
	}

	s.Crash(t)
	reads()
	for range cap(results) {
		p := problem.As(<-results)
		require.Equal(t, problem.TemporarilyUnavailable, p.Reason, "%v", p)
		require.Equal(t, time.Second, p.RetryAfter)
	}

	s.Restart(t)
	reads()
	for range cap(results) {
		require.NoError(t, <-results)
	}
}

// A server that comes back leaves the pool with dead connections, which no unit sees.
func TestUnit_ConnectionsThatDiedInThePoolAreReplaced(t *testing.T) {
	const conns = 8
	s := pgtest.Start(t, pgtest.Options{})
	dsn := s.Database(t, "died")
	d, err := db.Open(db.Config{DSN: dsn, MaxConns: conns})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	require.NoError(t, d.Migrate(t.Context()))
	all := func() {
		t.Helper()
		var ready sync.WaitGroup
		ready.Add(conns)
		results := make(chan error, conns)
		for range conns {
			go func() { // each with a connection of its own
				met := sync.OnceFunc(func() { ready.Done(); ready.Wait() })
				results <- d.SystemWrite(t.Context(), db.Prune, func(ctx context.Context, tx *ent.Tx) error {
					_, err := tx.Company.Query().Count(ctx)
					if err == nil {
						met()
					}
					return err
				})
			}()
		}
		for range conns {
			require.NoError(t, <-results)
		}
	}
	all()
	admin, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close(context.WithoutCancel(t.Context()))) })
	for range 3 {
		_, err = admin.Exec(t.Context(), "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
		require.NoError(t, err)
		all()
	}
}
