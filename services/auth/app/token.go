package app

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

// SignedOutScope is the rule that a signed-out token has no scope.
const SignedOutScope clause.ID = "poppy-0.1/4.2#59"

// Token answers a token request (Poppy 4.2, 4.5, 4.6 and 4.8, and 6 for plain clients). proofs are the values of
// the DPoP header field, method is the request's. The first failure decides the error,
// and nothing is used up before everything else has passed.
func (a *App) Token(ctx context.Context, company *directory.Company, f oauth.Form, method string, proofs []string) (*sessionsv1.IssuedTokens, error) {
	ctx = tenancy.Into(ctx, company.Scope)
	if isPlain(company, f) {
		return a.plain(ctx, company, f, proofs)
	}
	endpoint := company.Issuer.TokenEndpoint()
	c, err := a.authenticate(ctx, company, f, endpoint)
	if err != nil {
		return nil, err
	}
	if err := checkOffered(company.SignIn, f.Get("grant_type")); err != nil {
		return nil, err
	}
	request, err := oauth.ParseTokenRequest(f)
	if err != nil {
		return nil, err
	}
	proof := &sessionsv1.ProofOfRequest{Proofs: proofs, Method: method, Url: endpoint}
	if request.Grant == oauth.GrantJWTBearer {
		return a.open(ctx, c, request, proof)
	}
	return a.exchange(ctx, c, request, proof)
}

// open starts or renews a Session with a Session assertion (Poppy 4.2).
func (a *App) open(ctx context.Context, c client, request oauth.TokenRequest, proof *sessionsv1.ProofOfRequest) (*sessionsv1.IssuedTokens, error) {
	if err := oauth.CheckDistinctAssertions(c.assertion, request.Assertion); err != nil {
		return nil, err
	}
	session, err := withKeys(ctx, a, &c, func(keys jose.KeySet) (oauth.SessionAssertion, error) {
		return oauth.CheckSessionAssertion(request.Assertion, keys, c.id, proof.GetUrl(), a.Now())
	})
	if err != nil {
		return nil, err
	}
	if len(request.Scope) > 0 {
		return nil, problem.New(problem.Invalid, problem.InvalidScope, SignedOutScope, "a signed-out Session Token has no scope; sign in first")
	}
	opened, err := a.Sessions.OpenSession(ctx, &sessionsv1.OpenSessionRequest{
		ClientId: c.id, AgentName: c.agent.Document.Name, UserId: session.UserID(), SessionId: request.SessionID, Resource: request.Resource,
		Proof: proof, Extensions: c.extensions(),
		Once: []*sessionsv1.OnceKey{c.once, {
			Kind: replay.KindSessionAssertion, Owner: session.ClientID(), Jti: session.JTI(),
			IssueTime: timestamppb.New(session.IssuedAt()), Until: timestamppb.New(session.ReplayUntil()),
		}},
	})
	return opened.GetTokens(), err
}

// exchange trades what a sign-in gave for tokens (Poppy 4.5, 4.6 and 4.8).
func (a *App) exchange(ctx context.Context, c client, request oauth.TokenRequest, proof *sessionsv1.ProofOfRequest) (*sessionsv1.IssuedTokens, error) {
	ask := &sessionsv1.ExchangeRequest{
		ClientId: c.id, AgentName: c.agent.Document.Name, SessionId: request.SessionID, Resource: request.Resource,
		Proof: proof, Once: []*sessionsv1.OnceKey{c.once}, Extensions: c.extensions(),
	}
	switch request.Grant {
	case oauth.GrantAuthorizationCode:
		ask.Grant = &sessionsv1.ExchangeRequest_Code{Code: &sessionsv1.CodeGrant{
			Code: request.Code, RedirectUri: request.RedirectURI, CodeVerifier: request.CodeVerifier,
		}}
	case oauth.GrantDeviceCode:
		ask.Grant = &sessionsv1.ExchangeRequest_Device{Device: &sessionsv1.DeviceGrant{DeviceCode: request.DeviceCode}}
	case oauth.GrantRefreshToken:
		ask.Grant = &sessionsv1.ExchangeRequest_AccountToken{AccountToken: &sessionsv1.AccountTokenGrant{
			Token: request.RefreshToken, Scope: request.Scope.String(),
		}}
	case oauth.GrantJWTBearer: // starts Sessions, see open
	}
	exchanged, err := a.SignIns.Exchange(ctx, ask)
	return exchanged.GetTokens(), err
}

// checkOffered refuses grants that this Company doesn't offer before asking for their
// parameters. Those outside the protocol are left to whoever reads the request.
func checkOffered(s *directory.SignIn, grant string) error {
	var offered bool
	switch oauth.GrantType(grant) {
	case oauth.GrantAuthorizationCode:
		offered = s.Offers(directory.Direct)
	case oauth.GrantDeviceCode:
		offered = s.Offers(directory.Device)
	case oauth.GrantRefreshToken:
		offered = s != nil && s.Any()
	default:
		return nil
	}
	if !offered {
		return problem.New(problem.Invalid, problem.UnsupportedGrantType, oauth.GrantOffered, "this Company does not offer the grant_type")
	}
	return nil
}
