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

// Token answers a token request (Poppy 4.2). proofs are the values of the DPoP
// header field, method is the request's. The first failure decides the error, and
// nothing is used up before everything else has passed.
func (a *App) Token(ctx context.Context, company *directory.Company, f oauth.Form, method string, proofs []string) (*sessionsv1.IssuedTokens, error) {
	ctx = tenancy.Into(ctx, company.Scope)
	endpoint := company.Issuer.TokenEndpoint()
	c, err := a.authenticate(ctx, company, f, endpoint)
	if err != nil {
		return nil, err
	}
	if err := checkOffered(f.Get("grant_type")); err != nil {
		return nil, err
	}
	request, err := oauth.ParseTokenRequest(f)
	if err != nil {
		return nil, err
	}
	if err := oauth.CheckDistinctAssertions(c.assertion, request.Assertion); err != nil {
		return nil, err
	}
	session, err := withKeys(ctx, a, &c, func(keys jose.KeySet) (oauth.SessionAssertion, error) {
		return oauth.CheckSessionAssertion(request.Assertion, keys, c.id, endpoint, a.Now())
	})
	if err != nil {
		return nil, err
	}
	if len(request.Scope) > 0 {
		return nil, problem.New(problem.Invalid, problem.InvalidScope, SignedOutScope, "a signed-out Session Token has no scope; sign in first")
	}
	opened, err := a.Sessions.OpenSession(ctx, &sessionsv1.OpenSessionRequest{
		ClientId: c.id, AgentName: c.agent.Document.Name, UserId: session.UserID(), SessionId: request.SessionID, Resource: request.Resource,
		Proof: &sessionsv1.ProofOfRequest{Proofs: proofs, Method: method, Url: endpoint},
		Once: []*sessionsv1.OnceKey{c.once, {
			Kind: replay.KindSessionAssertion, Owner: session.ClientID(), Jti: session.JTI(),
			IssueTime: timestamppb.New(session.IssuedAt()), Until: timestamppb.New(session.ReplayUntil()),
		}},
	})
	return opened.GetTokens(), err
}

// checkOffered refuses grants that this Company doesn't offer before asking for
// their parameters: the sign-in types need a connection to the Company's accounts.
func checkOffered(grant string) error {
	if grant == "" || oauth.GrantType(grant) == oauth.GrantJWTBearer {
		return nil
	}
	return problem.New(problem.Invalid, problem.UnsupportedGrantType, oauth.GrantOffered, "this Company does not offer the grant_type")
}
