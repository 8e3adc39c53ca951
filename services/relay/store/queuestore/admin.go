package queuestore

import (
	"context"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/companyevent"
	"github.com/poppyfield/poppyfield/ent/endpoint"
	"github.com/poppyfield/poppyfield/ent/endpointdelivery"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/relay/queue"
)

// Delivery implements queue.Deliveries.
func (s *Store) Delivery(ctx context.Context, scope tenancy.Scope, endpointID, id string) (queue.Delivery, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (queue.Delivery, error) {
		row, err := find(ctx, tx, endpointID, id)
		if err != nil {
			return queue.Delivery{}, err
		}
		out := deliveryOf(row)
		e, err := tx.CompanyEvent.Query().Where(companyevent.ID(row.EventID)).Select(companyevent.FieldBody).Only(ctx)
		if ent.IsNotFound(err) {
			return out, nil
		}
		if err != nil {
			return queue.Delivery{}, err
		}
		out.Body = e.Body
		return out, nil
	})
}

// Deliveries implements queue.Deliveries.
func (s *Store) Deliveries(ctx context.Context, scope tenancy.Scope, endpointID string, f queue.Filter, after resource.Place, limit int) ([]queue.Delivery, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) ([]queue.Delivery, error) {
		if _, err := listener(ctx, tx, endpointID); err != nil {
			return nil, err
		}
		q := tx.EndpointDelivery.Query().Where(endpointdelivery.EndpointID(endpointID))
		if f.State != "" {
			q.Where(endpointdelivery.StateEQ(endpointdelivery.State(f.State)))
		}
		if f.EventType != "" {
			q.Where(endpointdelivery.EventType(f.EventType))
		}
		if f.EventID != "" {
			q.Where(endpointdelivery.EventID(f.EventID))
		}
		if !f.From.IsZero() {
			q.Where(endpointdelivery.CreatedAtGTE(f.From))
		}
		if !f.To.IsZero() {
			q.Where(endpointdelivery.CreatedAtLT(f.To))
		}
		if after.ID != "" {
			q.Where(endpointdelivery.Or(endpointdelivery.CreatedAtLT(after.CreatedAt),
				endpointdelivery.And(endpointdelivery.CreatedAt(after.CreatedAt), endpointdelivery.IDLT(after.ID))))
		}
		rows, err := q.Order(endpointdelivery.ByCreatedAt(sql.OrderDesc()), endpointdelivery.ByID(sql.OrderDesc())).Limit(limit).All(ctx)
		if err != nil {
			return nil, err
		}
		out := make([]queue.Delivery, 0, len(rows))
		for _, row := range rows {
			out = append(out, deliveryOf(row))
		}
		return out, nil
	})
}

// Resend implements queue.Deliveries.
func (s *Store) Resend(ctx context.Context, scope tenancy.Scope, endpointID, id string, now time.Time) (queue.Delivery, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (queue.Delivery, error) {
		to, err := listener(ctx, tx, endpointID)
		if err != nil {
			return queue.Delivery{}, err
		}
		row, err := find(ctx, tx, endpointID, id)
		if err != nil {
			return queue.Delivery{}, err
		}
		if row.State == endpointdelivery.StatePending {
			if to.Enabled {
				err = tx.EndpointDelivery.Update().Where(endpointdelivery.ID(id), pending, free).SetNextAttemptAt(now).Exec(ctx)
			}
			if err != nil {
				return queue.Delivery{}, err
			}
			row, err = find(ctx, tx, endpointID, id)
			return deliveryOf(row), err
		}
		kept, err := tx.CompanyEvent.Query().Where(companyevent.ID(row.EventID)).Exist(ctx)
		if err != nil {
			return queue.Delivery{}, err
		}
		if !kept {
			return queue.Delivery{}, problem.New(problem.Conflict, problem.FailedPrecondition, "", "the event is kept no longer")
		}
		made, err := delivery(tx, to, row.EventID, row.EventType, endpointdelivery.OriginResend, now).Save(ctx)
		if err != nil {
			return queue.Delivery{}, err
		}
		return deliveryOf(made), nil
	})
}

// Cancel implements queue.Deliveries.
func (s *Store) Cancel(ctx context.Context, scope tenancy.Scope, endpointID, id string, now time.Time) (queue.Delivery, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (queue.Delivery, error) {
		// One under way is lost to who makes the attempt, whatever comes of that.
		n, err := tx.EndpointDelivery.Update().Where(endpointdelivery.ID(id), endpointdelivery.EndpointID(endpointID), pending).
			SetState(endpointdelivery.StateCanceled).SetDoneAt(now).SetLeaseOwner("").ClearLeaseUntil().Save(ctx)
		if err != nil {
			return queue.Delivery{}, err
		}
		row, err := find(ctx, tx, endpointID, id)
		if err != nil {
			return queue.Delivery{}, err
		}
		if n == 0 && row.State != endpointdelivery.StateCanceled {
			return queue.Delivery{}, problem.New(problem.Conflict, problem.FailedPrecondition, "", "the delivery is done already")
		}
		return deliveryOf(row), nil
	})
}

const (
	chunk   = 500
	maxScan = 20_000 // events that one call looks at
)

