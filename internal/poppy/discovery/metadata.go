package discovery

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Metadata is what an agent takes from the RFC 8414 metadata of an issuer.
type Metadata struct {
	Issuer                      string
	TokenEndpoint               string
	RevocationEndpoint          string
	AuthorizationEndpoint       string // "" where there is none
	DeviceAuthorizationEndpoint string // "" where there is none
	PoppyDomains                []string
	// TokenEndpointAuthSigningAlgs and DPoPSigningAlgs are nil where the issuer doesn't say.
	TokenEndpointAuthSigningAlgs []string
	DPoPSigningAlgs              []string
}

// ParseMetadata reads the metadata that was fetched for issuer, the string of
// auth.issuer, and checks that it is that issuer's (RFC 8414 section 3.3).
func ParseMetadata(raw []byte, issuer string) (Metadata, error) {
	if len(raw) > MaxDocument {
		return Metadata{}, problem.New(problem.TooLarge, InvalidDocument, "", "the metadata has more than %d bytes", MaxDocument)
	}
	obj, err := jsonx.ParseObject(raw)
	if err != nil {
		return Metadata{}, problem.New(problem.Invalid, InvalidDocument, "poppy-0.1/3.2#4",
			"the metadata is no sound JSON object: %s", faultOf(err)).WithCause(err)
	}
	m := membersOf(obj)
	out := Metadata{Issuer: m["issuer"].Text()}
	if err := checkIssuers(issuer, out.Issuer); err != nil {
		return Metadata{}, err
	}
	var p docParser
	out.TokenEndpoint = p.endpoint(clauseTokenEndpoint, m, "token_endpoint", true)
	out.RevocationEndpoint = p.endpoint(clauseRevocationEndpoint, m, "revocation_endpoint", true)
	out.AuthorizationEndpoint = p.endpoint(clauseAuthorizationEndpoint, m, "authorization_endpoint", false)
	out.DeviceAuthorizationEndpoint = p.endpoint(clauseDeviceEndpoint, m, "device_authorization_endpoint", false)
	out.PoppyDomains = p.strings(clausePoppyDomains, "poppy_domains", m["poppy_domains"])
	out.TokenEndpointAuthSigningAlgs = optionalStrings(m["token_endpoint_auth_signing_alg_values_supported"])
	out.DPoPSigningAlgs = optionalStrings(m["dpop_signing_alg_values_supported"])
	if err := p.bad.err(InvalidDocument); err != nil {
		return Metadata{}, err
	}
	return out, nil
}

func (p *docParser) endpoint(id clause.ID, m members, name string, required bool) string {
	v, ok := m[name]
	switch {
	case !ok && required:
		p.bad.add(id, name, "is missing")
	case ok:
		checkHTTPS(&p.bad, id, name, v.Text())
	}
	return v.Text()
}

// optionalStrings reads a list that is only a hint; one of another shape counts as absent.
func optionalStrings(v jsonx.Value) []string {
	list, ok := v.Array()
	if !ok {
		return nil
	}
	out := []string{}
	for item, ok := list.Next(); ok; item, ok = list.Next() {
		if item.Kind() == jsonx.String {
			out = append(out, item.Text())
		}
	}
	return out
}

// checkIssuers compares two issuers character by character and, where they
// differ, shows both strings and which document has to change.
func checkIssuers(document, metadata string) error {
	if document == metadata {
		return nil
	}
	hint := "one of the two documents has to change"
	switch {
	case strings.TrimSuffix(document, "/") == strings.TrimSuffix(metadata, "/"):
		hint = "they differ in a trailing slash; write auth.issuer in poppy.json as the metadata has it"
	case strings.EqualFold(document, metadata):
		hint = "they differ in upper and lower case; write auth.issuer in poppy.json as the metadata has it"
	case strings.HasPrefix(document, metadata+"/"):
		hint = "the metadata names the origin without the path; correct issuer in the metadata"
	}
	return problem.New(problem.Invalid, IssuerMismatch, clauseIssuerMatch,
		"auth.issuer in poppy.json is %q and issuer in the metadata is %q: %s", document, metadata, hint).
		WithField("issuer", hint)
}

// CheckPair makes the checks of 3.2 that need both documents. A document without
// auth has no issuer to check and passes.
func CheckPair(d Document, m Metadata) error {
	if d.Auth == nil {
		return nil
	}
	if err := checkIssuers(d.Auth.Issuer, m.Issuer); err != nil {
		return err
	}
	listed := slices.ContainsFunc(m.PoppyDomains, func(raw string) bool {
		if raw == d.Domain.String() {
			return true
		}
		// Names are compared as DNS does; "www." is not dropped, the entry being no requested host.
		name, detail := normalizeHost(raw)
		return detail == "" && name == d.Domain.String()
	})
	if !listed {
		return problem.New(problem.Invalid, DomainNotListed, clauseListed,
			"poppy_domains of issuer %q doesn't list %q", m.Issuer, d.Domain).
			WithField("poppy_domains", "doesn't list the domain")
	}
	var v violations
	if d.Auth.Direct != nil && m.AuthorizationEndpoint == "" {
		v.add(clauseAuthorizationEndpoint, "authorization_endpoint", "is missing, and auth.direct needs it")
	}
	if d.Auth.Device != nil && m.DeviceAuthorizationEndpoint == "" {
		v.add(clauseDeviceEndpoint, "device_authorization_endpoint", "is missing, and auth.device needs it")
	}
	return v.err(InvalidDocument)
}

// CheckServed tells a document from a website that answers anything at the
// well-known URL: it wants HTTP 200, a JSON media type and a body that is not
// empty. It is for a publisher's own check; agents may be more tolerant.
func CheckServed(status int, contentType string, body []byte) error {
	detail := ""
	mediaType, _, err := mime.ParseMediaType(contentType)
	trimmed := strings.TrimLeft(string(body[:min(len(body), 512)]), " \t\r\n\ufeff")
	switch {
	case status != http.StatusOK:
		detail = "the answer's status is not 200"
	case trimmed == "":
		detail = "the answer has no body"
	case strings.HasPrefix(trimmed, "<"):
		detail = "the answer is a web page"
	case err != nil || mediaType != "application/json" && !strings.HasSuffix(mediaType, "+json"):
		detail = "the answer's Content-Type is not application/json"
	}
	if detail == "" {
		return nil
	}
	return problem.New(problem.Invalid, NotPublished, "poppy-0.1/3#1", "poppy.json is not published: %s", detail)
}
