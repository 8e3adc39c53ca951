package chat

import (
	"encoding/json"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
)

// The tools that a model is offered.
const (
	RequestSignIn     = "request_sign_in"
	HandOff           = "hand_off"
	RequestUser       = "request_user"
	CloseConversation = "close_conversation"
)

type wireTool struct {
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

func tools() []wireTool {
	const reason = `{"type":"object","properties":{"reason":{"type":"string","description":"Why, in one short sentence."}},"required":["reason"]}`
	tool := func(name, description, parameters string) wireTool {
		return wireTool{Type: "function", Function: wireFunction{Name: name, Description: description, Parameters: json.RawMessage(parameters)}}
	}
	return []wireTool{
		tool(RequestSignIn, "Ask the user to sign in, or to allow more than they did. Call it before anything about an account.",
			`{"type":"object","properties":{"scopes":{"type":"array","items":{"type":"string"},"description":"The scopes that are needed, where you know them."}}}`),
		tool(HandOff, "Ask for a person of the company to take over.", reason),
		tool(RequestUser, "Ask to talk with the user themselves instead of their Personal Agent.", reason),
		tool(CloseConversation, "End the conversation, when nothing is left to say.", `{"type":"object","properties":{}}`),
	}
}

// defaultReason is told where a model asks for the User and gives no usable reason.
const defaultReason = "The company asks to talk with the user."

// maxArguments bounds the arguments of one call, in bytes.
const maxArguments = 16 << 10

// Call is a tool that the model called.
type Call struct {
	Name      string
	Arguments string // JSON, unless the model made a mistake
}

// Reply turns the answer into what the Company's side says and does. Calls of tools
// that were not offered, and arguments that make no sense, are left out.
func (a Answer) Reply(signedIn bool) (conversation.Reply, error) {
	var r conversation.Reply
	if a.Text != "" {
		m, err := conversation.ParseCompanyMessage("", a.Text, nil)
		if err != nil {
			return conversation.Reply{}, err
		}
		r.Messages = []conversation.CompanyMessage{m}
	}
	for _, c := range a.Calls {
		var args struct {
			Reason string   `json:"reason"`
			Scopes []string `json:"scopes"`
		}
		if json.Unmarshal([]byte(c.Arguments), &args) != nil {
			args.Reason, args.Scopes = "", nil
		}
		if conversation.CheckReason("reason", args.Reason) != nil {
			args.Reason = ""
		}
		switch c.Name {
		case RequestSignIn:
			r.Authorization = authorization(strings.Join(args.Scopes, " "), signedIn)
		case HandOff:
			r.HandOff, r.HandOffReason = true, args.Reason
		case RequestUser:
			var err error
			if r.UserRequested, err = conversation.NewUserRequest(args.Reason); err != nil {
				r.UserRequested, _ = conversation.NewUserRequest(defaultReason) // is a reason
			}
		case CloseConversation:
			r.Close = true
		}
	}
	if r.Check() != nil {
		// Whoever asks for something and closes wants the answer more than the end.
		r.Close = false
	}
	return r, r.Check()
}

// authorization asks for a sign-in, or for more scopes where the User is signed in
// already and the model says which.
func authorization(scope string, signedIn bool) *conversation.AuthorizationPayload {
	code := "sign_in_required"
	if signedIn && scope != "" {
		code = "insufficient_scope"
	}
	p, err := conversation.NewAuthorization(code, scope)
	if err != nil {
		p, _ = conversation.NewAuthorization("sign_in_required", "") // always goes
	}
	return p
}
