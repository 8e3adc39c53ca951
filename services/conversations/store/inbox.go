package store

import (
	"context"
	"encoding/json"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	entconversation "github.com/poppyfield/poppyfield/ent/conversation"
	entevent "github.com/poppyfield/poppyfield/ent/event"
	entinbox "github.com/poppyfield/poppyfield/ent/inboxsettings"
	"github.com/poppyfield/poppyfield/ent/predicate"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
)

// InboxRow is a Company's inbox settings as they are kept; one never set has version 0.
type InboxRow struct {
	Settings  json.RawMessage
	UpdatedAt time.Time
	Version   int64
}

// Inbox reads the Company's inbox settings.
func (t Tx) Inbox(ctx context.Context) (InboxRow, error) {
	row, err := t.tx.InboxSettings.Query().Only(ctx)
	if ent.IsNotFound(err) {
		return InboxRow{}, nil
	}
	if err != nil {
		return InboxRow{}, err
	}
	return InboxRow{Settings: row.Settings, UpdatedAt: row.UpdatedAt.UTC(), Version: row.Version}, nil
}

// SaveInbox writes inbox settings over the version that was read. ErrTaken says that
// another transaction was first.
func (t Tx) SaveInbox(ctx context.Context, before InboxRow, settings json.RawMessage, now time.Time) (InboxRow, error) {
	after := InboxRow{Settings: settings, UpdatedAt: now, Version: before.Version + 1}
	if before.Version == 0 {
		return after, t.tx.InboxSettings.Create().SetID(ids.New(ids.Inbox)).SetSettings(settings).
			SetCreatedAt(now).SetUpdatedAt(now).SetVersion(after.Version).Exec(ctx)
	}
	n, err := t.tx.InboxSettings.Update().Where(entinbox.Version(before.Version)).
		SetSettings(settings).SetUpdatedAt(now).SetVersion(after.Version).Save(ctx)
	if err == nil && n == 0 {
		return after, ErrTaken
	}
	return after, err
}

// InboxFilter narrows the inbox; empty fields narrow nothing.
type InboxFilter struct {
	Status   string
	Person   *string // "" are those that nobody handles
	Assignee *string
}

// InboxPosition is a place in the order of the inbox: those who wait by since when,
// then those at rest with a person by their newest event. The zero InboxPosition is its start.
type InboxPosition struct {
	Resting bool // the place is among those at rest
	At      time.Time
	ID      string
}

// PositionOf is c's place in the inbox.
func PositionOf(c *Conversation) InboxPosition {
	if c.WaitingSince.IsZero() {
		return InboxPosition{Resting: true, At: c.LastEventAt, ID: c.ID}
	}
	return InboxPosition{At: c.WaitingSince, ID: c.ID}
}

// InInbox reports whether a person is awaited or handles c.
func (c *Conversation) InInbox() bool {
	return c.Status == conversation.Queued || c.Status != conversation.Closed && c.Responder == conversation.ResponderHuman
}

// waiting and handled are written out so that the planner sees that the partial indexes fit.
func waiting(s *sql.Selector) { s.Where(sql.ExprP("waiting_since IS NOT NULL")) }

func handled(s *sql.Selector) { s.Where(sql.ExprP("person <> ''")) }

func resting(s *sql.Selector) { s.Where(sql.ExprP("person <> '' AND waiting_since IS NULL")) }

