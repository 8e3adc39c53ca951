package db

import (
	"context"
	"errors"

	entsql "entgo.io/ent/dialect/sql"
)

// AnyOf selects the rows that fit any of a few conditions, by a union of one query for
// each: every one is found by its index. With OR, or a list of ids, a planner that knows
// too little of the table reads all that the Company has of it. Rows that fit two
// conditions come twice, and in no order. It is the last condition of a query: those
// before it hold for every row, those after it don't. Each query of the union is
// confined to the unit's Company, which ctx has to be in.
func AnyOf(ctx context.Context, conditions ...*entsql.Predicate) func(*entsql.Selector) {
	u, ok := unitFrom(ctx)
	return func(s *entsql.Selector) {
		switch {
		case !ok:
			s.AddError(errOutside)
		case u.system != "":
			s.AddError(errors.New("a union in a unit across companies"))
		case len(conditions) == 0:
			s.Where(entsql.False())
		}
		before := s.Clone()
		for i, condition := range conditions {
			one := s
			if i > 0 {
				one = before.Clone()
			}
			one.Where(entsql.And(entsql.EQ(companyColumn, u.scope.CompanyID()), condition))
			if i > 0 {
				s.UnionAll(one)
			}
		}
	}
}
