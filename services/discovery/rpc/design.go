package rpc

import (
	"context"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// GetPageDesign implements the service.
func (s *SignInSetup) GetPageDesign(ctx context.Context, req *adminv1.GetPageDesignRequest) (*adminv1.PageDesign, error) {
	scope, err := scopeOf(ctx, req.GetName(), "pageDesign")
	if err != nil {
		return nil, err
	}
	got, err := s.App.Design(ctx, scope)
	if err != nil {
		return nil, err
	}
	return design(scope, got), nil
}

// UpdatePageDesign implements the service.
func (s *SignInSetup) UpdatePageDesign(ctx context.Context, req *adminv1.UpdatePageDesignRequest) (*adminv1.PageDesign, error) {
	in := req.GetPageDesign()
	scope, err := scopeOf(ctx, in.GetName(), "pageDesign")
	if err != nil {
		return nil, err
	}
	present := map[string]bool{
		"accent_color": in.GetAccentColor() != "", "logo": len(in.GetLogo()) > 0, "welcome": len(in.GetWelcome()) > 0,
		"support_url": in.GetSupportUrl() != "", "privacy_url": in.GetPrivacyUrl() != "", "terms_url": in.GetTermsUrl() != "",
		"scope_texts": len(in.GetScopeTexts()) > 0,
	}
	has, err := resource.Mask(req.GetUpdateMask(), []string{"accent_color", "logo", "welcome", "support_url", "privacy_url", "terms_url", "scope_texts"},
		func(f string) bool { return present[f] })
	if err != nil {
		return nil, err
	}
	ch := app.DesignChange{ETag: in.GetEtag(), ValidateOnly: req.GetValidateOnly()}
	if has("accent_color") {
		ch.AccentColor = &in.AccentColor
	}
	if has("logo") {
		ch.Logo = &in.Logo
	}
	if has("welcome") {
		ch.Welcome = &in.Welcome
	}
	if has("support_url") {
		ch.SupportURL = &in.SupportUrl
	}
	if has("privacy_url") {
		ch.PrivacyURL = &in.PrivacyUrl
	}
	if has("terms_url") {
		ch.TermsURL = &in.TermsUrl
	}
	if has("scope_texts") {
		texts := make(map[string]map[string]string, len(in.GetScopeTexts()))
		for scope, t := range in.GetScopeTexts() {
			texts[scope] = t.GetTexts()
		}
		ch.ScopeTexts = &texts
	}
	got, err := s.App.UpdateDesign(ctx, scope, ch)
	if err != nil {
		return nil, err
	}
	return design(scope, got), nil
}

func design(scope tenancy.Scope, d app.Design) *adminv1.PageDesign {
	out := &adminv1.PageDesign{
		Name: scope.Name() + "/pageDesign", AccentColor: d.AccentColor, Logo: d.Logo.Bytes, Welcome: d.Welcome,
		SupportUrl: d.SupportURL, PrivacyUrl: d.PrivacyURL, TermsUrl: d.TermsURL, Etag: resource.ETag(d.Version),
	}
	for s, texts := range d.ScopeTexts {
		if out.ScopeTexts == nil {
			out.ScopeTexts = map[string]*adminv1.LocalizedText{}
		}
		out.ScopeTexts[s] = &adminv1.LocalizedText{Texts: texts}
	}
	if !d.UpdatedAt.IsZero() {
		out.UpdateTime = stamp(&d.UpdatedAt)
	}
	return out
}
