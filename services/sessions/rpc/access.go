package rpc

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/refusal"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/sessions/app"
	"github.com/poppyfield/poppyfield/services/sessions/watch"
)

type accessServer struct {
	adminv1.UnimplementedAccessServiceServer
	app *app.App
	hub *watch.Hub
}

// VerifyRequest implements adminv1.AccessServiceServer.
func (s *accessServer) VerifyRequest(ctx context.Context, r *adminv1.VerifyRequestRequest) (*adminv1.VerifyRequestResponse, error) {
	scope, err := scopeOf(ctx, r.GetParent())
	if err != nil {
		return nil, err
	}
	target, err := s.app.Target(ctx, scope, r.GetMethod(), r.GetUrl())
	if err != nil {
		return nil, err
	}
	if err := s.app.Ask(scope); err != nil {
		return nil, err
	}
	c, err := s.app.Check(ctx, scope, target, values(r.GetHeaders(), "Authorization"), app.Proof{Values: values(r.GetHeaders(), "DPoP"), Method: r.GetMethod()})
	out := &adminv1.VerifyRequestResponse{Allowed: err == nil, Api: target.API.URL}
	if c.SessionID != "" {
		out.Session = agentSessionOf(scope, c)
	}
	if err != nil {
		return out, refuse(out, err, target.API)
	}
	if c.Nonce != "" {
		out.Headers = []*adminv1.HeaderField{{Name: httpx.HeaderDPoPNonce, Value: c.Nonce}}
	}
	return out, nil
}

// refuse says how the agent is refused. What is nobody's fault but ours is an error: then
// the Company doesn't know what to answer, and must not serve the request.
func refuse(out *adminv1.VerifyRequestResponse, err error, api *access.API) error {
	e := problem.As(err)
	switch e.Kind {
	case problem.Internal, problem.Unavailable, problem.NotFound:
		return err
	case problem.Invalid, problem.Unauthenticated, problem.Forbidden, problem.Conflict, problem.Gone, problem.TooLarge, problem.RateLimited:
	}
	place := refusal.PlaceOf(api.MCP)
	answer := refusal.OAuth(err, place, "")
	out.Status, out.Body, out.Reason = int32(answer.Status), string(answer.Body), e.Reason.Wire()
	for name, values := range answer.Header {
		for _, v := range values {
			out.Headers = append(out.Headers, &adminv1.HeaderField{Name: name, Value: v})
		}
	}
	slices.SortFunc(out.Headers, func(a, b *adminv1.HeaderField) int { return strings.Compare(a.GetName(), b.GetName()) })
	return nil
}

// IntrospectToken implements adminv1.AccessServiceServer.
func (s *accessServer) IntrospectToken(ctx context.Context, r *adminv1.IntrospectTokenRequest) (*adminv1.IntrospectTokenResponse, error) {
	scope, err := scopeOf(ctx, r.GetParent())
	if err != nil {
		return nil, err
	}
	if err := s.app.Ask(scope); err != nil {
		return nil, err
	}
	in, ok, err := s.app.Introspect(ctx, scope, r.GetToken())
	if err != nil || !ok {
		return &adminv1.IntrospectTokenResponse{}, err
	}
	out := &adminv1.IntrospectTokenResponse{
		Active: true, Session: agentSessionOf(scope, in.Caller), TokenType: string(in.Scheme()), Jkt: in.JKT, Resource: in.Resource,
		IssueTime: timestamppb.New(in.IssuedAt), Issuer: in.Issuer, KeepFor: durationpb.New(in.KeepFor),
	}
	return out, nil
}

// cacheSeconds is how long requests of one page may share the answer about their browser.
const cacheSeconds = 1

// CheckBrowserSession implements adminv1.AccessServiceServer.
func (s *accessServer) CheckBrowserSession(ctx context.Context, r *adminv1.CheckBrowserSessionRequest) (*adminv1.CheckBrowserSessionResponse, error) {
	scope, err := scopeOf(ctx, r.GetParent())
	if err != nil {
		return nil, err
	}
	name, err := s.app.CookieName(ctx, scope)
	if err != nil {
		return nil, err
	}
	var cookies []string
	switch v := r.GetVisitor().(type) {
	case *adminv1.CheckBrowserSessionRequest_Cookie:
		cookies = []string{v.Cookie}
	case *adminv1.CheckBrowserSessionRequest_CookieHeader:
		cookies = cookiesNamed(name, v.CookieHeader)
	}
	out := &adminv1.CheckBrowserSessionResponse{CacheSeconds: cacheSeconds}
	c, ok, err := s.app.Visit(ctx, scope, cookies)
	if err != nil {
		return nil, err
	}
	if ok {
		out.Found, out.Session = true, agentSessionOf(scope, c)
	}
	return out, nil
}

// cookiesNamed returns the values that a Cookie header field has for name (RFC 6265 5.4).
func cookiesNamed(name, header string) []string {
	var out []string
	for _, c := range (&http.Request{Header: http.Header{"Cookie": {header}}}).CookiesNamed(name) {
		if c.Value != "" {
			out = append(out, c.Value)
		}
	}
	return out
}

// values returns the values of a header field, whose name has no case.
func values(headers []*adminv1.HeaderField, name string) []string {
	var out []string
	for _, h := range headers {
		if strings.EqualFold(h.GetName(), name) {
			out = append(out, h.GetValue())
		}
	}
	return out
}

func scopeOf(ctx context.Context, parent string) (tenancy.Scope, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return tenancy.Scope{}, err
	}
	return scope, checkParent(scope, parent)
}

func agentSessionOf(scope tenancy.Scope, c app.Caller) *adminv1.AgentSession {
	return &adminv1.AgentSession{
		Session: scope.Name() + "/" + sessionsPrefix + c.SessionID, ClientId: c.ClientID, AgentName: c.AgentName, User: c.UserID,
		SignedIn: c.SignedIn, Account: c.Account, Scopes: c.Scopes, ExpireTime: timestamppb.New(c.ExpiresAt),
	}
}
