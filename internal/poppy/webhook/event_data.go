package webhook

import (
	"encoding/json"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
)

// What the events say. The tags are the catalogue: "doc" describes a member, "enum"
// lists its values, "format" is JSON Schema's. A pointer may be null; nothing is ever
// left out.

// ConversationFacts is what every event of a conversation says.
type ConversationFacts struct {
	Conversation DeliveryConversation `json:"conversation" doc:"The conversation as it was after what happened."`
	Sequence     int64                `json:"sequence" doc:"Number of the conversation's event that this is about. It rises within the conversation and orders its events."`
	Agent        DeliveryAgent        `json:"agent" doc:"The Personal Agent."`
	User         EventUser            `json:"user" doc:"The User, as the agent names them."`
	Session      DeliverySession      `json:"session" doc:"The Session of the agent's newest message."`
}

// NewDeliverySession is the Session with the given id; account counts while it is signed in alone.
func NewDeliverySession(id string, signedIn bool, account string, scopes []string) DeliverySession {
	s := DeliverySession{ID: id, SignedIn: signedIn, Scopes: scopes}
	if signedIn && account != "" {
		s.Account = &account
	}
	if s.Scopes == nil {
		s.Scopes = []string{}
	}
	return s
}

// EventUser is a User at one Personal Agent.
type EventUser struct {
	ID string `json:"id" doc:"Means something together with agent.client_id only."`
}

// StartedData is of EventStarted.
type StartedData struct{ ConversationFacts }

// MessageData is of EventMessage.
type MessageData struct {
	ConversationFacts
	Message EventMessageBody `json:"message" doc:"The message."`
}

// EventMessageBody is a message of either side.
type EventMessageBody struct {
	ID     string              `json:"id"`
	Role   conversation.Role   `json:"role" enum:"user,company" doc:"The side it comes from."`
	Sender conversation.Sender `json:"sender" enum:"agent,human" doc:"Whether a person or an AI wrote it."`
	Text   string              `json:"text" doc:"Empty where it has none."`
	Data   json.RawMessage     `json:"data" doc:"Empty where it has none."`
}

// NewEventMessage makes the message of an event from that of a conversation.
func NewEventMessage(p conversation.MessagePayload) EventMessageBody {
	return EventMessageBody{ID: p.ID, Role: p.Role, Sender: p.Sender, Text: p.Text, Data: objectOr(p.Data)}
}

// StatusChangedData is of EventStatusChanged.
type StatusChangedData struct {
	ConversationFacts
	Previous EventStatus `json:"previous" doc:"What it was before."`
}

// EventStatus is a status and who handles the Company's side.
type EventStatus struct {
	Status    conversation.Status    `json:"status" enum:"working,idle,queued,closed"`
	Responder conversation.Responder `json:"responder" enum:"agent,human"`
}

// HandoffRequestedData is of EventHandoffRequested.
type HandoffRequestedData struct {
	ConversationFacts
	Reason string `json:"reason" doc:"Why a person is asked for; empty where nothing was said."`
}

// PersonData is of EventPersonJoined and EventHandedBack.
type PersonData struct {
	ConversationFacts
	Person string `json:"person" doc:"Who handles the conversation now, or did until now."`
}

// UserRequestedData is of EventUserRequested.
type UserRequestedData struct {
	ConversationFacts
	Reason string `json:"reason" doc:"Why the User themselves are asked for."`
}

// AuthorizationData is of EventAuthorization.
type AuthorizationData struct {
	ConversationFacts
	Authorization EventSignIn `json:"authorization" doc:"What is asked for."`
}

// EventSignIn is a sign-in that is asked for.
type EventSignIn struct {
	Error string `json:"error" enum:"sign_in_required,insufficient_scope"`
	Scope string `json:"scope" doc:"Scopes that are needed, space-separated; empty where none are named."`
}

// DirectData is of EventDirectOpened and EventDirectClosed.
type DirectData struct {
	ConversationFacts
	DirectConversation EventID `json:"direct_conversation" doc:"The Direct Conversation below this one."`
}

// EventID names something.
type EventID struct {
	ID string `json:"id"`
}

// ClosedData is of EventClosed.
type ClosedData struct {
	ConversationFacts
	ClosedBy string `json:"closed_by" enum:"agent,company,inactivity,parent" doc:"Who closed it."`
}

// SessionFacts is what every event of a Session says.
type SessionFacts struct {
	Session DeliverySession `json:"session" doc:"The Session as it was after what happened."`
	Agent   DeliveryAgent   `json:"agent" doc:"The Personal Agent."`
	User    EventUser       `json:"user" doc:"The User, as the agent names them."`
}

// SessionStartedData is of EventSessionStarted.
type SessionStartedData struct{ SessionFacts }

// SessionSignedInData is of EventSessionSignedIn.
type SessionSignedInData struct {
	SessionFacts
	SignIn string `json:"sign_in" enum:"direct,device,mediated,account_token" doc:"How: by a type of sign-in, or by an Account Token of an earlier one."`
}

// SessionSignedOutData is of EventSessionSignedOut.
type SessionSignedOutData struct {
	SessionFacts
	Account string `json:"account" doc:"The account that it was signed in to."`
	Reason  string `json:"reason" enum:"signed_out,disconnected,replaced_token_reused,code_reused,agent_revoked" doc:"Why."`
}

// SessionEndedData is of EventSessionEnded.
type SessionEndedData struct {
	SessionFacts
	Reason string `json:"reason" enum:"company,idle,signed_out,disconnected,replaced_token_reused,code_reused,agent_revoked" doc:"Why: by the Company, unused for too long, or with its sign-in."`
}

// EndpointData is of EventEndpointDisabled and EventEndpointRecovered.
type EndpointData struct {
	Endpoint EventEndpoint `json:"endpoint" doc:"The backend, or an endpoint that listens."`
	Reason   string        `json:"reason" doc:"Why it was turned off; empty where it was not."`
}

// EventEndpoint is a place where the Company is reached. Its URL, which may hold
// secrets, is not told to other endpoints.
type EventEndpoint struct {
	Name        string `json:"name" doc:"Its resource name."`
	DisplayName string `json:"display_name"`
}

// DeliveryExhaustedData is of EventDeliveryExhausted.
type DeliveryExhaustedData struct {
	Endpoint EventEndpoint     `json:"endpoint" doc:"Where it should have gone."`
	Delivery ExhaustedDelivery `json:"delivery" doc:"What could not be delivered."`
}

// ExhaustedDelivery is a delivery that was given up after its last attempt.
type ExhaustedDelivery struct {
	Name       string `json:"name" doc:"Its resource name, to send it again."`
	Event      string `json:"event" doc:"The webhook-id."`
	EventType  string `json:"event_type"`
	Attempts   int    `json:"attempts"`
	LastStatus int    `json:"last_status" doc:"HTTP status of the last attempt; 0 where there was none."`
	LastReason string `json:"last_reason"`
}

// SecretExpiringData is of EventSecretExpiring.
type SecretExpiringData struct {
	Secret EventSecret `json:"secret" doc:"What ends soon. Its value is not told."`
}

// EventSecret is a secret or a certificate with an end.
type EventSecret struct {
	Name       string `json:"name" doc:"Its resource name, or that of the endpoint whose certificate it is."`
	Kind       string `json:"kind" enum:"hmac,ed25519,client_certificate"`
	ExpireTime string `json:"expire_time" format:"date-time"`
}

// PingData is of EventPing.
type PingData struct {
	Endpoint EventEndpoint `json:"endpoint" doc:"The endpoint that is tried."`
}
