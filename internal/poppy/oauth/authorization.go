package oauth

import (
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The clauses of the Authorization header.
const (
	TokenInHeader     clause.ID = "poppy-0.1/4.3#3"   // Authorization: DPoP <token>
	OneCredential     clause.ID = "poppy-0.1/4.3#d26" // one Authorization header
	SchemeIgnoresCase clause.ID = "RFC9110/11.1"
)

// Scheme is an authentication scheme in its usual spelling, however the request spelt it.
type Scheme string

// The schemes of Session Tokens.
const (
	DPoP   Scheme = "DPoP"
	Bearer Scheme = "Bearer" // MCP only
)

// Authorization is the one credential of a request. The token is not verified.
type Authorization struct {
	Scheme Scheme
	Token  string
}

// ParseAuthorization reads the values of the Authorization header field. Exactly one
// value with one scheme and one token68 token of at most jose.MaxJWT bytes in all is
// accepted. None, or another scheme, is INVALID_TOKEN; two headers, two credentials in
// one header, or a malformed one INVALID_REQUEST. The token is never part of the error.
func ParseAuthorization(values []string) (Authorization, error) {
	switch {
	case len(values) == 0:
		return Authorization{}, problem.New(problem.Unauthenticated, problem.InvalidToken, TokenInHeader, "the request has no Authorization header")
	case len(values) > 1:
		return Authorization{}, problem.New(problem.Invalid, problem.InvalidRequest, OneCredential, "more than one Authorization header")
	case len(values[0]) > jose.MaxJWT:
		return Authorization{}, problem.New(problem.Invalid, problem.InvalidRequest, TokenInHeader, "the Authorization header is larger than 16 KiB")
	}
	name, token, _ := strings.Cut(strings.Trim(values[0], " \t"), " ")
	var scheme Scheme
	switch {
	case strings.EqualFold(name, string(DPoP)):
		scheme = DPoP
	case strings.EqualFold(name, string(Bearer)):
		scheme = Bearer
	default:
		return Authorization{}, problem.New(problem.Unauthenticated, problem.InvalidToken, TokenInHeader, "the Authorization scheme is not DPoP")
	}
	token = strings.TrimLeft(token, " ") // RFC9110/11.4: one or more spaces
	if !isToken68(token) {
		return Authorization{}, problem.New(problem.Invalid, problem.InvalidRequest, OneCredential, "the Authorization header does not hold exactly one token")
	}
	return Authorization{Scheme: scheme, Token: token}, nil
}

// isToken68 reports whether s has the form of RFC 9110 §11.2, which has no comma,
// space or quote: parameters and second credentials fall out here.
func isToken68(s string) bool {
	body := strings.TrimRight(s, "=")
	for i := range len(body) {
		c := body[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return body != ""
}
