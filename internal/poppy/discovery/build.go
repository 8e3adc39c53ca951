package discovery

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const (
	// ProtocolVersion is the version that the documents are published under.
	ProtocolVersion = "0.1"
	// MaxDocument caps poppy.json and the metadata, in bytes, read or written.
	MaxDocument = 64 << 10
)

type wireDocument struct {
	ProtocolVersion string                     `json:"protocol_version"`
	Organization    wireOrganization           `json:"organization"`
	Auth            wireAuth                   `json:"auth"`
	Agent           *wireAgent                 `json:"agent,omitempty"`
	Web             *wireWeb                   `json:"web,omitempty"`
	APIs            []API                      `json:"apis,omitempty"`
	Extensions      map[string]json.RawMessage `json:"extensions,omitempty"`
}

type wireOrganization struct {
	Name   string `json:"name"`
	Domain string `json:"domain"`
}

type wireAuth struct {
	Issuer       string            `json:"issuer"`
	Direct       *SignIn           `json:"direct,omitempty"`
	Device       *SignIn           `json:"device,omitempty"`
	Mediated     *wireMediated     `json:"mediated,omitempty"`
	CustomScopes map[string]string `json:"custom_scopes,omitempty"`
}

type wireMediated struct {
	Endpoint string          `json:"endpoint"`
	Fields   []MediatedField `json:"fields"`
	Scopes   []string        `json:"scopes"`
}

type wireAgent struct {
	Protocols []Protocol `json:"protocols"`
}

type wireWeb struct {
	BrowserSessionEndpoint string `json:"browser_session_endpoint"`
}

// BuildDocument makes the poppy.json of one domain. The same arguments give the
// same bytes, so that an ETag made of them is stable.
func BuildDocument(c CheckedSettings, i Issuer, d Domain) ([]byte, error) {
	if !c.checked || i.IsZero() || d.IsZero() {
		return nil, unchecked()
	}
	s := c.settings
	doc := wireDocument{
		ProtocolVersion: ProtocolVersion,
		Organization:    wireOrganization{Name: s.OrganizationName, Domain: d.String()},
		Auth: wireAuth{
			Issuer: i.String(), Direct: s.Direct, Device: s.Device, CustomScopes: s.CustomScopes,
		},
		APIs:       published(s.APIs),
		Extensions: s.Extensions,
	}
	if s.Mediated != nil {
		doc.Auth.Mediated = &wireMediated{Endpoint: i.SignInEndpoint(), Fields: s.Mediated.Fields, Scopes: s.Mediated.Scopes}
	}
	if s.Conversations.Enabled {
		p := Protocol{Type: ProtocolPoppy, Endpoint: i.ConversationsEndpoint()}
		if s.Conversations.OwnResource {
			p.Resource = p.Endpoint
		}
		doc.Agent = &wireAgent{Protocols: []Protocol{p}}
	}
	if s.BrowserSessionEndpoint != "" {
		doc.Web = &wireWeb{BrowserSessionEndpoint: s.BrowserSessionEndpoint}
	}
	return encode(doc)
}

// wireMetadata has the members of RFC 8414 section 2, of RFC 9449 section 5.1, of the
// Client ID Metadata Document draft, and poppy_domains.
type wireMetadata struct {
	Issuer                      string   `json:"issuer"`
	TokenEndpoint               string   `json:"token_endpoint"`
	RevocationEndpoint          string   `json:"revocation_endpoint"`
	AuthorizationEndpoint       string   `json:"authorization_endpoint,omitempty"`
	DeviceAuthorizationEndpoint string   `json:"device_authorization_endpoint,omitempty"`
	PoppyDomains                []string `json:"poppy_domains"`
	ScopesSupported             []string `json:"scopes_supported,omitempty"`
	ResponseTypes               []string `json:"response_types_supported"`
	ResponseModes               []string `json:"response_modes_supported,omitempty"`
	GrantTypes                  []string `json:"grant_types_supported"`
	CodeChallengeMethods        []string `json:"code_challenge_methods_supported,omitempty"`
	TokenAuthMethods            []string `json:"token_endpoint_auth_methods_supported"`
	TokenAuthAlgs               []string `json:"token_endpoint_auth_signing_alg_values_supported"`
	RevocationAuthMethods       []string `json:"revocation_endpoint_auth_methods_supported"`
	RevocationAuthAlgs          []string `json:"revocation_endpoint_auth_signing_alg_values_supported"`
	DPoPAlgs                    []string `json:"dpop_signing_alg_values_supported"`
	ResponseIss                 bool     `json:"authorization_response_iss_parameter_supported,omitempty"`
	ClientIDMetadataDocument    bool     `json:"client_id_metadata_document_supported"`
	RegistrationEndpoint        string   `json:"registration_endpoint,omitempty"`
}

