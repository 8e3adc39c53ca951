package usage_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

func at(day string) *clock.Manual {
	t, err := time.Parse(time.DateOnly, day)
	if err != nil {
		panic(err)
	}
	return clock.NewManual(t.Add(12 * time.Hour))
}

func meter(d *db.DB, now *clock.Manual) *usage.Meter {
	return usage.New(d, now.Now, slog.New(slog.DiscardHandler))
}

func days(t *testing.T, d *db.DB, scope tenancy.Scope) []usage.DayCounts {
	t.Helper()
	out, err := db.ReadValue(t.Context(), d, scope, func(ctx context.Context, tx *ent.Tx) ([]usage.DayCounts, error) {
		return usage.Days(ctx, tx, "2027-01-01", "2028-01-01", 100)
	})
	require.NoError(t, err)
	return out
}

func limit(t *testing.T, d *db.DB, scope tenancy.Scope, most usage.Amounts) {
	t.Helper()
	require.NoError(t, d.Write(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Quota.Create().SetID(ids.New(ids.Quota)).SetCompanyID(scope.CompanyID()).SetSessions(most[usage.SessionQuota]).SetMessages(most[usage.MessageQuota]).
			SetDeliveries(most[usage.DeliveryQuota]).SetVerifications(most[usage.VerificationQuota]).Exec(ctx)
	}))
}

func TestKeep_AddsToTheRowsOfTheDayAndTheCompany(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := at("2027-01-31")
		one, two := dbtest.Company(t, d), dbtest.Company(t, d)
		here, there := meter(d, now), meter(d, now)
		here.Add(one, usage.Sessions, 2)
		here.Add(one, usage.MessagesFromAgents, 3)
		here.Add(two, usage.Sessions, 5)
		there.Add(one, usage.Sessions, 10)
		for _, m := range []*usage.Meter{here, there, here} {
			require.NoError(t, m.Keep(t.Context()))
		}
		now.Advance(24 * time.Hour)
		here.Add(one, usage.Verifications, 1)
		require.NoError(t, here.Stop(t.Context()), "what is left is kept at the end")
		require.Equal(t, []usage.DayCounts{
			{Day: "2027-02-01", Counts: usage.Counts{usage.Verifications: 1}},
			{Day: "2027-01-31", Counts: usage.Counts{usage.Sessions: 12, usage.MessagesFromAgents: 3}},
		}, days(t, d, one))
		require.Equal(t, []usage.DayCounts{{Day: "2027-01-31", Counts: usage.Counts{usage.Sessions: 5}}}, days(t, d, two))
	})
}

func TestKeep_ManyRows(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := at("2027-03-01")
		scope, m := dbtest.Company(t, d), meter(d, now)
		for range 250 {
			for _, k := range []usage.Kind{usage.Sessions, usage.MessagesFromAgents, usage.MessagesToAgents, usage.Deliveries, usage.Verifications} {
				m.Add(scope, k, 1)
			}
			now.Advance(24 * time.Hour)
		}
		require.NoError(t, m.Keep(t.Context()))
		got := days(t, d, scope)
		require.Len(t, got, 100)
		for _, day := range got {
			require.Equal(t, usage.Counts{1, 1, 1, 1, 1}, day.Counts)
		}
	})
}

func TestKeep_WhatFailsIsTriedAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := at("2027-01-31")
		scope := dbtest.Company(t, d)
		limit(t, d, scope, usage.Amounts{usage.SessionQuota: 5})
		m := meter(d, now)
		require.NoError(t, m.Keep(t.Context()))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		m.Add(scope, usage.Sessions, 3)
		require.Error(t, m.Keep(gone))
		m.Add(scope, usage.Sessions, 1)
		ok, _ := m.Allow(scope, usage.SessionQuota)
		require.True(t, ok)
		m.Add(scope, usage.Sessions, 1)
		ok, _ = m.Allow(scope, usage.SessionQuota)
		require.False(t, ok, "what could not be kept counts")
		require.NoError(t, m.Keep(t.Context()))
		require.Equal(t, []usage.DayCounts{{Day: "2027-01-31", Counts: usage.Counts{usage.Sessions: 5}}}, days(t, d, scope))
		ok, _ = m.Allow(scope, usage.SessionQuota)
		require.False(t, ok)
	})
}

