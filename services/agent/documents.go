package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/net/idna"

	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// poppyDocument holds the members of poppy.json (3.1) that this agent uses; all
// others are ignored (poppy-0.1/3.3#11).
type poppyDocument struct {
	ProtocolVersion string `json:"protocol_version"`
	Organization    struct {
		Name   string `json:"name"`
		Domain string `json:"domain"`
	} `json:"organization"`
	Auth *struct {
		Issuer   string          `json:"issuer"`
		Direct   json.RawMessage `json:"direct"`
		Device   json.RawMessage `json:"device"`
		Mediated json.RawMessage `json:"mediated"`
	} `json:"auth"`
	Agent *struct {
		Protocols []struct {
			Type     string `json:"type"`
			Endpoint string `json:"endpoint"`
			Resource string `json:"resource"`
		} `json:"protocols"`
	} `json:"agent"`
	Web  json.RawMessage `json:"web"`
	APIs []struct {
		Type string `json:"type"`
		URL  string `json:"url"`
	} `json:"apis"`
	Extensions map[string]struct {
		Version string `json:"version"`
	} `json:"extensions"`
}

// issuerMetadata holds the members of the RFC 8414 document that an agent takes from it (3.2).
type issuerMetadata struct {
	Issuer                      string   `json:"issuer"`
	TokenEndpoint               string   `json:"token_endpoint"`
	RevocationEndpoint          string   `json:"revocation_endpoint"`
	AuthorizationEndpoint       string   `json:"authorization_endpoint"`
	DeviceAuthorizationEndpoint string   `json:"device_authorization_endpoint"`
	PoppyDomains                []string `json:"poppy_domains"`
	AssertionAlgs               []string `json:"token_endpoint_auth_signing_alg_values_supported"`
	ProofAlgs                   []string `json:"dpop_signing_alg_values_supported"`
}

// parseObject reads foreign JSON into v. A repeated member is refused: two readers
// could take different ones of it.
func parseObject(raw []byte, v any) error { return parseLimited(raw, documentLimit, v) }

func parseLimited(raw []byte, limit int, v any) error {
	if len(raw) > limit {
		return errors.New("too large")
	}
	if _, err := jsonx.ParseObject(raw); err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

func parsePoppyDocument(raw []byte) (poppyDocument, error) {
	var d poppyDocument
	err := parseObject(raw, &d)
	return d, err
}

func parseMetadata(raw []byte) (issuerMetadata, error) {
	var m issuerMetadata
	err := parseObject(raw, &m)
	return m, err
}

// protocolMajor returns the major part of protocol_version (poppy-0.1/3.1#2).
func protocolMajor(version string) (string, bool) {
	if !regexp.MustCompile(`^[0-9]{1,6}\.[0-9]{1,6}$`).MatchString(version) {
		return "", false
	}
	major, _, _ := strings.Cut(version, ".")
	return major, true
}

// A target is the domain the User named: the host to ask, and the name that the
// document has to speak for.
type target struct {
	authority string // with the port, where one was given
	host      string // lower case, A-labels, no port, no trailing dot
}

// parseTarget accepts "example.com", "example.com:8443" and the same after "https://".
func parseTarget(s string) (target, error) {
	bad := func(why string) (target, error) {
		return target{}, fail(ExitUsage, "3", "%.200q is not a domain: %s", s, why)
	}
	in := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(s), "https://"), "/")
	if strings.ContainsAny(in, "/?#@\\") {
		return bad("name it alone, such as example.com")
	}
	host, port := in, ""
	if h, p, err := net.SplitHostPort(in); err == nil {
		host, port = h, p
		if !regexp.MustCompile(`^[0-9]{1,5}$`).MatchString(port) {
			return bad("the port is not a number")
		}
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || net.ParseIP(strings.Trim(host, "[]")) != nil {
		return bad("a name is needed, not an address")
	}
	ascii, err := idna.Lookup.ToASCII(host)
	if err != nil {
		return bad("it is not a valid host name")
	}
	t := target{authority: ascii, host: ascii}
	if port != "" && port != "443" {
		t.authority = net.JoinHostPort(ascii, port)
	}
	return t, nil
}

func (t target) documentURL() string {
	return "https://" + t.authority + "/.well-known/poppy.json"
}

// speaksFor compares organization.domain with the host that was asked, whatever
// host a redirect led to (poppy-0.1/3.1#4, #5).
func (t target) speaksFor(domain string) bool {
	plain := func(s string) string {
		s = strings.TrimSuffix(strings.ToLower(s), ".")
		if ascii, err := idna.Lookup.ToASCII(s); err == nil {
			s = ascii
		}
		return strings.TrimPrefix(s, "www.")
	}
	return domain != "" && plain(domain) == plain(t.host)
}

// metadataURLs returns where RFC 8414 section 3.1 puts the issuer's metadata, and for
// an issuer with a path also the older appended place.
func metadataURLs(issuer string) ([]string, error) {
	u, err := httpsURL(issuer)
	if err != nil {
		return nil, err
	}
	if u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(issuer, "?#") {
		return nil, fmt.Errorf("%q has a query or fragment", issuer)
	}
	const wellKnown = "/.well-known/oauth-authorization-server"
	base := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	p := strings.TrimSuffix(u.EscapedPath(), "/")
	if p == "" {
		return []string{base + wellKnown}, nil
	}
	return []string{base + wellKnown + p, base + p + wellKnown}, nil
}
