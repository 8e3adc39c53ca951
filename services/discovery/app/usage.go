package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// usageDays is how many days a list of usage shows where nothing else is asked for.
const usageDays = 30

// Quotas are the most that a Company may use in a month, and what it used in this one.
type Quotas struct {
	Most      usage.Amounts // 0: no limit
	Used      usage.Amounts
	Version   int64 // 0: never set
	UpdatedAt time.Time
	ResetsAt  time.Time
}

// ListUsage returns at most n days with use, the latest first: from start on, and before
// end and the day after. Empty bounds are today and 30 days.
func (a *App) ListUsage(ctx context.Context, scope tenancy.Scope, start, end, after string, n int) ([]usage.DayCounts, error) {
	to := a.now().AddDate(0, 0, 1)
	var err error
	if end != "" {
		if to, err = usage.ParseDay(end); err != nil {
			return nil, resource.Invalid("end", "is no day")
		}
	}
	from := to.AddDate(0, 0, -usageDays)
	if start != "" {
		if from, err = usage.ParseDay(start); err != nil {
			return nil, resource.Invalid("start", "is no day")
		}
	}
	if to.Before(from) {
		return nil, resource.Invalid("end", "is before start")
	}
	before := usage.Day(to)
	if after != "" && after < before {
		before = after
	}
	return a.store.ListUsage(ctx, scope, usage.Day(from), before, n)
}

// Quotas returns the Company's quotas.
func (a *App) Quotas(ctx context.Context, scope tenancy.Scope) (Quotas, error) {
	month, next := usage.Month(a.now())
	q, err := a.store.Quotas(ctx, scope, usage.Day(month))
	q.ResetsAt = next
	return q, err
}

// UpdateQuotas replaces the limits by what change makes of them.
func (a *App) UpdateQuotas(ctx context.Context, scope tenancy.Scope, etag string, change func(*usage.Amounts)) (Quotas, error) {
	month, next := usage.Month(a.now())
	q, err := a.store.UpdateQuotas(ctx, scope, usage.Day(month), func(q *Quotas) error {
		if err := resource.CheckETag(etag, q.Version); err != nil {
			return err
		}
		change(&q.Most)
		return nil
	})
	q.ResetsAt = next
	return q, err
}
