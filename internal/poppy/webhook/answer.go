package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const (
	// MaxAnswer caps a backend's answer, in bytes.
	MaxAnswer = 256 << 10
	// MaxAnswerMessages is how many messages one answer may hold.
	MaxAnswerMessages = 20
)

// Answer is what a backend said to a delivery.
type Answer struct {
	// Reply may be empty: the backend has nothing to say.
	conversation.Reply
	// Later says that the answer will come through the admin API.
	Later bool
}

// ParseAnswer reads the answer to a delivery. 202 means later, whatever the body;
// every other 2xx status holds a JSON object with messages, or no body at all.
// Unknown members are ignored; a single bad message makes the whole answer bad,
// since half an answer could mislead the User.
func ParseAnswer(status int, contentType string, body []byte) (Answer, error) {
	switch {
	case status == http.StatusAccepted:
		return Answer{Later: true}, nil
	case status < 200 || status > 299:
		return Answer{}, badAnswer("the status %d is no answer", status)
	case len(body) > MaxAnswer:
		return Answer{}, problem.New(problem.TooLarge, InvalidAnswer, "", "the answer has more than %d bytes", MaxAnswer)
	case len(bytes.TrimSpace(body)) == 0:
		return Answer{}, nil
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" && !strings.HasSuffix(mediaType, "+json") {
		return Answer{}, badAnswer("the answer's Content-Type is not application/json")
	}
	obj, err := jsonx.ParseObject(body)
	if err != nil {
		fault := "malformed"
		var e *jsonx.Error
		if errors.As(err, &e) {
			fault = e.Fault.String()
		}
		return Answer{}, badAnswer("the answer is no sound JSON object: %s", fault)
	}
	v := membersOf(obj)["messages"]
	if !isThere(v) {
		return Answer{}, nil
	}
	list, ok := v.Array()
	if !ok {
		return Answer{}, badAnswer("messages is no list")
	}
	var a Answer
	for item, ok := list.Next(); ok; item, ok = list.Next() {
		if len(a.Messages) == MaxAnswerMessages {
			return Answer{}, badAnswer("the answer has more than %d messages", MaxAnswerMessages)
		}
		m, err := parseMessage(item)
		if err != nil {
			path := fmt.Sprintf("messages[%d]", len(a.Messages))
			detail := problem.As(err).Detail
			return Answer{}, problem.New(problem.As(err).Kind, InvalidAnswer, problem.As(err).Clause, "%s: %s", path, detail).
				WithField(path, detail)
		}
		a.Messages = append(a.Messages, m)
	}
	return a, nil
}

func parseMessage(item jsonx.Value) (conversation.CompanyMessage, error) {
	obj, ok := item.Object()
	if !ok {
		return conversation.CompanyMessage{}, badAnswer("is no object")
	}
	m := membersOf(obj)
	for _, name := range []string{"text", "sender"} {
		if isThere(m[name]) && m[name].Kind() != jsonx.String {
			return conversation.CompanyMessage{}, badAnswer("%s is no string", name)
		}
	}
	return conversation.ParseCompanyMessage(m["sender"].Text(), m["text"].Text(), m["data"].Raw())
}

func isThere(v jsonx.Value) bool { return !v.IsZero() && v.Kind() != jsonx.Null }

func badAnswer(format string, args ...any) error {
	return problem.New(problem.Invalid, InvalidAnswer, "", format, args...)
}
