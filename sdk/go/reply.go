package poppy

import (
	"context"
	"encoding/json"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

// Reply is what a backend answers to a message. The zero Reply has nothing to say.
type Reply struct {
	Messages []ReplyMessage `json:"messages,omitempty"`
	// Authorization asks the User to sign in, or to grant more.
	Authorization *Authorization `json:"authorization,omitempty"`
	// RequestUser asks for the User themselves, HandOff for a person at the Company.
	RequestUser *Because `json:"request_user,omitempty"`
	HandOff     *Because `json:"hand_off,omitempty"`
	Close       bool     `json:"close,omitempty"`
	// Later takes the message over: the answer comes by PostMessage. Nothing else may be set.
	Later bool `json:"-"`
}

// ReplyMessage has a text, data, or both.
type ReplyMessage struct {
	Text string `json:"text,omitempty"`
	Data any    `json:"data,omitempty"` // a JSON object
	// Sender is "human" where a person wrote it.
	Sender string `json:"sender,omitempty"`
}

// Authorization is a sign-in that is asked for.
type Authorization struct {
	Error string `json:"error"` // "sign_in_required" or "insufficient_scope"
	Scope string `json:"scope,omitempty"`
}

// Because says why.
type Because struct {
	Reason string `json:"reason"`
}

// Say answers with a text.
func Say(text string) Reply { return Reply{Messages: []ReplyMessage{{Text: text}}} }

// Write answers a webhook.
func (r Reply) Write(w http.ResponseWriter) error {
	if r.Later {
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

// Backend answers the messages that come by signed webhook with what reply says. An
// error of reply is a failed attempt: the message comes again, with the same Event.ID.
func (w *Webhooks) Backend(reply func(ctx context.Context, e *Event, m *Message) (Reply, error)) http.Handler {
	return w.Listen(func(rw http.ResponseWriter, r *http.Request, e *Event) error {
		if e.Type != MessageReceived {
			rw.WriteHeader(http.StatusNoContent)
			return nil
		}
		m, err := DataOf[Message](e)
		if err != nil {
			return err
		}
		answer, err := reply(r.Context(), e, m)
		if err != nil {
			return err
		}
		return answer.Write(rw)
	})
}

// Listen hands genuine webhooks to handle, which writes the answer, and refuses others.
// An error, before anything is written, is a failed attempt.
func (w *Webhooks) Listen(handle func(http.ResponseWriter, *http.Request, *Event) error) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		e, err := w.Receive(r)
		if err != nil {
			http.Error(rw, "the webhook is not genuine", http.StatusUnauthorized)
			return
		}
		if err := handle(rw, r, e); err != nil {
			http.Error(rw, "the webhook was not handled", http.StatusInternalServerError)
		}
	})
}

// Later is a message of PostMessage.
type Later struct {
	Conversation string // resource name: Message.ConversationName
	Text         string
	Data         map[string]any
	// More leaves the conversation at work: this is not the last message.
	More bool
	// RequestID is a UUID; a repeat within a day posts nothing twice.
	RequestID string
}

// PostMessage says something in a conversation, after a Reply that said Later or without
// being asked. conn needs a key with the permission conversations.write.
func PostMessage(ctx context.Context, conn grpc.ClientConnInterface, m Later) error {
	message := &adminv1.Message{Text: m.Text}
	if m.Data != nil {
		data, err := structpb.NewStruct(m.Data)
		if err != nil {
			return err
		}
		message.Data = data
	}
	_, err := adminv1.NewConversationServiceClient(conn).PostMessage(ctx, &adminv1.PostMessageRequest{
		Conversation: m.Conversation, Message: message, More: m.More, RequestId: m.RequestID,
	})
	return err
}
