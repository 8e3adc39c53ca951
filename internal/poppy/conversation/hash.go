package conversation

import (
	"crypto/sha256"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// Target is where a message was sent: to a new conversation, to a new one below a
// parent, or to an existing one.
type Target struct{ kind, id string }

// NewTarget is the target of a first message; parent is "" for an ordinary conversation.
func NewTarget(parent string) Target {
	if parent == "" {
		return Target{kind: "new"}
	}
	return Target{kind: "parent", id: parent}
}

// ConversationTarget is the target of a later message.
func ConversationTarget(id string) Target { //nolint:revive // conversation.Target would say nothing of which
	return Target{kind: "conversation", id: id}
}

// ContentHash is the SHA-256 by which a retried message is told from another one
// with the same id (7.3): of the canonical JSON (RFC 8785) of the fields the
// protocol defines and of the target. Unknown fields, key order, and the
// spelling of numbers don't count.
func ContentHash(m Message, t Target) ([sha256.Size]byte, error) {
	doc := append([]byte(`{"id":`), jsonx.AppendString(nil, m.id)...)
	doc = jsonx.AppendString(append(doc, `,"sender":`...), string(m.sender))
	if m.text != "" {
		doc = jsonx.AppendString(append(doc, `,"text":`...), m.text)
	}
	if m.data != nil {
		doc = append(append(doc, `,"data":`...), m.data...)
	}
	if m.context != nil {
		doc = append(append(doc, `,"context":`...), m.context...)
	}
	doc = jsonx.AppendString(append(doc, `,"target":{"kind":`...), t.kind)
	doc = jsonx.AppendString(append(doc, `,"id":`...), t.id)
	canonical, err := jsonx.Canonical(append(doc, `}}`...))
	if err != nil {
		return [sha256.Size]byte{}, malformed("message", err)
	}
	return sha256.Sum256(canonical), nil
}
