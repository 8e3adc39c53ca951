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
// every other 2xx status holds a JSON object with messages and actions, or no body at
// all. Unknown members are ignored; a single bad one makes the whole answer bad, since
// half an answer could mislead the User.
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
	m, err := parseObject("the answer", body)
	if err != nil {
		return Answer{}, err
	}
	var a Answer
	if err := a.add(m); err != nil {
		return Answer{}, err
	}
	if err := a.check(); err != nil {
		return Answer{}, err
	}
	return a, nil
}

func parseObject(what string, raw []byte) (members, error) {
	obj, err := jsonx.ParseObject(raw)
	if err != nil {
		fault := "malformed"
		var e *jsonx.Error
		if errors.As(err, &e) {
			fault = e.Fault.String()
		}
		return nil, badAnswer("%s is no sound JSON object: %s", what, fault)
	}
	return membersOf(obj), nil
}

// add adds what an answer's JSON object says and does.
func (a *Answer) add(m members) error {
	if err := a.addMessages(m["messages"]); err != nil {
		return err
	}
	if err := a.addAuthorization(m["authorization"]); err != nil {
		return err
	}
	if err := a.addUserRequest(m["request_user"]); err != nil {
		return err
	}
	if err := a.addHandOff(m["hand_off"]); err != nil {
		return err
	}
	return a.addClose(m["close"])
}

// check reports what doesn't go together in the whole answer.
func (a *Answer) check() error {
	if err := a.Check(); err != nil {
		return asAnswer(err)
	}
	return nil
}

func (a *Answer) addMessages(v jsonx.Value) error {
	if !isThere(v) {
		return nil
	}
	list, ok := v.Array()
	if !ok {
		return badField("messages", "is no list")
	}
	for item, ok := list.Next(); ok; item, ok = list.Next() {
		obj, ok := item.Object()
		if !ok {
			return badField(fmt.Sprintf("messages[%d]", len(a.Messages)), "is no object")
		}
		if err := a.addMessage(parseMessage(membersOf(obj))); err != nil {
			return err
		}
	}
	return nil
}

// addMessage adds a message that was parsed, or says where it failed to be.
func (a *Answer) addMessage(m conversation.CompanyMessage, err error) error {
	if len(a.Messages) == MaxAnswerMessages {
		return badField("messages", "has more than %d entries", MaxAnswerMessages)
	}
	if err != nil {
		path, p := fmt.Sprintf("messages[%d]", len(a.Messages)), problem.As(err)
		return problem.New(p.Kind, InvalidAnswer, p.Clause, "%s: %s", path, p.Detail).WithField(path, p.Detail)
	}
	a.Messages = append(a.Messages, m)
	return nil
}

func (a *Answer) addAuthorization(v jsonx.Value) error {
	m, err := action("authorization", v, "error", "scope")
	if m == nil {
		return err
	}
	if a.Authorization, err = conversation.NewAuthorization(m["error"].Text(), m["scope"].Text()); err != nil {
		return asAnswer(err)
	}
	return nil
}

func (a *Answer) addUserRequest(v jsonx.Value) error {
	m, err := action("request_user", v, "reason")
	if m == nil {
		return err
	}
	if err := conversation.CheckReason("request_user.reason", m["reason"].Text()); err != nil {
		return asAnswer(err)
	}
	if a.UserRequested, err = conversation.NewUserRequest(m["reason"].Text()); err != nil {
		return badField("request_user.reason", "is missing")
	}
	return nil
}

func (a *Answer) addHandOff(v jsonx.Value) error {
	if asked, ok := v.Bool(); ok {
		a.HandOff = asked
		return nil
	}
	m, err := action("hand_off", v, "reason")
	if m == nil {
		return err
	}
	reason := m["reason"].Text()
	if err := conversation.CheckReason("hand_off.reason", reason); err != nil {
		return asAnswer(err)
	}
	a.HandOff, a.HandOffReason = true, reason
	return nil
}

func (a *Answer) addClose(v jsonx.Value) error {
	var ok bool
	if a.Close, ok = v.Bool(); !ok && isThere(v) {
		return badField("close", "is no boolean")
	}
	return nil
}

// action reads an optional object whose named members are strings; nil where there is none.
func action(path string, v jsonx.Value, names ...string) (members, error) {
	if !isThere(v) {
		return nil, nil
	}
	obj, ok := v.Object()
	if !ok {
		return nil, badField(path, "is no object")
	}
	m := membersOf(obj)
	for _, name := range names {
		if isThere(m[name]) && m[name].Kind() != jsonx.String {
			return nil, badField(path+"."+name, "is no string")
		}
	}
	return m, nil
}

func parseMessage(m members) (conversation.CompanyMessage, error) {
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

func badField(path, format string, args ...any) error {
	detail := fmt.Sprintf(format, args...)
	return problem.New(problem.Invalid, InvalidAnswer, "", "%s %s", path, detail).WithField(path, detail)
}

// asAnswer makes a rule's refusal one of the answer.
func asAnswer(err error) error {
	p := *problem.As(err)
	p.Reason = InvalidAnswer
	return &p
}
