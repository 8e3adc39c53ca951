package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/endpointdelivery"
	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/services/relay/queue"
	"github.com/poppyfield/poppyfield/test/natstest"
)

func TestQueue_EachEndpointGetsWhatItWantsOnce(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		all := r.listener(t, r.scope)
		sessions := r.listener(t, r.scope, "session.*")
		one := r.listener(t, r.scope, "conversation.closed")
		other := dbtest.Company(t, r.db)
		foreign := r.listener(t, other)
		r.start(t)
		r.happen(t, r.scope, webhook.EventSessionStarted, 30)
		r.happen(t, r.scope, webhook.EventClosed, 20)
		r.happen(t, other, webhook.EventSessionStarted, 5)
		r.delivered(t, all, 50)
		r.delivered(t, sessions, 30)
		r.delivered(t, one, 20)
		r.eventually(t, "the other Company's", func() bool { return len(r.world.of(foreign)) == 5 })

		events, deliveries := r.rows(t, r.scope)
		require.Len(t, events, 50)
		require.Len(t, deliveries, 100)
		once := map[string]bool{}
		for _, d := range deliveries {
			require.False(t, once[d.EndpointID+d.EventID])
			once[d.EndpointID+d.EventID] = true
			require.Equal(t, 1, d.Attempts)
		}
		// Both Companies' rows are apart.
		_, theirs := r.rows(t, other)
		require.Len(t, theirs, 5)
		for _, one := range r.world.of(foreign) {
			require.Contains(t, string(one.Body), other.Name())
			require.NotContains(t, string(one.Body), r.scope.CompanyID())
		}
		for _, one := range r.world.of(all) {
			require.Contains(t, string(one.Body), r.scope.Name())
		}
	})
}

func TestOutbox_WritesNothingWhereNobodyListens(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.happen(t, r.scope, webhook.EventClosed, 3)
		events, _ := r.rows(t, r.scope)
		require.Empty(t, events)
		require.True(t, r.events.Quiet(r.scope))
		r.listener(t, r.scope, "session.*")
		r.happen(t, r.scope, webhook.EventClosed, 3)
		events, _ = r.rows(t, r.scope)
		require.Empty(t, events, "nobody wants it")
		require.False(t, r.events.Quiet(r.scope))
	})
}

func TestOutbox_AnEventIsThereExactlyIfWhatItTellsOfIs(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.listener(t, r.scope)
		gone := errors.New("changed its mind")
		err := r.db.Write(t.Context(), r.scope, func(ctx context.Context, tx *ent.Tx) error {
			if err := r.events.Add(ctx, tx, r.scope, event(webhook.EventClosed, r.clock.Now())); err != nil {
				return err
			}
			return gone
		})
		require.ErrorIs(t, err, gone)
		events, _ := r.rows(t, r.scope)
		require.Empty(t, events)
	})
}

// TestWH13: retries have the id and the bytes of the first attempt; their time is the teller's.
func TestWH13_RetriesBySchedule(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.world.with(id, refused)
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		for n, wait := range []time.Duration{5 * time.Second, 5 * time.Minute} {
			r.eventually(t, "attempt", func() bool {
				d := r.list(t, id, queue.Filter{})
				return len(d) == 1 && d[0].Attempts == n+1 && !d[0].InFlight
			})
			d := r.list(t, id, queue.Filter{})[0]
			require.Equal(t, queue.Pending, d.State)
			require.Equal(t, 500, d.LastStatus)
			require.Equal(t, "status 500", d.LastReason)
			require.Equal(t, r.clock.Now().Add(wait), d.NextAttemptAt)
			r.clock.Advance(wait)
		}
		r.world.with(id, queue.Answer{Outcome: queue.Taken, Sent: true, Status: 200})
		r.delivered(t, id, 1)
		got := r.world.of(id)
		require.Len(t, got, 3)
		for n, one := range got {
			require.Equal(t, n+1, one.Attempt)
			require.Equal(t, got[0].EventID, one.EventID)
			require.Equal(t, got[0].Body, one.Body)
		}
	})
}

