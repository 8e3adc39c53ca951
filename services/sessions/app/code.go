package app

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// The clauses of the exchange of a code.
const (
	CodeKnown    clause.ID = "poppy-0.1/4.5#20"
	CodeVerifier clause.ID = "poppy-0.1/4.5#21"
	CodeExpired  clause.ID = "poppy-0.1/4.5#25"
	CodeRedirect clause.ID = "RFC6749/4.1.3"
)

const (
	codePrefix = "poc"
	// codeLifetime is long enough for a browser and its agent's server.
	codeLifetime = time.Minute
	// RFC7636/4.1: the length of a code_verifier.
	minVerifier, maxVerifier = 43, 128
)

// Approved is a Direct Sign-In that the User approved.
type Approved struct {
	ClientID, AgentName    string
	RedirectURI, Challenge string
	Scope                  string
	Account                Account
	// Resource is the MCP server that a plain client is for; empty for a Personal Agent.
	Resource string
}

// IssueCode makes the code of a Direct Sign-In (Poppy 4.5).
func (a *App) IssueCode(ctx context.Context, scope tenancy.Scope, d Approved) (string, error) {
	company, err := a.company(ctx, scope)
	if err != nil {
		return "", err
	}
	granted, err := checkScope(company, directory.Direct, d.Scope)
	if err != nil {
		return "", err
	}
	if err := checkAccount(d.Account); err != nil {
		return "", err
	}
	if d.Resource != "" {
		if err := checkResource(company, d.Resource, false); err != nil {
			return "", err
		}
	}
	now := a.Now()
	code := keys.RandomToken(codePrefix)
	err = a.Store.SaveCode(ctx, scope, store.Code{
		Hash: keys.HashToken(scope.CompanyID(), code), ClientID: d.ClientID, AgentName: d.AgentName, RedirectURI: d.RedirectURI,
		Challenge: d.Challenge, Resource: d.Resource, Scope: granted.String(), Account: d.Account.ID, AccountLabel: d.Account.Label,
		CreatedAt: now, ExpiresAt: now.Add(codeLifetime),
	})
	if err != nil {
		return "", err
	}
	return code, nil
}

// CodeGrant is the code and what proves that it came to the right agent.
type CodeGrant struct{ Code, RedirectURI, Verifier string }

// ExchangeCode signs a Session in by a code (Poppy 4.5).
func (a *App) ExchangeCode(ctx context.Context, scope tenancy.Scope, r Request, g CodeGrant) (issued Issued, err error) {
	defer func() { a.counts.signIn(ctx, string(directory.Direct), err) }()
	asked := store.Asked{ClientID: r.ClientID, SessionID: r.SessionID, Code: keys.HashToken(scope.CompanyID(), g.Code)}
	return a.answer(ctx, scope, asked, func(company *directory.Company, o store.Opening, now time.Time) (Issued, error) {
		return a.exchangeCode(ctx, company, o, r, g, now)
	})
}

func (a *App) exchangeCode(ctx context.Context, company *directory.Company, o store.Opening, r Request, g CodeGrant, now time.Time) (Issued, error) {
	p, err := a.begin(company, o.Standing, r, now)
	if err != nil {
		return Issued{}, err
	}
	if r.SessionID == "" {
		return Issued{}, sessionRequired()
	}
	c := o.Code
	if c == nil || c.ClientID != r.ClientID || c.Resource != "" {
		return Issued{}, invalidGrant(CodeKnown, "the code is unknown")
	}
	if !c.Consumed.IsZero() {
		return Issued{}, a.reused(ctx, company, p, c.GrantID)
	}
	if err := checkCode(*c, g, now); err != nil {
		return Issued{}, err
	}
	if err := checkOwn(o.Session, r.ClientID, company, now); err != nil {
		return Issued{}, err
	}
	return a.redeem(ctx, company, listing(*o.Session, r.Extensions), redemption{
		what: approval{directory.Direct, r.AgentName, Account{c.Account, c.AccountLabel}, c.Scope},
		use:  func(in store.SignedIn) error { return a.Store.RedeemCode(ctx, company.Scope, c.Hash, in) },
		late: func() error { return a.lostRace(ctx, company, c.Hash) },
	}, p, now)
}

func checkCode(c store.Code, g CodeGrant, now time.Time) error {
	switch {
	case !now.Before(c.ExpiresAt):
		return invalidGrant(CodeExpired, "the code has expired")
	case c.RedirectURI != g.RedirectURI:
		return invalidGrant(CodeRedirect, "redirect_uri is not the one that the code was sent to")
	case !isVerifier(g.Verifier) || !matches(c.Challenge, g.Verifier):
		return invalidGrant(CodeVerifier, "code_verifier doesn't match the code_challenge")
	}
	return nil
}

// isVerifier reports whether v has the form of RFC 7636 section 4.1.
func isVerifier(v string) bool {
	for i := range len(v) {
		c := v[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' && c != '~' {
			return false
		}
	}
	return len(v) >= minVerifier && len(v) <= maxVerifier
}

// matches is S256 of RFC 7636 section 4.6.
func matches(challenge, verifier string) bool {
	sum := sha256.Sum256([]byte(verifier))
	want := base64.RawURLEncoding.EncodeToString(sum[:])
	return subtle.ConstantTimeCompare([]byte(want), []byte(challenge)) == 1
}

func sessionRequired() error {
	return problem.New(problem.Invalid, problem.InvalidRequest, SessionRequired, "session_id is missing")
}
