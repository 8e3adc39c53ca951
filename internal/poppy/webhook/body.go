package webhook

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// EventMessage is the type of the webhook that brings a Personal Agent's message.
const EventMessage = "conversation.message"

// Delivery is what a backend is told about one message.
type Delivery struct {
	OccurredAt   time.Time // when the message was accepted, not when it is sent
	Company      string    // resource name, "companies/cmp_…"
	Conversation DeliveryConversation
	Sequence     int64 // of the message's event; rises within the conversation
	Message      conversation.MessagePayload
	Context      json.RawMessage // merged, nil for none
	Agent        DeliveryAgent
	UserID       string // the User ID as the agent gave it (Poppy 4.2); unique only together with Agent.ClientID
	Session      DeliverySession
	// Handback is set where a person handed the conversation back, nil otherwise.
	Handback *DeliveryHandback
	// ReplyBy is when the agent is told that no answer came; zero when none is expected.
	ReplyBy time.Time
}

// DeliveryConversation is the conversation as it was after the message.
type DeliveryConversation struct {
	ID        string                 `json:"id"`
	Status    conversation.Status    `json:"status" enum:"working,idle,queued,closed"`
	Responder conversation.Responder `json:"responder" enum:"agent,human"`
	Direct    bool                   `json:"direct" doc:"The User talks themselves."`
	Parent    *string                `json:"parent" doc:"The conversation that a direct one belongs to."` // nil unless Direct
}

// DeliveryAgent is the Personal Agent that sent the message.
type DeliveryAgent struct {
	ClientID string `json:"client_id"`
	Name     string `json:"name"`
}

// DeliverySession is the Session that the message came in.
type DeliverySession struct {
	ID       string   `json:"id"`
	SignedIn bool     `json:"signed_in"`
	Account  *string  `json:"account" doc:"Null while signed out."`
	Scopes   []string `json:"scopes"`
}

// DeliveryHandback is what a person left for the Company's agent.
type DeliveryHandback struct {
	Note string `json:"note"` // "" for none
}

type wireDelivery struct {
	Type      string   `json:"type"`
	Timestamp string   `json:"timestamp"`
	Data      wireData `json:"data"`
}

type wireData struct {
	Company      string               `json:"company"`
	Conversation DeliveryConversation `json:"conversation"`
	Sequence     int64                `json:"sequence"`
	Message      wireMessage          `json:"message"`
	Context      json.RawMessage      `json:"context"`
	Agent        DeliveryAgent        `json:"agent"`
	User         wireUser             `json:"user"`
	Session      DeliverySession      `json:"session"`
	Handback     *DeliveryHandback    `json:"handback"`
	Expected     wireExpected         `json:"expected"`
}

type wireMessage struct {
	ID     string              `json:"id"`
	Sender conversation.Sender `json:"sender"`
	Text   string              `json:"text"`
	Data   json.RawMessage     `json:"data"`
}

type wireUser struct {
	ID string `json:"id"`
}

type wireExpected struct {
	Reply   bool    `json:"reply"`
	ReplyBy *string `json:"reply_by"`
}

const timeLayout = "2006-01-02T15:04:05.000Z" // RFC 3339, UTC, milliseconds

// BuildBody makes the body of a delivery. Every member is always there; text is ""
// and data and context are {} where the message has none. The bytes are made once
// and kept: every attempt sends, and signs, the same ones.
func BuildBody(d Delivery) ([]byte, error) {
	w := wireDelivery{
		Type:      EventMessage,
		Timestamp: d.OccurredAt.UTC().Format(timeLayout),
		Data: wireData{
			Company:      d.Company,
			Conversation: d.Conversation,
			Sequence:     d.Sequence,
			Message: wireMessage{
				ID: d.Message.ID, Sender: d.Message.Sender, Text: d.Message.Text, Data: objectOr(d.Message.Data),
			},
			Context:  objectOr(d.Context),
			Agent:    d.Agent,
			User:     wireUser{ID: d.UserID},
			Session:  d.Session,
			Handback: d.Handback,
		},
	}
	if w.Data.Session.Scopes == nil {
		w.Data.Session.Scopes = []string{}
	}
	if !d.ReplyBy.IsZero() {
		by := d.ReplyBy.UTC().Format(timeLayout)
		w.Data.Expected = wireExpected{Reply: true, ReplyBy: &by}
	}
	return encode(w)
}

func objectOr(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, problem.New(problem.Internal, problem.ServerError, "", "a webhook could not be encoded").WithCause(err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
