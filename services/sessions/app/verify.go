package app

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// The clauses of using a Session Token.
const (
	TokenKnown   clause.ID = "poppy-0.1/4.3#d44"
	RequestLimit clause.ID = "poppy-0.1/4.3#46"
)

// Use is a request that came with a Session Token, or should have.
type Use struct {
	Authorization []string // values of the header field, as they came
	Proof         Proof
	// Resource that the service insists on; empty where it takes a token for all services.
	Resource string
}

// Caller is the Session that a request acts in, as its token reflects it.
type Caller struct {
	SessionID, ClientID, AgentName, UserID string
	SignedIn                               bool
	Account                                string
	Scopes                                 []string
	JKT                                    string // thumbprint of the token's key, empty for a Bearer token
	Nonce                                  string
	// ExpiresAt is when the token does at the latest, or stops to be a signed-in one.
	ExpiresAt time.Time
	// Extensions are those that the agent's document listed when the Session last got a token.
	Extensions []string
}

// Verify judges a request that carries a Session Token (Poppy 4.3). Everything is
// read anew for each request. Where the Company wants nonces, errors carry one
// under problem.DPoPNonce once that is known.
func (a *App) Verify(ctx context.Context, scope tenancy.Scope, u Use) (Caller, error) {
	company, err := a.company(ctx, scope)
	if err != nil {
		return Caller{}, err
	}
	auth, err := oauth.ParseAuthorization(u.Authorization)
	if err != nil {
		return Caller{}, err
	}
	raw, _, err := dpop.ParseHeader(u.Proof.Values)
	if err != nil {
		return Caller{}, err
	}
	c, err := a.Store.Credential(ctx, scope, keys.HashToken(scope.CompanyID(), auth.Token))
	if err != nil {
		return Caller{}, err
	}
	now := a.Now()
	nonce := a.nonce(scope, c.Standing, now)
	if err := a.verify(ctx, company, c, auth, raw, u, now); err != nil {
		return Caller{}, withNonce(err, nonce)
	}
	if now.Sub(c.Session.LastUsedAt) >= touchEvery {
		a.touches.offer(touch{scope, c.Session.ID, now})
	}
	caller := callerOf(c, now)
	caller.Nonce = nonce
	return caller, nil
}

// callerOf is the Session as a token that was found good reflects it.
func callerOf(c store.Credential, now time.Time) Caller {
	caller := Caller{
		SessionID: c.Session.ID, ClientID: c.Session.ClientID, AgentName: c.Session.AgentName, UserID: c.Session.UserID,
		JKT: c.Token.JKT, ExpiresAt: c.Token.ExpiresAt, Extensions: c.Session.Extensions,
	}
	// A signed-out token stays so after the Session signs in, and a signed-in one lasts
	// no longer than the Grant it came from, whatever signs the Session in later (decision 13).
	if c.Token.SignedIn && c.Grant.InForce(now) {
		caller.signIn(c.Grant, strings.Fields(c.Token.Scope))
	}
	return caller
}

// signIn makes c signed in by g, for no longer than g lasts.
func (c *Caller) signIn(g *store.Grant, scopes []string) {
	c.SignedIn, c.Account, c.Scopes = true, g.Account, scopes
	if end := g.ExpiresAt; !end.IsZero() && end.Before(c.ExpiresAt) {
		c.ExpiresAt = end
	}
}

func (a *App) verify(ctx context.Context, company *directory.Company, c store.Credential, auth oauth.Authorization, raw string, u Use, now time.Time) error {
	if err := checkToken(company, c, auth.Scheme, u.Resource, now); err != nil {
		return err
	}
	scope := company.Scope
	var once []Once
	if auth.Scheme == oauth.DPoP {
		proof, err := dpop.CheckProof(raw, dpop.Request{
			Method: u.Proof.Method, URL: u.Proof.URL, TokenHash: dpop.TokenHash(auth.Token), KeyThumbprint: c.Token.JKT,
		}, now, a.policy(scope, c.Standing, now))
		if err != nil {
			return err
		}
		once = []Once{onceOf(proof)}
	}
	// After the proof: a copied token alone must not use up what its owner may do.
	if err := a.takeRequest(company, c.Session, now); err != nil {
		return err
	}
	return a.claim(ctx, scope, once)
}

// checkToken says what is wrong with the token itself at a service, before any proof counts.
func checkToken(company *directory.Company, c store.Credential, scheme oauth.Scheme, resource string, now time.Time) error {
	if err := checkStanding(company, c, now); err != nil {
		return err
	}
	return access.CheckToken(access.Token{JKT: c.Token.JKT, Resource: c.Token.Resource}, scheme,
		access.Service{Resource: resource, MCP: slices.Contains(company.MCPURLs, resource)})
}

// checkStanding says whether a token is still good for anything.
func checkStanding(company *directory.Company, c store.Credential, now time.Time) error {
	t := c.Token
	switch {
	case t == nil:
		return invalidToken(TokenKnown, "the Session Token is unknown")
	case !t.RevokedAt.IsZero():
		return invalidToken(TokenKnown, "the Session Token was revoked")
	case !now.Before(t.ExpiresAt):
		return invalidToken(TokenKnown, "the Session Token has expired")
	case over(*c.Session, company.SessionIdleLifetime, now):
		return invalidToken(LiveSession, "the Session has ended")
	}
	if v := admit(c.Standing, now); v.refused() {
		return invalidToken(v.clause, v.detail)
	}
	return nil
}

func invalidToken(id clause.ID, detail string) error {
	return problem.New(problem.Unauthenticated, problem.InvalidToken, id, "%s", detail)
}
