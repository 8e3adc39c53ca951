package conversation

import (
	"encoding/json"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// EventType is the type of an event (7.5).
type EventType string

// The event types of draft 0.1.
const (
	EventMessage       EventType = "message"
	EventState         EventType = "state"
	EventAuthorization EventType = "authorization"
	EventUserRequested EventType = "user_requested"
	EventDirectOpened  EventType = "direct_opened"
	EventDirectClosed  EventType = "direct_closed"
)

// Payload is what an event says beyond its id, type and time: one of the Payload
// types of this package.
type Payload interface {
	// Type returns the event's type on the wire.
	Type() EventType
	// wire returns the members that follow id, type and created_at.
	wire() any
}

// MessagePayload is a message of either side. Text "" and Data nil are left out.
type MessagePayload struct {
	ID     string          `json:"id"`
	Role   Role            `json:"role"`
	Sender Sender          `json:"sender"`
	Text   string          `json:"text,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
}

// StatePayload is a change of status or responder; it always has both.
type StatePayload struct {
	Status    Status    `json:"status"`
	Responder Responder `json:"responder"`
}

// AuthorizationPayload asks for a sign-in (7.11). Error is sign_in_required or
// insufficient_scope; Scope names the scopes needed, space-separated.
type AuthorizationPayload struct {
	Error string `json:"error"`
	Scope string `json:"scope,omitempty"`
}

// UserRequestedPayload asks for the User themselves (7.10).
type UserRequestedPayload struct {
	Reason string `json:"reason"`
}

// DirectOpenedPayload names the Direct Conversation that opened below this one.
type DirectOpenedPayload struct {
	ConversationID string `json:"conversation_id"`
}

// DirectClosedPayload names the Direct Conversation that closed.
type DirectClosedPayload struct {
	ConversationID string `json:"conversation_id"`
}

// Type returns EventMessage.
func (MessagePayload) Type() EventType { return EventMessage }

// Type returns EventState.
func (StatePayload) Type() EventType { return EventState }

// Type returns EventAuthorization.
func (AuthorizationPayload) Type() EventType { return EventAuthorization }

// Type returns EventUserRequested.
func (UserRequestedPayload) Type() EventType { return EventUserRequested }

// Type returns EventDirectOpened.
func (DirectOpenedPayload) Type() EventType { return EventDirectOpened }

// Type returns EventDirectClosed.
func (DirectClosedPayload) Type() EventType { return EventDirectClosed }

type wireMessage struct {
	Message MessagePayload `json:"message"`
}

func (p MessagePayload) wire() any       { return wireMessage{p} }
func (p StatePayload) wire() any         { return p }
func (p AuthorizationPayload) wire() any { return p }
func (p UserRequestedPayload) wire() any { return p }
func (p DirectOpenedPayload) wire() any  { return p }
func (p DirectClosedPayload) wire() any  { return p }

// EncodePayload returns the type-specific members of an event as a JSON object,
// as they stand on the wire. With the event's type it is all a store has to keep.
func EncodePayload(p Payload) ([]byte, error) {
	if p == nil {
		return nil, unencodable(nil)
	}
	return encode(p.wire())
}

// DecodePayload reads what EncodePayload wrote. It is for one's own store and
// checks no more than the shape.
func DecodePayload(t EventType, raw []byte) (Payload, error) {
	switch t {
	case EventMessage:
		var w wireMessage
		err := decode(raw, &w)
		return w.Message, err
	case EventState:
		return decodeAs[StatePayload](raw)
	case EventAuthorization:
		return decodeAs[AuthorizationPayload](raw)
	case EventUserRequested:
		return decodeAs[UserRequestedPayload](raw)
	case EventDirectOpened:
		return decodeAs[DirectOpenedPayload](raw)
	case EventDirectClosed:
		return decodeAs[DirectClosedPayload](raw)
	}
	return nil, problem.New(problem.Internal, problem.ServerError, "", "a stored event has an unknown type")
}

func decodeAs[P Payload](raw []byte) (Payload, error) {
	var p P
	err := decode(raw, &p)
	return p, err
}

func decode(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return problem.New(problem.Internal, problem.ServerError, "", "a stored event could not be read").WithCause(err)
	}
	return nil
}
