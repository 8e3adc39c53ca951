package app

import (
	"context"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// The clauses of every token request.
const (
	StartLimit     clause.ID = "poppy-0.1/4.1#21"
	BearerResource clause.ID = "poppy-0.1/4.3#d34"
	KnownResource  clause.ID = "poppy-0.1/4.2#60"
)

const (
	tokenPrefix = "pst"
	// defaultTokenLifetime stands in where the directory names none: expires_in is above 0 (poppy-0.1/4.2#31).
	defaultTokenLifetime = time.Hour
)

// Proof is the DPoP header of a request and what it has to fit.
type Proof struct {
	Values []string // of the header field, as they came
	Method string
	URL    string // configured, without query
}

// Request is what every token request of an agent has that has authenticated.
type Request struct {
	ClientID, AgentName string
	SessionID           string // empty: a new Session, where the grant allows one
	Proof               Proof
	Resource            string
	Once                []Once // the assertions
	// Extensions are those that the agent's document lists (Poppy 3.3).
	Extensions []string
}

// Issued is the token response of Poppy 4.2 and 4.4.
type Issued struct {
	Token     string
	Scheme    oauth.Scheme
	Lifetime  time.Duration
	SessionID string
	Created   bool
	SignedIn  bool
	Scope     string
	// AccountToken is empty where none is handed out; it has no end where its lifetime is 0.
	AccountToken         string
	AccountTokenLifetime time.Duration
	Nonce                string // for the DPoP-Nonce header; empty when nonces are off
}

// proven is what the proof of a request, or the lack of one, makes of its token.
type proven struct {
	scheme   oauth.Scheme
	jkt      string
	resource string
	once     []Once // to be claimed when everything else is right
}

// answer reads what a token request is judged by, once, and gives the Company's nonce
// to the answer and to every error that judge finds.
func (a *App) answer(ctx context.Context, scope tenancy.Scope, asked store.Asked,
	judge func(*directory.Company, store.Opening, time.Time) (Issued, error),
) (Issued, error) {
	company, err := a.company(ctx, scope)
	if err != nil {
		return Issued{}, err
	}
	o, err := a.Store.Opening(ctx, scope, asked)
	if err != nil {
		return Issued{}, err
	}
	now := a.Now()
	nonce := a.nonce(scope, o.Standing, now)
	issued, err := judge(company, o, now)
	issued.Nonce = nonce
	return issued, withNonce(err, nonce)
}

// begin is how every token request that starts, renews or signs in a Session is
// judged first: is the agent let in, is it too fast, is its proof right.
func (a *App) begin(company *directory.Company, s store.Standing, r Request, now time.Time) (proven, error) {
	if err := admitted(s, now); err != nil {
		return proven{}, err
	}
	if err := a.takeStart(company, r.ClientID, now); err != nil {
		return proven{}, err
	}
	return a.prove(company, s, r, now)
}

// admitted fails unless the Company lets the agent in.
func admitted(s store.Standing, now time.Time) error {
	if v := admit(s, now); v.refused() {
		return problem.New(problem.Unauthenticated, problem.InvalidClient, v.clause, "%s", v.detail)
	}
	return nil
}

func (a *App) takeStart(company *directory.Company, clientID string, now time.Time) error {
	if ok, wait := a.Starts.Allow(company.Scope.CompanyID()+"\x00"+clientID, company.SessionStartsPerMinute, now); !ok {
		return tooMany(StartLimit, wait, "too many Session starts")
	}
	if ok, wait := a.Starts.Allow(company.Scope.CompanyID(), a.Rates.StartsPerCompany, now); !ok {
		return tooMany(StartLimit, wait, "too many Session starts at this Company")
	}
	return nil
}

func (a *App) prove(company *directory.Company, s store.Standing, r Request, now time.Time) (proven, error) {
	raw, sent, err := dpop.ParseHeader(r.Proof.Values)
	if err != nil {
		return proven{}, err
	}
	if err := checkResource(company, r.Resource, sent); err != nil {
		return proven{}, err
	}
	if !sent {
		return proven{scheme: oauth.Bearer, resource: r.Resource, once: r.Once}, nil
	}
	proof, err := dpop.CheckProof(raw, dpop.Request{Method: r.Proof.Method, URL: r.Proof.URL}, now, a.policy(company.Scope, s, now))
	if err != nil {
		return proven{}, err
	}
	return proven{scheme: oauth.DPoP, jkt: proof.JKT(), resource: r.Resource, once: append(slices.Clip(r.Once), onceOf(proof))}, nil
}

// checkResource judges the resource asked for (RFC 8707). Without a proof it has to
// be a listed MCP server, since the token will be a Bearer token. With a proof it
// may be anything that is listed, an MCP server too: such a token is bound to its
// key and good there alone.
func checkResource(c *directory.Company, resource string, proven bool) error {
	if resource == "" {
		if proven {
			return nil
		}
		return problem.New(problem.Invalid, problem.InvalidRequest, BearerResource,
			"the request needs a DPoP proof, or as resource the url of an MCP server of this Company")
	}
	if slices.Contains(c.MCPURLs, resource) || proven && slices.Contains(c.Resources, resource) {
		return nil
	}
	if proven {
		return problem.New(problem.Invalid, problem.InvalidTarget, KnownResource, "this Company does not list the resource")
	}
	return problem.New(problem.Invalid, problem.InvalidTarget, BearerResource, "without a DPoP proof, resource has to be the url of an MCP server of this Company")
}

func (a *App) policy(scope tenancy.Scope, s store.Standing, now time.Time) dpop.Policy {
	if !s.Admission.RequireNonce {
		return dpop.Policy{}
	}
	return dpop.Policy{NonceRequired: true, Nonces: a.Nonces.Accepted(scope.CompanyID(), now)}
}

// issue makes a signed-out Session Token.
func issue(company *directory.Company, p proven, sessionID string, now time.Time) (Issued, store.Token) {
	i := Issued{Token: keys.RandomToken(tokenPrefix), Scheme: p.scheme, Lifetime: lifetime(company), SessionID: sessionID}
	return i, store.Token{
		Hash: keys.HashToken(company.Scope.CompanyID(), i.Token), SessionID: sessionID, JKT: p.jkt, Resource: p.resource,
		CreatedAt: now, ExpiresAt: now.Add(i.Lifetime),
	}
}

func lifetime(c *directory.Company) time.Duration {
	if c.SessionTokenLifetime < time.Second {
		return defaultTokenLifetime
	}
	return c.SessionTokenLifetime
}

func tooMany(id clause.ID, wait time.Duration, detail string) error {
	return problem.New(problem.RateLimited, problem.RateLimitedReason, id, "%s", detail).WithRetryAfter(wait)
}
