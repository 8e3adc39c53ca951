package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// The clauses of opening a Session.
const (
	StartLimit     clause.ID = "poppy-0.1/4.1#21"
	BearerResource clause.ID = "poppy-0.1/4.3#d34"
	KnownResource  clause.ID = "poppy-0.1/4.2#60"
	OwnSession     clause.ID = "poppy-0.1/4.2#39"
	LiveSession    clause.ID = "poppy-0.1/4.2#43"
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

// Request asks for a Session Token for an agent that has authenticated.
type Request struct {
	ClientID, AgentName, UserID string
	SessionID                   string // empty: a new Session
	Proof                       Proof
	Resource                    string
	Once                        []Once // the assertions
}

// Issued is the token response of Poppy 4.2.
type Issued struct {
	Token     string
	Scheme    oauth.Scheme
	Lifetime  time.Duration
	SessionID string
	Created   bool
	Nonce     string // for the DPoP-Nonce header; empty when nonces are off
}

// Open starts a Session, or renews one with a signed-out token (Poppy 4.2). Where
// the Company wants nonces, errors carry one under problem.DPoPNonce.
func (a *App) Open(ctx context.Context, scope tenancy.Scope, r Request) (issued Issued, err error) {
	defer func() { a.counts.open(ctx, issued, err) }()
	company, err := a.company(ctx, scope)
	if err != nil {
		return Issued{}, err
	}
	o, err := a.Store.Opening(ctx, scope, r.ClientID, r.SessionID)
	if err != nil {
		return Issued{}, err
	}
	now := a.Now()
	nonce := a.nonce(scope, o.Standing, now)
	issued, err = a.open(ctx, company, o, r, now)
	issued.Nonce = nonce
	return issued, withNonce(err, nonce)
}

func (a *App) open(ctx context.Context, company *directory.Company, o store.Opening, r Request, now time.Time) (Issued, error) {
	if v := admit(o.Standing, now); v.refused() {
		return Issued{}, problem.New(problem.Unauthenticated, problem.InvalidClient, v.clause, "%s", v.detail)
	}
	scope := company.Scope
	if ok, wait := a.starts.Allow(scope.CompanyID()+"\x00"+r.ClientID, company.SessionStartsPerMinute, now); !ok {
		return Issued{}, tooMany(StartLimit, wait, "too many Session starts")
	}
	raw, proven, err := dpop.ParseHeader(r.Proof.Values)
	if err != nil {
		return Issued{}, err
	}
	if err := checkResource(company, r.Resource, proven); err != nil {
		return Issued{}, err
	}
	once := r.Once
	token := store.Token{Resource: r.Resource, CreatedAt: now, ExpiresAt: now.Add(lifetime(company))}
	issued := Issued{Scheme: oauth.Bearer, Lifetime: lifetime(company), Created: r.SessionID == ""}
	if proven {
		proof, err := dpop.CheckProof(raw, dpop.Request{Method: r.Proof.Method, URL: r.Proof.URL}, now, a.policy(scope, o.Standing, now))
		if err != nil {
			return Issued{}, err
		}
		issued.Scheme, token.JKT = oauth.DPoP, proof.JKT()
		once = append(slices.Clip(once), onceOf(proof))
	}
	session := store.Session{ClientID: r.ClientID, AgentName: r.AgentName, UserID: r.UserID, CreatedAt: now, LastUsedAt: now}
	if issued.Created {
		session.ID = ids.New(ids.Session)
	} else {
		if err := checkRenewal(o.Session, r, company, now); err != nil {
			return Issued{}, err
		}
		session.ID = o.Session.ID
	}
	if err := a.claim(ctx, scope, once); err != nil {
		return Issued{}, err
	}
	// A signed-in Session stays so; its token here is signed out all the same (decision 12).
	issued.SessionID, issued.Token = session.ID, keys.RandomToken(tokenPrefix)
	token.SessionID, token.Hash = session.ID, keys.HashToken(scope.CompanyID(), issued.Token)
	err = a.Store.Issue(ctx, scope, session, issued.Created, token)
	if errors.Is(err, store.ErrEnded) {
		return Issued{}, invalidSession(LiveSession)
	}
	if err != nil {
		return Issued{}, err
	}
	a.Log.InfoContext(ctx, "session token issued", "session", session.ID, "client_id", r.ClientID, "created", issued.Created, "scheme", string(issued.Scheme))
	return issued, nil
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

// checkRenewal gives one answer for every reason, so that ids of others can't be told from unknown ones.
func checkRenewal(s *store.Session, r Request, c *directory.Company, now time.Time) error {
	if s == nil || s.ClientID != r.ClientID || s.UserID != r.UserID {
		return invalidSession(OwnSession)
	}
	if over(*s, c.SessionIdleLifetime, now) {
		return invalidSession(LiveSession)
	}
	return nil
}

func invalidSession(id clause.ID) error {
	return problem.New(problem.Invalid, problem.InvalidSession, id, "there is no such Session of this client and User; start a new one")
}

func lifetime(c *directory.Company) time.Duration {
	if c.SessionTokenLifetime < time.Second {
		return defaultTokenLifetime
	}
	return c.SessionTokenLifetime
}

// over reports whether a Session has ended, or was idle for so long that it counts
// as ended. Uses are noted to the minute, which is given to the agent.
func over(s store.Session, idle time.Duration, now time.Time) bool {
	return !s.EndedAt.IsZero() || idle > 0 && now.Sub(s.LastUsedAt) > idle+touchEvery
}

func tooMany(id clause.ID, wait time.Duration, detail string) error {
	return problem.New(problem.RateLimited, problem.RateLimitedReason, id, "%s", detail).WithRetryAfter(wait)
}
