package app

import (
	"context"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/agents"
)

// OnlyBearer is the rule that MCP's tokens are Bearer tokens.
const OnlyBearer clause.ID = "poppy-0.1/6#6"

// Clients finds agents and plain clients, whose documents are Public, and notes that one
// got a token.
type Clients interface {
	Find(ctx context.Context, company *directory.Company, clientID string) (agents.Agent, error)
	Used(ctx context.Context, company *directory.Company, clientID string) error
}

// isPlain reports whether a token request may be a plain client's: without any kind of
// authentication, and with what only a sign-in gives.
func isPlain(company *directory.Company, f oauth.Form) bool {
	if len(company.MCPURLs) == 0 || !f.Has("client_id") || f.Has("client_assertion") || f.Has("client_assertion_type") || f.Has("client_secret") {
		return false
	}
	grant := oauth.GrantType(f.Get("grant_type"))
	return grant == oauth.GrantAuthorizationCode || grant == oauth.GrantRefreshToken
}

// plain answers a client that knows nothing of Poppy and can't authenticate (Poppy 6).
func (a *App) plain(ctx context.Context, company *directory.Company, f oauth.Form, proofs []string) (*sessionsv1.IssuedTokens, error) {
	clientID := f.Get("client_id")
	found, err := a.Clients.Find(ctx, company, clientID)
	if err != nil {
		return nil, oursFirst(err)
	}
	if !found.Document.Public { // an agent that left its assertion out
		_, err := f.ClientCredentials()
		return nil, err
	}
	if err := checkOffered(company.SignIn, f.Get("grant_type")); err != nil {
		return nil, err
	}
	request, err := oauth.ParsePlainTokenRequest(f)
	if err != nil {
		return nil, err
	}
	if len(proofs) > 0 {
		return nil, problem.New(problem.Invalid, problem.InvalidRequest, OnlyBearer, "this client gets Bearer tokens alone; leave the DPoP header out")
	}
	ask := &sessionsv1.ExchangePlainRequest{ClientId: clientID, ClientName: found.Document.Name, Resource: request.Resource}
	if request.Grant == oauth.GrantAuthorizationCode {
		ask.Grant = &sessionsv1.ExchangePlainRequest_Code{Code: &sessionsv1.CodeGrant{
			Code: request.Code, RedirectUri: request.RedirectURI, CodeVerifier: request.CodeVerifier,
		}}
	} else {
		ask.Grant = &sessionsv1.ExchangePlainRequest_RefreshToken{RefreshToken: &sessionsv1.AccountTokenGrant{
			Token: request.RefreshToken, Scope: request.Scope.String(),
		}}
	}
	issued, err := a.SignIns.ExchangePlain(ctx, ask)
	if err != nil {
		return nil, err
	}
	return issued.GetTokens(), a.Clients.Used(ctx, company, clientID)
}