// ResendSpan implements queue.Deliveries.
func (s *Store) ResendSpan(ctx context.Context, scope tenancy.Scope, endpointID string, r queue.Range, now time.Time) (queue.Resent, error) {
	if r.ValidateOnly {
		return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (queue.Resent, error) {
			return resendSpan(ctx, tx, endpointID, r, now)
		})
	}
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (queue.Resent, error) {
		return resendSpan(ctx, tx, endpointID, r, now)
	})
}

func resendSpan(ctx context.Context, tx *ent.Tx, endpointID string, r queue.Range, now time.Time) (queue.Resent, error) {
	to, err := listener(ctx, tx, endpointID)
	if err != nil {
		return queue.Resent{}, err
	}
	var out queue.Resent
	var creates []*ent.EndpointDeliveryCreate
	last := resource.Place{}
	for scanned := 0; ; scanned += chunk {
		events, err := spanOf(ctx, tx, r, last)
		if err != nil {
			return queue.Resent{}, err
		}
		wanted, err := missing(ctx, tx, to, events, r.All)
		if err != nil {
			return queue.Resent{}, err
		}
		for _, e := range events {
			if !wanted[e.ID] {
				continue
			}
			if out.Count == r.Limit {
				out.More, out.Next = true, e.CreatedAt.UTC()
				break
			}
			out.Count++
			creates = append(creates, delivery(tx, to, e.ID, e.Type, endpointdelivery.OriginResend, now))
		}
		if out.More || len(events) < chunk {
			break
		}
		last = resource.Place{CreatedAt: events[chunk-1].CreatedAt, ID: events[chunk-1].ID}
		if scanned+chunk >= maxScan {
			out.More, out.Next = true, last.CreatedAt.UTC()
			break
		}
	}
	if r.ValidateOnly {
		return out, nil
	}
	return out, insert(ctx, tx, creates)
}

// spanOf returns the next events of a range, the oldest first.
func spanOf(ctx context.Context, tx *ent.Tx, r queue.Range, last resource.Place) ([]*ent.CompanyEvent, error) {
	q := tx.CompanyEvent.Query().Where(companyevent.CreatedAtGTE(r.From), companyevent.CreatedAtLT(r.To))
	if last.ID != "" {
		q.Where(companyevent.CreatedAtGTE(last.CreatedAt), companyevent.Or(
			companyevent.CreatedAtGT(last.CreatedAt), companyevent.And(companyevent.CreatedAt(last.CreatedAt), companyevent.IDGT(last.ID))))
	}
	return q.Order(companyevent.ByCreatedAt(), companyevent.ByID()).Limit(chunk).
		Select(companyevent.FieldType, companyevent.FieldCreatedAt).All(ctx)
}

// missing says which of events the endpoint wants and, unless all are, has not got and isn't getting.
func missing(ctx context.Context, tx *ent.Tx, to *ent.Endpoint, events []*ent.CompanyEvent, all bool) (map[string]bool, error) {
	listens := outbox.ListensTo(to.Settings)
	out := map[string]bool{}
	ids := make([]string, 0, len(events))
	for _, e := range events {
		if webhook.MatchesEvent(listens, e.Type) {
			ids = append(ids, e.ID)
			out[e.ID] = true
		}
	}
	if len(ids) == 0 {
		return out, nil
	}
	states := []endpointdelivery.State{endpointdelivery.StatePending, endpointdelivery.StateDelivered}
	if all {
		states = states[:1] // what is on its way needs no second one
	}
	got, err := tx.EndpointDelivery.Query().Where(endpointdelivery.EndpointID(to.ID), endpointdelivery.EventIDIn(ids...), endpointdelivery.StateIn(states...)).
		Select(endpointdelivery.FieldEventID).Strings(ctx)
	for _, id := range got {
		delete(out, id)
	}
	return out, err
}

func listener(ctx context.Context, tx *ent.Tx, id string) (*ent.Endpoint, error) {
	row, err := listening(tx).Where(endpoint.ID(id)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, resource.NotFound()
	}
	return row, err
}

func find(ctx context.Context, tx *ent.Tx, endpointID, id string) (*ent.EndpointDelivery, error) {
	row, err := tx.EndpointDelivery.Query().Where(endpointdelivery.ID(id), endpointdelivery.EndpointID(endpointID)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, resource.NotFound()
	}
	return row, err
}

func deliveryOf(row *ent.EndpointDelivery) queue.Delivery {
	if row == nil {
		return queue.Delivery{}
	}
	d := queue.Delivery{
		ID: row.ID, EndpointID: row.EndpointID, EventID: row.EventID, EventType: row.EventType, Origin: string(row.Origin), State: queue.State(row.State),
		Attempts: row.Attempts, InFlight: row.LeaseOwner != "", LastStatus: row.LastStatus, LastReason: row.LastReason, CreatedAt: row.CreatedAt.UTC(),
	}
	if d.State == queue.Pending && !d.InFlight && row.NextAttemptAt.Before(queue.Parked()) {
		d.NextAttemptAt = row.NextAttemptAt.UTC()
	}
	if row.DoneAt != nil {
		d.DoneAt = row.DoneAt.UTC()
	}
	return d
}
