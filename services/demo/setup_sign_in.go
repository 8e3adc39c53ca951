package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/services/demo/identity"
)

const signInMethod = "SIGN_IN_METHOD_OIDC"

// Resources of the admin API that sign-in is set up by, with the members that the shop uses.
type (
	signInConnection struct {
		Method          string          `json:"method"`
		OIDC            oidcProvider    `json:"oidc"`
		CredentialCheck credentialCheck `json:"credential_check"`
	}
	oidcProvider struct {
		Issuer          string   `json:"issuer"`
		ClientID        string   `json:"client_id"`
		ClientSecret    string   `json:"client_secret,omitempty"`
		HasClientSecret bool     `json:"has_client_secret,omitempty"`
		Scopes          []string `json:"scopes"`
		CallbackURL     string   `json:"callback_url,omitempty"`
	}
	credentialCheck struct {
		URL    string            `json:"url"`
		Fields []credentialField `json:"fields"`
	}
	credentialField struct {
		Name   string `json:"name"`
		Label  string `json:"label"`
		Secret bool   `json:"secret,omitempty"`
	}
	pageDesign struct {
		AccentColor string                   `json:"accent_color"`
		Logo        []byte                   `json:"logo"`
		Welcome     map[string]string        `json:"welcome"`
		ScopeTexts  map[string]localizedText `json:"scope_texts"`
	}
	localizedText struct {
		Texts map[string]string `json:"texts"`
	}
)

func (s discoverySettings) same(t discoverySettings) bool {
	return s.OrganizationName == t.OrganizationName && s.ConversationsEnabled == t.ConversationsEnabled &&
		maps.Equal(s.CustomScopes, t.CustomScopes) && slices.Equal(s.DirectScopes, t.DirectScopes) &&
		slices.Equal(s.DeviceScopes, t.DeviceScopes) && slices.Equal(s.MediatedScopes, t.MediatedScopes) &&
		s.MCPRegistration == t.MCPRegistration && slices.EqualFunc(s.APIs, t.APIs, api.same)
}

func (a api) same(b api) bool {
	return a.Type == b.Type && a.URL == b.URL && a.Description == b.Description &&
		slices.EqualFunc(a.Rules, b.Rules, func(r, s apiRule) bool { return r.Path == s.Path && slices.Equal(r.Scopes, s.Scopes) })
}

// same leaves out what is only written or only read. That the provider's secret is
// stored there is known by the client's id, which changes with it.
func (c signInConnection) same(d signInConnection) bool {
	return c.Method == d.Method && c.OIDC.Issuer == d.OIDC.Issuer && c.OIDC.ClientID == d.OIDC.ClientID &&
		c.OIDC.HasClientSecret == d.OIDC.HasClientSecret && slices.Equal(c.OIDC.Scopes, d.OIDC.Scopes) &&
		c.CredentialCheck.URL == d.CredentialCheck.URL && slices.Equal(c.CredentialCheck.Fields, d.CredentialCheck.Fields)
}

func (d pageDesign) same(e pageDesign) bool {
	return strings.EqualFold(d.AccentColor, e.AccentColor) && bytes.Equal(d.Logo, e.Logo) && maps.Equal(d.Welcome, e.Welcome) &&
		maps.EqualFunc(d.ScopeTexts, e.ScopeTexts, func(a, b localizedText) bool { return maps.Equal(a.Texts, b.Texts) })
}

func wantedSettings(mcpURL string) discoverySettings {
	all := []string{scopeRead, scopeWrite, scopeAddresses}
	return discoverySettings{
		OrganizationName: displayName, ConversationsEnabled: true,
		CustomScopes: map[string]string{scopeAddresses: "See and change your delivery addresses"},
		DirectScopes: all, DeviceScopes: all, MediatedScopes: []string{scopeRead},
		APIs: []api{{
			Type: "mcp", URL: mcpURL, Description: "Orders at " + displayName, Rules: []apiRule{{Path: "/", Scopes: []string{scopeRead}}},
		}},
		MCPRegistration: true,
	}
}

func wantedConnection(cfg Config, client identity.Client) signInConnection {
	return signInConnection{
		Method: signInMethod,
		OIDC: oidcProvider{
			Issuer: cfg.origin(cfg.AccountsDomain), ClientID: client.ID, HasClientSecret: true, Scopes: []string{"email", "profile"},
		},
		CredentialCheck: credentialCheck{
			URL: "https://" + cfg.Domain + credentialsPath,
			Fields: []credentialField{
				{Name: "email", Label: "E-mail"},
				{Name: "password", Label: "Password", Secret: true},
			},
		},
	}
}

// wantedDesign is how the shop's sign-in pages look and what they say.
func wantedDesign() (pageDesign, error) {
	var d pageDesign
	text, err := pages.ReadFile("pages/design.json")
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err == nil {
		d.Logo, err = pages.ReadFile("pages/logo.png")
	}
	return d, err
}

// signIn connects the Company to the shop's accounts and registers the callback there.
func (o *onboarding) signIn(ctx context.Context) error {
	at := "/v1/" + o.result.Company + "/signInConnection"
	want := wantedConnection(o.cfg, o.parts.upstream)
	var have signInConnection
	if err := o.api.call(ctx, http.MethodGet, at, nil, nil, &have); err != nil && !hasStatus(err, http.StatusNotFound) {
		return err
	}
	if !have.same(want) {
		change := want
		change.OIDC.HasClientSecret, change.OIDC.ClientSecret = false, o.parts.upstream.Secret
		query := requestID()
		query.Set("update_mask", "method,oidc,credential_check")
		have = signInConnection{}
		if err := o.api.call(ctx, http.MethodPatch, at, query, change, &have); err != nil {
			return err
		}
	}
	callback, err := url.Parse(have.OIDC.CallbackURL)
	if err != nil || callback.Scheme != "https" || callback.Host == "" {
		return fmt.Errorf("the callback to register is %q, not an https URL", have.OIDC.CallbackURL)
	}
	client := o.parts.upstream
	client.RedirectURIs = []string{have.OIDC.CallbackURL}
	o.parts.accounts.Register(client)
	return nil
}

// design makes the Company's pages look like the shop's.
func (o *onboarding) design(ctx context.Context) error {
	at := "/v1/" + o.result.Company + "/pageDesign"
	want, err := wantedDesign()
	if err != nil {
		return err
	}
	var have pageDesign
	if err := o.api.call(ctx, http.MethodGet, at, nil, nil, &have); err != nil && !hasStatus(err, http.StatusNotFound) {
		return err
	}
	if have.same(want) {
		return nil
	}
	query := requestID()
	query.Set("update_mask", "accent_color,logo,welcome,scope_texts")
	return o.api.call(ctx, http.MethodPatch, at, query, want, nil)
}

// agentsLinks asks the admin API with the Company's own key.
func agentsLinks(cfg Config, r Result) agentsLink {
	api := &adminClient{origin: strings.TrimSuffix(cfg.APIOrigin, "/"), key: r.APIKey, http: newHTTPClient(cfg.Roots, cfg.Hosts)}
	return func(ctx context.Context, account string) (string, error) {
		var made struct {
			URL string `json:"url"`
		}
		err := api.call(ctx, http.MethodPost, "/v1/"+r.Company+"/connectedAgents:createLink", nil,
			map[string]any{"account": account, "embed": true}, &made)
		return made.URL, err
	}
}
