package signin

import (
	"errors"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Why a sign-in on the pages can't go on.
const (
	UnknownAgent problem.Reason = "UNKNOWN_AGENT"
	AgentRefused problem.Reason = "AGENT_REFUSED"
	Expired      problem.Reason = "SIGN_IN_EXPIRED" // or finished
	OtherBrowser problem.Reason = "OTHER_BROWSER"
	NotOffered   problem.Reason = "SIGN_IN_NOT_OFFERED"
	LoginFailed  problem.Reason = "LOGIN_FAILED"
	CodeExpired  problem.Reason = "CODE_EXPIRED"
	LinkExpired  problem.Reason = "LINK_EXPIRED"
)

// What an agent is told by redirect, beside the codes it can get elsewhere
// (RFC 6749 section 4.1.2.1, OpenID Connect Core 3.1.2.6).
const (
	AccessDenied            problem.Reason = "ACCESS_DENIED"
	UnsupportedResponseType problem.Reason = "UNSUPPORTED_RESPONSE_TYPE"
	LoginRequired           problem.Reason = "LOGIN_REQUIRED"
	RequestNotSupported     problem.Reason = "REQUEST_NOT_SUPPORTED"
	RequestURINotSupported  problem.Reason = "REQUEST_URI_NOT_SUPPORTED"
)

// The clauses of the browser's part of sign-in.
const (
	Offered       clause.ID = "poppy-0.1/4.4#3"
	Asked         clause.ID = "poppy-0.1/4.4#21" // nothing that wasn't requested
	Parameters    clause.ID = "poppy-0.1/4.5#5"
	S256          clause.ID = "poppy-0.1/4.5#6"
	ExactRedirect clause.ID = "poppy-0.1/4.5#14"
	Declined      clause.ID = "poppy-0.1/4.5#15"
	ErrorPage     clause.ID = "poppy-0.1/4.5#d31" // no redirect before redirect_uri is verified
	NoneApproved  clause.ID = "poppy-0.1/4.5#d41"
	Plain         clause.ID = "poppy-0.1/6#17" // a client that knows nothing of Poppy
)

func expired() error {
	return problem.New(problem.Gone, Expired, "", "the sign-in has run out or was finished")
}

func notOffered() error {
	return problem.New(problem.NotFound, NotOffered, Offered, "this Company does not offer the sign-in")
}

// stale turns a sign-in that went on meanwhile into one that is over for this request.
func stale(err error) error {
	if errors.Is(err, store.ErrStale) || errors.Is(err, store.ErrNotFound) {
		return expired()
	}
	return err
}

// Upstream says what a failure of the Company's own login means.
func Upstream(err error) error {
	switch {
	case errors.Is(err, connect.ErrRefused):
		return problem.New(problem.Forbidden, LoginFailed, "", "the Company's login came back with an error").WithCause(err)
	case errors.Is(err, connect.ErrUnavailable):
		return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the Company's login gave no answer").WithCause(err)
	}
	return err
}

// A ReturnError is one that the agent is told: the browser is sent to Location, which
// is on the agent's registered redirect_uri.
type ReturnError struct {
	Location string
	Cause    *problem.Error
}

// Error is the cause's text; the location, which has the agent's state, is not in it.
func (e *ReturnError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *ReturnError) Unwrap() error { return e.Cause }
