package discovery

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/poppyfield/poppyfield/internal/poppy/access"
)

// APIType is the type of an entry of apis (section 6).
type APIType string

// The API types of draft 0.1.
const (
	OpenAPI APIType = "openapi" // url is an OpenAPI description; calls carry DPoP tokens
	MCP     APIType = "mcp"     // url is the server; calls carry Bearer tokens issued for it
)

// Settings is what a Company chooses to publish. Addresses that the
// installation serves itself are not in it: they follow from the Issuer.
type Settings struct {
	OrganizationName string        `json:"organization_name"`
	Conversations    Conversations `json:"conversations"`
	APIs             []API         `json:"apis,omitempty"`
	// BrowserSessionEndpoint is an https URL; empty: the website takes no Sessions.
	BrowserSessionEndpoint string `json:"browser_session_endpoint,omitempty"`
	// BrowserCookie has the installation answer at BrowserSessionEndpoint; nil: the Company does.
	BrowserCookie *BrowserCookie `json:"browser_cookie,omitempty"`

	Direct   *SignIn   `json:"direct,omitempty"`   // nil: not offered
	Device   *SignIn   `json:"device,omitempty"`   // nil: not offered
	Mediated *Mediated `json:"mediated,omitempty"` // nil: not offered

	// CustomScopes maps a scope of the Company's own to what the User is told about it.
	CustomScopes map[string]string `json:"custom_scopes,omitempty"`
	// Extensions maps a name to its entry, a JSON object with a version.
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`
	// RequiredExtensions are those of Extensions that an agent has to list to have a
	// conversation. No document says so: an agent learns it from extension_required (3.3).
	RequiredExtensions []string `json:"required_extensions,omitempty"`
	// MCPRegistration lets clients that know nothing of Poppy register themselves
	// (RFC 7591). Only the metadata says so.
	MCPRegistration bool `json:"mcp_registration,omitempty"`
}

// Conversations says whether the poppy conversation protocol is offered.
type Conversations struct {
	Enabled bool `json:"enabled"`
	// OwnResource asks for tokens issued for the conversations endpoint only (RFC 8707).
	OwnResource bool `json:"own_resource,omitempty"`
}

// API is an entry of apis. Resource is the RFC 8707 resource that its tokens
// have to be issued for; an mcp entry needs none, its URL being the resource.
type API struct {
	Type        APIType `json:"type"`
	URL         string  `json:"url"`
	Description string  `json:"description,omitempty"`
	Resource    string  `json:"resource,omitempty"`
	// BaseURLs are where an openapi entry's calls go; an mcp entry has none, its URL being it.
	BaseURLs []string `json:"base_urls,omitempty"`
	// Rules say what calls need; they are not published.
	Rules []access.Rule `json:"rules,omitempty"`
}

// SignIn is what Direct or Device Sign-In can grant.
type SignIn struct {
	Scopes []string `json:"scopes"`
}

// Mediated describes Mediated Sign-In; its endpoint follows from the Issuer.
type Mediated struct {
	Fields []MediatedField `json:"fields"`
	Scopes []string        `json:"scopes"`
}

// MediatedField is one thing the User is asked for in Mediated Sign-In.
type MediatedField struct {
	Name   string `json:"name"`
	Label  string `json:"label"`
	Secret bool   `json:"secret"` // not to be shown while it is typed
}

// CheckedSettings are Settings that passed every rule. Only CheckSettings makes them.
type CheckedSettings struct {
	settings Settings
	checked  bool
}

// Settings returns a copy that the caller may change.
func (c CheckedSettings) Settings() Settings { return copySettings(c.settings) }

// MCPResources returns the URLs of the listed MCP servers: the resources for
// which a Bearer token may be asked (4.3).
func (c CheckedSettings) MCPResources() []string {
	var out []string
	for _, api := range c.settings.APIs {
		if api.Type == MCP {
			out = append(out, api.URL)
		}
	}
	return out
}

// TakesPlainClients reports whether a client that knows nothing of Poppy can sign in
// for an MCP server (6): it takes a page to sign in on.
func (c CheckedSettings) TakesPlainClients() bool {
	return c.settings.Direct != nil && len(c.MCPResources()) > 0
}

// RegistersClients reports whether such a client may register itself.
func (c CheckedSettings) RegistersClients() bool {
	return c.settings.MCPRegistration && c.TakesPlainClients()
}

// APIs returns what requests to the listed APIs are judged by.
func (c CheckedSettings) APIs() []access.API {
	var out []access.API
	for _, api := range c.settings.APIs {
		one := access.API{URL: api.URL, MCP: api.Type == MCP, Resource: api.Resource, Bases: slices.Clone(api.BaseURLs), Rules: slices.Clone(api.Rules)}
		if one.MCP {
			one.Resource = api.URL
		}
		out = append(out, one)
	}
	return out
}

// Resources returns every resource a token may be asked for (RFC 8707): those
// listed, the MCP servers, and the conversations endpoint where it has its own.
func (c CheckedSettings) Resources(i Issuer) []string {
	out := c.MCPResources()
	for _, api := range c.settings.APIs {
		if api.Type != MCP && api.Resource != "" {
			out = append(out, api.Resource)
		}
	}
	if c.settings.Conversations.Enabled && c.settings.Conversations.OwnResource {
		out = append(out, i.ConversationsEndpoint())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func copySettings(s Settings) Settings {
	s.APIs = slices.Clone(s.APIs)
	for i := range s.APIs {
		s.APIs[i].BaseURLs, s.APIs[i].Rules = slices.Clone(s.APIs[i].BaseURLs), slices.Clone(s.APIs[i].Rules)
	}
	s.CustomScopes = maps.Clone(s.CustomScopes)
	s.RequiredExtensions = slices.Clone(s.RequiredExtensions)
	s.Extensions = maps.Clone(s.Extensions)
	for name, raw := range s.Extensions {
		s.Extensions[name] = slices.Clone(raw)
	}
	if s.BrowserCookie != nil {
		cookie := *s.BrowserCookie
		s.BrowserCookie = &cookie
	}
	s.Direct, s.Device = copySignIn(s.Direct), copySignIn(s.Device)
	if s.Mediated != nil {
		s.Mediated = &Mediated{Fields: slices.Clone(s.Mediated.Fields), Scopes: slices.Clone(s.Mediated.Scopes)}
	}
	return s
}

func copySignIn(s *SignIn) *SignIn {
	if s == nil {
		return nil
	}
	return &SignIn{Scopes: slices.Clone(s.Scopes)}
}
