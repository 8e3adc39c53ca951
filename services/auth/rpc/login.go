package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/signin"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

const loginRequests = "loginRequests"

// Companies finds the Company of a caller.
type Companies interface {
	Get(ctx context.Context, scope tenancy.Scope) (*directory.Company, error)
}

// RegisterLogins puts admin.v1.LoginService on r.
func RegisterLogins(r grpc.ServiceRegistrar, a *signin.App, companies Companies) {
	adminv1.RegisterLoginServiceServer(r, &loginServer{app: a, companies: companies})
}

type loginServer struct {
	adminv1.UnimplementedLoginServiceServer
	app       *signin.App
	companies Companies
}

// GetLoginRequest implements adminv1.LoginServiceServer.
func (s *loginServer) GetLoginRequest(ctx context.Context, r *adminv1.GetLoginRequestRequest) (*adminv1.LoginRequest, error) {
	company, challenge, err := s.challenge(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	found, err := s.app.LoginRequest(ctx, company, challenge)
	if err != nil {
		return nil, err
	}
	return loginRequestOf(r.GetName(), found), nil
}

// AcceptLoginRequest implements adminv1.LoginServiceServer.
func (s *loginServer) AcceptLoginRequest(ctx context.Context, r *adminv1.AcceptLoginRequestRequest) (*adminv1.AcceptLoginRequestResponse, error) {
	company, challenge, err := s.challenge(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	back, err := s.app.AcceptLogin(ctx, company, challenge, connect.Account{ID: r.GetAccount(), Label: r.GetAccountLabel()})
	if err != nil {
		return nil, err
	}
	return &adminv1.AcceptLoginRequestResponse{RedirectTo: back}, nil
}

// RejectLoginRequest implements adminv1.LoginServiceServer.
func (s *loginServer) RejectLoginRequest(ctx context.Context, r *adminv1.RejectLoginRequestRequest) (*adminv1.RejectLoginRequestResponse, error) {
	company, challenge, err := s.challenge(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	back, err := s.app.RejectLogin(ctx, company, challenge)
	if err != nil {
		return nil, err
	}
	return &adminv1.RejectLoginRequestResponse{RedirectTo: back}, nil
}

// CreateConnectedAgentsLink implements adminv1.LoginServiceServer.
func (s *loginServer) CreateConnectedAgentsLink(ctx context.Context, r *adminv1.CreateConnectedAgentsLinkRequest) (*adminv1.ConnectedAgentsLink, error) {
	company, err := s.company(ctx)
	if err != nil {
		return nil, err
	}
	if r.GetParent() != company.Scope.Name() {
		return nil, resource.NotFound()
	}
	url, expires, err := s.app.LinkURL(company, signin.Link{Account: r.GetAccount(), Embed: r.GetEmbed(), Locale: r.GetUiLocale()})
	if err != nil {
		return nil, err
	}
	return &adminv1.ConnectedAgentsLink{Url: url, ExpireTime: timestamppb.New(expires)}, nil
}

func (s *loginServer) company(ctx context.Context) (*directory.Company, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	return s.companies.Get(ctx, scope)
}

// challenge takes the name of a login request apart.
func (s *loginServer) challenge(ctx context.Context, name string) (*directory.Company, string, error) {
	company, err := s.company(ctx)
	if err != nil {
		return nil, "", err
	}
	challenge, err := resource.ChildID(company.Scope, name, loginRequests)
	return company, challenge, err
}

func loginRequestOf(name string, s store.SignIn) *adminv1.LoginRequest {
	locale, _, _ := strings.Cut(s.UILocale, " ")
	return &adminv1.LoginRequest{
		Name: name, ClientId: s.ClientID, AgentName: s.AgentName, Scopes: strings.Fields(s.Scope), SignIn: string(s.Kind),
		UiLocale: locale, ExpireTime: timestamppb.New(s.ExpiresAt),
	}
}
