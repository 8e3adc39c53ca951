package app

import (
	"context"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

// Revoke revokes the token of a revocation request (Poppy 4.9, RFC 7009). A token
// that is unknown or another client's is answered like any other (decision 33).
func (a *App) Revoke(ctx context.Context, company *directory.Company, f oauth.Form) error {
	ctx = tenancy.Into(ctx, company.Scope)
	c, err := a.authenticate(ctx, company, f, company.Issuer.RevocationEndpoint())
	if err != nil {
		return err
	}
	token := f.Get("token")
	if token == "" {
		return problem.New(problem.Invalid, problem.InvalidRequest, "RFC7009/2.1", "token is missing")
	}
	if _, err := a.Sessions.ClaimOnce(ctx, &sessionsv1.ClaimOnceRequest{Once: []*sessionsv1.OnceKey{c.once}}); err != nil {
		return err
	}
	_, err = a.Sessions.RevokeToken(ctx, &sessionsv1.RevokeTokenRequest{ClientId: c.id, Token: token})
	return err
}