func TestQueue_GivenUpAfterTheScheduleAndToldOf(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		dead := r.listener(t, r.scope)
		ops := r.listener(t, r.scope, "delivery.*")
		r.world.with(dead, refused)
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.eventually(t, "given up", func() bool { r.clock.Advance(5 * time.Minute); return r.states(t, dead)["failed"] == 1 })
		r.delivered(t, ops, 1)
		told := r.world.of(ops)[0]
		require.Contains(t, string(told.Body), `"type":"delivery.exhausted"`)
		require.Contains(t, string(told.Body), `"attempts":3`)
		// That news fails at the dead endpoint, too, and is not told of again.
		r.eventually(t, "given up", func() bool { r.clock.Advance(5 * time.Minute); return r.states(t, dead)["failed"] == 2 })
		events, _ := r.rows(t, r.scope)
		require.Len(t, events, 2)
	})
}

func TestQueue_HeldBackIsNoAttempt(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.world.with(id, queue.Answer{Outcome: queue.Held, Reason: "the breaker is open", RetryAfter: time.Minute})
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 100)
		r.eventually(t, "held", func() bool { return len(r.world.of(id)) > 0 })
		asked := func() int { return len(r.world.of(id)) }
		r.eventually(t, "the others", func() bool { _, all := r.rows(t, r.scope); return len(all) == 100 })
		before := asked()
		require.LessOrEqual(t, before, 16, "what was held back is not asked for again")
		for _, d := range r.list(t, id, queue.Filter{}) {
			require.Zero(t, d.Attempts)
		}
		r.world.with(id, queue.Answer{Outcome: queue.Taken, Sent: true, Status: 200})
		r.clock.Advance(time.Minute)
		r.delivered(t, id, 100)
	})
}

func TestQueue_ForgetsAnEndpointThatItHeldBack(t *testing.T) {
	r := newRig(t, dbtest.SQLite(t))
	id := r.listener(t, r.scope)
	r.world.with(id, queue.Answer{Outcome: queue.Held, Reason: "the breaker is open", RetryAfter: time.Minute})
	q := r.start(t)
	r.happen(t, r.scope, webhook.EventClosed, 1)
	r.eventually(t, "held", func() bool { return len(r.world.of(id)) > 0 })
	require.Equal(t, 1, q.Lanes(), "while it is held back")
	r.world.with(id, queue.Answer{Outcome: queue.Taken, Sent: true, Status: 200})
	r.eventually(t, "recorded", func() bool { return !r.list(t, id, queue.Filter{})[0].InFlight })
	r.clock.Advance(time.Minute)
	r.delivered(t, id, 1)
	r.eventually(t, "forgotten", func() bool { return q.Lanes() == 0 })
}

// TestWH06: what was recorded while NATS was away, or by a process that died before it
// rang, is routed and delivered by the sweep.
func TestWH06_NothingDependsOnDoorbells(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		nats := natstest.Start(t)
		var err error
		r.bus, err = bus.Connect(t.Context(), bus.Config{URL: nats.URL()})
		require.NoError(t, err)
		t.Cleanup(r.bus.Close)
		r.eventually(t, "connected", r.bus.Connected)
		r.connect(t)
		id := r.listener(t, r.scope)
		r.start(t)
		nats.Kill(t)
		r.eventually(t, "away", func() bool { return !r.bus.Connected() })
		r.happen(t, r.scope, webhook.EventClosed, 100)
		r.delivered(t, id, 100)
		nats.Restart(t)
		r.eventually(t, "back", r.bus.Connected)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.delivered(t, id, 101)
		require.Len(t, r.world.of(id), 101)
	})
}

func TestQueue_DoorbellRoutesAtOnce(t *testing.T) {
	r := newRig(t, dbtest.SQLite(t))
	var err error
	r.bus, err = bus.Connect(t.Context(), bus.Config{Embedded: &bus.Embedded{StoreDir: t.TempDir()}})
	require.NoError(t, err)
	t.Cleanup(r.bus.Close)
	r.connect(t)
	id := r.listener(t, r.scope)
	r.start(t, func(c *queue.Config) { c.Sweep = time.Hour })
	r.eventually(t, "subscribed", func() bool { return r.bus.Conn().FlushTimeout(patience) == nil })
	r.happen(t, r.scope, webhook.EventClosed, 1)
	r.delivered(t, id, 1)
}