func TestAllow_CountsHereAtOnceAndElsewhereAfterTheNextReading(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := at("2027-01-31")
		scope, other := dbtest.Company(t, d), dbtest.Company(t, d)
		limit(t, d, scope, usage.Amounts{usage.MessageQuota: 4})
		here, there := meter(d, now), meter(d, now)
		require.NoError(t, here.Keep(t.Context()))
		require.NoError(t, there.Keep(t.Context()))
		allowed := func(m *usage.Meter) bool {
			ok, _ := m.Allow(scope, usage.MessageQuota, usage.DeliveryQuota)
			return ok
		}
		// Both directions are one quota.
		here.Add(scope, usage.MessagesFromAgents, 2)
		here.Add(scope, usage.MessagesToAgents, 1)
		require.True(t, allowed(here))
		here.Add(scope, usage.MessagesToAgents, 1)
		require.False(t, allowed(here))
		require.True(t, allowed(there))
		require.NoError(t, here.Keep(t.Context()))
		require.False(t, allowed(here), "nothing is counted twice or forgotten by keeping it")
		require.NoError(t, there.Keep(t.Context()))
		require.False(t, allowed(there))
		// Of other kinds and Companies nothing is used.
		for _, q := range []usage.Quota{usage.SessionQuota, usage.DeliveryQuota, usage.VerificationQuota} {
			ok, _ := here.Allow(scope, q)
			require.True(t, ok)
		}
		ok, _ := here.Allow(other, usage.MessageQuota)
		require.True(t, ok)
	})
}

func TestAllow_ADeliveryIsOne(t *testing.T) {
	d, now := dbtest.SQLite(t), at("2027-01-15")
	scope := dbtest.Company(t, d)
	limit(t, d, scope, usage.Amounts{usage.DeliveryQuota: 1})
	m := meter(d, now)
	require.NoError(t, m.Keep(t.Context()))
	m.Add(scope, usage.Deliveries, 1)
	ok, _ := m.Allow(scope, usage.MessageQuota, usage.DeliveryQuota)
	require.False(t, ok)
}

func TestAllow_WhenToComeBack(t *testing.T) {
	d, now := dbtest.SQLite(t), at("2027-01-31") // noon
	scope := dbtest.Company(t, d)
	limit(t, d, scope, usage.Amounts{usage.SessionQuota: 1})
	m := meter(d, now)
	require.NoError(t, m.Keep(t.Context()))
	m.Add(scope, usage.Sessions, 1)
	ok, wait := m.Allow(scope, usage.SessionQuota)
	require.False(t, ok)
	require.Equal(t, time.Hour, wait)
	now.Advance(11*time.Hour + 50*time.Minute)
	ok, wait = m.Allow(scope, usage.SessionQuota)
	require.False(t, ok)
	require.Equal(t, 10*time.Minute, wait)
	// The next month begins at midnight of UTC, also where nothing was read since.
	now.Advance(wait)
	ok, _ = m.Allow(scope, usage.SessionQuota)
	require.True(t, ok)
	m.Add(scope, usage.Sessions, 1)
	ok, _ = m.Allow(scope, usage.SessionQuota)
	require.False(t, ok)
	require.NoError(t, m.Keep(t.Context()))
	ok, _ = m.Allow(scope, usage.SessionQuota)
	require.False(t, ok)
}

func TestAllow_ZeroIsUnlimitedAndARaisedQuotaIsSeen(t *testing.T) {
	d, now := dbtest.SQLite(t), at("2027-01-15")
	scope := dbtest.Company(t, d)
	m := meter(d, now)
	m.Add(scope, usage.Sessions, 1000)
	require.NoError(t, m.Keep(t.Context()))
	ok, _ := m.Allow(scope, usage.SessionQuota)
	require.True(t, ok)
	limit(t, d, scope, usage.Amounts{usage.SessionQuota: 1000})
	require.NoError(t, m.Keep(t.Context()))
	ok, _ = m.Allow(scope, usage.SessionQuota)
	require.False(t, ok)
	require.NoError(t, d.Write(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Quota.Update().SetSessions(1001).Exec(ctx)
	}))
	require.NoError(t, m.Keep(t.Context()))
	ok, _ = m.Allow(scope, usage.SessionQuota)
	require.True(t, ok)
}

func TestMeter_OfNothing(t *testing.T) {
	var m *usage.Meter
	m.Add(tenancy.Scope{}, usage.Sessions, 1)
	ok, _ := m.Allow(tenancy.Scope{}, usage.SessionQuota)
	require.True(t, ok)
}

func TestMeter_NothingIsLostBetweenThoseWhoCountAndThoseWhoKeep(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := at("2027-01-31")
		scope := dbtest.Company(t, d)
		meters := []*usage.Meter{meter(d, now), meter(d, now)}
		var all sync.WaitGroup
		for _, m := range meters {
			for range 4 {
				all.Go(func() {
					for i := range 200 {
						m.Add(scope, usage.Deliveries, 1)
						if i%50 == 0 {
							if err := m.Keep(t.Context()); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
		}
		all.Wait()
		for _, m := range meters {
			require.NoError(t, m.Keep(t.Context()))
		}
		require.Equal(t, []usage.DayCounts{{Day: "2027-01-31", Counts: usage.Counts{usage.Deliveries: 1600}}}, days(t, d, scope))
	})
}
