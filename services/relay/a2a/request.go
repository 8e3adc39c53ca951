package a2a

import (
	"bytes"
	"encoding/json"
)

// Message is what the agent is told.
type Message struct {
	ID      string // the same at every attempt, so that the agent can tell a repeat
	Context string // the conversation
	Text    string
	Data    json.RawMessage // JSON object, nil for none
	// Metadata says who is talking; JSON object, nil for none.
	Metadata json.RawMessage
}

// MetadataKey is the member of a message's metadata that says who is talking.
const MetadataKey = "poppyfield"

type wireCall struct {
	Version string `json:"jsonrpc"`
	ID      string `json:"id"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

type wireSend struct {
	Tenant        string          `json:"tenant,omitempty"`
	Message       wireMessage     `json:"message"`
	Configuration json.RawMessage `json:"configuration"`
}

type wireGet struct {
	Tenant string `json:"tenant,omitempty"`
	ID     string `json:"id"`
}

// BuildSend makes the body of a request to answer m, as a stream or whole.
func (i Interface) BuildSend(m Message, stream bool) ([]byte, error) {
	method, role := "SendMessage", "ROLE_USER"
	configuration := `{"acceptedOutputModes":["text/plain","application/json"]}`
	if stream {
		method = "SendStreamingMessage"
	}
	if i.Version == V03 {
		method, role = "message/send", "user"
		if stream {
			method = "message/stream"
		}
		configuration = `{"acceptedOutputModes":["text/plain","application/json"],"blocking":true}`
	}
	w := wireMessage{MessageID: m.ID, ContextID: m.Context, Role: role}
	if i.Version == V03 {
		w.Kind = "message"
	}
	if m.Text != "" {
		w.Parts = append(w.Parts, i.part(wirePart{Text: &m.Text}))
	}
	if len(m.Data) > 0 {
		w.Parts = append(w.Parts, i.part(wirePart{Data: m.Data}))
	}
	if len(m.Metadata) > 0 {
		w.Metadata = map[string]json.RawMessage{MetadataKey: m.Metadata}
	}
	return i.build(m.ID, method, wireSend{Tenant: i.Tenant, Message: w, Configuration: json.RawMessage(configuration)})
}

// BuildGet makes the body of a request for how far a task is.
func (i Interface) BuildGet(id, task string) ([]byte, error) {
	method := "GetTask"
	if i.Version == V03 {
		method = "tasks/get"
	}
	return i.build(id, method, wireGet{Tenant: i.Tenant, ID: task})
}

func (i Interface) part(p wirePart) wirePart {
	if i.Version != V03 {
		return p
	}
	p.Kind = "text"
	if p.Data != nil {
		p.Kind = "data"
	}
	return p
}

func (i Interface) build(id, method string, params any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(wireCall{Version: "2.0", ID: id, Method: method, Params: params}); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
