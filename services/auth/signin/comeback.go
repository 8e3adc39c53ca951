package signin

import (
	"context"
	"errors"
	"net/url"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// AwaitsState returns the sign-in that waits for a login at the Company's identity
// provider with that state. cookie returns the browser's cookie of a sign-in.
func (a *App) AwaitsState(ctx context.Context, company *directory.Company, state string, cookie func(id string) string) (store.SignIn, error) {
	if state == "" {
		return store.SignIn{}, problem.New(problem.Invalid, problem.InvalidRequest, "RFC6749/4.1.2", "state is missing")
	}
	s, err := a.SignIns.FindUpstream(ctx, company.Scope, keys.HashToken(company.Scope.CompanyID(), state))
	if errors.Is(err, store.ErrNotFound) {
		return store.SignIn{}, expired()
	}
	if err != nil {
		return store.SignIn{}, err
	}
	if err := a.checkBrowser(company, s, cookie(s.ID)); err != nil {
		return store.SignIn{}, err
	}
	return s, nil
}

// Callback takes what the identity provider sent the browser back with. The way back is
// used up whatever comes of it. With LOGIN_FAILED or TEMPORARILY_UNAVAILABLE the User
// may try again.
func (a *App) Callback(ctx context.Context, company *directory.Company, s store.SignIn, query url.Values) (store.SignIn, error) {
	w, err := a.open(company.Scope.CompanyID(), s)
	if err != nil {
		return s, err
	}
	if s.Stage != store.StageLogin || w.Upstream == nil || company.SignIn == nil || company.SignIn.Method != directory.OIDC {
		return s, expired()
	}
	up := *w.Upstream
	if s, err = a.usedUp(ctx, company, s, w.Force); err != nil {
		return s, err
	}
	account, err := a.OIDC.Finish(ctx, company, up, query)
	if err != nil {
		return s, Upstream(err)
	}
	return s, a.identified(ctx, company, s, account)
}

// usedUp makes sure that nobody else comes back on the same way.
func (a *App) usedUp(ctx context.Context, company *directory.Company, s store.SignIn, force bool) (store.SignIn, error) {
	s.UpstreamHash = ""
	s, err := a.seal(company, s, waiting{Force: force})
	if err != nil {
		return s, err
	}
	saved, err := a.SignIns.Save(ctx, company.Scope, s)
	return saved, stale(err)
}

// Resume takes the verifier that the Company's own login page sent the browser back
// with. Only the browser that began has the cookie, only the one that signed in has the
// verifier: a User can't be had to sign in for somebody else's browser.
func (a *App) Resume(ctx context.Context, company *directory.Company, s store.SignIn, verifier string) (store.SignIn, error) {
	w, err := a.open(company.Scope.CompanyID(), s)
	if err != nil {
		return s, err
	}
	decided := s.Stage == store.StageLogin && w.Decided != "" && company.SignIn != nil && company.SignIn.Method == directory.Handoff
	if !decided || !sameHash(company, verifier, s.UpstreamHash) {
		return s, expired()
	}
	account := connect.Account{ID: s.Account, Label: s.AccountLabel}
	if !w.Rejected {
		return s, a.identified(ctx, company, s, account)
	}
	if s, err = a.usedUp(ctx, company, s, w.Force); err != nil {
		return s, err
	}
	return s, problem.New(problem.Forbidden, LoginFailed, "", "the Company's login rejected the User")
}
