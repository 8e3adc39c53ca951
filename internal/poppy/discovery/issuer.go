package discovery

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The well-known paths: of poppy.json below a Company's domain (section 3) and
// of the metadata below an issuer's host (RFC 8414 section 3).
const (
	WellKnownDocument = "/.well-known/poppy.json"
	WellKnownMetadata = "/.well-known/oauth-authorization-server"
)

const maxIssuer = 512 // octets; endpoint URLs are made by appending to it

// Issuer names a Company (3.2): an https origin with an optional path, in the
// one spelling that is published, signed and compared. Only ParseIssuer makes
// one; issuers compare with ==.
type Issuer struct{ host, path string }

// ParseIssuer reads the issuer that an installation gives a Company. Anything
// with a second spelling of the same place is refused instead of being
// rewritten, since issuers are compared character by character: upper-case
// hosts, the default port, a trailing slash, dot segments and escapes. It also
// refuses user information, query and fragment (RFC 8414 section 2).
func ParseIssuer(raw string) (Issuer, error) {
	if len(raw) > maxIssuer {
		return Issuer{}, badIssuer("an issuer has at most 512 characters")
	}
	rest, ok := strings.CutPrefix(raw, "https://")
	if !ok {
		return Issuer{}, badIssuer("an issuer starts with https://")
	}
	authority, path, hasPath := strings.Cut(rest, "/")
	if strings.ContainsAny(rest, "?#@\\%") {
		return Issuer{}, badIssuer("an issuer has no query, fragment, user information or escapes")
	}
	host, port, hasPort := strings.Cut(authority, ":")
	if d := checkASCIIHost(host); d != "" {
		return Issuer{}, badIssuer("%s", d)
	}
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return Issuer{}, badIssuer("the port is no number from 1 to 65535")
		}
		if n == 443 {
			return Issuer{}, badIssuer("an issuer leaves the default port 443 out")
		}
	}
	if !hasPath {
		return Issuer{host: authority}, nil
	}
	for segment := range strings.SplitSeq(path, "/") {
		switch {
		case segment == "":
			return Issuer{}, badIssuer("an issuer has no trailing slash and no empty path segment")
		case segment == "." || segment == "..":
			return Issuer{}, badIssuer("an issuer has no dot segments")
		case segment == ".well-known":
			return Issuer{}, badIssuer("an issuer's path has no .well-known segment")
		case strings.ContainsFunc(segment, isNotUnreserved):
			return Issuer{}, badIssuer("an issuer's path has only letters, digits and -._~")
		}
	}
	return Issuer{host: authority, path: "/" + path}, nil
}

func badIssuer(format string, args ...any) error {
	e := problem.New(problem.Invalid, problem.InvalidRequest, clauseIssuer, format, args...)
	return e.WithField("issuer", e.Detail)
}

func isNotUnreserved(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !letter && (r < '0' || r > '9') && !strings.ContainsRune("-._~", r)
}

// IsZero reports whether i was never parsed.
func (i Issuer) IsZero() bool { return i.host == "" }

// String returns the issuer as published in auth.issuer and the metadata.
func (i Issuer) String() string { return "https://" + i.host + i.path }

// Host returns the host, with its port where that is not 443.
func (i Issuer) Host() string { return i.host }

// Hostname returns the host without a port.
func (i Issuer) Hostname() string {
	name, _, _ := strings.Cut(i.host, ":")
	return name
}

// Path returns the path: "" for an issuer at the root of its host, else like "/t/acme".
func (i Issuer) Path() string { return i.path }

// TokenEndpoint returns the URL that issues tokens, and the aud of a Session assertion (4.2).
func (i Issuer) TokenEndpoint() string { return i.String() + "/oauth/token" }

// RevocationEndpoint returns the URL that revokes Account Tokens (4.9).
func (i Issuer) RevocationEndpoint() string { return i.String() + "/oauth/revoke" }

// AuthorizationEndpoint returns the URL where Direct Sign-In starts (4.5).
func (i Issuer) AuthorizationEndpoint() string { return i.String() + "/oauth/authorize" }

// RegistrationEndpoint returns the URL where clients register themselves (RFC 7591).
func (i Issuer) RegistrationEndpoint() string { return i.String() + "/oauth/register" }

