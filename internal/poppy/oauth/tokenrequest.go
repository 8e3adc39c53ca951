package oauth

import (
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// GrantType is a grant_type as the wire spells it.
type GrantType string

// The grants of the protocol (Poppy 4.2, 4.5, 4.6, 4.8). Which of them a Company
// offers is not known here.
const (
	GrantJWTBearer         GrantType = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	GrantAuthorizationCode GrantType = "authorization_code"
	GrantDeviceCode        GrantType = "urn:ietf:params:oauth:grant-type:device_code"
	GrantRefreshToken      GrantType = "refresh_token"
)

// ClientAssertionType is the one client_assertion_type there is (RFC 7523 §2.2).
const ClientAssertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// ClientCredentials is how a Personal Agent says who it is. Nothing in it is verified.
type ClientCredentials struct{ ClientID, Assertion string }

// ClientCredentials returns the client authentication of a form. An incomplete one is
// INVALID_CLIENT; a client_secret beside it, which would be a second method (RFC 6749
// §2.3), INVALID_REQUEST.
func (f Form) ClientCredentials() (ClientCredentials, error) {
	if f.Has("client_secret") {
		return ClientCredentials{}, problem.New(problem.Invalid, problem.InvalidRequest, ClientAuthorized, "client_secret is not accepted; clients authenticate by private_key_jwt alone")
	}
	c := ClientCredentials{ClientID: f.Get("client_id"), Assertion: f.Get("client_assertion")}
	switch {
	case c.ClientID == "":
		return ClientCredentials{}, refuseClient(ClientAuthorized, "client_id is missing")
	case c.Assertion == "":
		return ClientCredentials{}, refuseClient(ClientAuthorized, "client_assertion is missing")
	case f.Get("client_assertion_type") != ClientAssertionType:
		return ClientCredentials{}, refuseClient(ClientAuthorized, "client_assertion_type is not "+ClientAssertionType)
	}
	return c, nil
}

// A TokenRequest is a token request whose parameters are complete for its grant. The
// fields of other grants are empty.
type TokenRequest struct {
	Grant  GrantType
	Client ClientCredentials

	Scope     Scope  // GrantJWTBearer and GrantRefreshToken; empty: not asked for
	Resource  string // "": not asked for
	SessionID string // "": a new Session, where the grant allows one

	Assertion    string // GrantJWTBearer
	Code         string // GrantAuthorizationCode
	RedirectURI  string // GrantAuthorizationCode; "" when left out
	CodeVerifier string // GrantAuthorizationCode
	DeviceCode   string // GrantDeviceCode
	RefreshToken string // GrantRefreshToken
}

// ParseTokenRequest reads the parameters of a token request. A grant_type outside the
// protocol is UNSUPPORTED_GRANT_TYPE, client authentication that is missing
// INVALID_CLIENT, any other missing parameter INVALID_REQUEST, a scope against the
// grammar INVALID_SCOPE.
func ParseTokenRequest(f Form) (TokenRequest, error) {
	grant, err := f.require("grant_type")
	if err != nil {
		return TokenRequest{}, err
	}
	r := TokenRequest{Grant: GrantType(grant)}
	var needed []string
	switch r.Grant {
	case GrantJWTBearer:
		needed = []string{"assertion"}
	case GrantAuthorizationCode:
		// redirect_uri is not among them: one that is missing is as wrong as another
		// one, which makes the code's grant invalid (RFC6749/5.2).
		needed = []string{"code", "code_verifier", "session_id"}
	case GrantDeviceCode:
		needed = []string{"device_code", "session_id"}
	case GrantRefreshToken:
		needed = []string{"refresh_token"}
	default:
		return TokenRequest{}, problem.New(problem.Invalid, problem.UnsupportedGrantType, GrantOffered, "grant_type is not one of this protocol")
	}
	if r.Client, err = f.ClientCredentials(); err != nil {
		return TokenRequest{}, err
	}
	return r.complete(f, needed)
}

// ParsePlainTokenRequest reads the parameters of the token request of a client that knows
// nothing of Poppy: it can't authenticate, and has no Session to name.
func ParsePlainTokenRequest(f Form) (TokenRequest, error) {
	r := TokenRequest{Grant: GrantType(f.Get("grant_type"))}
	switch r.Grant {
	case GrantAuthorizationCode:
		return r.complete(f, []string{"code", "code_verifier"})
	case GrantRefreshToken:
		return r.complete(f, []string{"refresh_token"})
	case GrantJWTBearer, GrantDeviceCode: // they take an agent
	}
	return TokenRequest{}, problem.New(problem.Invalid, problem.UnsupportedGrantType, GrantOffered, "grant_type is none for this client")
}

// complete reads the parameters of r's grant, of which those needed have to be there.
func (r TokenRequest) complete(f Form, needed []string) (TokenRequest, error) {
	var err error
	for _, name := range needed {
		v, err := f.require(name)
		if err != nil {
			return TokenRequest{}, err
		}
		r.set(name, v)
	}
	// At the other grants the scope is what the User approved; one sent all the same is
	// a parameter that the request doesn't have (RFC6749/3.2, RFC6749/4.1.3).
	if r.Grant == GrantJWTBearer || r.Grant == GrantRefreshToken {
		if r.Scope, err = ParseScope(f.Get("scope")); err != nil {
			return TokenRequest{}, err
		}
	}
	r.Resource = f.Get("resource")
	r.SessionID = f.Get("session_id")
	if r.Grant == GrantAuthorizationCode {
		r.RedirectURI = f.Get("redirect_uri")
	}
	return r, nil
}

func (r *TokenRequest) set(name, value string) {
	switch name {
	case "assertion":
		r.Assertion = value
	case "code":
		r.Code = value
	case "code_verifier":
		r.CodeVerifier = value
	case "device_code":
		r.DeviceCode = value
	case "refresh_token":
		r.RefreshToken = value
	}
}
