package discovery_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// used has so many days with use: one Session on the first of them, two on the next, and so on to today.
func (r *rig) used(t *testing.T, c tenant, days int) {
	t.Helper()
	m := usage.New(r.db, r.clock.Now, slog.New(slog.DiscardHandler))
	r.clock.Advance(-time.Duration(days-1) * 24 * time.Hour)
	for i := range days {
		m.Add(c.scope, usage.Sessions, i+1)
		if i < days-1 {
			r.clock.Advance(24 * time.Hour)
		}
	}
	require.NoError(t, m.Keep(t.Context()))
}

func dates(days []*adminv1.DayUsage) []string {
	var out []string
	for _, d := range days {
		out = append(out, d.GetDay())
	}
	return out
}

func TestListUsage_DaysAndPages(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, b := r.company(t, "a", ""), r.company(t, "b", "")
		r.used(t, a, 40) // it is 30 November 2026
		list := func(c tenant, q *adminv1.ListUsageRequest) *adminv1.ListUsageResponse {
			q.Parent = c.name
			got, err := r.usage.ListUsage(c.ctx(t), q)
			require.NoError(t, err)
			return got
		}
		all := list(a, &adminv1.ListUsageRequest{}).GetDays()
		require.Len(t, all, 30, "the last 30 days")
		require.Equal(t, []any{"2026-11-30", int64(40)}, []any{all[0].GetDay(), all[0].GetSessions()})
		require.Equal(t, "2026-11-01", all[29].GetDay())
		require.Empty(t, list(b, &adminv1.ListUsageRequest{}).GetDays())

		require.Equal(t, []string{"2026-11-03", "2026-11-02"}, dates(list(a, &adminv1.ListUsageRequest{Start: "2026-11-02", End: "2026-11-04"}).GetDays()))
		q := &adminv1.ListUsageRequest{Start: "2026-11-26", PageSize: 2}
		var paged []string
		for {
			page := list(a, q)
			paged = append(paged, dates(page.GetDays())...)
			if q.PageToken = page.GetNextPageToken(); q.GetPageToken() == "" {
				break
			}
			require.Len(t, page.GetDays(), 2)
		}
		require.Equal(t, []string{"2026-11-30", "2026-11-29", "2026-11-28", "2026-11-27", "2026-11-26"}, paged)

		first := list(a, &adminv1.ListUsageRequest{PageSize: 1})
		_, err := r.usage.ListUsage(b.ctx(t), &adminv1.ListUsageRequest{Parent: b.name, PageToken: first.GetNextPageToken()})
		requireReason(t, err, problem.InvalidRequest, "page_token")
		_, err = r.usage.ListUsage(a.ctx(t), &adminv1.ListUsageRequest{Parent: b.name})
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestQuotas_AreOfAMonthAndACompany(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, b := r.company(t, "a", ""), r.company(t, "b", "")
		r.used(t, a, 31) // one Session on 31 October
		get := func(c tenant) *adminv1.Quotas {
			got, err := r.usage.GetQuotas(c.ctx(t), &adminv1.GetQuotasRequest{Name: c.name + "/quotas"})
			require.NoError(t, err)
			return got
		}
		require.EqualValues(t, 31*32/2-1, get(a).GetSessions().GetUsed(), "of November")
		require.Zero(t, get(b).GetSessions().GetUsed())
		require.Nil(t, get(a).GetUpdateTime())
		require.Equal(t, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), get(a).GetResetTime().AsTime())

		set := func(c tenant, q *adminv1.Quotas) (*adminv1.Quotas, error) {
			q.Name = c.name + "/quotas"
			return r.usage.UpdateQuotas(c.ctx(t), &adminv1.UpdateQuotasRequest{Quotas: q})
		}
		before := get(a).GetEtag()
		first, err := set(a, &adminv1.Quotas{Etag: before, Sessions: &adminv1.Quota{Limit: 5}, Verifications: &adminv1.Quota{Limit: 7}})
		require.NoError(t, err)
		_, err = set(a, &adminv1.Quotas{Etag: before, Sessions: &adminv1.Quota{Limit: 6}})
		requireReason(t, err, problem.EtagMismatch)
		second, err := set(a, &adminv1.Quotas{Etag: first.GetEtag(), Messages: &adminv1.Quota{Limit: 9}, Verifications: &adminv1.Quota{}})
		require.NoError(t, err)
		require.Equal(t, []int64{5, 9, 0, 0}, limitsOf(second))
		require.Equal(t, []int64{5, 9, 0, 0}, limitsOf(get(a)))
		require.Equal(t, []int64{0, 0, 0, 0}, limitsOf(get(b)))
		_, err = set(a, &adminv1.Quotas{Sessions: &adminv1.Quota{Limit: -1}})
		requireReason(t, err, problem.InvalidRequest)
		_, err = r.usage.UpdateQuotas(a.ctx(t), &adminv1.UpdateQuotasRequest{Quotas: &adminv1.Quotas{Name: b.name + "/quotas", Sessions: &adminv1.Quota{Limit: 1}}})
		requireReason(t, err, problem.NotFoundReason)

		r.clock.Advance(24 * time.Hour)
		require.Zero(t, get(a).GetSessions().GetUsed(), "December begins anew")
	})
}

func limitsOf(q *adminv1.Quotas) []int64 {
	return []int64{q.GetSessions().GetLimit(), q.GetMessages().GetLimit(), q.GetDeliveries().GetLimit(), q.GetVerifications().GetLimit()}
}
