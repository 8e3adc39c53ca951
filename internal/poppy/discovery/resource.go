package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
)

// WellKnownResource is where the metadata of a protected resource is found on the
// resource's own host, before the resource's path (RFC 9728 section 3.1).
const WellKnownResource = "/.well-known/oauth-protected-resource"

// wireResource has the members of RFC 9728 section 2 that are said of an MCP server.
type wireResource struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported,omitempty"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	ResourceName         string   `json:"resource_name"`
}

// BuildResources makes the RFC 9728 metadata of each listed MCP server, by its url (6).
func BuildResources(c CheckedSettings, i Issuer) (map[string][]byte, error) {
	if !c.checked || i.IsZero() {
		return nil, unchecked()
	}
	// A client asks for what it finds here, at the authorization endpoint where there is one.
	scopes := scopesOf(c.settings)
	if c.settings.Direct != nil {
		scopes = c.settings.Direct.Scopes
	}
	out := map[string][]byte{}
	for _, api := range c.settings.APIs {
		if api.Type != MCP {
			continue
		}
		doc, err := encode(wireResource{
			Resource: api.URL, AuthorizationServers: []string{i.String()}, ScopesSupported: scopes, BearerMethods: []string{"header"},
			ResourceName: cmp.Or(api.Description, c.settings.OrganizationName),
		})
		if err != nil {
			return nil, err
		}
		out[api.URL] = doc
	}
	return out, nil
}

// ResourceKey names an MCP server in the path of its metadata.
func ResourceKey(resource string) string {
	sum := sha256.Sum256([]byte(resource))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// ResourceMetadataURL returns where the metadata of an MCP server is, which its challenges
// name (RFC 9728 section 5.1).
func (i Issuer) ResourceMetadataURL(resource string) string {
	return i.String() + "/poppy/resources/" + ResourceKey(resource) + ".json"
}
