package store

import (
	"context"
	"math"
	"slices"
	"time"

	"entgo.io/ent/dialect/sql"

	entconversation "github.com/poppyfield/poppyfield/ent/conversation"
	entevent "github.com/poppyfield/poppyfield/ent/event"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
)

const (
	// maxRelatives is how many Direct Conversations a history looks into, the newest ones.
	maxRelatives = 8
	// MaxHistory bounds the bytes of a history, beside the message that is delivered.
	MaxHistory  = 1 << 20
	historyPage = 32
	// turnOverhead is what a message of a history costs beside its text and data.
	turnOverhead = 64
)

// said is a message with its place in a history.
type said struct {
	at time.Time
	conversation.MessagePayload
}

func (s said) size() int { return len(s.Text) + len(s.Data) + turnOverhead }

// History returns up to limit messages of the conversation of c and of those linked to
// it (Poppy 7.10), in order of time; the message that c delivers comes last and is
// always there. Of the others the newest are, as many as fit into MaxHistory bytes. What
// the agent said after that message isn't there: it is delivered on its own. Nor is what
// belongs to another Account.
func (t Tx) History(ctx context.Context, c Claim, limit int) ([]conversation.MessagePayload, error) {
	family, err := t.family(ctx, c)
	if err != nil {
		return nil, err
	}
	var all []said
	for _, id := range family {
		one, err := t.newest(ctx, c, id, limit-1)
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	slices.SortStableFunc(all, func(a, b said) int { return a.at.Compare(b.at) })
	from, left := len(all), MaxHistory
	for from > 0 && len(all)-from < limit-1 && all[from-1].size() <= left {
		from--
		left -= all[from].size()
	}
	out := make([]conversation.MessagePayload, 0, len(all)-from+1)
	for _, s := range all[from:] {
		out = append(out, s.MessagePayload)
	}
	return append(out, c.Message), nil
}

// newest returns up to limit messages of one conversation of a family, in order, and no
// more than fit into a history and the one that doesn't.
func (t Tx) newest(ctx context.Context, c Claim, id string, limit int) ([]said, error) {
	var out []said
	own := id == c.Delivery.ConversationID
	before := int64(math.MaxInt64)
	for left := MaxHistory; len(out) < limit && left >= 0; {
		rows, err := t.tx.Event.Query().
			Where(entevent.ConversationID(id), entevent.Type(string(conversation.EventMessage)), entevent.PayloadNotNil(), entevent.SequenceLT(before)).
			Order(entevent.BySequence(sql.OrderDesc())).Limit(min(limit+1, historyPage)).All(ctx)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			before = row.Sequence
			p, err := conversation.DecodePayload(conversation.EventType(row.Type), row.Payload)
			if err != nil {
				return nil, damage(err)
			}
			m, ok := p.(conversation.MessagePayload)
			if !ok {
				return nil, damage(errNoMessage)
			}
			if own && (row.Sequence == c.Delivery.Sequence || m.Role == conversation.RoleUser && row.Sequence > c.Delivery.Sequence) {
				continue
			}
			one := said{row.CreatedAt, m}
			out = append(out, one)
			if left -= one.size(); left < 0 || len(out) == limit {
				break
			}
		}
		if len(rows) < min(limit+1, historyPage) {
			break
		}
	}
	slices.Reverse(out) // several may be of the same moment
	return out, nil
}

// family returns the conversations whose messages the history of c's holds, its own
// last. Of those linked to it, none is of an Account that isn't its own.
func (t Tx) family(ctx context.Context, c Claim) ([]string, error) {
	own := c.Delivery.ConversationID
	relatives := []string{c.ParentID}
	if c.ParentID == "" {
		var err error
		if relatives, err = t.children(ctx, own); err != nil {
			return nil, err
		}
	}
	if len(relatives) == 0 {
		return []string{own}, nil
	}
	heads, err := t.tx.Conversation.Query().Where(entconversation.IDIn(append(relatives, own)...)).Select(entconversation.FieldAccount).All(ctx)
	if err != nil {
		return nil, err
	}
	accounts := map[string]string{}
	for _, head := range heads {
		accounts[head.ID] = head.Account
	}
	relatives = slices.DeleteFunc(relatives, func(id string) bool { return accounts[id] != "" && accounts[id] != accounts[own] })
	return append(relatives, own), nil
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
