package store

import (
	"context"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
	entevent "github.com/poppyfield/poppyfield/ent/event"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
)

const handedOffReason = "handed over to a person"

// HandOff ends the open turns of a locked conversation, since a person is to answer:
// what waits for the backend is not sent to it any more. With joined, when a person is
// there, that goes for what is under way too: whatever the backend still says to it
// finds its lease gone. Until then its answer counts.
func (t Tx) HandOff(ctx context.Context, conversationID string, joined bool, now time.Time) error {
	rows, err := t.Live(ctx, conversationID)
	if err != nil {
		return err
	}
	var open []string
	for _, l := range rows {
		outcome := l.Outcome
		if l.Open() {
			outcome = OutcomeHandedOff
		}
		switch {
		case l.Pending && (joined || l.LeaseOwner == ""):
			if err := t.Finish(ctx, l.ID, Expired, outcome, Attempt{Count: l.Attempts, Reason: handedOffReason}, now); err != nil {
				return err
			}
		case l.Open():
			open = append(open, l.ID)
		}
	}
	return t.SettleTurns(ctx, OutcomeHandedOff, open...)
}

// NextRound returns the round in which a person hands the message with the given
// sequence number back to the backend: above 0 also where it never had it.
func (t Tx) NextRound(ctx context.Context, conversationID string, sequence int64) (int, error) {
	row, err := t.tx.Delivery.Query().Where(entdelivery.ConversationID(conversationID), entdelivery.Sequence(sequence)).
		Order(entdelivery.ByRound(sql.OrderDesc())).Select(entdelivery.FieldRound).First(ctx)
	if ent.IsNotFound(err) {
		return 1, nil
	}
	if err != nil {
		return 0, err
	}
	return row.Round + 1, nil
}

// Missed returns the newest messages of the agent that the backend has not got and won't
// get, oldest first: no delivery was made of them, or it was handed over to a person.
func (t Tx) Missed(ctx context.Context, c *Conversation, limit int) ([]Event, error) {
	rows, err := t.tx.Event.Query().Where(
		entevent.ConversationID(c.ID), entevent.SequenceGT(c.LastSequence-missedReach), entevent.SequenceGTE(c.OldestSequence),
		entevent.OwnerNotNil(), entevent.PayloadNotNil(), unheard,
	).Order(entevent.BySequence(sql.OrderDesc())).Limit(limit).All(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Event, len(rows))
	for i, row := range rows {
		p, err := conversation.DecodePayload(conversation.EventType(row.Type), row.Payload)
		if err != nil {
			return nil, damage(err)
		}
		out[len(rows)-1-i] = Event{Sequence: row.Sequence, CreatedAt: row.CreatedAt.UTC(), Payload: p}
	}
	return out, nil
}

// missedReach is how many events back missed messages are looked for.
const missedReach = 500

// unheard leaves out events that a delivery brought, or will bring, to the backend.
func unheard(s *sql.Selector) {
	d := sql.Table(entdelivery.Table).As("heard")
	s.Where(sql.NotExists(sql.Select(d.C(entdelivery.FieldID)).From(d).Where(sql.And(
		sql.ColumnsEQ(d.C(entdelivery.FieldCompanyID), s.C(entevent.FieldCompanyID)),
		sql.ColumnsEQ(d.C(entdelivery.FieldConversationID), s.C(entevent.FieldConversationID)),
		sql.ColumnsEQ(d.C(entdelivery.FieldSequence), s.C(entevent.FieldSequence)),
		sql.Not(sql.And(sql.EQ(d.C(entdelivery.FieldState), string(Expired)), sql.EQ(d.C(entdelivery.FieldLastReason), handedOffReason))),
	))))
}
