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

// What events say, for DataOf. Their members are described by the catalogue of event types.
type (
	StartedData           = webhook.StartedData
	EventMessageData      = webhook.MessageData
	StatusChangedData     = webhook.StatusChangedData
	HandoffRequestedData  = webhook.HandoffRequestedData
	PersonData            = webhook.PersonData
	UserRequestedData     = webhook.UserRequestedData
	AuthorizationData     = webhook.AuthorizationData
	DirectData            = webhook.DirectData
	ClosedData            = webhook.ClosedData
	SessionStartedData    = webhook.SessionStartedData
	SessionSignedInData   = webhook.SessionSignedInData
	SessionSignedOutData  = webhook.SessionSignedOutData
	SessionEndedData      = webhook.SessionEndedData
	EndpointData          = webhook.EndpointData
	DeliveryExhaustedData = webhook.DeliveryExhaustedData
	SecretExpiringData    = webhook.SecretExpiringData
	PingData              = webhook.PingData
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
