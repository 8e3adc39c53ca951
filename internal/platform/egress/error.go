package egress

import (
	"errors"
)

// Kind classes an [Error] by what went wrong.
type Kind string

// The kinds.
const (
	InvalidURL  Kind = "invalid_url"  // the URL breaks the rules of CheckURL
	Blocked     Kind = "blocked"      // the address is not on the public Internet
	DNS         Kind = "dns"          // the name does not resolve, or the look-up failed
	Connect     Kind = "connect"      // no TCP connection
	TLS         Kind = "tls"          // no TLS connection, or a certificate that does not verify
	Timeout     Kind = "timeout"      // the total deadline passed
	TooLarge    Kind = "too_large"    // body or header above the cap
	Redirect    Kind = "redirect"     // a redirect where none is followed, or a chain that is too long
	Status      Kind = "status"       // another HTTP status than the one asked for
	ContentType Kind = "content_type" // another media type than the one asked for
	Encoding    Kind = "encoding"     // a Content-Encoding, which is never asked for
	Protocol    Kind = "protocol"     // the connection broke, or no valid HTTP came
	Canceled    Kind = "canceled"     // the caller gave up
)

// Error is any failure of this package. Detail is safe to show to a Company or a
// Personal Agent; the wrapped cause, which may tell addresses, is for the log.
type Error struct {
	Kind   Kind
	Detail string
	cause  error
}

func newError(kind Kind, detail string, cause error) *Error {
	return &Error{Kind: kind, Detail: detail, cause: cause}
}

// Error joins kind, detail and cause, for the log.
func (e *Error) Error() string {
	s := "egress: " + string(e.Kind) + ": " + e.Detail
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap returns the technical cause, nil where there is none.
func (e *Error) Unwrap() error { return e.cause }

// SafeDetail returns Detail, for callers that know this package by an interface only.
func (e *Error) SafeDetail() string { return e.Detail }

// Temporary reports whether the same request may succeed later without anybody
// correcting the URL. A name that does not resolve counts as temporary: zones and
// resolvers fail and recover.
func (e *Error) Temporary() bool {
	switch e.Kind {
	case InvalidURL, Blocked:
		return false
	case DNS, Connect, TLS, Timeout, TooLarge, Redirect, Status, ContentType, Encoding, Protocol, Canceled:
		return true
	default:
		return true
	}
}

// KindOf returns the kind of the [Error] in err, and "" when there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// DetailOf returns the detail of the [Error] in err, and a fixed text that says nothing when there is none.
func DetailOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Detail
	}
	return "the request failed"
}
