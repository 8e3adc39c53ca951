package poppy

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// The types of webhooks. MessageReceived is what a backend gets and answers; a listener
// gets EventMessage by the same name, with other data.
const (
	MessageReceived       = webhook.EventMessage
	EventMessage          = webhook.EventMessage
	EventStarted          = webhook.EventStarted
	EventStatusChanged    = webhook.EventStatusChanged
	EventHandoffRequested = webhook.EventHandoffRequested
	EventPersonJoined     = webhook.EventPersonJoined
	EventHandedBack       = webhook.EventHandedBack
	EventUserRequested    = webhook.EventUserRequested
	EventAuthorization    = webhook.EventAuthorization
	EventDirectOpened     = webhook.EventDirectOpened
	EventDirectClosed     = webhook.EventDirectClosed
	EventClosed           = webhook.EventClosed
	EventSessionStarted   = webhook.EventSessionStarted
	EventSessionSignedIn  = webhook.EventSessionSignedIn
	EventSessionSignedOut = webhook.EventSessionSignedOut
	EventSessionEnded     = webhook.EventSessionEnded
	EventEndpointDisabled = webhook.EventEndpointDisabled
	EventEndpointRecover  = webhook.EventEndpointRecovered
	EventExhausted        = webhook.EventDeliveryExhausted
	EventSecretExpiring   = webhook.EventSecretExpiring
	EventPing             = webhook.EventPing
)

// Data of events, for DataOf. Their members are described by the catalogue of event types.
type (
	// StartedData is what EventStarted says: a conversation began.
	StartedData = webhook.StartedData
	// EventMessageData is what EventMessage says: somebody wrote.
	EventMessageData = webhook.MessageData
	// StatusChangedData is what EventStatusChanged says.
	StatusChangedData = webhook.StatusChangedData
	// HandoffRequestedData is what EventHandoffRequested says: a person is asked for.
	HandoffRequestedData = webhook.HandoffRequestedData
	// PersonData is what the events of a person who joins or leaves say.
	PersonData = webhook.PersonData
	// UserRequestedData is what EventUserRequested says: the User is asked for.
	UserRequestedData = webhook.UserRequestedData
	// AuthorizationData is what the event of a sign-in that is asked for says.
	AuthorizationData = webhook.AuthorizationData
	// DirectData is what the events of Direct Conversations say.
	DirectData = webhook.DirectData
	// ClosedData is what EventClosed says.
	ClosedData = webhook.ClosedData
	// SessionStartedData is what EventSessionStarted says.
	SessionStartedData = webhook.SessionStartedData
	// SessionSignedInData is what EventSessionSignedIn says.
	SessionSignedInData = webhook.SessionSignedInData
	// SessionSignedOutData is what EventSessionSignedOut says.
	SessionSignedOutData = webhook.SessionSignedOutData
	// SessionEndedData is what EventSessionEnded says.
	SessionEndedData = webhook.SessionEndedData
	// EndpointData is what the events of an endpoint that was disabled or recovered say.
	EndpointData = webhook.EndpointData
	// DeliveryExhaustedData is what EventExhausted says: a delivery was given up.
	DeliveryExhaustedData = webhook.DeliveryExhaustedData
	// SecretExpiringData is what EventSecretExpiring says.
	SecretExpiringData = webhook.SecretExpiringData
	// PingData is what EventPing says.
	PingData = webhook.PingData
)

// Event is a webhook that was found genuine.
type Event struct {
	// ID is the same at every attempt: an event of an id that was handled before is done.
	ID      string
	Type    string
	At      time.Time // when it happened
	Company string
	Data    json.RawMessage // the whole of data
}

func parseEvent(id string, body []byte) (*Event, error) {
	var wire struct {
		Type      string          `json:"type"`
		Timestamp time.Time       `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, fmt.Errorf("poppy: the webhook can't be read: %w", err)
	}
	var data struct {
		Company string `json:"company"`
	}
	if err := json.Unmarshal(wire.Data, &data); err != nil {
		return nil, fmt.Errorf("poppy: the webhook's data can't be read: %w", err)
	}
	return &Event{ID: id, Type: wire.Type, At: wire.Timestamp, Company: data.Company, Data: wire.Data}, nil
}

// DataOf reads what an event says: T is the type of the event's data.
func DataOf[T any](e *Event) (*T, error) {
	out := new(T)
	if err := json.Unmarshal(e.Data, out); err != nil {
		return nil, fmt.Errorf("poppy: data of %s: %w", e.Type, err)
	}
	return out, nil
}

// Message is what a backend is told of one message.
type Message struct {
	Company      string                       `json:"company"`
	Conversation webhook.DeliveryConversation `json:"conversation"`
	Sequence     int64                        `json:"sequence"` // rises within the conversation
	Message      struct {
		ID     string          `json:"id"`
		Sender string          `json:"sender"` // "agent" or "human"
		Text   string          `json:"text"`
		Data   json.RawMessage `json:"data"`
	} `json:"message"`
	Context json.RawMessage         `json:"context"` // what the agent shared
	Agent   webhook.DeliveryAgent   `json:"agent"`
	User    webhook.EventUser       `json:"user"`
	Session webhook.DeliverySession `json:"session"`
	// Handback is set where a person handed the conversation back.
	Handback *webhook.DeliveryHandback `json:"handback"`
	Expected struct {
		Reply   bool       `json:"reply"`
		ReplyBy *time.Time `json:"reply_by"`
	} `json:"expected"`
}

// ConversationName is the resource name of the conversation, for the admin API.
func (m *Message) ConversationName() string {
	return m.Company + "/conversations/" + m.Conversation.ID
}