// DeviceAuthorizationEndpoint returns the URL where Device Sign-In starts (4.6).
func (i Issuer) DeviceAuthorizationEndpoint() string { return i.String() + "/oauth/device" }

// SignInEndpoint returns the URL of Mediated Sign-In (4.7).
func (i Issuer) SignInEndpoint() string { return i.String() + "/poppy/sign-in" }

// BrowserSessionEndpoint returns where a browser joins a Session (5).
func (i Issuer) BrowserSessionEndpoint() string { return i.String() + BrowserSessionPath }

// VerificationURI returns the page where the User enters a user code (4.6, RFC 8628 3.2).
func (i Issuer) VerificationURI() string { return i.String() + "/device" }

// CallbackURL returns the redirect URI at a Company's own identity provider.
func (i Issuer) CallbackURL() string { return i.String() + "/oauth/callback" }

// SignInURL returns the page of one sign-in under way.
func (i Issuer) SignInURL(id string) string { return i.String() + "/sign-in/" + id }

// ConnectedAgentsURL returns the page where the User sees and disconnects agents (4.9).
func (i Issuer) ConnectedAgentsURL() string { return i.String() + "/account/agents" }

// LogoURL returns the Company's logo on the sign-in pages.
func (i Issuer) LogoURL() string { return i.String() + "/poppy/logo" }

// ConversationsEndpoint returns the endpoint of the poppy conversation protocol (7.2).
func (i Issuer) ConversationsEndpoint() string { return i.String() + "/poppy/conversations" }

// ConversationEndpoint returns a URL below one conversation: sub is "messages", "events", "handoff" or "close".
func (i Issuer) ConversationEndpoint(id, sub string) string {
	return i.ConversationsEndpoint() + "/" + id + "/" + sub
}

// DocumentURL returns where the document of one domain is hosted: the redirect
// target of that domain's well-known URL, a different one for each domain.
func (i Issuer) DocumentURL(d Domain) string { return i.String() + "/poppy/" + d.name + "/poppy.json" }

// WebhookKeysURL returns where the public keys of v1a webhook signatures are listed.
func (i Issuer) WebhookKeysURL() string { return i.String() + "/poppy/webhook-keys.json" }

// MetadataURL returns the metadata location of RFC 8414 section 3.1, where an
// issuer's path stands after the well-known part.
func (i Issuer) MetadataURL() string { return "https://" + i.host + WellKnownMetadata + i.path }

// AppendedMetadataURL returns the other location readers try: the well-known
// part after the issuer's path. For an issuer without path the two are one.
func (i Issuer) AppendedMetadataURL() string { return i.String() + WellKnownMetadata }

// MetadataURLs returns where a reader looks for the metadata of a foreign
// issuer: the inserted location of RFC 8414, then the appended one. A trailing
// slash of the issuer is dropped before the well-known part goes in
// (RFC 8414 section 3.1); the issuer itself keeps it when it is compared.
func MetadataURLs(issuer string) (inserted, appended string, err error) {
	u, detail := parseHTTPS(issuer)
	if detail == "" && u.RawQuery != "" {
		detail = "an issuer has no query"
	}
	if detail != "" {
		return "", "", problem.New(problem.Invalid, InvalidDocument, clauseIssuer, "auth.issuer %q: %s", issuer, detail)
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	return "https://" + u.Host + WellKnownMetadata + path, "https://" + u.Host + path + WellKnownMetadata, nil
}

const maxURL = 2048 // octets of any URL in a document

// CheckURL asks for what every URL has to be that a Company publishes or names for us:
// an absolute https URL without user information and fragment. The error says in words
// for the Company what else it is.
func CheckURL(raw string) error {
	if _, detail := parseHTTPS(raw); detail != "" {
		return errors.New(detail)
	}
	return nil
}

// parseHTTPS reads an absolute https URL without user information and fragment,
// or says what is wrong with it.
func parseHTTPS(raw string) (*url.URL, string) {
	if len(raw) > maxURL {
		return nil, "a URL has at most 2048 characters"
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, "not a URL"
	case u.Scheme != "https":
		return nil, "not an https URL"
	case u.Opaque != "" || u.Hostname() == "":
		return nil, "the URL has no host"
	case u.User != nil:
		return nil, "the URL has user information"
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return nil, "the URL has a fragment"
	}
	return u, ""
}