func TestQueue_TwoReplicasDeliverOnce(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, b := r.listener(t, r.scope), r.listener(t, r.scope)
		r.start(t)
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 150)
		r.delivered(t, a, 150)
		r.delivered(t, b, 150)
		require.Len(t, r.world.of(a), 150)
		require.Len(t, r.world.of(b), 150)
	})
}

func TestQueue_LeasesOfADeadProcessRunOut(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		now := r.clock.Now()
		_, _, err := r.store.Route(t.Context(), r.scope, now, 10)
		require.NoError(t, err)
		key := queue.Key{Scope: r.scope, ID: id}
		lost, _, err := r.store.Claim(t.Context(), key, now, queue.Lease{Owner: "dead", Until: now.Add(10 * time.Second)}, 16, 0)
		require.NoError(t, err)
		require.Len(t, lost, 1)
		again, _, err := r.store.Claim(t.Context(), key, now, queue.Lease{Owner: "other", Until: now.Add(10 * time.Second)}, 16, 0)
		require.NoError(t, err)
		require.Empty(t, again)
		r.start(t)
		r.clock.Advance(10 * time.Second)
		r.delivered(t, id, 1)
		// The dead one wakes up too late.
		require.ErrorIs(t, r.store.Settle(t.Context(), lost[0], "dead", queue.Result{State: queue.Failed}, now), queue.ErrLost)
		require.Equal(t, map[string]int{"delivered": 1}, r.states(t, id))
	})
}

func TestQueue_StopGivesLeasesBack(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.world.answers(id, func(ctx context.Context, _ queue.Message) (queue.Answer, error) {
			<-ctx.Done()
			return queue.Answer{}, ctx.Err()
		})
		q := r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.eventually(t, "under way", func() bool { return q.InFlight() == 1 })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, q.Stop(ctx), context.DeadlineExceeded)
		d := r.list(t, id, queue.Filter{})[0]
		require.False(t, d.InFlight)
		require.Zero(t, d.Attempts)
		require.False(t, d.NextAttemptAt.After(r.clock.Now()))
		r.world.with(id, queue.Answer{Outcome: queue.Taken, Sent: true})
		r.start(t)
		r.delivered(t, id, 1)
	})
}

// One endpoint in ten hangs and one refuses: the other eight get everything while
// nothing of the hanging one has ended, however much waits for it.
func TestQueue_BadEndpointsCostTheOthersNothing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		var all []string
		for range 10 {
			all = append(all, r.listener(t, r.scope))
		}
		hanging, refusing := all[0], all[1]
		release := make(chan struct{})
		var once atomic.Bool
		let := func() {
			if once.CompareAndSwap(false, true) {
				close(release)
			}
		}
		t.Cleanup(let)
		r.world.answers(hanging, func(ctx context.Context, _ queue.Message) (queue.Answer, error) {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return queue.Answer{Outcome: queue.Taken, Sent: true}, ctx.Err()
		})
		r.world.with(refusing, refused)
		r.start(t, func(c *queue.Config) { c.Total = 32 }) // little room, so that taking it all would show
		const n = 60
		r.happen(t, r.scope, webhook.EventClosed, n)
		for _, id := range all[2:] {
			r.delivered(t, id, n)
			require.Len(t, r.world.of(id), n)
		}
		require.Empty(t, r.states(t, hanging)["delivered"])
		r.eventually(t, "each tried", func() bool { return len(r.world.of(refusing)) >= n })
		require.Equal(t, n, r.states(t, refusing)["pending"])
		let()
		r.delivered(t, hanging, n)
	})
}

func TestQueue_KeepsTheEndpointsLimit(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listenerOf(t, r.scope, map[string]any{"max": 3})
		step := make(chan struct{})
		r.world.answers(id, func(ctx context.Context, _ queue.Message) (queue.Answer, error) {
			select {
			case <-step:
			case <-ctx.Done():
			}
			return queue.Answer{Outcome: queue.Taken, Sent: true}, ctx.Err()
		})
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 20)
		r.eventually(t, "three at once", func() bool {
			r.world.mu.Lock()
			defer r.world.mu.Unlock()
			return r.world.peak[id] == 3
		})
		for range 20 {
			step <- struct{}{}
		}
		r.delivered(t, id, 20)
		r.world.mu.Lock()
		defer r.world.mu.Unlock()
		require.Equal(t, 3, r.world.peak[id])
	})
}