// InboxItems returns conversations of the inbox after a position: who waits longest
// first, and after all who wait those at rest, the one with the newest event first.
func (t Tx) InboxItems(ctx context.Context, f InboxFilter, after InboxPosition, limit int) ([]*Conversation, error) {
	var rows []*ent.Conversation
	if !after.Resting {
		q := t.tx.Conversation.Query().Where(append(f.predicates(), waiting)...)
		if after.ID != "" {
			q.Where(entconversation.Or(
				entconversation.WaitingSinceGT(after.At),
				entconversation.And(entconversation.WaitingSince(after.At), entconversation.IDGT(after.ID)),
			))
		}
		var err error
		rows, err = q.Order(entconversation.ByWaitingSince(), entconversation.ByID()).Limit(limit).All(ctx)
		if err != nil {
			return nil, err
		}
		after = InboxPosition{}
	}
	if len(rows) < limit {
		q := t.tx.Conversation.Query().Where(append(f.predicates(), resting)...)
		if after.ID != "" {
			q.Where(entconversation.Or(
				entconversation.LastEventAtLT(after.At),
				entconversation.And(entconversation.LastEventAt(after.At), entconversation.IDLT(after.ID)),
			))
		}
		more, err := q.Order(entconversation.ByLastEventAt(sql.OrderDesc()), entconversation.ByID(sql.OrderDesc())).Limit(limit - len(rows)).All(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	out := make([]*Conversation, 0, len(rows))
	for _, row := range rows {
		c, err := fromRow(row)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// InboxCounts returns how many conversations wait in the queue, and how many are with a person.
func (t Tx) InboxCounts(ctx context.Context) (queued, withPeople int, err error) {
	queued, err = t.tx.Conversation.Query().Where(waiting, entconversation.StatusEQ(entconversation.StatusQueued)).Count(ctx)
	if err != nil {
		return 0, 0, err
	}
	withPeople, err = t.tx.Conversation.Query().Where(handled).Count(ctx)
	return queued, withPeople, err
}

// QueuedIDs finds conversations that wait for a person, who waits longest first.
func (t Tx) QueuedIDs(ctx context.Context, limit int) ([]string, error) {
	return t.tx.Conversation.Query().Where(waiting, entconversation.StatusEQ(entconversation.StatusQueued)).
		Order(entconversation.ByWaitingSince(), entconversation.ByID()).Limit(limit).IDs(ctx)
}

// Handled returns how many conversations each person handles.
func (t Tx) Handled(ctx context.Context) (map[string]int, error) {
	var rows []struct {
		Person string `json:"person"`
		Count  int    `json:"count"`
	}
	err := t.tx.Conversation.Query().Where(handled).GroupBy(entconversation.FieldPerson).Aggregate(ent.Count()).Scan(ctx, &rows)
	out := make(map[string]int, len(rows))
	for _, r := range rows {
		out[r.Person] = r.Count
	}
	return out, err
}

// HandledBy returns how many conversations one person handles.
func (t Tx) HandledBy(ctx context.Context, person string) (int, error) {
	return t.tx.Conversation.Query().Where(handled, entconversation.Person(person)).Count(ctx)
}

// lookBack is how many messages without content LastMessage passes over.
const lookBack = 20

// LastMessage returns the newest kept message of c that says something: one that only
// updates the context says nothing. false where there is none.
func (t Tx) LastMessage(ctx context.Context, c *Conversation) (Event, bool, error) {
	rows, err := t.tx.Event.Query().Where(
		entevent.ConversationID(c.ID), entevent.SequenceGTE(c.OldestSequence), entevent.SequenceLTE(c.LastSequence),
		entevent.Type(string(conversation.EventMessage)), entevent.PayloadNotNil(),
	).Order(entevent.BySequence(sql.OrderDesc())).Limit(lookBack).All(ctx)
	if err != nil {
		return Event{}, false, err
	}
	for _, row := range rows {
		p, err := conversation.DecodePayload(conversation.EventMessage, row.Payload)
		if err != nil {
			return Event{}, false, err
		}
		if m, ok := p.(conversation.MessagePayload); ok && (m.Text != "" || m.Data != nil) {
			return Event{Sequence: row.Sequence, CreatedAt: row.CreatedAt.UTC(), Payload: m}, true, nil
		}
	}
	return Event{}, false, nil
}

func (f InboxFilter) predicates() []predicate.Conversation {
	var out []predicate.Conversation
	if f.Status != "" {
		out = append(out, entconversation.StatusEQ(entconversation.Status(f.Status)))
	}
	if f.Person != nil {
		out = append(out, entconversation.Person(*f.Person))
	}
	if f.Assignee != nil {
		out = append(out, entconversation.Assignee(*f.Assignee))
	}
	return out
}
