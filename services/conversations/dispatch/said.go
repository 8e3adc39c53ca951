package dispatch

import (
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// SaidMessage is a message of a backend, unchecked.
type SaidMessage struct {
	Sender, Text string
	Data         []byte // JSON object, empty for none
}

// Said is what a backend said and asked for, unchecked, however it came.
type Said struct {
	Messages                               []SaidMessage
	AuthorizationError, AuthorizationScope string // both empty for none
	RequestUser                            string // empty for no request
	HandOff                                bool
	HandOffReason                          string
	Close                                  bool
}

// reply checks what was said. A single fault makes all of it bad, as in an answer to a webhook.
func (s Said) reply() (conversation.Reply, error) {
	r := conversation.Reply{HandOff: s.HandOff, HandOffReason: s.HandOffReason, Close: s.Close}
	if len(s.Messages) > webhook.MaxAnswerMessages {
		return r, problem.New(problem.Invalid, webhook.InvalidAnswer, "", "the answer has more than %d messages", webhook.MaxAnswerMessages)
	}
	for _, m := range s.Messages {
		parsed, err := conversation.ParseCompanyMessage(m.Sender, m.Text, m.Data)
		if err != nil {
			return r, err
		}
		r.Messages = append(r.Messages, parsed)
	}
	var err error
	if s.AuthorizationError != "" || s.AuthorizationScope != "" {
		if r.Authorization, err = conversation.NewAuthorization(s.AuthorizationError, s.AuthorizationScope); err != nil {
			return r, err
		}
	}
	if s.RequestUser != "" {
		if r.UserRequested, err = conversation.NewUserRequest(s.RequestUser); err != nil {
			return r, err
		}
	}
	if err := conversation.CheckReason("hand_off.reason", s.HandOffReason); err != nil {
		return r, err
	}
	return r, r.Check()
}
