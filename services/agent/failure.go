package agent

import (
	"errors"
	"fmt"
	"time"
)

// Exit codes of the command, for scripts.
const (
	ExitUsage     = 2 // the command line or the agent's directory is not usable
	ExitDiscovery = 3 // the Company's documents failed a check; nothing was sent to it
	ExitRefused   = 4 // the Company answered with an error
	ExitNetwork   = 5 // no connection, no TLS, an answer cut off or too large
	ExitNoAnswer  = 6 // the message was accepted, or the sign-in begun, and no answer came in time
)

// An Error is why a command ended without success. Its text may be shown.
type Error struct {
	code    int
	section string
	detail  string
	cause   error
}

func fail(code int, section, format string, args ...any) *Error {
	return &Error{code: code, section: section, detail: fmt.Sprintf(format, args...)}
}

func (f *Error) because(err error) *Error {
	c := *f
	c.cause = err
	return &c
}

// Error joins the section, what happened and its cause.
func (f *Error) Error() string {
	s := f.detail
	if f.section != "" {
		s = "section " + f.section + ": " + s
	}
	if f.cause != nil {
		s += ": " + f.cause.Error()
	}
	return printable(s)
}

// Unwrap returns the cause, nil where there is none.
func (f *Error) Unwrap() error { return f.cause }

// ExitCode is the status the process should end with.
func (f *Error) ExitCode() int { return f.code }

// ExitCode returns the exit status for err: 0 for nil, the failure's own, 1 for anything else.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	var f *Error
	if errors.As(err, &f) {
		return f.code
	}
	return 1
}

// A refusalError is an error answer of the Company: an OAuth error (4.2, section 6) or one of 7.13.
type refusalError struct {
	status      int
	code        string
	description string
	retryAfter  time.Duration
	scope       string
}

func (r *refusalError) Error() string {
	s := "the Company answered"
	if r.status != 0 { // a redirect has none
		s += fmt.Sprintf(" %d", r.status)
	}
	if r.code != "" {
		s += " " + r.code
	}
	if r.description != "" {
		s += " (" + r.description + ")"
	}
	if r.scope != "" {
		s += ", scope " + r.scope
	}
	if r.retryAfter > 0 {
		s += fmt.Sprintf(", to be repeated after %s", r.retryAfter)
	}
	return s
}

// refusedWith reports whether err is the Company's refusal with that error code.
func refusedWith(err error, code string) bool {
	var r *refusalError
	return errors.As(err, &r) && r.code == code
}
