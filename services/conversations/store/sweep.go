package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	entconversation "github.com/poppyfield/poppyfield/ent/conversation"
	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Due names a row with due work.
type Due struct {
	Scope tenancy.Scope
	ID    string
}

// DueDeliveries finds deliveries that are due, the longest waiting first, leaving
// out the Companies in except. It only looks: TakeDue takes.
func (s *Store) DueDeliveries(ctx context.Context, now time.Time, limit int, except []string) ([]Due, error) {
	var out []Due
	err := s.db.SystemRead(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		q := tx.Delivery.Query().Where(pending, entdelivery.NextAttemptAtLTE(now))
		if len(except) > 0 {
			q.Where(entdelivery.CompanyIDNotIn(except...))
		}
		rows, err := q.Order(entdelivery.ByNextAttemptAt()).Limit(limit).Select(entdelivery.FieldCompanyID).All(ctx)
		if err != nil {
			return err
		}
		out, err = due(rows, func(d *ent.Delivery) (string, string) { return d.CompanyID, d.ID })
		return err
	})
	return out, err
}

// DueAnswers finds conversations whose answer is overdue.
func (s *Store) DueAnswers(ctx context.Context, now time.Time, limit int) ([]Due, error) {
	var out []Due
	err := s.db.SystemRead(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		rows, err := tx.Conversation.Query().Where(entconversation.AnswerDueAtNotNil(), entconversation.AnswerDueAtLTE(now)).
			Order(entconversation.ByAnswerDueAt()).Limit(limit).Select(entconversation.FieldCompanyID).All(ctx)
		if err != nil {
			return err
		}
		out, err = due(rows, func(c *ent.Conversation) (string, string) { return c.CompanyID, c.ID })
		return err
	})
	return out, err
}

func due[R any](rows []R, key func(R) (company, id string)) ([]Due, error) {
	out := make([]Due, 0, len(rows))
	for _, row := range rows {
		company, id := key(row)
		scope, err := tenancy.For(company)
		if err != nil {
			return nil, err
		}
		out = append(out, Due{scope, id})
	}
	return out, nil
}

// Renew moves the end of leases that owner still has, in one statement for all Companies.
func (s *Store) Renew(ctx context.Context, ids []string, lease Lease) error {
	return s.db.SystemWrite(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Delivery.Update().Where(entdelivery.IDIn(ids...), pending, entdelivery.LeaseOwner(lease.Owner)).
			SetLeaseUntil(lease.Until).SetNextAttemptAt(lease.Until).Exec(ctx)
	})
}

// ReleaseAll gives back every lease of owner.
func (s *Store) ReleaseAll(ctx context.Context, owner string, now time.Time) error {
	return s.db.SystemWrite(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Delivery.Update().Where(pending, entdelivery.LeaseOwner(owner)).
			SetNextAttemptAt(now).SetLeaseOwner("").ClearLeaseUntil().Exec(ctx)
	})
}

// MakeDue makes the deliveries of a Company that wait for a later attempt due now; those in flight, and those behind
// another one, keep their place.
func (s *Store) MakeDue(ctx context.Context, scope tenancy.Scope, now time.Time) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Delivery.Update().Where(pending, entdelivery.LeaseOwner(""), entdelivery.NextAttemptAtGT(now), entdelivery.NextAttemptAtLT(parked)).
			SetNextAttemptAt(now).Exec(ctx)
	})
}

// Backlog counts the pending deliveries of all Companies, and returns since when the first of them has been due; zero
// for none.
func (s *Store) Backlog(ctx context.Context, now time.Time) (n int, since time.Time, err error) {
	err = s.db.SystemRead(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		if n, err = tx.Delivery.Query().Where(pending).Count(ctx); err != nil || n == 0 {
			return err
		}
		first, err := tx.Delivery.Query().Where(pending, entdelivery.NextAttemptAtLTE(now)).
			Order(entdelivery.ByNextAttemptAt()).Select(entdelivery.FieldNextAttemptAt).First(ctx)
		if ent.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		since = first.NextAttemptAt.UTC()
		return nil
	})
	return n, since, err
}

// NextCompany returns the first Company after the given id that has conversations;
// ok is false after the last. One index probe each: a job that works through all
// Companies never scans their rows to find them.
func (s *Store) NextCompany(ctx context.Context, after string) (tenancy.Scope, bool, error) {
	return s.db.FirstCompany(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) (string, error) {
		row, err := tx.Conversation.Query().Where(entconversation.CompanyIDGT(after)).
			Order(entconversation.ByCompanyID()).Select(entconversation.FieldCompanyID).First(ctx)
		if err != nil {
			return "", err
		}
		return row.CompanyID, nil
	})
}

// Inactive finds idle conversations without an event since before. One with an open
// Direct Conversation isn't idle: the User talks there.
func (t Tx) Inactive(ctx context.Context, before time.Time, limit int) ([]string, error) {
	return t.tx.Conversation.Query().
		Where(entconversation.StatusEQ(entconversation.StatusIdle), entconversation.LastEventAtLT(before), entconversation.ChildID("")).
		Order(entconversation.ByLastEventAt()).Limit(limit).IDs(ctx)
}
