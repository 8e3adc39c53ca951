package signin

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// LoginRequest returns the sign-in whose login_challenge waits for the Company's
// decision. One that is unknown, replaced by a newer one or run out is NOT_FOUND, one
// that was decided FAILED_PRECONDITION.
func (a *App) LoginRequest(ctx context.Context, company *directory.Company, challenge string) (store.SignIn, error) {
	s, w, err := a.challenged(ctx, company, challenge)
	if err == nil && w.Decided != "" {
		err = decided()
	}
	return s, err
}

// AcceptLogin says that the User of the challenge proved to be account's, and returns
// where the browser has to go. Saying so again gives the same answer.
func (a *App) AcceptLogin(ctx context.Context, company *directory.Company, challenge string, account connect.Account) (string, error) {
	return a.decideLogin(ctx, company, challenge, account, false)
}

// RejectLogin says that the User did not sign in, and returns where the browser has to go.
func (a *App) RejectLogin(ctx context.Context, company *directory.Company, challenge string) (string, error) {
	return a.decideLogin(ctx, company, challenge, connect.Account{}, true)
}

func (a *App) decideLogin(ctx context.Context, company *directory.Company, challenge string, account connect.Account, rejected bool) (string, error) {
	s, w, err := a.challenged(ctx, company, challenge)
	if err != nil {
		return "", err
	}
	verifier := a.verifier(company, challenge, account.ID, rejected)
	back := company.Issuer.SignInURL(s.ID) + "/resume?" + url.Values{"login_verifier": {verifier}}.Encode()
	if w.Decided != "" {
		if w.Rejected != rejected || s.Account != account.ID || !sameHash(company, verifier, s.UpstreamHash) {
			return "", decided()
		}
		return back, nil
	}
	s.Account, s.AccountLabel = account.ID, account.Label
	s.UpstreamHash = keys.HashToken(company.Scope.CompanyID(), verifier)
	w.Decided, w.Rejected = keys.HashToken(company.Scope.CompanyID(), challenge), rejected
	if s, err = a.seal(company, s, w); err != nil {
		return "", err
	}
	_, err = a.SignIns.Save(ctx, company.Scope, s)
	if errors.Is(err, store.ErrStale) { // decided at the same moment, or the browser went for a new challenge
		return "", decided()
	}
	return back, err
}

// challenged finds the sign-in of a login_challenge, which begins with its id, decided or not.
func (a *App) challenged(ctx context.Context, company *directory.Company, challenge string) (store.SignIn, waiting, error) {
	idLength := len(ids.New(ids.SignIn))
	if len(challenge) <= idLength || company.SignIn == nil || company.SignIn.Method != directory.Handoff {
		return store.SignIn{}, waiting{}, resource.NotFound()
	}
	s, err := a.SignIns.Find(ctx, company.Scope, challenge[:idLength])
	if errors.Is(err, store.ErrNotFound) {
		return store.SignIn{}, waiting{}, resource.NotFound()
	}
	if err != nil {
		return store.SignIn{}, waiting{}, err
	}
	if s.Kind == directory.Mediated || s.Stage == store.StageCode || !a.Now().Before(s.ExpiresAt) {
		return store.SignIn{}, waiting{}, resource.NotFound()
	}
	if s.Stage != store.StageLogin {
		return store.SignIn{}, waiting{}, decided()
	}
	w, err := a.open(company.Scope.CompanyID(), s)
	if err != nil {
		return store.SignIn{}, waiting{}, err
	}
	hash := s.UpstreamHash
	if w.Decided != "" {
		hash = w.Decided
	}
	if !sameHash(company, challenge, hash) {
		return store.SignIn{}, waiting{}, resource.NotFound()
	}
	return s, w, nil
}

func decided() error {
	return problem.New(problem.Conflict, problem.FailedPrecondition, "", "the login request was decided")
}

// verifier is computed from the decision, so that a repeated call gets the same one
// though only its hash is stored.
func (a *App) verifier(company *directory.Company, challenge, account string, rejected bool) string {
	key := a.Keys.Derive(company.Scope.CompanyID(), "login verifier")
	mac := hmac.New(sha256.New, key[:])
	decision := "accepted"
	if rejected {
		decision = "rejected"
	}
	mac.Write([]byte(challenge + "\x00" + decision + "\x00" + account))
	return "plv_" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
