package db_test

import (
	"context"
	"testing"
	"time"

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
