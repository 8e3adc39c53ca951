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
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/relay/queue"
)

// Waiting implements queue.Store. It goes from endpoint to endpoint in the index: what
// waits for one that fails, however much, costs the others no more than a probe.
func (s *Store) Waiting(ctx context.Context, now time.Time) ([]queue.Key, error) {
	var out []queue.Key
	err := s.db.SystemRead(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		out = nil
		return eachPending(ctx, tx, func(key queue.Key) error {
			due, err := tx.EndpointDelivery.Query().Where(pending, endpointdelivery.CompanyID(key.Scope.CompanyID()),
				endpointdelivery.EndpointID(key.ID), endpointdelivery.NextAttemptAtLTE(now)).Order(endpointdelivery.ByNextAttemptAt()).Exist(ctx)
			if due {
				out = append(out, key)
			}
			return err
		})
	})
	return out, err
}

// Stranded implements queue.Store.
func (s *Store) Stranded(ctx context.Context) ([]tenancy.Scope, error) {
	var out []tenancy.Scope
	err := s.db.SystemRead(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		out = nil
		return eachPending(ctx, tx, func(key queue.Key) error {
			if len(out) > 0 && out[len(out)-1] == key.Scope {
				return nil
			}
			parked, err := tx.EndpointDelivery.Query().Where(pending, endpointdelivery.CompanyID(key.Scope.CompanyID()),
				endpointdelivery.EndpointID(key.ID), endpointdelivery.NextAttemptAtGTE(queue.Parked())).Exist(ctx)
			if err != nil || !parked {
				return err
			}
			on, err := listening(tx).Where(endpoint.ID(key.ID), endpoint.Enabled(true)).Exist(ctx)
			if on {
				out = append(out, key.Scope)
			}
			return err
		})
	})
	return out, err
}

// eachPending calls fn for every endpoint that has pending deliveries.
func eachPending(ctx context.Context, tx *ent.Tx, fn func(queue.Key) error) error {
	company, id := "", ""
	for {
		row, err := tx.EndpointDelivery.Query().Where(pending, func(s *sql.Selector) {
			// As a row, so that the index finds where to go on.
			s.Where(sql.P(func(b *sql.Builder) {
				b.WriteString("(company_id, endpoint_id) > (").Args(company, id).WriteString(")")
			}))
		}).Order(endpointdelivery.ByCompanyID(), endpointdelivery.ByEndpointID()).
			Select(endpointdelivery.FieldCompanyID, endpointdelivery.FieldEndpointID).First(ctx)
		if ent.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		company, id = row.CompanyID, row.EndpointID
		scope, err := tenancy.For(company)
		if err != nil {
			return err
		}
		if err := fn(queue.Key{Scope: scope, ID: id}); err != nil {
			return err
		}
	}
}

// Claim implements queue.Store.
func (s *Store) Claim(ctx context.Context, key queue.Key, now time.Time, lease queue.Lease, limit, used int) (claims []queue.Claim, p queue.Policy, err error) {
	err = s.db.Write(ctx, key.Scope, func(ctx context.Context, tx *ent.Tx) error {
		claims, p = nil, queue.Policy{}
		to, err := listening(tx).Where(endpoint.ID(key.ID)).Only(ctx)
		if ent.IsNotFound(err) {
			return nil // deleted, and with it what waited
		}
		if err != nil {
			return err
		}
		due := []func(*sql.Selector){pending, sql.FieldEQ(endpointdelivery.FieldEndpointID, key.ID), sql.FieldLTE(endpointdelivery.FieldNextAttemptAt, now)}
		if !to.Enabled {
			update := tx.EndpointDelivery.Update().SetNextAttemptAt(queue.Parked()).SetLeaseOwner("").ClearLeaseUntil()
			for _, d := range due {
				update.Where(d)
			}
			return update.Exec(ctx)
		}
		p = s.policy(to.Settings)
		if limit = min(limit, p.MaxInFlight-used); limit <= 0 {
			return nil
		}
		q := tx.EndpointDelivery.Query().Order(endpointdelivery.ByNextAttemptAt(), endpointdelivery.ByID()).Limit(limit)
		for _, d := range due {
			q.Where(d)
		}
		s.skipLocked(q)
		rows, err := q.All(ctx)
		if err != nil || len(rows) == 0 {
			return err
		}
		claims, err = claim(ctx, tx, key, rows, p, lease)
		return err
	})
	return claims, p, err
}

