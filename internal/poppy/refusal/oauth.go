package refusal

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Place is where an error happened, which decides its status and its challenge.
type Place uint8

const (
	headerNonce     = "DPoP-Nonce" // RFC 9449 8.1
	headerChallenge = "WWW-Authenticate"
	headerRetry     = "Retry-After"
)

// The places. The token endpoint's rules hold for every endpoint at which clients
// authenticate with an assertion.
const (
	Resource       Place = iota // takes a token bound to a key: conversations, mediated sign-in, APIs
	TokenEndpoint               // token, revocation, device authorization
	BearerResource              // takes a Bearer token: the Company's MCP API
)

// PlaceOf is where requests to an API are refused.
func PlaceOf(mcp bool) Place {
	if mcp {
		return BearerResource
	}
	return Resource
}

// An oauthBody is the answer of RFC 6749 section 5.2; its error decides about further members.
type oauthBody map[string]string

// Answer is the answer to a request that is refused.
type Answer struct {
	Status int
	Header http.Header // without Content-Type
	Body   []byte      // JSON
}

// OAuth returns how err is answered at a place. Anything but a problem becomes
// server_error, with the request's id, where there is one, as the only trace of it. An
// unknown conversation is answered without a word of why (decision 21), so that two
// answers never differ. What of Extra belongs into a header goes there and nowhere else.
func OAuth(err error, place Place, requestID string) Answer {
	e := problem.As(err)
	out := Answer{Status: oauthStatus(e, place), Header: http.Header{}}
	out.Header.Set("Cache-Control", "no-store") // RFC 6749 5.2
	out.Header.Set("Pragma", "no-cache")
	if nonce := e.Extra[problem.DPoPNonce]; nonce != "" {
		out.Header.Set(headerNonce, nonce)
	}
	body := oauthBody{}
	for name, value := range e.Extra {
		if name != problem.DPoPNonce && name != problem.ResourceMetadata {
			body[name] = value
		}
	}
	body["error"] = e.Reason.Wire()
	description := describe(e.Detail)
	switch {
	case e.Reason == problem.ConversationNotFound:
		description = ""
	case out.Status == http.StatusInternalServerError:
		body["error"] = problem.ServerError.Wire()
		description = "internal error"
		if requestID != "" {
			description += ", request " + requestID
		}
	}
	if description != "" {
		body["error_description"] = description
	}
	SetRetryAfter(out.Header, out.Status, e)
	if c := challenge(e, out.Status, place, description); c != "" {
		out.Header.Set(headerChallenge, c)
	}
	raw, err := json.Marshal(body)
	if err != nil { // a map of strings always encodes
		raw = []byte(`{"error":"server_error"}`)
	}
	out.Body = raw
	return out
}

// oauthStatus is the table of Poppy 4.2, 6 and 7.13.
func oauthStatus(e *problem.Error, place Place) int {
	switch e.Reason {
	case problem.InvalidDPoPProof, problem.UseDPoPNonce:
		if place == TokenEndpoint { // poppy-0.1/4.2#64, RFC9449/8
			return http.StatusBadRequest
		}
		return http.StatusUnauthorized
	case problem.InvalidClient, problem.InvalidToken:
		return http.StatusUnauthorized
	case problem.InvalidRequest:
		// Credentials sent in a way that cannot be read, decision 26.
		if place != TokenEndpoint && e.Kind == problem.Unauthenticated {
			return http.StatusUnauthorized
		}
		return http.StatusBadRequest
	case problem.InvalidGrant, problem.InvalidSession, problem.InvalidScope, problem.InvalidTarget, problem.UnsupportedGrantType,
		problem.AccountMismatch, problem.UnauthorizedClient, problem.InvalidCursor,
		// RFC8628/3.5
		problem.AuthorizationPending, problem.SlowDown, problem.ExpiredToken:
		return http.StatusBadRequest
	case problem.AccessDenied:
		if place != TokenEndpoint { // an API's rules, and no answer of the User's
			return http.StatusForbidden
		}
		return http.StatusBadRequest
	case problem.SignInRequired, problem.InsufficientScope, problem.ExtensionRequired:
		return http.StatusForbidden
	case problem.ConversationNotFound:
		return http.StatusNotFound
	case problem.ConversationClosed, problem.DirectConversationOpen, problem.MessageIDConflict:
		return http.StatusConflict
	case problem.CursorExpired:
		return http.StatusGone
	}
	return Status(e)
}

// challenge is the value of WWW-Authenticate, "" where the answer has none. A
// refused client assertion has none either: RFC 6749 section 5.2 asks for one only
// where the client came with an Authorization header, and there is no scheme to name.
func challenge(e *problem.Error, status int, place Place, description string) string {
	var about bool
	switch e.Reason {
	case problem.InvalidDPoPProof, problem.UseDPoPNonce: // poppy-0.1/4.3#26, at the token endpoint too
		about = true
	case problem.SignInRequired, problem.InsufficientScope: // poppy-0.1/6#19
		about = place != TokenEndpoint
	default:
		about = place != TokenEndpoint && status == http.StatusUnauthorized
	}
	if !about {
		return ""
	}
	params := []string{`error="` + e.Reason.Wire() + `"`}
	if description != "" {
		params = append(params, `error_description="`+description+`"`)
	}
	if scope := describe(e.Extra["scope"]); scope != "" { // poppy-0.1/6#32
		params = append(params, `scope="`+scope+`"`)
	}
	if place == BearerResource {
		if at := e.Extra[problem.ResourceMetadata]; at != "" { // RFC9728/5.1
			params = append(params, `resource_metadata="`+at+`"`)
		}
		return "Bearer " + strings.Join(params, ", ")
	}
	params = append(params, `algs="`+strings.Join(jose.Algs(), " ")+`"`) // RFC9449/7.1
	return "DPoP " + strings.Join(params, ", ")
}

const maxDescription = 400

// describe brings text into the characters that RFC 6749 section 5.2 allows in
// error_description. Quotes and backslashes are not among them, so the result
// needs no escaping between the quotes of a header's parameter.
func describe(text string) string {
	var b strings.Builder
	for _, c := range text {
		if b.Len() == maxDescription {
			break
		}
		switch {
		case c == '"':
			b.WriteByte('\'')
		case c == '\\':
			b.WriteByte('/')
		case c == '\n', c == '\t', c == '\r':
			b.WriteByte(' ')
		case c < 0x20, c > 0x7E:
			b.WriteByte('?')
		default:
			b.WriteByte(byte(c))
		}
	}
	return b.String()
}
