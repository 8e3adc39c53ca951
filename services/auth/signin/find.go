package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Find returns the sign-in id under way for the browser that began it, which is the one
// that has its cookie.
func (a *App) Find(ctx context.Context, company *directory.Company, id, cookie string) (store.SignIn, error) {
	s, err := a.SignIns.Find(ctx, company.Scope, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && s.Kind == directory.Mediated {
		return store.SignIn{}, problem.New(problem.NotFound, problem.NotFoundReason, "", "not found")
	}
	if err != nil {
		return store.SignIn{}, err
	}
	return s, a.checkBrowser(company, s, cookie)
}

func (a *App) checkBrowser(company *directory.Company, s store.SignIn, cookie string) error {
	// What is over is over for every browser, and the one that finished it has no cookie any more.
	if s.Stage == store.StageDone || !a.Now().Before(s.ExpiresAt) {
		return expired()
	}
	if !sameHash(company, cookie, s.BrowserHash) {
		return problem.New(problem.Forbidden, OtherBrowser, "", "the browser is not the one that began the sign-in")
	}
	return nil
}

// sameHash compares the hash of a secret with the stored one; an empty one is never right.
func sameHash(company *directory.Company, secret, hash string) bool {
	return hash != "" && subtle.ConstantTimeCompare([]byte(keys.HashToken(company.Scope.CompanyID(), secret)), []byte(hash)) == 1
}

// UserCode returns the user code that the cookie of a Device Sign-In carries. The
// browser typed it and can't change it, since the hash is of the whole.
func UserCode(cookie string) string {
	_, code, _ := strings.Cut(cookie, noteSeparator)
	return code
}

// noteSeparator is not among the characters of a random token.
const noteSeparator = "."