func claim(ctx context.Context, tx *ent.Tx, key queue.Key, rows []*ent.EndpointDelivery, p queue.Policy, lease queue.Lease) ([]queue.Claim, error) {
	taken, events := make([]string, 0, len(rows)), make([]string, 0, len(rows))
	for _, row := range rows {
		taken, events = append(taken, row.ID), append(events, row.EventID)
	}
	found, err := tx.CompanyEvent.Query().Where(companyevent.IDIn(events...)).Select(companyevent.FieldBody).All(ctx)
	if err != nil {
		return nil, err
	}
	bodies := make(map[string][]byte, len(found))
	for _, e := range found {
		bodies[e.ID] = e.Body
	}
	claims := make([]queue.Claim, 0, len(rows))
	for _, row := range rows {
		claims = append(claims, queue.Claim{
			Key: key, DeliveryID: row.ID, EventID: row.EventID, EventType: row.EventType, Body: bodies[row.EventID],
			Attempts: row.Attempts, Schedule: p.Schedule,
		})
	}
	// Due again when the lease ends unrenewed: one index finds the retries and the orphans.
	return claims, tx.EndpointDelivery.Update().Where(endpointdelivery.IDIn(taken...)).
		SetLeaseOwner(lease.Owner).SetLeaseUntil(lease.Until).SetNextAttemptAt(lease.Until).Exec(ctx)
}

// Settle implements queue.Store.
func (s *Store) Settle(ctx context.Context, c queue.Claim, owner string, got queue.Result, now time.Time) error {
	return s.db.Write(ctx, c.Scope, func(ctx context.Context, tx *ent.Tx) error {
		update := tx.EndpointDelivery.Update().Where(endpointdelivery.ID(c.DeliveryID), pending, endpointdelivery.LeaseOwner(owner)).
			SetState(endpointdelivery.State(got.State)).SetAttempts(got.Attempts).SetLastReason(got.Reason).SetLastStatus(got.Status).
			SetLeaseOwner("").ClearLeaseUntil()
		if got.State == queue.Pending {
			update.SetNextAttemptAt(got.At)
		} else {
			update.SetDoneAt(now)
		}
		n, err := update.Save(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			return queue.ErrLost
		}
		if got.State != queue.Failed {
			return nil
		}
		return s.exhausted(ctx, tx, c, got, now)
	})
}

// exhausted tells that a delivery was given up: not of one that tells just that, or two
// endpoints that are gone would keep each other's news going for ever.
func (s *Store) exhausted(ctx context.Context, tx *ent.Tx, c queue.Claim, got queue.Result, now time.Time) error {
	if c.EventType == webhook.EventDeliveryExhausted || s.events.Quiet(c.Scope) {
		return nil
	}
	to, err := tx.Endpoint.Get(ctx, c.ID)
	if err != nil {
		return err
	}
	name := c.Scope.Name() + "/endpoints/" + to.ID
	return s.events.Add(ctx, tx, c.Scope, outbox.Event{
		Type: webhook.EventDeliveryExhausted, Subject: "endpoints/" + to.ID, At: now,
		Data: webhook.DeliveryExhaustedData{
			Endpoint: webhook.EventEndpoint{Name: name, DisplayName: to.DisplayName},
			Delivery: webhook.ExhaustedDelivery{
				Name: name + "/deliveries/" + c.DeliveryID, Event: c.EventID, EventType: c.EventType,
				Attempts: got.Attempts, LastStatus: got.Status, LastReason: got.Reason,
			},
		},
	})
}

// Renew implements queue.Store.
func (s *Store) Renew(ctx context.Context, deliveryIDs []string, lease queue.Lease) error {
	return s.db.SystemWrite(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		return tx.EndpointDelivery.Update().Where(endpointdelivery.IDIn(deliveryIDs...), pending, endpointdelivery.LeaseOwner(lease.Owner)).
			SetLeaseUntil(lease.Until).SetNextAttemptAt(lease.Until).Exec(ctx)
	})
}

// ReleaseAll implements queue.Store.
func (s *Store) ReleaseAll(ctx context.Context, owner string, now time.Time) error {
	return s.db.SystemWrite(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		return tx.EndpointDelivery.Update().Where(pending, endpointdelivery.LeaseOwner(owner)).
			SetNextAttemptAt(now).SetLeaseOwner("").ClearLeaseUntil().Exec(ctx)
	})
}

// MakeDue implements queue.Store.
func (s *Store) MakeDue(ctx context.Context, scope tenancy.Scope, now time.Time) ([]queue.Key, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) ([]queue.Key, error) {
		rows, err := listening(tx).Where(endpoint.Enabled(true)).Select(endpoint.FieldFailures).All(ctx)
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		var on, well []string
		out := make([]queue.Key, 0, len(rows))
		for _, row := range rows {
			on, out = append(on, row.ID), append(out, queue.Key{Scope: scope, ID: row.ID})
			if row.Failures == 0 {
				well = append(well, row.ID)
			}
		}
		update := func(ids []string, more ...func(*sql.Selector)) error {
			u := tx.EndpointDelivery.Update().Where(pending, free, endpointdelivery.EndpointIDIn(ids...)).SetNextAttemptAt(now)
			for _, m := range more {
				u.Where(m)
			}
			return u.Exec(ctx)
		}
		if err := update(on, sql.FieldGTE(endpointdelivery.FieldNextAttemptAt, queue.Parked())); err != nil {
			return nil, err
		}
		if len(well) == 0 {
			return out, nil
		}
		return out, update(well, sql.FieldGT(endpointdelivery.FieldNextAttemptAt, now))
	})
}
