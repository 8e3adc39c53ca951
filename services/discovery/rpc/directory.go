package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// Directory implements directoryv1.DirectoryServiceServer.
type Directory struct {
	directoryv1.UnimplementedDirectoryServiceServer
	App *app.App
}

// ResolveHost implements the service.
func (s *Directory) ResolveHost(ctx context.Context, req *directoryv1.ResolveHostRequest) (*directoryv1.ResolveHostResponse, error) {
	got, err := s.App.SnapshotsOnHost(ctx, req.GetHost())
	if err != nil {
		return nil, err
	}
	out := &directoryv1.ResolveHostResponse{}
	for _, c := range got {
		snap, err := s.snapshot(c)
		if err != nil {
			return nil, err
		}
		out.Companies = append(out.Companies, snap)
	}
	return out, nil
}

// GetCompanySnapshot implements the service.
func (s *Directory) GetCompanySnapshot(ctx context.Context, _ *directoryv1.GetCompanySnapshotRequest) (*directoryv1.CompanySnapshot, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.App.Snapshot(ctx, scope)
	if err != nil {
		return nil, err
	}
	return s.snapshot(c)
}

func (s *Directory) snapshot(c app.Snapshot) (*directoryv1.CompanySnapshot, error) {
	settings := c.Published()
	checked, err := discovery.CheckSettings(settings)
	if err != nil {
		return nil, err
	}
	l := s.App.Bounds().InForce(c.Limits)
	out := &directoryv1.CompanySnapshot{
		CompanyId: c.ID, Slug: c.Slug, DisplayName: c.DisplayName, Issuer: c.Issuer.String(), Active: c.State == app.Active,
		McpUrls: checked.MCPResources(), Resources: checked.Resources(c.Issuer), ConversationsEnabled: settings.Conversations.Enabled,
		SessionTokenLifetime: durationpb.New(l.SessionTokenLifetime), SessionIdleLifetime: durationpb.New(l.SessionIdleLifetime),
		EventRetention: durationpb.New(l.EventRetention), ConversationIdleLifetime: durationpb.New(l.ConversationIdleLifetime),
		AnswerDeadline: durationpb.New(l.AnswerDeadline), SessionStartsPerMinute: int32(l.SessionStartsPerMinute), RequestsPerMinute: int32(l.RequestsPerMinute),
		Test: c.Kind == app.Test, RequiredExtensions: settings.RequiredExtensions, Version: c.Version,
		Apis: judged(checked.APIs()), McpRegistration: checked.RegistersClients(),
	}
	for _, d := range c.Domains {
		out.Domains = append(out.Domains, d.String())
	}
	if cookie := settings.BrowserCookie; cookie != nil {
		out.BrowserSession = &directoryv1.BrowserSession{Endpoint: settings.BrowserSessionEndpoint, CookieName: cookie.NameInUse(), CookieDomain: cookie.Domain}
	}
	if c.SignInSetUp() {
		out.SignIn = signInOf(c, settings)
	}
	if settings.Conversations.OwnResource {
		out.ConversationsResource = c.Issuer.ConversationsEndpoint()
	}
	for name := range settings.CustomScopes {
		out.CustomScopes = append(out.CustomScopes, name)
	}
	return out, nil
}

// signInOf says how Users sign in, of which published has what is offered.
func signInOf(c app.Snapshot, published discovery.Settings) *directoryv1.SignIn {
	conn := c.Connection
	out := &directoryv1.SignIn{
		ScopeTexts: map[string]*directoryv1.Texts{}, Method: methods[conn.Method].inside,
		AccountTokenLifetime: lifetime(conn), RotateAccountTokens: conn.RotateAccountTokens, EndSessionsAtSignOut: conn.EndSessions,
		CredentialCheckUrl: conn.CredentialCheck.URL,
		Design: &directoryv1.PageDesign{
			AccentColor: c.Design.AccentColor, LogoVersion: c.Design.Logo.Version, Welcome: &directoryv1.Texts{ByLanguage: c.Design.Welcome},
			SupportUrl: c.Design.SupportURL, PrivacyUrl: c.Design.PrivacyURL, TermsUrl: c.Design.TermsURL,
		},
	}
	if published.Direct != nil {
		out.DirectScopes = published.Direct.Scopes
	}
	if published.Device != nil {
		out.DeviceScopes = published.Device.Scopes
	}
	if published.Mediated != nil {
		out.MediatedScopes = published.Mediated.Scopes
	}
	for _, f := range conn.Fields() {
		out.CredentialFields = append(out.CredentialFields, &directoryv1.CredentialField{Name: f.Name, Label: f.Label, Secret: f.Secret})
	}
	for scope, texts := range c.ScopeTexts() {
		out.ScopeTexts[scope] = &directoryv1.Texts{ByLanguage: texts}
	}
	// What belongs to a method that isn't in use stays here.
	switch conn.Method {
	case app.OIDC:
		out.OidcIssuer, out.OidcClientId, out.OidcSealedSecret = conn.OIDC.Issuer, conn.OIDC.ClientID, conn.SealedSecret
		out.OidcScopes, out.OidcAccountClaim, out.OidcLabelClaim = conn.OIDC.Scopes, conn.OIDC.AccountClaim, conn.OIDC.LabelClaim
		if out.GetOidcAccountClaim() == "" {
			out.OidcAccountClaim = "sub"
		}
	case app.LoginHandoff:
		out.LoginUrl = conn.LoginURL
	case app.TestAccounts:
		out.SealedTestAccounts, out.CredentialCheckUrl = conn.SealedAccounts, ""
	case app.CheckByWebhook, app.NoMethod:
	}
	return out
}

func lifetime(conn app.Connection) *durationpb.Duration {
	if conn.WithoutEnd {
		return nil
	}
	return durationpb.New(conn.Lifetime())
}
