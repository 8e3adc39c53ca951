package conversation

import (
	"strings"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// MaxReason is how many characters the reason of a request for the User, or of a handoff, may have.
const MaxReason = 500

// maxScopes bounds the scopes that an authorization event names, in bytes.
const maxScopes = 2000

// Reply is what the Company's side says and does at once, checked, and without ids
// yet: a backend's answer, a call of the API, or what a person does.
type Reply struct {
	Messages      []CompanyMessage
	Authorization *AuthorizationPayload // from NewAuthorization
	UserRequested *UserRequestedPayload // from NewUserRequest
	HandOff       bool                  // asks for a person
	HandOffReason string                // for that person, from CheckReason; "" for none
	Close         bool
}

// Empty reports whether nothing is said or done.
func (r Reply) Empty() bool {
	return len(r.Messages) == 0 && r.Authorization == nil && r.UserRequested == nil && !r.HandOff && !r.Close
}

// Check reports what doesn't go together in a reply.
func (r Reply) Check() error {
	if r.Close && (r.HandOff || r.Authorization != nil || r.UserRequested != nil) {
		return problem.New(problem.Invalid, problem.InvalidRequest, "", "a conversation that is closed asks for nothing any more").
			WithField("close", "goes with messages only")
	}
	return nil
}

// Acts gives the messages ids and turns the reply into acts.
func (r Reply) Acts(newID func() string) Acts {
	a := Acts{Authorization: r.Authorization, UserRequested: r.UserRequested, HandOff: r.HandOff, Close: r.Close}
	for _, m := range r.Messages {
		a.Messages = append(a.Messages, m.Payload(newID()))
	}
	return a
}

// NewAuthorization makes what an authorization event says (7.11). code is
// sign_in_required or insufficient_scope, and the latter needs a scope, which is a
// list of scope tokens (RFC 6749 section 3.3).
func NewAuthorization(code, scope string) (*AuthorizationPayload, error) {
	switch code {
	case "sign_in_required":
	case "insufficient_scope":
		if scope == "" { // poppy-0.1/7.11#d37
			return nil, invalid(clauseAuthorization, "authorization.scope", "is needed for insufficient_scope")
		}
	default:
		return nil, invalid(clauseAuthorization, "authorization.error", "is neither sign_in_required nor insufficient_scope")
	}
	if len(scope) > maxScopes {
		return nil, invalid(clauseAuthorization, "authorization.scope", "has more than %d bytes", maxScopes)
	}
	if scope == "" {
		return &AuthorizationPayload{Error: code}, nil
	}
	seen := map[string]bool{}
	for _, s := range strings.Split(scope, " ") {
		if s == "" || seen[s] || strings.ContainsFunc(s, func(c rune) bool { return c < '!' || c > '~' || c == '"' || c == '\\' }) {
			return nil, invalid(clauseAuthorization, "authorization.scope", "is no list of scopes")
		}
		seen[s] = true
	}
	return &AuthorizationPayload{Error: code, Scope: scope}, nil
}

// NewUserRequest makes what a user_requested event says (7.10): a short reason, which
// is needed.
func NewUserRequest(reason string) (*UserRequestedPayload, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, invalid(clauseReason, "user_requested.reason", "is missing")
	}
	if err := CheckReason("user_requested.reason", reason); err != nil {
		return nil, err
	}
	return &UserRequestedPayload{Reason: reason}, nil
}

// CheckReason reports a reason that is too long or no sound text. path names the field in the error.
func CheckReason(path, reason string) error {
	if jsonx.Check(jsonx.AppendString(nil, reason), 1) != nil {
		return invalid(clauseReason, path, "is no sound text")
	}
	if utf8.RuneCountInString(reason) > MaxReason {
		return tooLarge(path, "has more than %d characters", MaxReason)
	}
	return nil
}
