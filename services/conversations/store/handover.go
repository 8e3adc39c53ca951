package store

import (
	"context"
	"time"

	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
)

const handedOffReason = "handed over to a person"

// HandOff ends the open turns of a locked conversation, since a person answers now:
// what waits for the backend is not sent to it any more, and what it was sent already
// it answers too late.
func (t Tx) HandOff(ctx context.Context, conversationID string, now time.Time) error {
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
		case l.Pending && l.LeaseOwner == "":
			if err := t.Finish(ctx, l.ID, Expired, outcome, Attempt{Count: l.Attempts, Reason: handedOffReason}, now); err != nil {
				return err
			}
		case l.Open():
			open = append(open, l.ID)
		}
	}
	return t.SettleTurns(ctx, OutcomeHandedOff, open...)
}

// Rounds returns how often the message with the given sequence number was given to the backend.
func (t Tx) Rounds(ctx context.Context, conversationID string, sequence int64) (int, error) {
	return t.tx.Delivery.Query().Where(entdelivery.ConversationID(conversationID), entdelivery.Sequence(sequence)).Count(ctx)
}
