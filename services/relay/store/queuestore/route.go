package queuestore

import (
	"context"
	"slices"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/companyevent"
	"github.com/poppyfield/poppyfield/ent/endpoint"
	"github.com/poppyfield/poppyfield/ent/endpointdelivery"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/relay/queue"
)

// maxRows bounds the parameters of one statement.
const maxRows = 500

func unrouted(s *sql.Selector) { s.Where(sql.ExprP("routed_at IS NULL")) }

// Unrouted implements queue.Store.
func (s *Store) Unrouted(ctx context.Context, except []tenancy.Scope, limit int) (scopes []tenancy.Scope, more bool, err error) {
	err = s.db.SystemRead(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		q := tx.CompanyEvent.Query().Where(unrouted)
		if len(except) > 0 {
			skip := make([]string, 0, len(except))
			for _, scope := range except {
				skip = append(skip, scope.CompanyID())
			}
			q.Where(companyevent.CompanyIDNotIn(skip...))
		}
		rows, err := q.Order(companyevent.ByCreatedAt()).Limit(limit).Select(companyevent.FieldCompanyID).All(ctx)
		if err != nil {
			return err
		}
		scopes, more = nil, len(rows) == limit
		for _, row := range rows {
			scope, err := tenancy.For(row.CompanyID)
			if err != nil {
				return err
			}
			if !slices.Contains(scopes, scope) {
				scopes = append(scopes, scope)
			}
		}
		return nil
	})
	return scopes, more, err
}

// Route implements queue.Store. The lock on an event, and the mark that it was routed,
// make it one delivery an endpoint however many processes route.
func (s *Store) Route(ctx context.Context, scope tenancy.Scope, now time.Time, limit int) (n int, to []queue.Key, err error) {
	err = s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		n, to = 0, nil
		q := tx.CompanyEvent.Query().Where(unrouted).Order(companyevent.ByCreatedAt(), companyevent.ByID()).Limit(limit)
		if s.db.Postgres() {
			q.ForUpdate(sql.WithLockAction(sql.SkipLocked))
		}
		events, err := q.Select(companyevent.FieldType).All(ctx)
		if err != nil || len(events) == 0 {
			return err
		}
		endpoints, err := listening(tx).Order(endpoint.ByID()).All(ctx)
		if err != nil {
			return err
		}
		routed := make([]string, 0, len(events))
		var creates []*ent.EndpointDeliveryCreate
		for _, e := range events {
			routed = append(routed, e.ID)
		}
		for _, one := range endpoints {
			listens, before := outbox.ListensTo(one.Settings), len(creates)
			for _, e := range events {
				if webhook.MatchesEvent(listens, e.Type) {
					creates = append(creates, delivery(tx, one, e.ID, e.Type, endpointdelivery.OriginEvent, now))
				}
			}
			if one.Enabled && len(creates) > before {
				to = append(to, queue.Key{Scope: scope, ID: one.ID})
			}
		}
		if err := insert(ctx, tx, creates); err != nil {
			return err
		}
		n = len(events)
		return tx.CompanyEvent.Update().Where(companyevent.IDIn(routed...)).SetRoutedAt(now).Exec(ctx)
	})
	return n, to, err
}

// delivery makes one for an endpoint; what an endpoint that is off gets waits until it is on.
func delivery(tx *ent.Tx, to *ent.Endpoint, eventID, eventType string, origin endpointdelivery.Origin, now time.Time) *ent.EndpointDeliveryCreate {
	due := now
	if !to.Enabled {
		due = queue.Parked()
	}
	return tx.EndpointDelivery.Create().SetID(ids.New(ids.Telling)).SetEndpointID(to.ID).SetEventID(eventID).SetEventType(eventType).
		SetOrigin(origin).SetNextAttemptAt(due).SetCreatedAt(now)
}

func insert(ctx context.Context, tx *ent.Tx, creates []*ent.EndpointDeliveryCreate) error {
	for some := range slices.Chunk(creates, maxRows) {
		if err := tx.EndpointDelivery.CreateBulk(some...).Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
