package store

import (
	"context"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
	entevent "github.com/poppyfield/poppyfield/ent/event"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
)

// BackendDelivery is a delivery as its Company sees it.
type BackendDelivery struct {
	Delivery
	State         string
	InFlight      bool
	NextAttemptAt time.Time // zero unless it waits for a time
	LastStatus    int
	LastReason    string
	Outcome       string
	DoneAt        time.Time // zero while pending
}

// Pending reports whether it is not done.
func (d BackendDelivery) Pending() bool { return d.State == string(entdelivery.StatePending) }

// DeliveryFilter narrows a list of deliveries; what is empty narrows nothing.
type DeliveryFilter struct {
	State, Outcome, ConversationID string
	resource.Span
}

// BackendDelivery reads one delivery; one that isn't there is NOT_FOUND.
func (t Tx) BackendDelivery(ctx context.Context, id string) (BackendDelivery, error) {
	row, err := t.tx.Delivery.Query().Where(entdelivery.ID(id)).Only(ctx)
	if ent.IsNotFound(err) {
		return BackendDelivery{}, resource.NotFound()
	}
	if err != nil {
		return BackendDelivery{}, err
	}
	return backendDelivery(row), nil
}

// BackendDeliveries returns at most limit deliveries, the newest first.
func (t Tx) BackendDeliveries(ctx context.Context, f DeliveryFilter, after resource.Place, limit int) ([]BackendDelivery, error) {
	q := t.tx.Delivery.Query()
	if f.State != "" {
		q.Where(entdelivery.StateEQ(entdelivery.State(f.State)))
	}
	if f.Outcome != "" {
		q.Where(entdelivery.AgentOutcome(f.Outcome))
	}
	if f.ConversationID != "" {
		q.Where(entdelivery.ConversationID(f.ConversationID))
	}
	if !f.From.IsZero() {
		q.Where(entdelivery.CreatedAtGTE(f.From))
	}
	if !f.To.IsZero() {
		q.Where(entdelivery.CreatedAtLT(f.To))
	}
	if after.ID != "" {
		q.Where(entdelivery.Or(entdelivery.CreatedAtLT(after.CreatedAt), entdelivery.And(entdelivery.CreatedAt(after.CreatedAt), entdelivery.IDLT(after.ID))))
	}
	rows, err := q.Order(entdelivery.ByCreatedAt(sql.OrderDesc()), entdelivery.ByID(sql.OrderDesc())).Limit(limit).All(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]BackendDelivery, 0, len(rows))
	for _, row := range rows {
		out = append(out, backendDelivery(row))
	}
	return out, nil
}

// Undelivered returns at most limit deliveries that failed or expired, the oldest first,
// after a place in this order.
func (t Tx) Undelivered(ctx context.Context, span resource.Span, after resource.Place, limit int) ([]BackendDelivery, error) {
	q := t.tx.Delivery.Query().Where(entdelivery.StateIn(entdelivery.StateFailed, entdelivery.StateExpired),
		entdelivery.CreatedAtGTE(span.From), entdelivery.CreatedAtLT(span.To))
	if after.ID != "" {
		q.Where(entdelivery.Or(entdelivery.CreatedAtGT(after.CreatedAt), entdelivery.And(entdelivery.CreatedAt(after.CreatedAt), entdelivery.IDGT(after.ID))))
	}
	rows, err := q.Order(entdelivery.ByCreatedAt(), entdelivery.ByID()).Limit(limit).All(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]BackendDelivery, 0, len(rows))
	for _, row := range rows {
		out = append(out, backendDelivery(row))
	}
	return out, nil
}

// MessageKept reports whether the message of a delivery can still be sent.
func (t Tx) MessageKept(ctx context.Context, c *Conversation, sequence int64) (bool, error) {
	if sequence < c.OldestSequence {
		return false, nil
	}
	return t.tx.Event.Query().Where(entevent.ConversationID(c.ID), entevent.Sequence(sequence), entevent.PayloadNotNil()).Exist(ctx)
}

// Reopen makes deliveries of a locked conversation that are done pending again, behind
// any that are. done_at stays: it tells that somebody wants them sent, however late.
func (t Tx) Reopen(ctx context.Context, deliveryIDs ...string) error {
	return t.tx.Delivery.Update().Where(entdelivery.IDIn(deliveryIDs...), entdelivery.StateNEQ(entdelivery.StatePending)).
		SetState(entdelivery.StatePending).SetAttempts(0).SetNextAttemptAt(parked).SetLeaseOwner("").ClearLeaseUntil().Exec(ctx)
}

// Hasten makes a delivery that waits for a later attempt due now; one in flight, or
// behind another, keeps its place.
func (t Tx) Hasten(ctx context.Context, id string, now time.Time) error {
	return t.tx.Delivery.Update().Where(entdelivery.ID(id), pending, entdelivery.LeaseOwner(""), entdelivery.NextAttemptAtGT(now), entdelivery.NextAttemptAtLT(parked)).
		SetNextAttemptAt(now).Exec(ctx)
}

func backendDelivery(row *ent.Delivery) BackendDelivery {
	d := BackendDelivery{
		Delivery: Delivery{
			ID: row.ID, ConversationID: row.ConversationID, Sequence: row.Sequence, Round: row.Round, Attempts: row.Attempts,
			ExpectsReply: row.ExpectsReply, CreatedAt: row.CreatedAt.UTC(),
		},
		State: string(row.State), InFlight: row.LeaseOwner != "", LastStatus: row.LastStatus, LastReason: row.LastReason, Outcome: row.AgentOutcome,
	}
	if row.ReplyBy != nil {
		d.ReplyBy = row.ReplyBy.UTC()
	}
	if d.Pending() {
		if !d.InFlight && row.NextAttemptAt.Before(parked) {
			d.NextAttemptAt = row.NextAttemptAt.UTC()
		}
	} else if row.DoneAt != nil {
		d.DoneAt = row.DoneAt.UTC()
	}
	return d
}
