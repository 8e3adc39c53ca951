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
	// asked finds the code again.
	asked store.Asked
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
	err := r.use(in)
	if errors.Is(err, store.ErrConsumed) { // another request was faster: this is the second use
		return Issued{}, a.lostRace(ctx, company, r.asked)
	}
	if err != nil {
		return Issued{}, sessionChangedMeanwhile(err)
	}
	a.logSignIn(ctx, in)
	return issued, nil
}

func (a *App) lostRace(ctx context.Context, company *directory.Company, asked store.Asked) error {
	o, err := a.Store.Opening(ctx, company.Scope, asked)
	if err != nil {
		return err
	}
	grantID := ""
	switch {
	case o.Code != nil:
		grantID = o.Code.GrantID
	case o.Device != nil:
		grantID = o.Device.GrantID
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
