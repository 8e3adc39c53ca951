package app

import (
	"context"
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

// SignedInFor is the rule that a plain client's token is for what its User signed in for.
const SignedInFor clause.ID = "poppy-0.1/6#14"

// Plain is a token request of a plain client: one that knows nothing of Poppy, can't
// authenticate, and gets Bearer tokens of one MCP server (Poppy 6).
type Plain struct {
	ClientID, ClientName string
	Resource             string // empty: the one that the User signed in for
}

func (r Plain) request() Request { return Request{ClientID: r.ClientID, AgentName: r.ClientName} }

// ExchangePlainCode starts the signed-in Session of a plain client by its code.
func (a *App) ExchangePlainCode(ctx context.Context, scope tenancy.Scope, r Plain, g CodeGrant) (issued Issued, err error) {
	defer func() { a.counts.signIn(ctx, string(directory.Direct), err) }()
	asked := store.Asked{ClientID: r.ClientID, Code: keys.HashToken(scope.CompanyID(), g.Code)}
	return a.answer(ctx, scope, asked, func(company *directory.Company, o store.Opening, now time.Time) (Issued, error) {
		if err := a.beginPlain(company, o.Standing, r, now); err != nil {
			return Issued{}, err
		}
		c := o.Code
		if c == nil || c.ClientID != r.ClientID || c.Resource == "" {
			return Issued{}, invalidGrant(CodeKnown, "the code is unknown")
		}
		if !c.Consumed.IsZero() {
			return Issued{}, a.revokeReused(ctx, company, c.GrantID)
		}
		if err := checkCode(*c, g, now); err != nil {
			return Issued{}, err
		}
		p, err := provePlain(company, r, c.Resource)
		if err != nil {
			return Issued{}, err
		}
		session := store.Session{ID: ids.New(ids.Session), ClientID: r.ClientID, UserID: plainUser(scope, r.ClientID, c.Account)}
		return a.redeem(ctx, company, session, redemption{
			what:  approval{directory.Direct, r.ClientName, Account{c.Account, c.AccountLabel}, c.Scope},
			use:   func(in store.SignedIn) error { return a.Store.RedeemCode(ctx, scope, c.Hash, in) },
			late:  func() error { return a.lostRace(ctx, company, c.Hash) },
			plain: true,
		}, p, now)
	})
}

// RefreshPlain goes on with the Session of a plain client. Its refresh token is replaced
// each time.
func (a *App) RefreshPlain(ctx context.Context, scope tenancy.Scope, r Plain, g AccountTokenGrant) (issued Issued, err error) {
	defer func() { a.counts.signIn(ctx, "account_token", err) }()
	successors := a.successors(scope, g.Token)
	asked := askedFor(scope, g, successors)
	asked.ClientID, asked.OfGrant = r.ClientID, true
	return a.answer(ctx, scope, asked, func(company *directory.Company, o store.Opening, now time.Time) (Issued, error) {
		if err := a.beginPlain(company, o.Standing, r, now); err != nil {
			return Issued{}, err
		}
		if o.AccountToken == nil || o.Grant.ClientID != r.ClientID || o.Grant.Resource == "" {
			return Issued{}, invalidGrant(AccountTokenOwn, "the refresh token is unknown")
		}
		p, err := provePlain(company, r, o.Grant.Resource)
		if err != nil {
			return Issued{}, err
		}
		request := r.request()
		if o.Session != nil && !over(*o.Session, company.SessionIdleLifetime, now) {
			request.SessionID = o.Session.ID
		}
		return a.renew(ctx, company, o, request, g, p, successors, now)
	})
}

func (a *App) beginPlain(company *directory.Company, s store.Standing, r Plain, now time.Time) error {
	if err := admitted(s, now); err != nil {
		return err
	}
	return a.takeStart(company, r.ClientID, now)
}

// provePlain judges what the client asks a token for; has is what the User signed in for.
func provePlain(company *directory.Company, r Plain, has string) (proven, error) {
	if r.Resource != "" && r.Resource != has {
		return proven{}, problem.New(problem.Invalid, problem.InvalidTarget, SignedInFor, "the User signed in for another resource")
	}
	return proven{scheme: oauth.Bearer, resource: has}, checkResource(company, has, false)
}

// plainUser makes the User ID of an account at a plain client (decision 35): the same each
// time, and another one at every other client.
func plainUser(scope tenancy.Scope, clientID, account string) string {
	return "usr_" + keys.HashToken(scope.CompanyID(), clientID+"\x00"+account)
}
