package app

import (
	"encoding/json"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// told is what a webhook's body says, for endpoints that take no webhooks.
type told struct {
	Conversation struct {
		ID     string `json:"id"`
		Direct bool   `json:"direct"`
	} `json:"conversation"`
	Message struct {
		Sender string          `json:"sender"`
		Text   string          `json:"text"`
		Data   json.RawMessage `json:"data"`
	} `json:"message"`
	Context json.RawMessage `json:"context"`
	Session struct {
		SignedIn bool     `json:"signed_in"`
		Account  string   `json:"account"`
		Scopes   []string `json:"scopes"`
	} `json:"session"`

	// about is all of it but the message, and who wrote that.
	about json.RawMessage
}

// readBody reads the body that conversations made of a message.
func readBody(body []byte) (told, error) {
	var w struct {
		Data json.RawMessage `json:"data"`
	}
	var t told
	var rest map[string]json.RawMessage
	err := json.Unmarshal(body, &w)
	if err == nil {
		err = json.Unmarshal(w.Data, &t)
	}
	if err == nil {
		err = json.Unmarshal(w.Data, &rest)
	}
	if err != nil {
		return told{}, problem.New(problem.Internal, problem.ServerError, "", "the webhook's body can't be read").WithCause(err)
	}
	t.Message.Data, t.Context = object(t.Message.Data), object(t.Context)
	delete(rest, "message")
	rest["sender"] = jsonx.AppendString(nil, t.Message.Sender)
	t.about, err = json.Marshal(rest)
	return t, err
}

// empty reports a message that only updates the context: there is nothing to answer.
func (t told) empty() bool { return t.Message.Text == "" && t.Message.Data == nil }

// object is nil for an object without members, which is how bodies say that there is none.
func object(raw json.RawMessage) json.RawMessage {
	if s := string(raw); s == "" || s == "{}" || s == "null" {
		return nil
	}
	return raw
}
