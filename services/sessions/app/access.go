package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Ask counts a question of the Company's about one of its agents. Over its quota the
// Company itself is refused: what it asks about is no better or worse for that.
func (a *App) Ask(scope tenancy.Scope) error {
	if ok, wait := a.Usage.Allow(scope, usage.VerificationQuota); !ok {
		return problem.New(problem.RateLimited, problem.QuotaExceeded, "", "the Company's quota of verifications is used up").
			WithExtra("quota", "verifications").WithRetryAfter(wait)
	}
	a.Usage.Add(scope, usage.Verifications, 1)
	return nil
}

// Target finds the Company's API that a request is for. What is wrong with it is its
// caller's fault and says nothing about the agent.
func (a *App) Target(ctx context.Context, scope tenancy.Scope, method, url string) (access.Target, error) {
	company, err := a.company(ctx, scope)
	if err != nil {
		return access.Target{}, err
	}
	return company.APIs.Find(method, url)
}

// Check judges a request to an API (Poppy 6): as Verify does, and by the API's rules. The
// Caller is there also where only the rules refuse it.
func (a *App) Check(ctx context.Context, scope tenancy.Scope, t access.Target, authorization []string, p Proof) (Caller, error) {
	p.URL = t.URL
	c, err := a.Verify(ctx, scope, Use{Authorization: authorization, Proof: p, Resource: t.API.Resource})
	if err == nil {
		err = withNonce(t.Check(c.SignedIn, c.Scopes), c.Nonce)
	}
	if err != nil {
		err = t.API.Refused(err)
	}
	return c, err
}

// Introspection is what RFC 7662 says of a token that is good.
type Introspection struct {
	Caller
	Issuer   string
	Resource string
	IssuedAt time.Time
	// KeepFor is how long it holds, as long as nobody changes anything.
	KeepFor time.Duration
}

// Scheme is how the token is sent.
func (i Introspection) Scheme() oauth.Scheme {
	if i.JKT == "" {
		return oauth.Bearer
	}
	return oauth.DPoP
}

// Introspect says what a Session Token stands for, without a request to judge: whether a
// proof comes with it is for whoever asks to see. ok is false for any that is no good.
func (a *App) Introspect(ctx context.Context, scope tenancy.Scope, token string) (out Introspection, ok bool, err error) {
	company, err := a.company(ctx, scope)
	if err != nil {
		return out, false, err
	}
	c, err := a.Store.Credential(ctx, scope, keys.HashToken(scope.CompanyID(), token))
	if err != nil {
		return out, false, err
	}
	now := a.Now()
	if refused := checkStanding(company, c, now); refused == nil {
		caller := callerOf(c, now)
		out = Introspection{Caller: caller, Issuer: company.Issuer.String(), Resource: c.Token.Resource, IssuedAt: c.Token.CreatedAt, KeepFor: keepFor(company, c, caller.ExpiresAt, now)}
		return out, true, nil
	}
	return out, false, nil
}
