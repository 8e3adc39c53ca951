package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	entevent "github.com/poppyfield/poppyfield/ent/event"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
)

// Event is an entry of a conversation, with its place in the order.
type Event struct {
	Sequence  int64
	CreatedAt time.Time
	Payload   conversation.Payload
}

// Identity is what the retries of an agent's message are recognised by (Poppy 7.3).
type Identity struct {
	// Owner is the hash of client_id and User ID: the message id is unique for the User.
	Owner     string
	MessageID string
	Content   [32]byte
	// First is set on the message that started its conversation.
	First bool
}

// Accepted is a message that was accepted before.
type Accepted struct {
	Identity
	ConversationID string
	Sequence       int64
}

// FindMessage looks for a message that the User's agent sent under the id before.
func (t Tx) FindMessage(ctx context.Context, owner, messageID string) (Accepted, bool, error) {
	row, err := t.tx.Event.Query().Where(entevent.Owner(owner), entevent.MessageID(messageID)).
		Select(entevent.FieldConversationID, entevent.FieldSequence, entevent.FieldContentHash, entevent.FieldFirst).Only(ctx)
	if ent.IsNotFound(err) {
		return Accepted{}, false, nil
	}
	if err != nil {
		return Accepted{}, false, err
	}
	a := Accepted{
		Identity:       Identity{Owner: owner, MessageID: messageID, First: row.First},
		ConversationID: row.ConversationID, Sequence: row.Sequence,
	}
	if row.ContentHash != nil {
		copy(a.Content[:], *row.ContentHash)
	}
	return a, true, nil
}

// Append gives payloads the next sequence numbers of a locked conversation and moves
// its LastSequence and LastEventAt on. Nothing is written: Create or Save writes the
// conversation and Insert the events.
func Append(c *Conversation, now time.Time, payloads ...conversation.Payload) []Event {
	events := make([]Event, 0, len(payloads))
	for _, p := range payloads {
		c.LastSequence++
		c.LastEventAt = now
		events = append(events, Event{Sequence: c.LastSequence, CreatedAt: now, Payload: p})
	}
	return events
}

// Insert writes appended events of c, which must be there already. identity belongs
// to the first of them; nil where the agent sent nothing.
func (t Tx) Insert(ctx context.Context, c *Conversation, identity *Identity, events []Event) error {
	if len(events) == 0 {
		return nil
	}
	ctx = db.Later(ctx)
	for i, e := range events {
		raw, err := conversation.EncodePayload(e.Payload)
		if err != nil {
			return err
		}
		create := t.tx.Event.Create().SetID(ids.UUID()).SetConversationID(c.ID).SetSequence(e.Sequence).SetType(string(e.Payload.Type())).
			SetPayload(raw).SetCreatedAt(e.CreatedAt)
		if i == 0 && identity != nil {
			create.SetOwner(identity.Owner).SetMessageID(identity.MessageID).SetContentHash(identity.Content[:]).SetFirst(identity.First)
		}
		if err := create.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

const (
	// pageBytes is how much payload makes a page full before it has all its events.
	pageBytes = 512 << 10
	// firstRows is how many rows are read before it is known how large they are.
	firstRows = 20
)

// Events returns the kept events of c after a sequence number, up to the newest
// one that c knows: a conversation and its events are read one after the other, and
// what was added in between belongs to the next read. There are at most limit, and at
// least one where there is any; large ones make a page full sooner.
func (t Tx) Events(ctx context.Context, c *Conversation, after int64, limit int) ([]Event, error) {
	var out []Event
	size := 0
	for ask := min(limit, firstRows); ask > 0; {
		rows, err := t.tx.Event.Query().Where(
			entevent.ConversationID(c.ID), entevent.SequenceGT(after), entevent.SequenceGTE(c.OldestSequence), entevent.SequenceLTE(c.LastSequence),
			entevent.PayloadNotNil(),
		).Order(entevent.BySequence()).Limit(ask).All(ctx)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if len(out) > 0 && size+len(row.Payload) > pageBytes {
				return out, nil
			}
			e, err := eventOf(row)
			if err != nil {
				return nil, err
			}
			out, size, after = append(out, e), size+len(row.Payload), e.Sequence
		}
		if len(rows) < ask {
			break
		}
		// As many as fit if they are like those before: what is read and not returned is read again.
		ask = min(limit-len(out), max(1, (pageBytes-size)/max(1, size/len(out))))
	}
	return out, nil
}

func eventOf(row *ent.Event) (Event, error) {
	p, err := conversation.DecodePayload(conversation.EventType(row.Type), row.Payload)
	if err != nil {
		return Event{}, err
	}
	return Event{Sequence: row.Sequence, CreatedAt: row.CreatedAt.UTC(), Payload: p}, nil
}