// SigningAlgorithms returns the algorithms that assertions and proofs may be
// signed with, as advertised.
func SigningAlgorithms() []string { return []string{"ES256", "ES384", "EdDSA", "PS256", "RS256"} }

// The grant types of the token endpoint.
const (
	grantJWTBearer  = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	grantCode       = "authorization_code"
	grantDeviceCode = "urn:ietf:params:oauth:grant-type:device_code"
	grantRefresh    = "refresh_token"
)

// BuildMetadata makes the RFC 8414 metadata of an issuer, for all of the
// Company's verified domains. It promises only what the settings offer: the
// authorization endpoint with Direct Sign-In, the device endpoint with Device
// Sign-In, Account Tokens with any sign-in, clients that can't authenticate with an MCP
// server to sign in for. The order of verified doesn't matter.
func BuildMetadata(c CheckedSettings, i Issuer, verified []Domain) ([]byte, error) {
	if !c.checked || i.IsZero() {
		return nil, unchecked()
	}
	s := c.settings
	m := wireMetadata{
		Issuer:                   i.String(),
		TokenEndpoint:            i.TokenEndpoint(),
		RevocationEndpoint:       i.RevocationEndpoint(),
		PoppyDomains:             make([]string, 0, len(verified)),
		ScopesSupported:          scopesOf(s),
		ResponseTypes:            []string{}, // required by RFC 8414 even with no authorization endpoint
		GrantTypes:               []string{grantJWTBearer},
		TokenAuthMethods:         []string{"private_key_jwt"},
		TokenAuthAlgs:            SigningAlgorithms(),
		RevocationAuthMethods:    []string{"private_key_jwt"},
		RevocationAuthAlgs:       SigningAlgorithms(),
		DPoPAlgs:                 SigningAlgorithms(),
		ClientIDMetadataDocument: true,
	}
	for _, d := range verified {
		m.PoppyDomains = append(m.PoppyDomains, d.String())
	}
	slices.Sort(m.PoppyDomains)
	m.PoppyDomains = slices.Compact(m.PoppyDomains)
	if s.Direct != nil {
		m.AuthorizationEndpoint = i.AuthorizationEndpoint()
		m.ResponseTypes, m.ResponseModes = []string{"code"}, []string{"query"}
		m.CodeChallengeMethods = []string{"S256"}
		m.ResponseIss = true
		m.GrantTypes = append(m.GrantTypes, grantCode)
	}
	if c.TakesPlainClients() {
		m.TokenAuthMethods = append(m.TokenAuthMethods, "none")
	}
	if c.RegistersClients() {
		m.RegistrationEndpoint = i.RegistrationEndpoint()
	}
	if s.Device != nil {
		m.DeviceAuthorizationEndpoint = i.DeviceAuthorizationEndpoint()
		m.GrantTypes = append(m.GrantTypes, grantDeviceCode)
	}
	if s.Direct != nil || s.Device != nil || s.Mediated != nil {
		m.GrantTypes = append(m.GrantTypes, grantRefresh)
	}
	return encode(m)
}

// scopesOf returns every scope that some sign-in can grant, sorted.
func scopesOf(s Settings) []string {
	var out []string
	if s.Direct != nil {
		out = append(out, s.Direct.Scopes...)
	}
	if s.Device != nil {
		out = append(out, s.Device.Scopes...)
	}
	if s.Mediated != nil {
		out = append(out, s.Mediated.Scopes...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func unchecked() error {
	return problem.New(problem.Internal, problem.ServerError, "", "the document was built from unchecked values")
}

// encode writes v for people to read, without HTML escapes. Maps come out sorted.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, problem.New(problem.Internal, problem.ServerError, "", "the document could not be encoded").WithCause(err)
	}
	if buf.Len() > MaxDocument {
		return nil, problem.New(problem.TooLarge, problem.InvalidRequest, "", "the document would have more than %d bytes", MaxDocument)
	}
	return buf.Bytes(), nil
}

// published leaves out what only our own checks of calls need.
func published(apis []API) []API {
	out := slices.Clone(apis)
	for i := range out {
		out[i].BaseURLs, out[i].Rules = nil, nil
	}
	return out
}
