package store

import (
	"cmp"
	"context"
	"slices"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	entconversation "github.com/poppyfield/poppyfield/ent/conversation"
	entevent "github.com/poppyfield/poppyfield/ent/event"
	"github.com/poppyfield/poppyfield/internal/platform/db"
)

// Heads reads what a reader needs to know of conversations: whose they are, where they
// stand and how far they go; nothing else of them is set. Those that aren't there are missing.
func (t Tx) Heads(ctx context.Context, ids []string) (map[string]*Conversation, error) {
	each := make([]*sql.Predicate, 0, len(ids))
	for _, id := range padded(ids) {
		each = append(each, sql.EQ(entconversation.FieldID, id))
	}
	rows, err := t.tx.Conversation.Query().Where(db.AnyOf(ctx, each...)).Select(
		entconversation.FieldID, entconversation.FieldClientID, entconversation.FieldUserID, entconversation.FieldAccount,
		entconversation.FieldStatus, entconversation.FieldResponder, entconversation.FieldCursorKey,
		entconversation.FieldLastSequence, entconversation.FieldOldestSequence,
	).All(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*Conversation, len(rows))
	for _, row := range rows {
		if out[row.ID], err = fromRow(row); err != nil { // of what can be damaged nothing was read
			return nil, err
		}
	}
	return out, nil
}

// Span is the kept events of a conversation after one sequence number, up to another.
type Span struct {
	ConversationID string
	After, Last    int64
}

// Spans reads the events of spans with one question, each in order, which is the last
// of its unit. It is for short ones: there is no bound to what is read but their lengths.
func (t Tx) Spans(ctx context.Context, spans []Span) (map[Span][]Event, error) {
	each := make([]*sql.Predicate, 0, len(spans))
	for _, s := range padded(spans) {
		each = append(each, sql.And(sql.EQ(entevent.FieldConversationID, s.ConversationID), sql.GT(entevent.FieldSequence, s.After), sql.LTE(entevent.FieldSequence, s.Last)))
	}
	rows, err := t.tx.Event.Query().Where(entevent.PayloadNotNil(), db.AnyOf(ctx, each...)).All(db.Last(ctx))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b *ent.Event) int { return cmp.Compare(a.Sequence, b.Sequence) })
	byConversation := map[string][]*ent.Event{}
	for _, row := range rows {
		of := byConversation[row.ConversationID]
		if n := len(of); n == 0 || of[n-1].Sequence < row.Sequence { // two spans may have it, and the padding
			byConversation[row.ConversationID] = append(of, row)
		}
	}
	out := make(map[Span][]Event, len(spans))
	for _, s := range spans {
		if _, done := out[s]; done {
			continue
		}
		var events []Event
		for _, row := range byConversation[s.ConversationID] {
			if row.Sequence <= s.After || row.Sequence > s.Last {
				continue
			}
			e, err := eventOf(row)
			if err != nil {
				return nil, err
			}
			events = append(events, e)
		}
		out[s] = events
	}
	return out, nil
}

// padded repeats the last of all until there is a power of two of them: a database
// keeps the plan of a statement, and there should be few statements.
func padded[T any](all []T) []T {
	n := 1
	for n < len(all) {
		n *= 2
	}
	out := make([]T, 0, n)
	out = append(out, all...)
	for len(out) > 0 && len(out) < n {
		out = append(out, all[len(all)-1])
	}
	return out
}
