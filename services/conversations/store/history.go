package store

import (
	"context"
	"slices"
	"time"

	"entgo.io/ent/dialect/sql"

	entevent "github.com/poppyfield/poppyfield/ent/event"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
)

// maxRelatives is how many Direct Conversations a history looks into, the newest ones.
const maxRelatives = 8

// said is a message with its place in a history.
type said struct {
	at time.Time
	conversation.MessagePayload
}

// History returns up to limit messages of the conversation of c and of those linked to
// it (Poppy 7.10), in order of time; the message that c delivers comes last. What the
// agent said after that message isn't there: it is delivered on its own.
func (t Tx) History(ctx context.Context, c Claim, limit int) ([]conversation.MessagePayload, error) {
	own := c.Delivery.ConversationID
	relatives := []string{c.ParentID}
	if c.ParentID == "" {
		var err error
		if relatives, err = t.children(ctx, own); err != nil {
			return nil, err
		}
	}
	var all []said
	for _, id := range append(relatives, own) {
		rows, err := t.tx.Event.Query().
			Where(entevent.ConversationID(id), entevent.Type(string(conversation.EventMessage)), entevent.PayloadNotNil()).
			Order(entevent.BySequence(sql.OrderDesc())).Limit(2 * limit).All(ctx)
		if err != nil {
			return nil, err
		}
		slices.Reverse(rows) // several may be of the same moment
		for _, row := range rows {
			p, err := conversation.DecodePayload(conversation.EventType(row.Type), row.Payload)
			if err != nil {
				return nil, damage(err)
			}
			m, ok := p.(conversation.MessagePayload)
			if !ok {
				return nil, damage(errNoMessage)
			}
			theirs := m.Role == conversation.RoleUser
			if id == own && (row.Sequence == c.Delivery.Sequence || theirs && row.Sequence > c.Delivery.Sequence) {
				continue
			}
			all = append(all, said{row.CreatedAt, m})
		}
	}
	slices.SortStableFunc(all, func(a, b said) int { return a.at.Compare(b.at) })
	if len(all) > limit-1 {
		all = all[len(all)-limit+1:]
	}
	out := make([]conversation.MessagePayload, 0, len(all)+1)
	for _, s := range all {
		out = append(out, s.MessagePayload)
	}
	return append(out, c.Message), nil
}

// children returns the Direct Conversations that the kept events of a conversation tell of, the newest first.
func (t Tx) children(ctx context.Context, conversationID string) ([]string, error) {
	rows, err := t.tx.Event.Query().
		Where(entevent.ConversationID(conversationID), entevent.Type(string(conversation.EventDirectOpened)), entevent.PayloadNotNil()).
		Order(entevent.BySequence(sql.OrderDesc())).Limit(maxRelatives).All(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, row := range rows {
		p, err := conversation.DecodePayload(conversation.EventType(row.Type), row.Payload)
		if err != nil {
			return nil, damage(err)
		}
		if opened, ok := p.(conversation.DirectOpenedPayload); ok {
			out = append(out, opened.ConversationID)
		}
	}
	return out, nil
}