func TestQueue_EventsWaitForAnEndpointThatIsOff(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.enable(t, id, false)
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 5)
		r.eventually(t, "routed", func() bool { return r.states(t, id)["pending"] == 5 })
		for range 3 {
			r.clock.Advance(24 * time.Hour)
			for _, d := range r.list(t, id, queue.Filter{}) {
				require.True(t, d.NextAttemptAt.IsZero(), "waits for no time")
			}
		}
		require.Empty(t, r.world.of(id))
		r.enable(t, id, true)
		r.delivered(t, id, 5)
	})
}

// TestWH03: an endpoint that says that it is gone is off, and what it should have got waits.
func TestWH03_TurnedOffByAnAttempt(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.world.answers(id, func(context.Context, queue.Message) (queue.Answer, error) {
			r.enable(t, id, false)
			return queue.Answer{Outcome: queue.Off, Sent: true, Status: 410, Reason: "endpoint gone"}, nil
		})
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.eventually(t, "off", func() bool {
			d := r.list(t, id, queue.Filter{})
			return len(d) == 1 && d[0].LastStatus == 410
		})
		d := r.list(t, id, queue.Filter{})[0]
		require.Equal(t, queue.Pending, d.State)
		require.Equal(t, 1, d.Attempts)
		r.world.with(id, queue.Answer{Outcome: queue.Taken, Sent: true})
		r.enable(t, id, true)
		r.delivered(t, id, 1)
	})
}

// TestWH17: deleting an endpoint takes what waits with it; an attempt under way ends in nothing.
func TestWH17_EndpointDeletedWhileRetriesWait(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.world.with(id, refused)
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 10)
		r.eventually(t, "tried", func() bool { return len(r.world.of(id)) == 10 })
		r.eventually(t, "recorded", func() bool {
			for _, d := range r.list(t, id, queue.Filter{}) {
				if d.InFlight {
					return false
				}
			}
			return true
		})
		r.write(t, r.scope, func(ctx context.Context, tx *ent.Tx) error {
			if _, err := tx.EndpointDelivery.Delete().Where(endpointdelivery.EndpointID(id)).Exec(ctx); err != nil {
				return err
			}
			return tx.Endpoint.DeleteOneID(id).Exec(ctx)
		})
		other := r.listener(t, r.scope)
		r.clock.Advance(time.Hour)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.delivered(t, other, 1)
		require.Len(t, r.world.of(id), 10)
		_, err := r.store.Deliveries(t.Context(), r.scope, id, queue.Filter{}, resource.Place{}, 10)
		require.True(t, problem.Is(err, problem.NotFoundReason))
	})
}

func TestQueue_EndpointUnknownToTheTellerIsCanceled(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.world.answers(id, func(context.Context, queue.Message) (queue.Answer, error) { return queue.Answer{}, resource.NotFound() })
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.eventually(t, "canceled", func() bool { return r.states(t, id)["canceled"] == 1 })
	})
}

func TestQueue_TroubleOfOursIsNoAttempt(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		var calls atomic.Int32
		r.world.answers(id, func(context.Context, queue.Message) (queue.Answer, error) {
			if calls.Add(1) == 1 {
				return queue.Answer{}, errors.New("database away")
			}
			return queue.Answer{Outcome: queue.Taken, Sent: true}, nil
		})
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.eventually(t, "put off", func() bool { d := r.list(t, id, queue.Filter{}); return len(d) == 1 && d[0].LastReason == "not sent" })
		r.clock.Advance(2 * time.Second)
		r.delivered(t, id, 1)
		require.Equal(t, 1, r.list(t, id, queue.Filter{})[0].Attempts)
	})
}

func TestQueue_PrunesAfterTheRetention(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.kept = 48 * time.Hour
		id, off := r.listener(t, r.scope), r.listener(t, r.scope)
		r.enable(t, off, false)
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 3)
		r.delivered(t, id, 3)
		r.clock.Advance(47 * time.Hour)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.delivered(t, id, 4)
		r.clock.Advance(2 * time.Hour)
		r.eventually(t, "old ones gone", func() bool {
			events, deliveries := r.rows(t, r.scope)
			return len(events) == 1 && len(deliveries) == 2
		})
		r.enable(t, off, true)
		r.delivered(t, off, 1)
	})
}
