package usage

import (
	"context"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/predicate"
	"github.com/poppyfield/poppyfield/ent/usage"
)

// SumByCompany adds up the counts from a day on, of what the unit of work may see and where holds.
func SumByCompany(ctx context.Context, tx *ent.Tx, from string, where ...predicate.Usage) (map[string]Counts, error) {
	var rows []struct {
		CompanyID string     `json:"company_id"`
		Kind      usage.Kind `json:"kind"`
		Sum       int64      `json:"sum"`
	}
	err := tx.Usage.Query().Where(append(where, usage.DayGTE(from))...).
		GroupBy(usage.FieldCompanyID, usage.FieldKind).Aggregate(ent.As(ent.Sum(usage.FieldCount), "sum")).Scan(ctx, &rows)
	if err != nil {
		return nil, err
	}
	out := map[string]Counts{}
	for _, r := range rows {
		c := out[r.CompanyID]
		c.add(r.Kind, r.Sum)
		out[r.CompanyID] = c
	}
	return out, nil
}

// DayCounts is what was used on a day.
type DayCounts struct {
	Day string
	Counts
}

// Days returns the days with use, the latest first, that are from one day on and before another, at most n.
func Days(ctx context.Context, tx *ent.Tx, from, before string, n int) ([]DayCounts, error) {
	rows, err := tx.Usage.Query().Where(usage.DayGTE(from), usage.DayLT(before)).Order(ent.Desc(usage.FieldDay)).Limit(n * int(kinds)).All(ctx)
	if err != nil {
		return nil, err
	}
	var out []DayCounts
	for _, r := range rows {
		if len(out) == 0 || out[len(out)-1].Day != r.Day {
			out = append(out, DayCounts{Day: r.Day})
		}
		out[len(out)-1].add(r.Kind, r.Count)
	}
	return out[:min(len(out), n)], nil
}
