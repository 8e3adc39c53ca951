package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// Domains implements adminv1.DomainServiceServer.
type Domains struct {
	adminv1.UnimplementedDomainServiceServer
	App *app.App
	Now clock.Clock
}

// CreateDomain implements the service.
func (s *Domains) CreateDomain(ctx context.Context, req *adminv1.CreateDomainRequest) (*adminv1.Domain, error) {
	scope, err := scopeOf(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	got, err := s.App.CreateDomain(ctx, scope, req.GetDomain().GetDomain(), req.GetValidateOnly())
	return s.domain(ctx, scope, got, err)
}

// GetDomain implements the service.
func (s *Domains) GetDomain(ctx context.Context, req *adminv1.GetDomainRequest) (*adminv1.Domain, error) {
	scope, id, err := domainName(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	got, err := s.App.Domain(ctx, scope, id)
	return s.domain(ctx, scope, got, err)
}

// ListDomains implements the service.
func (s *Domains) ListDomains(ctx context.Context, req *adminv1.ListDomainsRequest) (*adminv1.ListDomainsResponse, error) {
	scope, err := scopeOf(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	key := scope.Name() + "/domains"
	after, err := resource.After(s.Now(), req.GetPageToken(), 1, key)
	if err != nil {
		return nil, err
	}
	from := ""
	if after != nil {
		from = after[0]
	}
	n := resource.Size(req.GetPageSize())
	got, err := s.App.ListDomains(ctx, scope, from, n+1)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListDomainsResponse{}
	if len(got) > n {
		got = got[:n]
		out.NextPageToken = resource.Token(s.Now(), []string{got[n-1].Domain.String()}, key)
	}
	c, err := s.App.Company(ctx, scope)
	if err != nil {
		return nil, err
	}
	for _, d := range got {
		out.Domains = append(out.Domains, domain(c, d))
	}
	return out, nil
}

// CheckDomain implements the service.
func (s *Domains) CheckDomain(ctx context.Context, req *adminv1.CheckDomainRequest) (*adminv1.Domain, error) {
	scope, id, err := domainName(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	got, err := s.App.CheckDomain(ctx, scope, id)
	return s.domain(ctx, scope, got, err)
}

// DeleteDomain implements the service.
func (s *Domains) DeleteDomain(ctx context.Context, req *adminv1.DeleteDomainRequest) (*emptypb.Empty, error) {
	scope, id, err := domainName(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, s.App.DeleteDomain(ctx, scope, id)
}

func domainName(ctx context.Context, name string) (tenancy.Scope, string, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return tenancy.Scope{}, "", err
	}
	id, err := resource.ChildID(scope, name, "domains")
	return scope, id, err
}

func (s *Domains) domain(ctx context.Context, scope tenancy.Scope, d app.Domain, err error) (*adminv1.Domain, error) {
	if err != nil {
		return nil, err
	}
	c, err := s.App.Company(ctx, scope)
	if err != nil {
		return nil, err
	}
	return domain(c, d), nil
}

var proofMethods = map[string]adminv1.ProofMethod{
	app.DNSTXT: adminv1.ProofMethod_PROOF_METHOD_DNS_TXT, app.Redirect: adminv1.ProofMethod_PROOF_METHOD_REDIRECT,
}

func domain(c app.Company, d app.Domain) *adminv1.Domain {
	out := &adminv1.Domain{
		Name: "companies/" + c.ID + "/domains/" + d.ID, Uid: d.ID, Domain: d.Domain.String(),
		State: map[string]adminv1.DomainState{
			app.Pending: adminv1.DomainState_DOMAIN_STATE_PENDING, app.Verified: adminv1.DomainState_DOMAIN_STATE_VERIFIED, app.Taken: adminv1.DomainState_DOMAIN_STATE_TAKEN,
		}[d.State],
		TxtName: app.TXTName(d.Domain), TxtValue: d.TXTValue(), RedirectTarget: c.Issuer.DocumentURL(d.Domain),
		ProofMethod: proofMethods[d.ProofMethod], VerifyTime: stamp(d.VerifiedAt), CheckTime: stamp(d.CheckedAt),
		CreateTime: stamp(&d.CreatedAt), UpdateTime: stamp(&d.UpdatedAt), Etag: resource.ETag(d.Version),
	}
	for _, o := range d.Observations {
		out.Observations = append(out.Observations, &adminv1.DomainObservation{Method: proofMethods[o.Method], Ok: o.OK, Expected: o.Expected, Seen: o.Seen, Detail: o.Detail})
	}
	return out
}
