package conversations_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	entconversation "github.com/poppyfield/poppyfield/ent/conversation"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/services/conversations"
	"github.com/poppyfield/poppyfield/test/pgtest"
)

// BenchmarkRelayTurn measures one turn as the agent sees it: POST with wait over
// HTTP, two durable commits, a backend that answers at once, and the reply in the
// response. "commit" is the floor below it: one row changed and committed durably
// on the same database in the same run.
func BenchmarkRelayTurn(b *testing.B) {
	for _, database := range []struct {
		name string
		open func(testing.TB) *db.DB
	}{{"sqlite", dbtest.SQLite}, {"postgres", durablePostgres}} {
		b.Run(database.name, func(b *testing.B) {
			in := newInstallationWith(b, database.open(b), conversations.Config{})
			u := in.user("usr_1")
			id := u.start(b, "msg_first", "hello").ConversationID
			b.Run("commit", func(b *testing.B) { measure(b, 1, func(i int) error { return in.touch(b.Context(), id, i) }) })
			for _, agents := range []int{1, 16} {
				b.Run(fmt.Sprintf("turn-%d", agents), func(b *testing.B) {
					var run atomic.Int64
					users := make([]*user, agents)
					talks := make([]answer, agents)
					for i := range users {
						users[i] = in.user(ids.New("usr"))
						talks[i] = users[i].start(b, fmt.Sprintf("msg_%d_%d", b.N, run.Add(1)), "hello")
					}
					measure(b, agents, func(i int) error {
						n := i % agents
						got, err := users[n].try(b.Context(), http.MethodPost, endpoint+"/"+talks[n].ConversationID+"/messages?wait=20&cursor="+talks[n].Cursor,
							text(fmt.Sprintf("msg_%d_%d", b.N, run.Add(1)), "and?"))
						if err == nil && (got.Status != http.StatusAccepted || got.State != "idle") {
							err = fmt.Errorf("status %d: %s", got.Status, got.Raw)
						}
						talks[n].Cursor = got.Cursor
						return err
					})
				})
			}
		})
	}
}

// durablePostgres is a PostgreSQL that flushes its log at every commit, as in production.
func durablePostgres(b testing.TB) *db.DB {
	b.Helper()
	server := pgtest.Start(b, pgtest.Options{Durable: true})
	d, err := db.Open(db.Config{DSN: server.Database(b, "bench")})
	require.NoError(b, err)
	b.Cleanup(func() { _ = d.Close() })
	require.NoError(b, d.Migrate(b.Context()))
	return d
}

func (in *installation) touch(ctx context.Context, id string, i int) error {
	return in.DB.Write(ctx, in.company.Scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Conversation.Update().Where(entconversation.ID(id)).SetVersion(int64(i) + 2).Exec(ctx)
	})
}

// measure runs work b.N times on parallel workers, each of which keeps to its own share, and reports the percentiles.
func measure(b *testing.B, parallel int, work func(i int) error) {
	b.Helper()
	took := make([]time.Duration, b.N)
	errs := make(chan error, parallel)
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range parallel {
		wg.Go(func() {
			for i := w; i < b.N; i += parallel {
				begun := clock.System()
				if err := work(i); err != nil {
					errs <- err
					return
				}
				took[i] = clock.System().Sub(begun)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	select {
	case err := <-errs:
		b.Fatal(err)
	default:
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[b.N/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
}
