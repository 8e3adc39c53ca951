package conversation

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Event is one entry of a conversation's ordered list (7.5).
type Event struct {
	ID        string // from EventID
	CreatedAt time.Time
	Payload   Payload
}

// timeLayout is RFC 3339 in UTC with milliseconds.
const timeLayout = "2006-01-02T15:04:05.000Z"

// EncodeEvent returns the event's JSON, the same in a read, a stream and a response.
func EncodeEvent(e Event) ([]byte, error) {
	members, err := EncodePayload(e.Payload)
	if err != nil {
		return nil, err
	}
	head, err := encode(struct {
		ID        string    `json:"id"`
		Type      EventType `json:"type"`
		CreatedAt string    `json:"created_at"`
	}{e.ID, e.Payload.Type(), e.CreatedAt.UTC().Format(timeLayout)})
	if err != nil {
		return nil, err
	}
	// Both are objects with at least one member: joined at the comma.
	head[len(head)-1] = ','
	return append(head, members[1:]...), nil
}

// ReadResponse answers a read, and a POST with wait. Every field is always there (7.5).
type ReadResponse struct {
	ConversationID string
	Events         []Event // in order; nil is an empty list
	Cursor         string  // the last event's id, or the request's cursor
	HasMore        bool
	Status         Status
	Responder      Responder
}

// EncodeRead returns the JSON of a read's response.
func EncodeRead(r ReadResponse) ([]byte, error) {
	events := make([]json.RawMessage, 0, len(r.Events))
	for _, e := range r.Events {
		raw, err := EncodeEvent(e)
		if err != nil {
			return nil, err
		}
		events = append(events, raw)
	}
	return encode(struct {
		ConversationID string            `json:"conversation_id"`
		Events         []json.RawMessage `json:"events"`
		Cursor         string            `json:"cursor"`
		HasMore        bool              `json:"has_more"`
		Status         Status            `json:"status"`
		Responder      Responder         `json:"responder"`
	}{r.ConversationID, events, r.Cursor, r.HasMore, r.Status, r.Responder})
}

// PostResponse answers a POST: a message without wait, or a close.
type PostResponse struct {
	ConversationID string    `json:"conversation_id"`
	Status         Status    `json:"status"`
	Responder      Responder `json:"responder"`
}

// EncodePost returns the JSON of a POST's response.
func EncodePost(r PostResponse) ([]byte, error) { return encode(r) }

// encode writes compact JSON without HTML escapes, so that text comes back as it was sent.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, unencodable(err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

func unencodable(err error) error {
	return problem.New(problem.Internal, problem.ServerError, "", "an event could not be encoded").WithCause(err)
}
