package rpc

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/sessions/app"
)

type signInsServer struct {
	sessionsv1.UnimplementedSignInsServiceServer
	app *app.App
}

// CheckAgent implements sessionsv1.SignInsServiceServer.
func (s *signInsServer) CheckAgent(ctx context.Context, r *sessionsv1.CheckAgentRequest) (*sessionsv1.CheckAgentResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	return &sessionsv1.CheckAgentResponse{}, s.app.CheckAgent(ctx, scope, r.GetClientId())
}

// IssueCode implements sessionsv1.SignInsServiceServer.
func (s *signInsServer) IssueCode(ctx context.Context, r *sessionsv1.IssueCodeRequest) (*sessionsv1.IssueCodeResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	code, err := s.app.IssueCode(ctx, scope, app.Approved{
		ClientID: r.GetClientId(), AgentName: r.GetAgentName(), RedirectURI: r.GetRedirectUri(), Challenge: r.GetCodeChallenge(),
		Scope: r.GetScope(), Account: accountOf(r.GetAccount()), Resource: r.GetResource(),
	})
	if err != nil {
		return nil, err
	}
	return &sessionsv1.IssueCodeResponse{Code: code}, nil
}

// StartDevice implements sessionsv1.SignInsServiceServer.
func (s *signInsServer) StartDevice(ctx context.Context, r *sessionsv1.StartDeviceRequest) (*sessionsv1.StartDeviceResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	d, err := s.app.StartDevice(ctx, scope, app.DeviceStart{
		ClientID: r.GetClientId(), AgentName: r.GetAgentName(), Scope: r.GetScope(), Once: onceOf(r.GetOnce()),
	})
	if err != nil {
		return nil, err
	}
	return &sessionsv1.StartDeviceResponse{
		DeviceCode: d.DeviceCode, UserCode: d.UserCode, ExpiresIn: durationpb.New(d.Lifetime), Interval: durationpb.New(d.Interval),
	}, nil
}

// FindDevice implements sessionsv1.SignInsServiceServer.
func (s *signInsServer) FindDevice(ctx context.Context, r *sessionsv1.FindDeviceRequest) (*sessionsv1.FindDeviceResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	d, code, err := s.app.FindDevice(ctx, scope, r.GetUserCode())
	if err != nil {
		return nil, err
	}
	return &sessionsv1.FindDeviceResponse{
		DeviceId: d.Hash, ClientId: d.ClientID, AgentName: d.AgentName, Scope: d.Scope, ExpireTime: timeOf(d.ExpiresAt), UserCode: code,
	}, nil
}

// DecideDevice implements sessionsv1.SignInsServiceServer.
func (s *signInsServer) DecideDevice(ctx context.Context, r *sessionsv1.DecideDeviceRequest) (*sessionsv1.DecideDeviceResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	return &sessionsv1.DecideDeviceResponse{}, s.app.DecideDevice(ctx, scope, r.GetDeviceId(), r.GetApprovedScope(), accountOf(r.GetAccount()))
}

// Exchange implements sessionsv1.SignInsServiceServer.
func (s *signInsServer) Exchange(ctx context.Context, r *sessionsv1.ExchangeRequest) (*sessionsv1.ExchangeResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	i, err := s.exchange(ctx, scope, r)
	if err != nil {
		return nil, err
	}
	return &sessionsv1.ExchangeResponse{Tokens: tokensOf(i)}, nil
}

func (s *signInsServer) exchange(ctx context.Context, scope tenancy.Scope, r *sessionsv1.ExchangeRequest) (app.Issued, error) {
	request := app.Request{
		ClientID: r.GetClientId(), AgentName: r.GetAgentName(), SessionID: r.GetSessionId(),
		Proof: proofOf(r.GetProof()), Resource: r.GetResource(), Once: onceOf(r.GetOnce()), Extensions: r.GetExtensions(),
	}
	switch g := r.GetGrant().(type) {
	case *sessionsv1.ExchangeRequest_Code:
		return s.app.ExchangeCode(ctx, scope, request, app.CodeGrant{
			Code: g.Code.GetCode(), RedirectURI: g.Code.GetRedirectUri(), Verifier: g.Code.GetCodeVerifier(),
		})
	case *sessionsv1.ExchangeRequest_Device:
		return s.app.ExchangeDevice(ctx, scope, request, g.Device.GetDeviceCode())
	case *sessionsv1.ExchangeRequest_AccountToken:
		return s.app.Refresh(ctx, scope, request, app.AccountTokenGrant{Token: g.AccountToken.GetToken(), Scope: g.AccountToken.GetScope()})
	}
	return app.Issued{}, problem.As(errors.New("exchange without a grant"))
}

// ExchangePlain implements sessionsv1.SignInsServiceServer.
func (s *signInsServer) ExchangePlain(ctx context.Context, r *sessionsv1.ExchangePlainRequest) (*sessionsv1.ExchangePlainResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	request := app.Plain{ClientID: r.GetClientId(), ClientName: r.GetClientName(), Resource: r.GetResource()}
	var i app.Issued
	switch g := r.GetGrant().(type) {
	case *sessionsv1.ExchangePlainRequest_Code:
		i, err = s.app.ExchangePlainCode(ctx, scope, request, app.CodeGrant{
			Code: g.Code.GetCode(), RedirectURI: g.Code.GetRedirectUri(), Verifier: g.Code.GetCodeVerifier(),
		})
	case *sessionsv1.ExchangePlainRequest_RefreshToken:
		i, err = s.app.RefreshPlain(ctx, scope, request, app.AccountTokenGrant{Token: g.RefreshToken.GetToken(), Scope: g.RefreshToken.GetScope()})
	default:
		err = problem.As(errors.New("exchange without a grant"))
	}
	if err != nil {
		return nil, err
	}
	return &sessionsv1.ExchangePlainResponse{Tokens: tokensOf(i)}, nil
}

// SignIn implements sessionsv1.SignInsServiceServer.
func (s *signInsServer) SignIn(ctx context.Context, r *sessionsv1.SignInRequest) (*sessionsv1.SignInResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	i, err := s.app.SignIn(ctx, scope, app.Mediated{
		SessionID: r.GetSessionId(), ClientID: r.GetClientId(), JKT: r.GetJkt(), Scope: r.GetScope(), Account: accountOf(r.GetAccount()),
	})
	if err != nil {
		return nil, err
	}
	return &sessionsv1.SignInResponse{Tokens: tokensOf(i)}, nil
}

func accountOf(a *sessionsv1.Account) app.Account {
	return app.Account{ID: a.GetId(), Label: a.GetLabel()}
}
