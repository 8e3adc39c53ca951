package conversation

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Message is a Personal Agent's message that passed the rules of 7.4. Only
// ParseStart and ParseSend make one. An absent field and an empty text are one.
type Message struct {
	id      string
	sender  Sender
	text    string
	data    json.RawMessage
	context json.RawMessage
}

// ID returns the id the agent chose.
func (m Message) ID() string { return m.id }

// Sender returns who wrote the message on the User's side.
func (m Message) Sender() Sender { return m.sender }

// Text returns the text, "" where there is none.
func (m Message) Text() string { return m.text }

// Data returns the data object without insignificant space, nil where there is
// none. Numbers keep the spelling they came in.
func (m Message) Data() json.RawMessage { return m.data }

// Context returns the context object without members that are null, nil where
// the message has none.
func (m Message) Context() json.RawMessage { return m.context }

// StartsTurn reports whether the Company has something to answer: a message with
// only context does not (7.4).
func (m Message) StartsTurn() bool { return m.text != "" || m.data != nil }

// Payload returns what the message event holds. Context is not in it.
func (m Message) Payload() MessagePayload {
	return MessagePayload{ID: m.id, Role: RoleUser, Sender: m.sender, Text: m.text, Data: m.data}
}

// Start is the body of a request that starts a conversation.
type Start struct {
	message Message
	parent  string
}

// Message returns the first message.
func (s Start) Message() Message { return s.message }

// Parent returns the id of the conversation that a Direct Conversation is linked
// to, "" where an ordinary one is asked for (7.10).
func (s Start) Parent() string { return s.parent }

// ParseStart reads the body of POST {endpoint}. Fields that the protocol doesn't
// define are ignored at every level; null counts as left out.
func ParseStart(body []byte) (Start, error) {
	top, err := parseBody(body)
	if err != nil {
		return Start{}, err
	}
	var s Start
	if s.message, err = parseMessage(top["message"]); err != nil {
		return Start{}, err
	}
	if v := top["parent_conversation_id"]; isThere(v) {
		if v.Kind() != jsonx.String {
			return Start{}, invalid(clauseMalformed, "parent_conversation_id", "is no string")
		}
		s.parent = v.Text()
		if err := CheckID("parent_conversation_id", s.parent); err != nil {
			return Start{}, err
		}
	}
	return s, nil
}

// ParseSend reads the body of POST {endpoint}/{id}/messages, as ParseStart does.
func ParseSend(body []byte) (Message, error) {
	top, err := parseBody(body)
	if err != nil {
		return Message{}, err
	}
	return parseMessage(top["message"])
}

// ParseEmptyBody reads the body of a request that has nothing to say, such as a
// close: a JSON object whose members are ignored.
func ParseEmptyBody(body []byte) error {
	_, err := parseBody(body)
	if err != nil && len(body) <= MaxBody {
		return invalid(clauseClose, "body", "is no JSON object").WithCause(err)
	}
	return err
}

type members map[string]jsonx.Value

func parseBody(body []byte) (members, error) {
	if len(body) > MaxBody {
		return nil, tooLarge("body", "has more than %d bytes", MaxBody)
	}
	obj, err := jsonx.ParseObject(body)
	if err != nil {
		return nil, malformed("body", err)
	}
	return membersOf(obj), nil
}

func malformed(path string, err error) *problem.Error {
	detail := "is no sound JSON object"
	var e *jsonx.Error
	if errors.As(err, &e) {
		detail = "is no sound JSON object: " + e.Fault.String()
	}
	return invalid(clauseMalformed, path, "%s", detail).WithCause(err)
}

func membersOf(obj jsonx.Object) members {
	m := members{}
	for name, value, ok := obj.Next(); ok; name, value, ok = obj.Next() {
		m[string(name)] = value
	}
	return m
}

// isThere reports whether a member is present with a value: null counts as left out.
func isThere(v jsonx.Value) bool { return !v.IsZero() && v.Kind() != jsonx.Null }

func parseMessage(v jsonx.Value) (Message, error) {
	obj, ok := v.Object()
	if !ok {
		return Message{}, invalid(clauseBody, "message", "is missing or no object")
	}
	f := membersOf(obj)
	var m Message
	var err error
	if f["id"].Kind() != jsonx.String {
		return Message{}, invalid(clauseID, "message.id", "is missing or no string")
	}
	m.id = f["id"].Text()
	if err := CheckID("message.id", m.id); err != nil {
		return Message{}, err
	}
	if m.sender, err = parseSender("message.sender", f["sender"].Text()); err != nil {
		return Message{}, err
	}
	if m.text, err = parseText("message.text", f["text"]); err != nil {
		return Message{}, err
	}
	if m.data, err = parseObject(clauseData, "message.data", f["data"]); err != nil {
		return Message{}, err
	}
	if m.context, err = parseContext("message.context", f["context"]); err != nil {
		return Message{}, err
	}
	if m.text == "" && m.data == nil && m.context == nil {
		return Message{}, invalid(clauseContent, "message", "has none of text, data and context")
	}
	return m, nil
}

func parseSender(path, raw string) (Sender, error) {
	switch s := Sender(raw); s {
	case SenderAgent, SenderHuman:
		return s, nil
	default:
		return "", invalid(clauseSender, path, "is neither agent nor human")
	}
}

func parseText(path string, v jsonx.Value) (string, error) {
	if !isThere(v) {
		return "", nil
	}
	if v.Kind() != jsonx.String {
		return "", invalid(clauseText, path, "is no string")
	}
	text := v.Text()
	if utf8.RuneCountInString(text) > MaxText {
		return "", tooLarge(path, "has more than %d characters", MaxText)
	}
	return text, nil
}

// parseObject returns a compact copy of an optional JSON object.
func parseObject(id clause.ID, path string, v jsonx.Value) (json.RawMessage, error) {
	if !isThere(v) {
		return nil, nil
	}
	if v.Kind() != jsonx.ObjectKind {
		return nil, invalid(id, path, "is no object")
	}
	var buf bytes.Buffer
	if err := json.Compact(&buf, v.Raw()); err != nil {
		return nil, malformed(path, err)
	}
	if buf.Len() > MaxObject {
		return nil, tooLarge(path, "has more than %d bytes", MaxObject)
	}
	if err := jsonx.Check(buf.Bytes(), MaxDepth); err != nil {
		return nil, malformed(path, err)
	}
	// A number beyond a double has no canonical form, so a retry could not be told from another message (7.3).
	if _, err := jsonx.Canonical(buf.Bytes()); err != nil {
		return nil, malformed(path, err)
	}
	return buf.Bytes(), nil
}
