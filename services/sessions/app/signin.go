package app

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// The clauses of signing in.
const (
	ScopeRequested  clause.ID = "poppy-0.1/4.4#24"
	NothingExtra    clause.ID = "poppy-0.1/4.4#21"
	ScopeOfType     clause.ID = "poppy-0.1/4.4#26"
	OneAccount      clause.ID = "poppy-0.1/4.4#41"
	SessionRequired clause.ID = "poppy-0.1/4.5#d30"
	MediatedBound   clause.ID = "poppy-0.1/4.3#d28"
)

const (
	accountTokenPrefix = "pat"
	maxAccount         = 255
)

// Account is what a User proved to be theirs.
type Account struct{ ID, Label string }

// approval is what a User approved, and by which type of sign-in.
type approval struct {
	by        directory.SignInType
	agentName string
	account   Account
	scope     string
}

// CheckAgent fails unless the Company lets the agent in (Poppy 4.1).
func (a *App) CheckAgent(ctx context.Context, scope tenancy.Scope, clientID string) error {
	if _, err := a.company(ctx, scope); err != nil {
		return err
	}
	o, err := a.Store.Opening(ctx, scope, store.Asked{ClientID: clientID})
	if err != nil {
		return err
	}
	return admitted(o.Standing, a.Now())
}

// Mediated is a Mediated Sign-In that is complete: its caller has verified the request.
type Mediated struct {
	SessionID, ClientID, JKT string
	Scope                    string
	Account                  Account
}

// SignIn signs a Session in after a Mediated Sign-In (Poppy 4.7).
func (a *App) SignIn(ctx context.Context, scope tenancy.Scope, m Mediated) (issued Issued, err error) {
	defer func() { a.counts.signIn(ctx, string(directory.Mediated), err) }()
	asked := store.Asked{ClientID: m.ClientID, SessionID: m.SessionID}
	return a.answer(ctx, scope, asked, func(company *directory.Company, o store.Opening, now time.Time) (Issued, error) {
		if err := admitted(o.Standing, now); err != nil {
			return Issued{}, err
		}
		if m.JKT == "" {
			return Issued{}, problem.New(problem.Invalid, problem.InvalidRequest, MediatedBound, "Mediated Sign-In needs a Session Token that is bound to a key")
		}
		if err := checkAccount(m.Account); err != nil {
			return Issued{}, err
		}
		granted, err := checkScope(company, directory.Mediated, m.Scope)
		if err != nil {
			return Issued{}, err
		}
		if err := checkSignIn(o.Session, m.ClientID, m.Account.ID, company, now); err != nil {
			return Issued{}, err
		}
		what := approval{directory.Mediated, o.Session.AgentName, m.Account, granted.String()}
		issued, in := signedIn(company, *o.Session, what, proven{scheme: oauth.DPoP, jkt: m.JKT}, now)
		if err := a.Store.SignIn(ctx, company.Scope, in); err != nil {
			return Issued{}, sessionChangedMeanwhile(err)
		}
		a.logSignIn(ctx, in)
		return issued, nil
	})
}

// checkSignIn judges the Session that is to be signed in to account.
func checkSignIn(s *store.Session, clientID, account string, c *directory.Company, now time.Time) error {
	if err := checkOwn(s, clientID, c, now); err != nil {
		return err
	}
	return checkSameAccount(*s, account)
}

// checkOwn judges the Session of an exchange: its User is who the Account Token will
// belong to, so any User's will do (decision 30).
func checkOwn(s *store.Session, clientID string, c *directory.Company, now time.Time) error {
	userID := ""
	if s != nil {
		userID = s.UserID
	}
	return checkSession(s, clientID, userID, c, now)
}

func checkSameAccount(s store.Session, account string) error {
	if s.Account != "" && s.Account != account {
		return accountMismatch()
	}
	return nil
}

func accountMismatch() error {
	return problem.New(problem.Invalid, problem.AccountMismatch, OneAccount, "the Session belongs to another account and never switches; start a new one")
}

// sessionChangedMeanwhile is what a write found that the read before it hadn't.
func sessionChangedMeanwhile(err error) error {
	switch {
	case errors.Is(err, store.ErrEnded):
		return invalidSession(LiveSession)
	case errors.Is(err, store.ErrAccount):
		return accountMismatch()
	}
	return err
}

// checkScope judges scopes that are asked for, or were approved, by a type of sign-in.
func checkScope(c *directory.Company, by directory.SignInType, raw string) (oauth.Scope, error) {
	if !c.SignIn.Offers(by) {
		return nil, problem.New(problem.Invalid, problem.UnauthorizedClient, ScopeOfType, "this Company doesn't offer this type of sign-in")
	}
	scope, err := oauth.ParseScope(raw)
	if err != nil {
		return nil, err
	}
	if len(scope) == 0 {
		return nil, problem.New(problem.Invalid, problem.InvalidScope, ScopeRequested, "a sign-in request needs scope")
	}
	if !c.SignIn.Scopes(by).Covers(scope) {
		return nil, problem.New(problem.Invalid, problem.InvalidScope, ScopeOfType, "scope has a name that this type of sign-in can't grant here")
	}
	return scope, nil
}

func checkAccount(a Account) error {
	if a.ID == "" || len(a.ID) > maxAccount || strings.ContainsRune(a.ID, 0) || strings.ContainsRune(a.Label, 0) {
		return badField("account", "is not an account")
	}
	return nil
}

// signedIn makes what a sign-in gives: an Account Token for the Session's User, and a
// signed-in token of the Session.
func signedIn(company *directory.Company, s store.Session, what approval, p proven, now time.Time) (Issued, store.SignedIn) {
	issued, token := issue(company, p, s.ID, now)
	g := store.Grant{
		ID: ids.New(ids.Grant), ClientID: s.ClientID, AgentName: what.agentName, UserID: s.UserID,
		Account: what.account.ID, AccountLabel: what.account.Label, Scope: what.scope, SignIn: what.by, CreatedAt: now, LastUsedAt: now,
	}
	if company.SignIn != nil && company.SignIn.AccountTokenLifetime > 0 {
		issued.AccountTokenLifetime = company.SignIn.AccountTokenLifetime
		g.ExpiresAt = now.Add(issued.AccountTokenLifetime)
	}
	issued.SignedIn, issued.Scope, issued.AccountToken = true, what.scope, keys.RandomToken(accountTokenPrefix)
	token.SignedIn, token.Scope, token.GrantID = true, what.scope, g.ID
	return issued, store.SignedIn{Grant: g, AccountToken: keys.HashToken(company.Scope.CompanyID(), issued.AccountToken), Token: token, Extensions: s.Extensions}
}

func (a *App) logSignIn(ctx context.Context, in store.SignedIn) {
	a.Log.InfoContext(ctx, "session signed in", "session", in.Token.SessionID, "client_id", in.Grant.ClientID, "grant", in.Grant.ID, "by", string(in.Grant.SignIn))
}
