package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/services/relay/queue"
)

func (r *rig) span(from, to time.Time) queue.Range {
	return queue.Range{Span: resource.Span{From: from, To: to}, Limit: queue.MaxResent}
}

func TestResend_OneWithTheIdItHad(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		q := r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.delivered(t, id, 1)
		first := r.list(t, id, queue.Filter{})[0]
		again, err := r.store.Resend(t.Context(), r.scope, id, first.ID, r.clock.Now())
		require.NoError(t, err)
		require.NotEqual(t, first.ID, again.ID)
		require.Equal(t, first.EventID, again.EventID)
		require.Equal(t, "resend", again.Origin)
		q.Look(queue.Key{Scope: r.scope, ID: id})
		r.delivered(t, id, 2)
		got := r.world.of(id)
		require.Equal(t, got[0].EventID, got[1].EventID)
		require.Equal(t, got[0].Body, got[1].Body)

		whole, err := r.store.Delivery(t.Context(), r.scope, id, again.ID)
		require.NoError(t, err)
		require.Equal(t, got[0].Body, whole.Body)
	})
}

func TestResend_PendingIsDueNow(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.world.with(id, refused)
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.eventually(t, "tried", func() bool { d := r.list(t, id, queue.Filter{}); return len(d) == 1 && d[0].Attempts == 1 })
		d := r.list(t, id, queue.Filter{})[0]
		r.world.with(id, queue.Answer{Outcome: queue.Taken, Sent: true})
		again, err := r.store.Resend(t.Context(), r.scope, id, d.ID, r.clock.Now())
		require.NoError(t, err)
		require.Equal(t, d.ID, again.ID)
		r.delivered(t, id, 1)
		require.Len(t, r.list(t, id, queue.Filter{}), 1)
	})
}

func TestResend_ARangeToANewEndpoint(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		old := r.listener(t, r.scope)
		r.start(t)
		begin := r.clock.Now()
		r.happen(t, r.scope, webhook.EventClosed, 4)
		r.happen(t, r.scope, webhook.EventSessionEnded, 3)
		r.clock.Advance(time.Hour)
		middle := r.clock.Now()
		r.happen(t, r.scope, webhook.EventClosed, 2)
		r.delivered(t, old, 9)
		fresh := r.listener(t, r.scope, "conversation.*")
		end := r.clock.Now().Add(time.Minute)

		ask := r.span(begin, end)
		ask.ValidateOnly = true
		got, err := r.store.ResendSpan(t.Context(), r.scope, fresh, ask, r.clock.Now())
		require.NoError(t, err)
		require.Equal(t, queue.Resent{Count: 6}, got)
		require.Empty(t, r.list(t, fresh, queue.Filter{}))

		got, err = r.store.ResendSpan(t.Context(), r.scope, fresh, r.span(begin, middle), r.clock.Now())
		require.NoError(t, err)
		require.Equal(t, 4, got.Count)
		r.delivered(t, fresh, 4)
		got, err = r.store.ResendSpan(t.Context(), r.scope, fresh, r.span(begin, end), r.clock.Now())
		require.NoError(t, err)
		require.Equal(t, 2, got.Count, "only what it has not got")
		r.delivered(t, fresh, 6)
		all := r.span(begin, end)
		all.All = true
		got, err = r.store.ResendSpan(t.Context(), r.scope, fresh, all, r.clock.Now())
		require.NoError(t, err)
		require.Equal(t, 6, got.Count)
		r.delivered(t, fresh, 12)
		require.ElementsMatch(t, eventsOf(r.world.of(fresh))[:6], eventsOf(r.world.of(fresh))[6:])
	})
}

func TestResend_AThousandACall(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.listener(t, r.scope)
		begin := r.clock.Now()
		for range 12 {
			r.happen(t, r.scope, webhook.EventClosed, 1)
			r.clock.Advance(time.Second)
		}
		fresh := r.listener(t, r.scope)
		ask := r.span(begin, r.clock.Now())
		ask.All, ask.Limit = true, 5
		var counts []int
		for {
			got, err := r.store.ResendSpan(t.Context(), r.scope, fresh, ask, r.clock.Now())
			require.NoError(t, err)
			counts = append(counts, got.Count)
			if !got.More {
				break
			}
			ask.From = got.Next
		}
		require.Equal(t, []int{5, 5, 2}, counts)
	})
}

