package usage

import (
	"cmp"
	"context"
	"slices"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/quota"
	"github.com/poppyfield/poppyfield/ent/usage"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
)

// maxRows bounds the parameters of one statement.
const maxRows = 500

type counted struct {
	slot
	n int64
}

// flush adds what is pending to the rows, in the same order in every process so that none waits for another's.
func (m *Meter) flush(ctx context.Context) error {
	m.mu.Lock()
	taken := make([]counted, 0, len(m.pending))
	for s, n := range m.pending {
		taken = append(taken, counted{s, n})
	}
	clear(m.pending)
	m.mu.Unlock()
	slices.SortFunc(taken, func(a, b counted) int {
		return cmp.Or(cmp.Compare(a.company, b.company), cmp.Compare(a.day, b.day), cmp.Compare(a.kind, b.kind))
	})
	for len(taken) > 0 {
		n := min(len(taken), maxRows)
		if err := m.write(ctx, taken[:n]); err != nil {
			m.giveBack(taken)
			return err
		}
		taken = taken[n:]
	}
	return nil
}

func (m *Meter) giveBack(taken []counted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range taken {
		m.pending[c.slot] += c.n
	}
}

func (m *Meter) write(ctx context.Context, batch []counted) error {
	return m.db.SystemWrite(ctx, db.CountUsage, func(ctx context.Context, tx *ent.Tx) error {
		rows := make([]*ent.UsageCreate, len(batch))
		for i, c := range batch {
			rows[i] = tx.Usage.Create().SetID(ids.New(ids.Usage)).SetCompanyID(c.company).SetDay(Day(dayTime(c.day))).SetKind(names[c.kind]).SetCount(c.n)
		}
		return tx.Usage.CreateBulk(rows...).OnConflict(
			sql.ConflictColumns(usage.FieldCompanyID, usage.FieldDay, usage.FieldKind),
			sql.ResolveWith(func(u *sql.UpdateSet) {
				u.Set(usage.FieldCount, sql.ExprFunc(func(b *sql.Builder) {
					b.Ident(usage.Table).WriteByte('.').Ident(usage.FieldCount).WriteString(" + excluded.").Ident(usage.FieldCount)
				}))
			}),
		).Exec(ctx)
	})
}

// refresh reads the quotas of all Companies that have one, and what they used of them in this month.
func (m *Meter) refresh(ctx context.Context) error {
	month, _ := Month(m.now())
	books := map[string]*book{}
	err := m.db.SystemRead(ctx, db.CountUsage, func(ctx context.Context, tx *ent.Tx) error {
		clear(books)
		for after := ""; ; {
			rows, err := tx.Quota.Query().Where(quota.CompanyIDGT(after), limited).Order(quota.ByCompanyID()).Limit(maxRows).All(ctx)
			if err != nil {
				return err
			}
			var companies []string
			for _, r := range rows {
				books[r.CompanyID] = &book{month: month, most: Amounts{r.Sessions, r.Messages, r.Deliveries, r.Verifications}}
				companies = append(companies, r.CompanyID)
			}
			if len(rows) == 0 {
				return nil
			}
			sums, err := SumByCompany(ctx, tx, Day(month), usage.CompanyIDIn(companies...))
			if err != nil {
				return err
			}
			for company, c := range sums {
				books[company].used = c.Amounts()
			}
			if len(rows) < maxRows {
				return nil
			}
			after = companies[len(companies)-1]
		}
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, n := range m.pending { // what is not in the database can't be in the totals
		if b := books[s.company]; b != nil && !dayTime(s.day).Before(month) {
			b.unread[quotaOf[s.kind]] += n
		}
	}
	m.books = books
	return nil
}

// limited are the quotas that limit something.
func limited(s *sql.Selector) {
	s.Where(sql.Or(
		sql.GT(s.C(quota.FieldSessions), 0), sql.GT(s.C(quota.FieldMessages), 0),
		sql.GT(s.C(quota.FieldDeliveries), 0), sql.GT(s.C(quota.FieldVerifications), 0),
	))
}
