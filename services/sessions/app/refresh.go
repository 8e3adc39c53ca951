package app

import (
	"context"
	"errors"
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

// The clauses of Account Tokens.
const (
	AccountTokenOwn  clause.ID = "poppy-0.1/4.8#9"
	AccountTokenLive clause.ID = "poppy-0.1/4.8#19"
	AccountTokenOnce clause.ID = "poppy-0.1/4.8#d14"
	NoMoreScope      clause.ID = "poppy-0.1/4.8#15"
)

const (
	// rotationGrace is how long a replaced Account Token goes on working (decision 14).
	rotationGrace    = time.Minute
	successorPurpose = "account token successor"
)

// AccountTokenGrant is an Account Token, and fewer scopes than it has, or none for all it has.
type AccountTokenGrant struct{ Token, Scope string }

// Refresh gets a signed-in Session Token by an Account Token, for the Session that is
// named or a new one (Poppy 4.8).
func (a *App) Refresh(ctx context.Context, scope tenancy.Scope, r Request, g AccountTokenGrant) (issued Issued, err error) {
	defer func() { a.counts.signIn(ctx, "account_token", err) }()
	successors := a.successors(scope, g.Token)
	asked := askedFor(scope, g, successors)
	asked.ClientID, asked.SessionID = r.ClientID, r.SessionID
	return a.answer(ctx, scope, asked, func(company *directory.Company, o store.Opening, now time.Time) (Issued, error) {
		return a.refresh(ctx, company, o, r, g, successors, now)
	})
}

// askedFor asks for an Account Token with what may have taken its place.
func askedFor(scope tenancy.Scope, g AccountTokenGrant, successors []string) store.Asked {
	asked := store.Asked{AccountToken: keys.HashToken(scope.CompanyID(), g.Token)}
	for _, token := range successors {
		asked.Successors = append(asked.Successors, keys.HashToken(scope.CompanyID(), token))
	}
	return asked
}

func (a *App) refresh(ctx context.Context, company *directory.Company, o store.Opening, r Request, g AccountTokenGrant, successors []string, now time.Time) (Issued, error) {
	p, err := a.begin(company, o.Standing, r, now)
	if err != nil {
		return Issued{}, err
	}
	if o.AccountToken == nil || o.Grant.ClientID != r.ClientID || o.Grant.Resource != "" {
		return Issued{}, invalidGrant(AccountTokenOwn, "the Account Token is unknown")
	}
	return a.renew(ctx, company, o, r, g, p, successors, now)
}

// renew gives a token for an Account Token that is its client's.
func (a *App) renew(ctx context.Context, company *directory.Company, o store.Opening, r Request, g AccountTokenGrant, p proven, successors []string, now time.Time) (Issued, error) {
	t := o.AccountToken
	if !o.Grant.InForce(now) {
		return Issued{}, accountTokenOver()
	}
	if !t.ReplacedAt.IsZero() && now.Sub(t.ReplacedAt) > rotationGrace {
		return Issued{}, a.replacedReused(ctx, company, p, t.GrantID)
	}
	granted, err := narrow(g.Scope, o.Grant.Scope)
	if err != nil {
		return Issued{}, err
	}
	n := store.Renewal{Create: r.SessionID == "", Session: store.Session{
		ID: ids.New(ids.Session), ClientID: r.ClientID, AgentName: r.AgentName, UserID: o.Grant.UserID,
		Account: o.Grant.Account, GrantID: o.Grant.ID, Extensions: listed(r.Extensions), CreatedAt: now, LastUsedAt: now,
	}}
	if !n.Create {
		if err := checkSession(o.Session, r.ClientID, o.Grant.UserID, company, now); err != nil {
			return Issued{}, err
		}
		if err := checkSameAccount(*o.Session, o.Grant.Account); err != nil {
			return Issued{}, err
		}
		n.Session.ID = o.Session.ID
	}
	if err := a.claim(ctx, company.Scope, p.once); err != nil {
		return Issued{}, err
	}
	issued, token := issue(company, p, n.Session.ID, now)
	issued.Created, issued.SignedIn, issued.Scope = n.Create, true, granted
	token.SignedIn, token.Scope, token.GrantID = true, granted, o.Grant.ID
	n.Token = token
	a.rotate(company, o, successors, &n, &issued, now)
	err = a.Store.Renew(ctx, company.Scope, n)
	if errors.Is(err, store.ErrOver) {
		return Issued{}, accountTokenOver()
	}
	if err != nil {
		return Issued{}, sessionChangedMeanwhile(err)
	}
	a.Log.InfoContext(ctx, "session signed in", "session", n.Session.ID, "client_id", r.ClientID, "grant", o.Grant.ID, "by", "account token")
	return issued, nil
}

// rotate gives the Account Token's successor out, where the Company wants that or it
// was done before. Every request within the grace gets the same one: it is computed
// from the old token, so that nothing of it needs to be kept in clear.
func (a *App) rotate(company *directory.Company, o store.Opening, successors []string, n *store.Renewal, issued *Issued, now time.Time) {
	t := o.AccountToken
	plain := o.Grant.Resource != "" // nothing else binds its token to its client
	if t.ReplacedAt.IsZero() && !plain && (company.SignIn == nil || !company.SignIn.RotateAccountTokens) {
		return
	}
	next := successors[0]
	for _, token := range successors {
		if t.Successor != "" && keys.HashToken(company.Scope.CompanyID(), token) == t.Successor {
			next = token
		}
	}
	n.Replaced, n.Successor = t.Hash, keys.HashToken(company.Scope.CompanyID(), next)
	issued.AccountToken = next
	if !o.Grant.ExpiresAt.IsZero() { // poppy-0.1/4.8#16
		issued.AccountTokenLifetime = o.Grant.ExpiresAt.Sub(now)
	}
}

// successors returns what may take the place of token: by the current root key, and by the others.
func (a *App) successors(scope tenancy.Scope, token string) []string {
	all := a.Keys.DeriveAll(scope.CompanyID(), successorPurpose)
	out := make([]string, 0, len(all))
	for _, key := range all {
		out = append(out, accountTokenPrefix+"_"+keyed(key, token))
	}
	return out
}

// replacedReused ends everything that came of a sign-in: somebody uses what its owner has replaced.
func (a *App) replacedReused(ctx context.Context, company *directory.Company, p proven, grantID string) error {
	if err := a.claim(ctx, company.Scope, p.once); err != nil {
		return err
	}
	if _, err := a.endGrants(ctx, company, store.Selection{ID: grantID}, store.ReplacedTokenReused); err != nil {
		return err
	}
	return invalidGrant(AccountTokenOnce, "the Account Token was replaced")
}

func accountTokenOver() error {
	return invalidGrant(AccountTokenLive, "the Account Token has expired or was revoked; the User has to sign in again")
}

// narrow returns what is granted of has when raw is asked for.
func narrow(raw, has string) (string, error) {
	if raw == "" {
		return has, nil
	}
	return raw, within(raw, has, NoMoreScope)
}

// within fails, by the rule that id names, unless the scopes of raw are among those of has.
func within(raw, has string, id clause.ID) error {
	wanted, err := oauth.ParseScope(raw)
	if err != nil {
		return err
	}
	all, err := oauth.ParseScope(has)
	if err != nil {
		return err
	}
	if !all.Covers(wanted) {
		return problem.New(problem.Invalid, problem.InvalidScope, id, "scope has more than was granted")
	}
	return nil
}
