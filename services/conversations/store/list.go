package store

import (
	"context"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	entconversation "github.com/poppyfield/poppyfield/ent/conversation"
	"github.com/poppyfield/poppyfield/ent/predicate"
)

// MaxCount is where counting stops.
const MaxCount = 10_000

// Filter narrows a list; empty fields narrow nothing.
type Filter struct{ Status, Responder, ClientID, UserID, SessionID, ParentID, Person string }

// Position is a place in the order of a list; the zero Position is its start.
type Position struct {
	LastEventAt time.Time
	ID          string
}

// List returns conversations after a position, the one with the newest event first.
func (t Tx) List(ctx context.Context, f Filter, after Position, limit int) ([]*Conversation, error) {
	q := t.tx.Conversation.Query().Where(f.predicates()...)
	if after.ID != "" {
		q.Where(entconversation.Or(
			entconversation.LastEventAtLT(after.LastEventAt),
			entconversation.And(entconversation.LastEventAt(after.LastEventAt), entconversation.IDLT(after.ID)),
		))
	}
	rows, err := q.Order(entconversation.ByLastEventAt(sql.OrderDesc()), entconversation.ByID(sql.OrderDesc())).Limit(limit).All(ctx)
	if err != nil {
		return nil, err
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

// Count counts what a list holds, up to MaxCount; exact is false above it.
func (t Tx) Count(ctx context.Context, f Filter) (n int, exact bool, err error) {
	beyond, err := t.tx.Conversation.Query().Where(f.predicates()...).
		Order(entconversation.ByLastEventAt(sql.OrderDesc())).Offset(MaxCount).Limit(1).IDs(ctx)
	if err != nil {
		return 0, false, err
	}
	if len(beyond) > 0 {
		return MaxCount, false, nil
	}
	n, err = t.tx.Conversation.Query().Where(f.predicates()...).Count(ctx)
	return min(n, MaxCount), true, err
}

// Newest returns the newest update time of any conversation; zero where there is none.
func (t Tx) Newest(ctx context.Context) (time.Time, error) {
	// Every change that a list shows adds an event, but for a merged context alone, which is a message too.
	row, err := t.tx.Conversation.Query().Order(entconversation.ByLastEventAt(sql.OrderDesc())).Select(entconversation.FieldUpdatedAt).First(ctx)
	if ent.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return row.UpdatedAt.UTC(), nil
}

func (f Filter) predicates() []predicate.Conversation {
	var out []predicate.Conversation
	if f.Status != "" {
		out = append(out, entconversation.StatusEQ(entconversation.Status(f.Status)))
	}
	if f.Responder != "" {
		out = append(out, entconversation.ResponderEQ(entconversation.Responder(f.Responder)))
	}
	if f.ClientID != "" {
		out = append(out, entconversation.ClientID(f.ClientID))
	}
	if f.UserID != "" {
		out = append(out, entconversation.UserID(f.UserID))
	}
	if f.SessionID != "" {
		out = append(out, entconversation.SessionID(f.SessionID))
	}
	if f.ParentID != "" {
		out = append(out, entconversation.ParentID(f.ParentID))
	}
	if f.Person != "" {
		out = append(out, entconversation.Person(f.Person))
	}
	return out
}
