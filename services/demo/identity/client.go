package identity

import (
	"net/url"
	"slices"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const idTokenLifetime = 5 * time.Minute

// A Client is an application that signs customers in here.
type Client struct {
	ID           string
	Secret       string
	RedirectURIs []string
}

// registered is a Client as the library asks for it: confidential, authorization code only.
type registered struct{ Client }

var _ op.Client = registered{}

func (c registered) GetID() string                     { return c.ID }
func (c registered) RedirectURIs() []string            { return c.Client.RedirectURIs }
func (registered) PostLogoutRedirectURIs() []string    { return nil }
func (registered) ApplicationType() op.ApplicationType { return op.ApplicationTypeWeb }
func (registered) AuthMethod() oidc.AuthMethod         { return oidc.AuthMethodBasic }
func (registered) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}

func (registered) GrantTypes() []oidc.GrantType { return []oidc.GrantType{oidc.GrantTypeCode} }

func (registered) LoginURL(id string) string            { return loginPath + "?id=" + url.QueryEscape(id) }
func (registered) AccessTokenType() op.AccessTokenType  { return op.AccessTokenTypeBearer }
func (registered) IDTokenLifetime() time.Duration       { return idTokenLifetime }
func (registered) DevMode() bool                        { return false }
func (registered) IsScopeAllowed(string) bool           { return false } // beyond the standard ones
func (registered) IDTokenUserinfoClaimsAssertion() bool { return true }
func (registered) ClockSkew() time.Duration             { return 0 }
func (registered) RestrictAdditionalIdTokenScopes() func([]string) []string {
	return slices.Clone[[]string]
}

func (registered) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return slices.Clone[[]string]
}
