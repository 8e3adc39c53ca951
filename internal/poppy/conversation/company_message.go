package conversation

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// CompanyMessage is a message of the Company's side that passed the same rules as
// an agent's. It has no id yet. Only ParseCompanyMessage makes one.
type CompanyMessage struct {
	sender Sender
	text   string
	data   json.RawMessage
}

// ParseCompanyMessage checks what a backend or a member of staff wrote. An empty
// sender is the Company Agent; role and context are not the Company's to set
// (7.4). data is a JSON object, nil or JSON null for none.
func ParseCompanyMessage(sender, text string, data []byte) (CompanyMessage, error) {
	m := CompanyMessage{sender: SenderAgent}
	var err error
	if sender != "" {
		if m.sender, err = parseSender("sender", sender); err != nil {
			return CompanyMessage{}, err
		}
	}
	if err := jsonx.Check(jsonx.AppendString(nil, text), 1); err != nil {
		return CompanyMessage{}, invalid(clauseText, "text", "is no sound text")
	}
	if utf8.RuneCountInString(text) > MaxText {
		return CompanyMessage{}, tooLarge("text", "has more than %d characters", MaxText)
	}
	m.text = text
	if len(data) > 0 {
		if m.data, err = parseRawObject("data", data); err != nil {
			return CompanyMessage{}, err
		}
	}
	if m.text == "" && m.data == nil {
		return CompanyMessage{}, invalid(clauseContent, "message", "has neither text nor data")
	}
	return m, nil
}

// parseRawObject is parseObject for a document of its own.
func parseRawObject(path string, raw []byte) (json.RawMessage, error) {
	if len(raw) > MaxBody {
		return nil, tooLarge(path, "has more than %d bytes", MaxObject)
	}
	wrapped := append(append([]byte(`{"v":`), raw...), '}')
	obj, err := jsonx.ParseObject(wrapped)
	if err != nil {
		return nil, malformed(path, err)
	}
	m := membersOf(obj)
	if len(m) != 1 {
		return nil, invalid(clauseData, path, "is no object")
	}
	return parseObject(clauseData, path, m["v"])
}

// Sender returns who wrote the message at the Company.
func (m CompanyMessage) Sender() Sender { return m.sender }

// Text returns the text, "" where there is none.
func (m CompanyMessage) Text() string { return m.text }

// Data returns the data object, nil where there is none.
func (m CompanyMessage) Data() json.RawMessage { return m.data }

// Payload returns what the message event holds, under the id that the Company's side gives it.
func (m CompanyMessage) Payload(id string) MessagePayload {
	return MessagePayload{ID: id, Role: RoleCompany, Sender: m.sender, Text: m.text, Data: m.data}
}
