package relaybench_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// written is what a turn writes to a table.
type written struct {
	Table   string  `json:"table"`
	Inserts float64 `json:"inserts"`
	Updates float64 `json:"updates"`
	Bytes   int     `json:"row_bytes"`
}

// counters are what PostgreSQL has counted.
type counters struct {
	rows    map[string][2]int64 // inserted and updated, by table
	commits int64
	log     int64 // bytes of the write-ahead log
}

func (r *rig) counters(t *testing.T) counters {
	t.Helper()
	c := counters{rows: map[string][2]int64{}}
	rows, err := r.super.Query(t.Context(), `SELECT relname, n_tup_ins, n_tup_upd FROM pg_stat_user_tables WHERE relname NOT LIKE 'floor%'`)
	require.NoError(t, err)
	var name string
	var n [2]int64
	_, err = pgx.ForEachRow(rows, []any{&name, &n[0], &n[1]}, func() error {
		c.rows[name] = n
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, r.super.QueryRow(t.Context(),
		`SELECT (pg_current_wal_lsn() - '0/0')::bigint, (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())`).Scan(&c.log, &c.commits))
	return c
}

// wrote returns what a turn writes, from the counters around turns of them.
func (r *rig) wrote(t *testing.T, before, after counters, turns int) []written {
	t.Helper()
	var out []written
	for name, n := range after.rows {
		w := written{Table: name, Inserts: float64(n[0]-before.rows[name][0]) / float64(turns), Updates: float64(n[1]-before.rows[name][1]) / float64(turns)}
		if w.Inserts+w.Updates < 0.1 {
			continue
		}
		require.NoError(t, r.super.QueryRow(t.Context(),
			"SELECT coalesce(avg(pg_column_size(r.*)), 0)::int FROM (SELECT * FROM "+pgx.Identifier{name}.Sanitize()+" LIMIT 2000) r").Scan(&w.Bytes))
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b written) int { return strings.Compare(a.Table, b.Table) })
	return out
}

// floor is the database alone, with tables of one index each.
type floor struct {
	clients []*pgx.Conn
	turns   []written
	bodies  []string
}

func (r *rig) newFloor(t *testing.T, turns []written, clients int) *floor {
	t.Helper()
	f := &floor{turns: turns}
	for range clients {
		c, err := pgx.Connect(t.Context(), r.dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
		f.clients = append(f.clients, c)
	}
	_, err := f.clients[0].Exec(t.Context(), "CREATE TABLE floor_one (id bigserial PRIMARY KEY, n bigint)")
	require.NoError(t, err)
	for i, w := range turns {
		const head = 40 // of a row with an id
		f.bodies = append(f.bodies, strings.Repeat("x", max(w.Bytes-head, 1)))
		for _, statement := range []string{
			fmt.Sprintf("CREATE TABLE floor_%d (id bigserial PRIMARY KEY, body text)", i),
			fmt.Sprintf("INSERT INTO floor_%d (body) SELECT '%s' FROM generate_series(1, %d)", i, f.bodies[i], clients),
		} {
			_, err := f.clients[0].Exec(t.Context(), statement)
			require.NoError(t, err)
		}
	}
	return f
}

// one commits a single row.
func (f *floor) one(ctx context.Context, client int) error {
	_, err := f.clients[client].Exec(ctx, "INSERT INTO floor_one (n) VALUES ($1)", client)
	return err
}

// turn commits two transactions that write together what a turn writes, each pipelined.
func (f *floor) turn(ctx context.Context, client int) error {
	for half := range 2 {
		var b pgx.Batch
		for i, w := range f.turns {
			for range share(w.Inserts, half) {
				b.Queue(fmt.Sprintf("INSERT INTO floor_%d (body) VALUES ($1)", i), f.bodies[i])
			}
			for range share(w.Updates, half) {
				b.Queue(fmt.Sprintf("UPDATE floor_%d SET body = $1 WHERE id = $2", i), f.bodies[i], client+1)
			}
		}
		// A batch is one transaction, committed at its end.
		if err := f.clients[client].SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
	}
	return nil
}

// share is how many of a turn's writes go to its first or second half.
func share(perTurn float64, half int) int {
	n := int(math.Round(perTurn))
	return (n + 1 - half) / 2
}

// measure has the first n clients work for a while.
func (f *floor) measure(t *testing.T, n int, over time.Duration, work func(context.Context, int) error) figures {
	t.Helper()
	took, err := closedLoop(t.Context(), n, over, work)
	require.NoError(t, err)
	return summed(slices.Concat(took...), over)
}
