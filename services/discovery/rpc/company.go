// Package rpc translates between the gRPC services that discovery owns and its use
// cases. It decides nothing.
package rpc

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	platformrpc "github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// Companies implements adminv1.CompanyServiceServer.
type Companies struct {
	adminv1.UnimplementedCompanyServiceServer
	App *app.App
	Now clock.Clock
}

// CreateCompany implements the service.
func (s *Companies) CreateCompany(ctx context.Context, req *adminv1.CreateCompanyRequest) (*adminv1.Company, error) {
	c := req.GetCompany()
	kind := app.Live
	if c.GetKind() == adminv1.CompanyKind_COMPANY_KIND_TEST {
		kind = app.Test
	}
	got, err := s.App.CreateCompany(ctx, app.NewCompany{
		Organization: c.GetOrganization(), Slug: c.GetSlug(), DisplayName: c.GetDisplayName(), Kind: kind, Issuer: c.GetIssuer(), Creator: platformrpc.Actor(ctx),
	})
	return company(got), err
}

// GetCompany implements the service.
func (s *Companies) GetCompany(ctx context.Context, req *adminv1.GetCompanyRequest) (*adminv1.Company, error) {
	scope, err := scopeOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	got, err := s.App.Company(ctx, scope)
	return company(got), err
}

// ListCompanies implements the service.
func (s *Companies) ListCompanies(ctx context.Context, req *adminv1.ListCompaniesRequest) (*adminv1.ListCompaniesResponse, error) {
	after, err := resource.After(s.Now(), req.GetPageToken(), 2, "companies")
	if err != nil {
		return nil, err
	}
	var at time.Time
	id := ""
	if after != nil {
		if at, err = time.Parse(time.RFC3339Nano, after[0]); err != nil {
			return nil, resource.Invalid("page_token", "not a page token of this list")
		}
		id = after[1]
	}
	n := resource.Size(req.GetPageSize())
	got, err := s.App.ListCompanies(ctx, at, id, n+1)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListCompaniesResponse{}
	if len(got) > n {
		got = got[:n]
		last := got[n-1]
		out.NextPageToken = resource.Token(s.Now(), []string{last.CreatedAt.Format(time.RFC3339Nano), last.ID}, "companies")
	}
	for _, c := range got {
		out.Companies = append(out.Companies, company(c))
	}
	return out, nil
}

// UpdateCompany implements the service.
func (s *Companies) UpdateCompany(ctx context.Context, req *adminv1.UpdateCompanyRequest) (*adminv1.Company, error) {
	c := req.GetCompany()
	scope, err := scopeOf(ctx, c.GetName())
	if err != nil {
		return nil, err
	}
	has, err := resource.Mask(req.GetUpdateMask(), []string{"display_name", "issuer"}, func(f string) bool {
		return f == "display_name" && c.GetDisplayName() != "" || f == "issuer" && c.GetIssuer() != ""
	})
	if err != nil {
		return nil, err
	}
	ch := app.CompanyChange{ETag: c.GetEtag()}
	if has("display_name") {
		ch.DisplayName = &c.DisplayName
	}
	if has("issuer") {
		ch.Issuer = &c.Issuer
	}
	got, err := s.App.UpdateCompany(ctx, scope, ch)
	return company(got), err
}

