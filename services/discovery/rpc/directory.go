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
	got, err := s.App.CompaniesOnHost(ctx, req.GetHost())
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
	c, err := s.App.Company(ctx, scope)
	if err != nil {
		return nil, err
	}
	return s.snapshot(c)
}

func (s *Directory) snapshot(c app.Company) (*directoryv1.CompanySnapshot, error) {
	settings := c.Settings
	if settings.OrganizationName == "" {
		settings.OrganizationName = c.DisplayName
	}
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
		Version: c.Version,
	}
	if settings.Conversations.OwnResource {
		out.ConversationsResource = c.Issuer.ConversationsEndpoint()
	}
	for name := range settings.CustomScopes {
		out.CustomScopes = append(out.CustomScopes, name)
	}
	return out, nil
}
