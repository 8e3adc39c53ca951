package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// CodeOnce is the rule that a code is good once, and what its second use does (decision 15).
const CodeOnce clause.ID = "poppy-0.1/4.5#d15"

// redemption is an approved code or device code, on its way to tokens.
type redemption struct {
	what approval
	use  func(store.SignedIn) error // uses the code up, if it still is good
	late func() error               // what a request gets that another was faster than
	// plain: it is of a plain client, whose Session begins with it.
	plain bool
}

// redeem signs the Session in by what the User approved. Everything else has been
// judged: the code is used up in the same write, or stays as it is.
func (a *App) redeem(ctx context.Context, company *directory.Company, s store.Session, r redemption, p proven, now time.Time) (Issued, error) {
	if err := checkSameAccount(s, r.what.account.ID); err != nil {
		return Issued{}, err
	}
	if err := a.claim(ctx, company.Scope, p.once); err != nil {
		return Issued{}, err
	}
	issued, in := signedIn(company, s, r.what, p, now)
	if r.plain {
		issued.Created, in.Create, in.Grant.Resource = true, true, p.resource
	}
	err := r.use(in)
	if errors.Is(err, store.ErrConsumed) {
		return Issued{}, r.late()
	}
	if err != nil {
		return Issued{}, sessionChangedMeanwhile(err)
	}
	a.logSignIn(ctx, in)
	return issued, nil
}

// lostRace is the second use of a code that was good when it was looked at.
func (a *App) lostRace(ctx context.Context, company *directory.Company, hash string) error {
	o, err := a.Store.Opening(ctx, company.Scope, store.Asked{Code: hash})
	if err != nil {
		return err
	}
	grantID := ""
	if o.Code != nil {
		grantID = o.Code.GrantID
	}
	return a.revokeReused(ctx, company, grantID)
}

// reused answers the second use of a code: what the first use gave ends. A request
// that is itself a repeat proves nothing about who sent it, and ends nothing.
func (a *App) reused(ctx context.Context, company *directory.Company, p proven, grantID string) error {
	if err := a.claim(ctx, company.Scope, p.once); err != nil {
		return err
	}
	return a.revokeReused(ctx, company, grantID)
}

func (a *App) revokeReused(ctx context.Context, company *directory.Company, grantID string) error {
	if _, err := a.endGrants(ctx, company, store.Selection{ID: grantID}, store.CodeReused); err != nil {
		return err
	}
	return invalidGrant(CodeOnce, "the code was used before")
}

func invalidGrant(id clause.ID, detail string) error {
	return problem.New(problem.Invalid, problem.InvalidGrant, id, "%s", detail)
}