// PublishCompany implements the service.
func (s *Companies) PublishCompany(ctx context.Context, req *adminv1.PublishCompanyRequest) (*adminv1.Company, error) {
	scope, err := scopeOf(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	got, err := s.App.Publish(ctx, scope, req.GetValidateOnly())
	return company(got), err
}

// DisableCompany implements the service.
func (s *Companies) DisableCompany(ctx context.Context, req *adminv1.DisableCompanyRequest) (*adminv1.Company, error) {
	return s.setEnabled(ctx, req.GetName(), false)
}

// EnableCompany implements the service.
func (s *Companies) EnableCompany(ctx context.Context, req *adminv1.EnableCompanyRequest) (*adminv1.Company, error) {
	return s.setEnabled(ctx, req.GetName(), true)
}

func (s *Companies) setEnabled(ctx context.Context, name string, on bool) (*adminv1.Company, error) {
	scope, err := scopeOf(ctx, name)
	if err != nil {
		return nil, err
	}
	got, err := s.App.SetEnabled(ctx, scope, on)
	return company(got), err
}

// GetDiscoverySettings implements the service.
func (s *Companies) GetDiscoverySettings(ctx context.Context, req *adminv1.GetDiscoverySettingsRequest) (*adminv1.DiscoverySettings, error) {
	scope, err := scopeOf(ctx, req.GetName(), "discoverySettings")
	if err != nil {
		return nil, err
	}
	got, err := s.App.Company(ctx, scope)
	if err != nil {
		return nil, err
	}
	return settings(scope, got)
}

// UpdateDiscoverySettings implements the service.
func (s *Companies) UpdateDiscoverySettings(ctx context.Context, req *adminv1.UpdateDiscoverySettingsRequest) (*adminv1.DiscoverySettings, error) {
	in := req.GetDiscoverySettings()
	scope, err := scopeOf(ctx, in.GetName(), "discoverySettings")
	if err != nil {
		return nil, err
	}
	fields := []string{
		"organization_name", "conversations_enabled", "conversations_resource", "apis", "browser_session_endpoint", "custom_scopes", "extensions",
		"required_extensions", "direct_scopes", "device_scopes", "mediated_scopes", "browser_cookie", "mcp_registration",
	}
	has, err := resource.Mask(req.GetUpdateMask(), fields, func(f string) bool {
		return map[string]bool{
			"organization_name": in.GetOrganizationName() != "", "conversations_enabled": in.GetConversationsEnabled(),
			"conversations_resource": in.GetConversationsResource(), "apis": len(in.GetApis()) > 0,
			"browser_session_endpoint": in.GetBrowserSessionEndpoint() != "", "custom_scopes": len(in.GetCustomScopes()) > 0, "extensions": len(in.GetExtensions()) > 0,
			"browser_cookie": in.GetBrowserCookie() != nil, "mcp_registration": in.GetMcpRegistration(),
			"required_extensions": len(in.GetRequiredExtensions()) > 0,
			"direct_scopes":       len(in.GetDirectScopes()) > 0, "device_scopes": len(in.GetDeviceScopes()) > 0, "mediated_scopes": len(in.GetMediatedScopes()) > 0,
		}[f]
	})
	if err != nil {
		return nil, err
	}
	got, err := s.App.UpdateSettings(ctx, scope, in.GetEtag(), req.GetValidateOnly(), func(to *discovery.Settings) error {
		if has("organization_name") {
			to.OrganizationName = in.GetOrganizationName()
		}
		if has("conversations_enabled") {
			to.Conversations.Enabled = in.GetConversationsEnabled()
		}
		if has("conversations_resource") {
			to.Conversations.OwnResource = in.GetConversationsResource()
		}
		if has("apis") {
			to.APIs = nil
			for _, a := range in.GetApis() {
				to.APIs = append(to.APIs, apiFrom(a))
			}
		}
		if has("browser_session_endpoint") {
			to.BrowserSessionEndpoint = in.GetBrowserSessionEndpoint()
		}
		if has("browser_cookie") {
			to.BrowserCookie = nil
			if c := in.GetBrowserCookie(); c != nil {
				to.BrowserCookie = &discovery.BrowserCookie{Name: c.GetName(), Domain: c.GetDomain()}
			}
		}
		if has("custom_scopes") {
			to.CustomScopes = in.GetCustomScopes()
		}
		if has("mcp_registration") {
			to.MCPRegistration = in.GetMcpRegistration()
		}
		if has("direct_scopes") {
			to.Direct = signIn(in.GetDirectScopes())
		}
		if has("device_scopes") {
			to.Device = signIn(in.GetDeviceScopes())
		}
		if has("mediated_scopes") {
			to.Mediated = nil
			if s := in.GetMediatedScopes(); len(s) > 0 {
				to.Mediated = &discovery.Mediated{Scopes: s} // its fields are the connection's
			}
		}
		if has("required_extensions") {
			to.RequiredExtensions = in.GetRequiredExtensions()
		}
		if has("extensions") {
			var err error
			to.Extensions, err = extensions(in.GetExtensions())
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return settings(scope, got)
}

// signIn is a type of sign-in that grants scopes; nil without any.
func signIn(scopes []string) *discovery.SignIn {
	if len(scopes) == 0 {
		return nil
	}
	return &discovery.SignIn{Scopes: scopes}
}

// extensions joins each entry's version with its further members.
func extensions(in map[string]*adminv1.Extension) (map[string]json.RawMessage, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make(map[string]json.RawMessage, len(in))
	for name, e := range in {
		members := map[string]json.RawMessage{}
		if e.GetFieldsJson() != "" {
			if err := json.Unmarshal([]byte(e.GetFieldsJson()), &members); err != nil || members == nil {
				return nil, resource.Invalid("discovery_settings.extensions."+name+".fields_json", "must be a JSON object")
			}
		}
		version, err := json.Marshal(e.GetVersion())
		if err != nil {
			return nil, err
		}
		members["version"] = version
		if out[name], err = json.Marshal(members); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// GetLimits implements the service.
func (s *Companies) GetLimits(ctx context.Context, req *adminv1.GetLimitsRequest) (*adminv1.Limits, error) {
	scope, err := scopeOf(ctx, req.GetName(), "limits")
	if err != nil {
		return nil, err
	}
	got, err := s.App.Company(ctx, scope)
	if err != nil {
		return nil, err
	}
	return s.limits(scope, got), nil
}

// UpdateLimits implements the service.
func (s *Companies) UpdateLimits(ctx context.Context, req *adminv1.UpdateLimitsRequest) (*adminv1.Limits, error) {
	in := req.GetLimits()
	scope, err := scopeOf(ctx, in.GetName(), "limits")
	if err != nil {
		return nil, err
	}
	durations := map[string]*durationpb.Duration{
		"session_token_lifetime": in.GetSessionTokenLifetime(), "session_idle_lifetime": in.GetSessionIdleLifetime(), "event_retention": in.GetEventRetention(),
		"conversation_idle_lifetime": in.GetConversationIdleLifetime(), "answer_deadline": in.GetAnswerDeadline(),
	}
	numbers := map[string]int32{"session_starts_per_minute": in.GetSessionStartsPerMinute(), "requests_per_minute": in.GetRequestsPerMinute()}
	var fields []string
	for f, d := range durations {
		if d != nil && !d.IsValid() || d.AsDuration() < 0 {
			return nil, resource.Invalid("limits."+f, "must be a positive duration")
		}
		fields = append(fields, f)
	}
	for f := range numbers {
		fields = append(fields, f)
	}
	slices.Sort(fields)
	has, err := resource.Mask(req.GetUpdateMask(), fields, func(f string) bool { return durations[f] != nil || numbers[f] != 0 })
	if err != nil {
		return nil, err
	}
	got, err := s.App.UpdateLimits(ctx, scope, in.GetEtag(), func(to *app.Limits) error {
		set := func(f string, v *time.Duration) {
			if has(f) {
				*v = durations[f].AsDuration()
			}
		}
		set("session_token_lifetime", &to.SessionTokenLifetime)
		set("session_idle_lifetime", &to.SessionIdleLifetime)
		set("event_retention", &to.EventRetention)
		set("conversation_idle_lifetime", &to.ConversationIdleLifetime)
		set("answer_deadline", &to.AnswerDeadline)
		if has("session_starts_per_minute") {
			to.SessionStartsPerMinute = int(numbers["session_starts_per_minute"])
		}
		if has("requests_per_minute") {
			to.RequestsPerMinute = int(numbers["requests_per_minute"])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.limits(scope, got), nil
}

// scopeOf returns the call's scope once name is found to be of it.
func scopeOf(ctx context.Context, name string, kinds ...string) (tenancy.Scope, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return tenancy.Scope{}, err
	}
	_, err = resource.Child(scope, name, kinds...)
	return scope, err
}

func stamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil || t.IsZero() {
		return nil
	}
	return timestamppb.New(*t)
}

func company(c app.Company) *adminv1.Company {
	if c.ID == "" {
		return nil
	}
	kind := adminv1.CompanyKind_COMPANY_KIND_LIVE
	if c.Kind == "test" {
		kind = adminv1.CompanyKind_COMPANY_KIND_TEST
	}
	state := map[string]adminv1.CompanyState{
		app.SettingUp: adminv1.CompanyState_COMPANY_STATE_SETTING_UP, app.Active: adminv1.CompanyState_COMPANY_STATE_ACTIVE, app.Disabled: adminv1.CompanyState_COMPANY_STATE_DISABLED,
	}[c.State]
	return &adminv1.Company{
		Name: "companies/" + c.ID, Uid: c.ID, Organization: c.Organization, Slug: c.Slug, DisplayName: c.DisplayName, Kind: kind, State: state,
		Issuer: c.Issuer.String(), PublishTime: stamp(c.PublishedAt), CreateTime: stamp(&c.CreatedAt), UpdateTime: stamp(&c.UpdatedAt),
		Etag: resource.ETag(c.Version), Creator: c.Creator,
	}
}

func settings(scope tenancy.Scope, c app.Company) (*adminv1.DiscoverySettings, error) {
	out := &adminv1.DiscoverySettings{
		Name: scope.Name() + "/discoverySettings", OrganizationName: c.Settings.OrganizationName,
		ConversationsEnabled: c.Settings.Conversations.Enabled, ConversationsResource: c.Settings.Conversations.OwnResource,
		BrowserSessionEndpoint: c.Settings.BrowserSessionEndpoint, CustomScopes: c.Settings.CustomScopes, RequiredExtensions: c.Settings.RequiredExtensions,
		McpRegistration: c.Settings.MCPRegistration, UpdateTime: stamp(&c.SettingsAt), Etag: resource.ETag(c.Version),
	}
	if b := c.Settings.BrowserCookie; b != nil {
		out.BrowserCookie = &adminv1.BrowserCookie{Name: b.Name, Domain: b.Domain}
	}
	if s := c.Settings.Direct; s != nil {
		out.DirectScopes = s.Scopes
	}
	if s := c.Settings.Device; s != nil {
		out.DeviceScopes = s.Scopes
	}
	if s := c.Settings.Mediated; s != nil {
		out.MediatedScopes = s.Scopes
	}
	for _, a := range c.Settings.APIs {
		out.Apis = append(out.Apis, apiOf(a))
	}
	for name, raw := range c.Settings.Extensions {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return nil, err
		}
		e := &adminv1.Extension{}
		if err := json.Unmarshal(members["version"], &e.Version); err != nil {
			return nil, err
		}
		delete(members, "version")
		if len(members) > 0 {
			fields, err := json.Marshal(members)
			if err != nil {
				return nil, err
			}
			e.FieldsJson = string(fields)
		}
		if out.Extensions == nil {
			out.Extensions = map[string]*adminv1.Extension{}
		}
		out.Extensions[name] = e
	}
	return out, nil
}

func (s *Companies) limits(scope tenancy.Scope, c app.Company) *adminv1.Limits {
	l := s.App.Bounds().InForce(c.Limits)
	return &adminv1.Limits{
		Name: scope.Name() + "/limits", SessionTokenLifetime: durationpb.New(l.SessionTokenLifetime), SessionIdleLifetime: durationpb.New(l.SessionIdleLifetime),
		EventRetention: durationpb.New(l.EventRetention), ConversationIdleLifetime: durationpb.New(l.ConversationIdleLifetime),
		AnswerDeadline: durationpb.New(l.AnswerDeadline), SessionStartsPerMinute: int32(l.SessionStartsPerMinute), RequestsPerMinute: int32(l.RequestsPerMinute),
		UpdateTime: stamp(&c.LimitsAt), Etag: resource.ETag(c.Version),
	}
}
