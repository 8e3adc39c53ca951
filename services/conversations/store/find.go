package store

import (
	"context"

	"github.com/poppyfield/poppyfield/ent"
	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
)

// FindDelivery looks for a delivery of a locked conversation, also one that is done.
func (t Tx) FindDelivery(ctx context.Context, conversationID, id string) (Live, bool, error) {
	row, err := t.tx.Delivery.Query().Where(entdelivery.ID(id), entdelivery.ConversationID(conversationID)).Only(ctx)
	if ent.IsNotFound(err) {
		return Live{}, false, nil
	}
	if err != nil {
		return Live{}, false, err
	}
	return liveOf(row), true, nil
}
