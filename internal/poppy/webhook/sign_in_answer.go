package webhook

import (
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Bounds of an answer to a check.
const (
	MaxSignInAnswer = 64 << 10  // bytes
	MaxAccount      = 255       // characters of an account, and of its label
	MaxSentTo       = 255       // characters
	MaxSignInState  = 4096      // characters
	MaxCodeLifetime = time.Hour // longer ones are cut to it
)

// SignInResult is what a Company found.
type SignInResult uint8

// The results. The zero value is none of them.
const (
	SignInComplete     SignInResult = iota + 1 // Account is who it is
	SignInCodeRequired                         // a one-time code is needed, or the one given is wrong and another try is allowed
	SignInFailed                               // wrong, for good
)

// SignInAnswer is what a Company said to a check. Only ParseSignInAnswer makes one
// that holds anything.
type SignInAnswer struct {
	Result       SignInResult
	Account      string // SignInComplete: the Company's own stable id of the account
	AccountLabel string // SignInComplete: what its owner knows it by; may be empty
	// SignInCodeRequired: where the code went, what the Company wants back with the code,
	// and how long it is good; empty and 0 where the Company doesn't say.
	SentTo   string
	State    string
	Lifetime time.Duration
}

// ParseSignInAnswer reads the answer to a check. Only 200 with a JSON object is one.
// Unknown members are ignored; anything wrong in one that counts makes the whole
// answer bad: nobody is signed in by half an answer. No error quotes the answer.
func ParseSignInAnswer(status int, contentType string, body []byte) (SignInAnswer, error) {
	switch {
	case status != http.StatusOK:
		return SignInAnswer{}, badAnswer("the status %d is no answer", status)
	case len(body) > MaxSignInAnswer:
		return SignInAnswer{}, problem.New(problem.TooLarge, InvalidAnswer, "", "the answer has more than %d bytes", MaxSignInAnswer)
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" && !strings.HasSuffix(mediaType, "+json") {
		return SignInAnswer{}, badAnswer("the answer's Content-Type is not application/json")
	}
	obj, err := jsonx.ParseObject(body)
	if err != nil {
		return SignInAnswer{}, badAnswer("the answer is no sound JSON object")
	}
	m := membersOf(obj)
	result, err := m.line("result", 20)
	if err != nil {
		return SignInAnswer{}, err
	}
	switch result {
	case "complete":
		return parseComplete(m)
	case "code_required":
		return parseCodeRequired(m)
	case "failed":
		return SignInAnswer{Result: SignInFailed}, nil
	}
	return SignInAnswer{}, badAnswer("result is not complete, code_required or failed")
}

func parseComplete(m members) (SignInAnswer, error) {
	account, err := m.line("account", MaxAccount)
	if err != nil {
		return SignInAnswer{}, err
	}
	if account == "" {
		return SignInAnswer{}, badAnswer("account is missing or empty")
	}
	label, err := m.line("account_label", MaxAccount)
	if err != nil {
		return SignInAnswer{}, err
	}
	return SignInAnswer{Result: SignInComplete, Account: account, AccountLabel: label}, nil
}

func parseCodeRequired(m members) (SignInAnswer, error) {
	sentTo, err := m.line("sent_to", MaxSentTo)
	if err != nil {
		return SignInAnswer{}, err
	}
	state, err := m.line("state", MaxSignInState)
	if err != nil {
		return SignInAnswer{}, err
	}
	a := SignInAnswer{Result: SignInCodeRequired, SentTo: sentTo, State: state}
	if v := m["expires_in"]; isThere(v) {
		seconds, ok := v.Int64()
		if !ok || seconds < 1 {
			return SignInAnswer{}, badAnswer("expires_in is not a whole number of seconds")
		}
		a.Lifetime = time.Duration(min(seconds, int64(MaxCodeLifetime/time.Second))) * time.Second
	}
	return a, nil
}

// line returns a member that is a string of at most limit characters, none of
// them a control character; "" when it is absent or null.
func (m members) line(name string, limit int) (string, error) {
	v := m[name]
	if !isThere(v) {
		return "", nil
	}
	if v.Kind() != jsonx.String {
		return "", badAnswer("%s is no string", name)
	}
	text := v.Text()
	switch {
	case utf8.RuneCountInString(text) > limit:
		return "", badAnswer("%s has more than %d characters", name, limit)
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", badAnswer("%s has a control character", name)
	}
	return text, nil
}
