package signin

import (
	"context"
	"errors"
	"net/url"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/credentials"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Leaves reports whether Users prove who they are somewhere else than on our pages.
func Leaves(company *directory.Company) bool {
	return company.SignIn.Any() && (company.SignIn.Method == directory.OIDC || company.SignIn.Method == directory.Handoff)
}

// Leave returns where the browser goes to sign in at the Company. What the way back
// needs is made anew, so that an older way back leads nowhere.
func (a *App) Leave(ctx context.Context, company *directory.Company, s store.SignIn) (store.SignIn, string, error) {
	kept, err := a.open(company.Scope.CompanyID(), s)
	if err != nil {
		return s, "", err
	}
	// An account that waited for its verifier waits no longer.
	s.Account, s.AccountLabel = "", ""
	w := waiting{Force: kept.Force}
	var target, secret string
	if company.SignIn.Method == directory.OIDC {
		var up connect.Upstream
		if target, up, err = a.OIDC.Begin(ctx, company, kept.Force); err != nil {
			return s, "", Upstream(err)
		}
		w.Upstream, secret = &up, up.State
	} else {
		secret = keys.RandomToken(s.ID)
		if target, err = loginURL(company.SignIn.LoginURL, secret, kept.Force); err != nil {
			return s, "", err
		}
	}
	s.UpstreamHash = keys.HashToken(company.Scope.CompanyID(), secret)
	if s, err = a.seal(company, s, w); err != nil {
		return s, "", err
	}
	s, err = a.SignIns.Save(ctx, company.Scope, s)
	return s, target, stale(err)
}

// loginURL is the Company's login page with the challenge; its own query is kept.
func loginURL(page, challenge string, force bool) (string, error) {
	u, err := url.Parse(page)
	if err != nil {
		return "", err
	}
	q := url.Values{"login_challenge": {challenge}}
	if force {
		q.Set("prompt", "login")
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += q.Encode()
	return u.String(), nil
}

// Login checks what the User typed on our form, in a request from address. It reports
// whether that was right; a one-time code may be needed all the same.
func (a *App) Login(ctx context.Context, company *directory.Company, s store.SignIn, address string, fields map[string]string) (bool, error) {
	if s.Stage != store.StageLogin || Leaves(company) {
		return false, expired()
	}
	if _, _, err := a.recheck(ctx, company, s); err != nil {
		return false, err
	}
	next, verdict, err := a.Credentials.Start(ctx, company, s, address, fields)
	if err != nil {
		return false, Upstream(err)
	}
	switch verdict.Outcome {
	case connect.Complete:
		return true, a.identified(ctx, company, next, verdict.Account)
	case connect.CodeRequired:
		_, err := a.SignIns.Save(ctx, company.Scope, next)
		return true, stale(err)
	case connect.Failed:
	}
	return false, nil
}

// Code checks the one-time code that the User typed. It reports whether it was right;
// once no try is left, the sign-in is over with an error. After CODE_EXPIRED it is at
// the login again.
func (a *App) Code(ctx context.Context, company *directory.Company, s store.SignIn, code string) (bool, error) {
	if s.Stage != store.StageCode || Leaves(company) {
		return false, expired()
	}
	if _, _, err := a.recheck(ctx, company, s); err != nil {
		return false, err
	}
	next, verdict, err := a.Credentials.Code(ctx, company, s.ID, code)
	if errors.Is(err, credentials.ErrCodeExpired) {
		return false, a.codeExpired(ctx, company, next)
	}
	if err != nil {
		return false, Upstream(stale(err))
	}
	switch verdict.Outcome {
	case connect.Complete:
		return true, a.identified(ctx, company, next, verdict.Account)
	case connect.Failed:
		return false, a.outOfTries(ctx, company, s)
	case connect.CodeRequired:
	}
	return false, nil
}

// codeExpired goes back to the login form, for a new code.
func (a *App) codeExpired(ctx context.Context, company *directory.Company, s store.SignIn) error {
	s.Stage, s.Sealed, s.CodeSentTo = store.StageLogin, nil, ""
	if _, err := a.SignIns.Save(ctx, company.Scope, s); err != nil {
		return stale(err)
	}
	return problem.New(problem.Invalid, CodeExpired, "", "the one-time code has expired")
}

// identified goes on to consent with the account that the User proved to be theirs.
func (a *App) identified(ctx context.Context, company *directory.Company, s store.SignIn, account connect.Account) error {
	s.Stage, s.Account, s.AccountLabel = store.StageConsent, account.ID, account.Label
	s.UpstreamHash, s.Sealed, s.CodeSentTo = "", nil, ""
	_, err := a.SignIns.Save(ctx, company.Scope, s)
	return stale(err)
}

// Restart has the User sign in anew, such as to another account.
func (a *App) Restart(ctx context.Context, company *directory.Company, s store.SignIn) error {
	if s.Stage != store.StageConsent && s.Stage != store.StageCode {
		return expired()
	}
	s.Stage, s.Account, s.AccountLabel, s.UpstreamHash, s.CodeSentTo = store.StageLogin, "", "", "", ""
	s, err := a.seal(company, s, waiting{Force: true})
	if err != nil {
		return err
	}
	_, err = a.SignIns.Save(ctx, company.Scope, s)
	return stale(err)
}
