package store

import (
	"context"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
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
