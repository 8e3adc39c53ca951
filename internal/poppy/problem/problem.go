// Package problem holds the one error type of the domain. It says what went
// wrong in words that may be shown to anybody, which protocol rule is the cause,
// and keeps the technical cause for the log alone.
//
// It must not know transports: how a Kind becomes a gRPC code, an HTTP status or
// an OAuth error body is decided by the mappings in internal/platform.
package problem

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
)

// Kind classes a problem by what the caller can do about it.
type Kind uint8

// The kinds. The zero value is Internal, so that a forgotten kind never looks harmless.
const (
	Internal        Kind = iota // our fault; nothing the caller sent
	Invalid                     // the request is malformed or breaks a rule
	Unauthenticated             // who is asking could not be established
	Forbidden                   // known, and not allowed
	NotFound                    // not there, or not visible to the caller: the two are never told apart
	Conflict                    // does not fit the present state
	Gone                        // was there, is kept no longer
	TooLarge                    // above a documented size
	RateLimited                 // too often; RetryAfter says when again
	Unavailable                 // a part is down; the same request may work later
)

// Reason is a stable machine-readable code in UPPER_SNAKE, unique across the product.
type Reason string

// Wire returns the reason as OAuth and Poppy spell error codes: INVALID_CLIENT is "invalid_client".
func (r Reason) Wire() string { return strings.ToLower(string(r)) }

// Reasons that are error codes on the wire (OAuth, RFC 8628, RFC 9449, RFC 8707, Poppy 4.2, 6 and 7.13) or of the admin API.
const (
	InvalidRequest         Reason = "INVALID_REQUEST"
	InvalidClient          Reason = "INVALID_CLIENT"
	InvalidGrant           Reason = "INVALID_GRANT"
	InvalidSession         Reason = "INVALID_SESSION"
	InvalidScope           Reason = "INVALID_SCOPE"
	InvalidTarget          Reason = "INVALID_TARGET"
	InvalidDPoPProof       Reason = "INVALID_DPOP_PROOF"
	UseDPoPNonce           Reason = "USE_DPOP_NONCE"
	UnsupportedGrantType   Reason = "UNSUPPORTED_GRANT_TYPE"
	AccountMismatch        Reason = "ACCOUNT_MISMATCH"
	AuthorizationPending   Reason = "AUTHORIZATION_PENDING"
	SlowDown               Reason = "SLOW_DOWN"
	AccessDenied           Reason = "ACCESS_DENIED"
	ExpiredToken           Reason = "EXPIRED_TOKEN"
	UnauthorizedClient     Reason = "UNAUTHORIZED_CLIENT"
	InvalidToken           Reason = "INVALID_TOKEN"
	SignInRequired         Reason = "SIGN_IN_REQUIRED"
	InsufficientScope      Reason = "INSUFFICIENT_SCOPE"
	SignInNotFound         Reason = "SIGN_IN_NOT_FOUND"
	ConversationNotFound   Reason = "CONVERSATION_NOT_FOUND"
	ConversationClosed     Reason = "CONVERSATION_CLOSED"
	DirectConversationOpen Reason = "DIRECT_CONVERSATION_OPEN"
	MessageIDConflict      Reason = "MESSAGE_ID_CONFLICT"
	InvalidCursor          Reason = "INVALID_CURSOR"
	CursorExpired          Reason = "CURSOR_EXPIRED"
	ExtensionRequired      Reason = "EXTENSION_REQUIRED"
	RateLimitedReason      Reason = "RATE_LIMITED"
	QuotaExceeded          Reason = "QUOTA_EXCEEDED"
	NotFoundReason         Reason = "NOT_FOUND"
	TemporarilyUnavailable Reason = "TEMPORARILY_UNAVAILABLE"
	ServerError            Reason = "SERVER_ERROR"
	MethodNotAllowed       Reason = "METHOD_NOT_ALLOWED"
	UnsupportedMediaType   Reason = "UNSUPPORTED_MEDIA_TYPE"
	RequestTooLarge        Reason = "REQUEST_TOO_LARGE"
	PermissionDenied       Reason = "PERMISSION_DENIED"
	Unauthenticated401     Reason = "UNAUTHENTICATED"
	AlreadyExists          Reason = "ALREADY_EXISTS"
	EtagMismatch           Reason = "ETAG_MISMATCH"
	FailedPrecondition     Reason = "FAILED_PRECONDITION"
	IssuerPublished        Reason = "ISSUER_PUBLISHED"
	// What a client that registers itself is told (RFC 7591 section 3.2.2).
	InvalidRedirectURI    Reason = "INVALID_REDIRECT_URI"
	InvalidClientMetadata Reason = "INVALID_CLIENT_METADATA"
	// NotResponder: somebody else handles the Company's side of the conversation.
	NotResponder Reason = "NOT_RESPONDER"
)

// DPoPNonce names the member of Extra that holds a fresh nonce for the agent's next
// proof (RFC 9449 section 8). It belongs into the DPoP-Nonce header, never into a body.
const DPoPNonce = "dpop_nonce"

// ResourceMetadata names the member of Extra that says where the metadata of an MCP server
// is (RFC 9728 section 5.1). It belongs into the challenge, never into a body.
const ResourceMetadata = "resource_metadata"

// Field is one member of a request that breaks a rule.
type Field struct {
	Path   string // for example "message.context.locale"
	Detail string // safe to show
}

// Error is a problem. Detail and Fields are safe to show to anybody; the cause is for the log.
type Error struct {
	Kind       Kind
	Reason     Reason
	Clause     clause.ID
	Detail     string
	Fields     []Field
	RetryAfter time.Duration     // zero: no advice
	Extra      map[string]string // further members of a wire body, such as conversation_id
	cause      error
}

// New makes an Error whose detail is formatted from format and args; never put a driver's or library's error text into them.
func New(kind Kind, reason Reason, id clause.ID, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: reason, Clause: id, Detail: fmt.Sprintf(format, args...)}
}

// Error joins reason, detail and cause, for the log.
func (e *Error) Error() string {
	s := string(e.Reason) + ": " + e.Detail
	if e.Clause != "" {
		s += " [" + string(e.Clause) + "]"
	}
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap returns the technical cause, nil where there is none.
func (e *Error) Unwrap() error { return e.cause }

// WithCause returns a copy of e that carries cause for the log.
func (e *Error) WithCause(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// WithExtra returns a copy of e whose wire body also has the member name.
func (e *Error) WithExtra(name, value string) *Error {
	c := *e
	c.Extra = map[string]string{name: value}
	for k, v := range e.Extra {
		c.Extra[k] = v
	}
	return &c
}

// WithField returns a copy of e that also names path as being at fault.
func (e *Error) WithField(path, detail string) *Error {
	c := *e
	c.Fields = append(append([]Field(nil), e.Fields...), Field{Path: path, Detail: detail})
	return &c
}

// WithRetryAfter returns a copy of e that advises to wait for d, at least a second.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	c := *e
	c.RetryAfter = max(d, time.Second)
	return &c
}

// As returns err as an *Error, or an Internal one that hides err behind a fixed detail.
func As(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return New(Internal, ServerError, "", "internal error").WithCause(err)
}

// Is reports whether err is a problem with the given reason.
func Is(err error, reason Reason) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}