func TestCancel_GivesUpWhatWaits(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.world.with(id, refused)
		r.start(t)
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.eventually(t, "tried", func() bool { d := r.list(t, id, queue.Filter{}); return len(d) == 1 && d[0].Attempts == 1 })
		d := r.list(t, id, queue.Filter{})[0]
		for range 2 { // a repeat changes nothing
			got, err := r.store.Cancel(t.Context(), r.scope, id, d.ID, r.clock.Now())
			require.NoError(t, err)
			require.Equal(t, queue.Canceled, got.State)
		}
		r.clock.Advance(time.Hour)
		r.world.with(id, queue.Answer{Outcome: queue.Taken, Sent: true})
		r.happen(t, r.scope, webhook.EventClosed, 1)
		r.delivered(t, id, 1)
		require.Len(t, r.world.of(id), 2)
		done := r.list(t, id, queue.Filter{State: "delivered"})[0]
		_, err := r.store.Cancel(t.Context(), r.scope, id, done.ID, r.clock.Now())
		require.True(t, problem.Is(err, problem.FailedPrecondition))
	})
}

func TestDeliveries_FiltersPagesAndTenants(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.listener(t, r.scope)
		r.start(t)
		for i := range 5 {
			r.happen(t, r.scope, webhook.EventClosed, 1)
			r.delivered(t, id, i+1)
			r.clock.Advance(time.Minute)
		}
		r.happen(t, r.scope, webhook.EventSessionEnded, 1)
		r.delivered(t, id, 6)
		require.Len(t, r.list(t, id, queue.Filter{EventType: webhook.EventSessionEnded}), 1)
		require.Empty(t, r.list(t, id, queue.Filter{State: "failed"}))
		all := r.list(t, id, queue.Filter{})
		require.Len(t, r.list(t, id, queue.Filter{EventID: all[2].EventID}), 1)
		require.Len(t, r.list(t, id, queue.Filter{Span: resource.Span{From: all[1].CreatedAt, To: all[3].CreatedAt}}), 2)
		var seen []string
		var after resource.Place
		for {
			page, err := r.store.Deliveries(t.Context(), r.scope, id, queue.Filter{}, after, 4)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, d := range page {
				seen = append(seen, d.ID)
			}
			after = resource.Place{CreatedAt: page[len(page)-1].CreatedAt, ID: page[len(page)-1].ID}
		}
		require.Len(t, seen, 6)
		for i := range seen {
			require.Equal(t, all[len(all)-1-i].ID, seen[i], fmt.Sprint(i))
		}
		other := dbtest.Company(t, r.db)
		theirs := r.listener(t, other)
		for _, try := range []func() error{
			func() error { _, err := r.store.Delivery(t.Context(), other, id, all[0].ID); return err },
			func() error { _, err := r.store.Delivery(t.Context(), other, theirs, all[0].ID); return err },
			func() error { _, err := r.store.Resend(t.Context(), other, id, all[0].ID, r.clock.Now()); return err },
			func() error {
				_, err := r.store.Resend(t.Context(), other, theirs, all[0].ID, r.clock.Now())
				return err
			},
			func() error { _, err := r.store.Cancel(t.Context(), other, id, all[0].ID, r.clock.Now()); return err },
			func() error {
				_, err := r.store.ResendSpan(t.Context(), other, id, r.span(all[0].CreatedAt, r.clock.Now()), r.clock.Now())
				return err
			},
		} {
			require.True(t, problem.Is(try(), problem.NotFoundReason))
		}
		got, err := r.store.ResendSpan(t.Context(), other, theirs, r.span(time.Time{}, r.clock.Now()), r.clock.Now())
		require.NoError(t, err)
		require.Zero(t, got.Count, "another Company's events are none of its")
	})
}
