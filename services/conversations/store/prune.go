package store

import (
	"context"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
	entevent "github.com/poppyfield/poppyfield/ent/event"
)

// Outdated finds conversations whose first pending delivery is older than before and not in flight.
func (t Tx) Outdated(ctx context.Context, before time.Time, limit int) ([]string, error) {
	var ids []string
	err := t.tx.Delivery.Query().Where(pending, entdelivery.CreatedAtLT(before), entdelivery.LeaseOwner(""), entdelivery.NextAttemptAtLT(parked)).
		Limit(limit).Unique(true).Select(entdelivery.FieldConversationID).Scan(ctx, &ids)
	return ids, err
}

// Prunable finds conversations with events from before a time that are still kept.
func (t Tx) Prunable(ctx context.Context, before time.Time, limit int) ([]string, error) {
	var ids []string
	err := t.tx.Event.Query().Where(entevent.CreatedAtLT(before), entevent.PayloadNotNil(), undelivered).Limit(limit).
		Unique(true).Select(entevent.FieldConversationID).Scan(ctx, &ids)
	return ids, err
}

// undelivered leaves out events that a pending delivery still needs, and those after them.
func undelivered(s *sql.Selector) {
	d := sql.Table(entdelivery.Table).As("pending_delivery")
	s.Where(sql.NotExists(sql.Select(d.C(entdelivery.FieldID)).From(d).Where(sql.And(
		sql.ColumnsEQ(d.C(entdelivery.FieldCompanyID), s.C(entevent.FieldCompanyID)),
		sql.ColumnsEQ(d.C(entdelivery.FieldConversationID), s.C(entevent.FieldConversationID)),
		sql.ColumnsLTE(d.C(entdelivery.FieldSequence), s.C(entevent.FieldSequence)),
		sql.ExprP(`"pending_delivery"."state" = 'pending'`),
	))))
}

// Prune drops what is older than before of a locked conversation and moves its
// OldestSequence on, which Save has to write. An agent's message only loses its
// content: its id and hash stay for as long as the conversation does (Poppy 7.3).
// It reports whether anything went.
func (t Tx) Prune(ctx context.Context, c *Conversation, before time.Time) (bool, error) {
	last, err := t.tx.Event.Query().Where(entevent.ConversationID(c.ID), entevent.CreatedAtLT(before), entevent.PayloadNotNil(), undelivered).
		Order(entevent.BySequence(sql.OrderDesc())).Select(entevent.FieldSequence).First(ctx)
	if ent.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	upTo := last.Sequence
	if _, err := t.tx.Event.Delete().Where(entevent.ConversationID(c.ID), entevent.SequenceLTE(upTo), entevent.OwnerIsNil()).Exec(ctx); err != nil {
		return false, err
	}
	if err := t.tx.Event.Update().Where(entevent.ConversationID(c.ID), entevent.SequenceLTE(upTo), entevent.PayloadNotNil()).ClearPayload().Exec(ctx); err != nil {
		return false, err
	}
	_, err = t.tx.Delivery.Delete().Where(
		entdelivery.ConversationID(c.ID), entdelivery.SequenceLTE(upTo), entdelivery.StateNEQ(entdelivery.StatePending),
		entdelivery.Or(entdelivery.ExpectsReply(false), entdelivery.AgentOutcomeNEQ(OutcomeOpen), entdelivery.ReplyByLT(before)),
	).Exec(ctx)
	c.OldestSequence = max(c.OldestSequence, upTo+1)
	return true, err
}
