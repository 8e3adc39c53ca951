// Package queuestore keeps events, and their deliveries to listening endpoints, in the
// database.
package queuestore

import (
	"context"
	"encoding/json"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/companyevent"
	"github.com/poppyfield/poppyfield/ent/endpoint"
	"github.com/poppyfield/poppyfield/ent/endpointdelivery"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/relay/queue"
)

// Store implements queue.Store, and what the admin API needs of deliveries.
type Store struct {
	db     *db.DB
	events *outbox.Recorder
	policy func(settings json.RawMessage) queue.Policy
}

var _ queue.Store = (*Store)(nil)

// New makes a store on d. policy reads an endpoint's settings. Deliveries that are given
// up are events themselves; nil for nobody.
func New(d *db.DB, events *outbox.Recorder, policy func(settings json.RawMessage) queue.Policy) *Store {
	return &Store{d, events, policy}
}

// pending is written out so that the planner sees that the partial indexes fit.
func pending(s *sql.Selector) { s.Where(sql.ExprP("state = 'pending'")) }

// free are deliveries that no process has.
func free(s *sql.Selector) { s.Where(sql.ExprP("lease_owner = ''")) }

func (s *Store) skipLocked(q interface {
	ForUpdate(...sql.LockOption) *ent.EndpointDeliveryQuery
},
) {
	if s.db.Postgres() {
		q.ForUpdate(sql.WithLockAction(sql.SkipLocked))
	}
}

func listening(tx *ent.Tx) *ent.EndpointQuery {
	return tx.Endpoint.Query().Where(endpoint.RoleEQ(endpoint.RoleListens))
}

// NextCompany implements queue.Store. One index probe each.
func (s *Store) NextCompany(ctx context.Context, after string) (tenancy.Scope, bool, error) {
	return s.db.FirstCompany(ctx, db.Prune, func(ctx context.Context, tx *ent.Tx) (string, error) {
		row, err := tx.CompanyEvent.Query().Where(companyevent.CompanyIDGT(after)).
			Order(companyevent.ByCompanyID()).Select(companyevent.FieldCompanyID).First(ctx)
		if err != nil {
			return "", err
		}
		return row.CompanyID, nil
	})
}

// Prune implements queue.Store. A delivery that is under way ends by itself and goes with the next call.
func (s *Store) Prune(ctx context.Context, scope tenancy.Scope, before time.Time, limit int) (int, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (int, error) {
		q := tx.EndpointDelivery.Query().Where(endpointdelivery.CreatedAtLT(before), free).Order(endpointdelivery.ByCreatedAt()).Limit(limit)
		s.skipLocked(q)
		old, err := q.IDs(ctx)
		if err != nil {
			return 0, err
		}
		if len(old) > 0 {
			return tx.EndpointDelivery.Delete().Where(endpointdelivery.IDIn(old...)).Exec(ctx)
		}
		found, err := tx.CompanyEvent.Query().Where(companyevent.CreatedAtLT(before)).Order(companyevent.ByCreatedAt()).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		return tx.CompanyEvent.Delete().Where(companyevent.IDIn(found...)).Exec(ctx)
	})
}
