// Package rpc translates between gRPC and the use cases of Sessions. It decides
// nothing but whether a resource name is of the caller's Company.
package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/sessions/app"
	"github.com/poppyfield/poppyfield/services/sessions/watch"
)

// Register puts the gRPC services of Sessions on r.
func Register(r grpc.ServiceRegistrar, a *app.App, hub *watch.Hub) {
	sessionsv1.RegisterSessionsServiceServer(r, &sessionsServer{app: a})
	sessionsv1.RegisterSignInsServiceServer(r, &signInsServer{app: a})
	sessionsv1.RegisterConnectionsServiceServer(r, &connectionsServer{app: a})
	adminv1.RegisterAdmissionServiceServer(r, &admissionServer{app: a})
	adminv1.RegisterSessionServiceServer(r, &sessionServer{app: a})
	adminv1.RegisterAccessServiceServer(r, &accessServer{app: a, hub: hub})
	adminv1.RegisterConnectedAgentServiceServer(r, &connectedAgentServer{app: a})
}

type sessionsServer struct {
	sessionsv1.UnimplementedSessionsServiceServer
	app *app.App
}

// OpenSession implements sessionsv1.SessionsServiceServer.
func (s *sessionsServer) OpenSession(ctx context.Context, r *sessionsv1.OpenSessionRequest) (*sessionsv1.OpenSessionResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	i, err := s.app.Open(ctx, scope, app.Opening{UserID: r.GetUserId(), Request: app.Request{
		ClientID: r.GetClientId(), AgentName: r.GetAgentName(), SessionID: r.GetSessionId(),
		Proof: proofOf(r.GetProof()), Resource: r.GetResource(), Once: onceOf(r.GetOnce()), Extensions: r.GetExtensions(),
	}})
	if err != nil {
		return nil, err
	}
	return &sessionsv1.OpenSessionResponse{Tokens: tokensOf(i)}, nil
}

func tokensOf(i app.Issued) *sessionsv1.IssuedTokens {
	out := &sessionsv1.IssuedTokens{
		AccessToken: i.Token, TokenType: string(i.Scheme), ExpiresIn: durationpb.New(i.Lifetime), SessionId: i.SessionID,
		Scope: i.Scope, SignedIn: i.SignedIn, DpopNonce: i.Nonce, Created: i.Created, RefreshToken: i.AccountToken,
	}
	if i.AccountTokenLifetime > 0 {
		out.RefreshTokenExpiresIn = durationpb.New(i.AccountTokenLifetime)
	}
	return out
}

// VerifyRequest implements sessionsv1.SessionsServiceServer.
func (s *sessionsServer) VerifyRequest(ctx context.Context, r *sessionsv1.VerifyRequestRequest) (*sessionsv1.VerifyRequestResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.app.Verify(ctx, scope, app.Use{Authorization: r.GetAuthorization(), Proof: proofOf(r.GetProof()), Resource: r.GetRequiredResource()})
	if err != nil {
		return nil, err
	}
	return &sessionsv1.VerifyRequestResponse{
		SessionId: c.SessionID, ClientId: c.ClientID, AgentName: c.AgentName, UserId: c.UserID, SignedIn: c.SignedIn,
		Account: c.Account, Scopes: c.Scopes, DpopNonce: c.Nonce, Jkt: c.JKT,
		ExpireTime: timestamppb.New(c.ExpiresAt), Extensions: c.Extensions,
	}, nil
}

// RevokeToken implements sessionsv1.SessionsServiceServer.
func (s *sessionsServer) RevokeToken(ctx context.Context, r *sessionsv1.RevokeTokenRequest) (*sessionsv1.RevokeTokenResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	return &sessionsv1.RevokeTokenResponse{}, s.app.Revoke(ctx, scope, r.GetClientId(), r.GetToken())
}

// ClaimOnce implements sessionsv1.SessionsServiceServer.
func (s *sessionsServer) ClaimOnce(ctx context.Context, r *sessionsv1.ClaimOnceRequest) (*sessionsv1.ClaimOnceResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	return &sessionsv1.ClaimOnceResponse{}, s.app.ClaimOnce(ctx, scope, onceOf(r.GetOnce()))
}

// JoinBrowser implements sessionsv1.SessionsServiceServer.
func (s *sessionsServer) JoinBrowser(ctx context.Context, r *sessionsv1.JoinBrowserRequest) (*sessionsv1.JoinBrowserResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	joined, err := s.app.JoinBrowser(ctx, scope, app.Joining{
		ClientID: r.GetClientId(), UserID: r.GetUserId(), SessionID: r.GetSessionId(), Once: onceOf([]*sessionsv1.OnceKey{r.GetOnce()})[0],
	})
	if err != nil {
		return nil, err
	}
	return &sessionsv1.JoinBrowserResponse{Cookie: joined.Cookie, ExpiresIn: durationpb.New(joined.Lifetime)}, nil
}

func proofOf(p *sessionsv1.ProofOfRequest) app.Proof {
	return app.Proof{Values: p.GetProofs(), Method: p.GetMethod(), URL: p.GetUrl()}
}

func onceOf(list []*sessionsv1.OnceKey) []app.Once {
	out := make([]app.Once, 0, len(list))
	for _, o := range list {
		out = append(out, app.Once{Kind: o.GetKind(), Owner: o.GetOwner(), JTI: o.GetJti(), IssuedAt: o.GetIssueTime().AsTime(), Until: o.GetUntil().AsTime()})
	}
	return out
}
