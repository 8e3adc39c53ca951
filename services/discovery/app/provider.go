package app

import (
	"fmt"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
)

// providerMetadata is what a sign-in needs of a provider's discovery document
// (OpenID Connect Discovery 1.0, section 3).
type providerMetadata struct {
	Issuer                string
	AuthorizationEndpoint string
	TokenEndpoint         string
	JWKSURI               string
	// PKCEMethods are those advertised; nil where the document doesn't say.
	PKCEMethods []string
}

// metadataURL returns where the document of an issuer is; a trailing slash is dropped
// first (section 4.1).
func metadataURL(issuer string) string {
	return strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
}

// parseProvider reads a discovery document. It is JSON of a stranger: members of
// another type than expected count as absent.
func parseProvider(raw []byte) (providerMetadata, error) {
	obj, err := jsonx.ParseObject(raw)
	if err != nil {
		return providerMetadata{}, err
	}
	var m providerMetadata
	for name, v, ok := obj.Next(); ok; name, v, ok = obj.Next() {
		switch string(name) {
		case "issuer":
			m.Issuer = v.Text()
		case "authorization_endpoint":
			m.AuthorizationEndpoint = v.Text()
		case "token_endpoint":
			m.TokenEndpoint = v.Text()
		case "jwks_uri":
			m.JWKSURI = v.Text()
		case "code_challenge_methods_supported":
			list, ok := v.Array()
			if !ok {
				continue
			}
			m.PKCEMethods = []string{}
			for item, ok := list.Next(); ok; item, ok = list.Next() {
				m.PKCEMethods = append(m.PKCEMethods, item.Text())
			}
		}
	}
	return m, nil
}

// checkIssuer compares character by character, as every ID token will be
// (OpenID Connect Discovery 1.0, section 4.3).
func (m providerMetadata) checkIssuer(want string) string {
	hint := "use the issuer exactly as the provider spells it"
	switch {
	case m.Issuer == want:
		return ""
	case m.Issuer == "":
		return fmt.Sprintf("the metadata names no issuer, and the connection has %q", want)
	case strings.TrimSuffix(m.Issuer, "/") == strings.TrimSuffix(want, "/"):
		hint = "they differ in a trailing slash; " + hint
	case strings.EqualFold(m.Issuer, want):
		hint = "they differ in upper and lower case; " + hint
	}
	return fmt.Sprintf("the metadata names the issuer %q, and the connection has %q: %s", clip(m.Issuer), want, hint)
}

// checkEndpoints says what is wrong with an endpoint; "" where nothing is.
func (m providerMetadata) checkEndpoints() string {
	for _, e := range []struct{ name, url string }{
		{"authorization_endpoint", m.AuthorizationEndpoint}, {"token_endpoint", m.TokenEndpoint}, {"jwks_uri", m.JWKSURI},
	} {
		if e.url == "" {
			return "the metadata has no " + e.name
		}
		if err := discovery.CheckURL(e.url); err != nil {
			return fmt.Sprintf("%s in the metadata is %q: %s", e.name, clip(e.url), err)
		}
	}
	return ""
}

// countKeys returns how many keys of a JWK set can verify signatures, or what is wrong
// with the set. The members are only looked at: which algorithms are taken is decided
// where ID tokens are verified.
func countKeys(raw []byte) (n int, detail string) {
	obj, err := jsonx.ParseObject(raw)
	if err != nil {
		return 0, "no sound JSON object"
	}
	for name, v, ok := obj.Next(); ok; name, v, ok = obj.Next() {
		if string(name) != "keys" {
			continue
		}
		list, ok := v.Array()
		if !ok {
			return 0, "no JWK set: its keys are no list"
		}
		for item, ok := list.Next(); ok; item, ok = list.Next() {
			usable, private := readJWK(item)
			if private {
				return 0, "publishing a private key: whoever read it can sign in as anybody"
			}
			if usable {
				n++
			}
		}
		if n == 0 {
			return 0, "without a public key for signatures"
		}
		return n, ""
	}
	return 0, "no JWK set: it has no keys"
}

func readJWK(v jsonx.Value) (usable, private bool) {
	obj, ok := v.Object()
	if !ok {
		return false, false
	}
	m := map[string]string{}
	for name, v, ok := obj.Next(); ok; name, v, ok = obj.Next() {
		m[string(name)] = v.Text()
	}
	if m["d"] != "" || m["k"] != "" { // RFC 7518, sections 6.2.2, 6.3.2 and 6.4
		return false, true
	}
	if use, ok := m["use"]; ok && use != "sig" {
		return false, false
	}
	switch m["kty"] {
	case "RSA":
		return m["n"] != "" && m["e"] != "", false
	case "EC":
		return m["crv"] != "" && m["x"] != "" && m["y"] != "", false
	case "OKP":
		return m["crv"] == "Ed25519" && m["x"] != "", false
	default:
		return false, false
	}
}
