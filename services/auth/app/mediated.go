package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/mediated"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/credentials"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Credentials checks credentials and one-time codes, as credentials.Checker does.
type Credentials interface {
	Start(ctx context.Context, company *directory.Company, s store.SignIn, address string, fields map[string]string) (store.SignIn, connect.Verdict, error)
	Code(ctx context.Context, company *directory.Company, signInID, code string) (store.SignIn, connect.Verdict, error)
}

// Caller is the Session that a Mediated Sign-In is for, as its token says.
type Caller struct {
	SessionID, ClientID, AgentName, UserID string
	JKT                                    string // of the key that the token is bound to
	Address                                string // the request's, in the form of limit.Key
}

// Mediated is how a Mediated Sign-In stands after a request.
type Mediated struct {
	Status mediated.Status
	// Tokens are set at Complete.
	Tokens *sessionsv1.IssuedTokens
	// CodeRequired: the sign-in, where its code went, and until when.
	SignInID, SentTo string
	ExpiresAt        time.Time
}

// SignIn starts a Mediated Sign-In of the caller's Session (Poppy 4.7).
func (a *App) SignIn(ctx context.Context, company *directory.Company, caller Caller, r mediated.Request) (Mediated, error) {
	ctx = tenancy.Into(ctx, company.Scope)
	scope, err := oauth.CheckRequestedScope(r.Scope(), company.SignIn.Scopes(directory.Mediated))
	if err != nil {
		return Mediated{}, err
	}
	now := a.Now()
	s := store.SignIn{
		ID: ids.New(ids.SignIn), Kind: directory.Mediated, Stage: store.StageLogin, Scope: scope.String(),
		ClientID: caller.ClientID, AgentName: caller.AgentName, SessionID: caller.SessionID, UserID: caller.UserID,
		CreatedAt: now, ExpiresAt: now,
	}
	s, verdict, err := a.Credentials.Start(ctx, company, s, caller.Address, r.Credentials())
	if err != nil {
		return Mediated{}, unreachable(err)
	}
	switch verdict.Outcome {
	case connect.Complete:
		return a.complete(ctx, caller, s, verdict.Account)
	case connect.CodeRequired:
		if err := a.Pending.Create(ctx, company.Scope, s); err != nil {
			return Mediated{}, err
		}
		return codeRequired(s), nil
	case connect.Failed:
	}
	return Mediated{Status: mediated.Failed}, nil
}

// Code goes on with a Mediated Sign-In by its one-time code.
func (a *App) Code(ctx context.Context, company *directory.Company, caller Caller, id, code string) (Mediated, error) {
	ctx = tenancy.Into(ctx, company.Scope)
	s, err := a.Pending.Find(ctx, company.Scope, id)
	if errors.Is(err, store.ErrNotFound) {
		return Mediated{}, mediated.NotFound()
	}
	if err != nil {
		return Mediated{}, err
	}
	switch {
	// Those of the pages have no Session and are none of an agent's business.
	case s.Kind != directory.Mediated || s.SessionID != caller.SessionID: // poppy-0.1/4.7#20
		return Mediated{}, mediated.NotFound()
	case s.Stage == store.StageDone && s.Account == "":
		return Mediated{Status: mediated.Failed}, nil
	case s.Stage != store.StageCode:
		return Mediated{}, mediated.NotFound()
	case !a.Now().Before(s.ExpiresAt): // poppy-0.1/4.7#22
		return Mediated{Status: mediated.Expired}, nil
	}
	if _, err := oauth.CheckRequestedScope(s.Scope, company.SignIn.Scopes(directory.Mediated)); err != nil {
		return Mediated{}, err // what the Company offers has changed meanwhile
	}
	s, verdict, err := a.Credentials.Code(ctx, company, id, code)
	if errors.Is(err, store.ErrNotFound) {
		return Mediated{}, mediated.NotFound()
	}
	if errors.Is(err, credentials.ErrCodeExpired) { // in the moment since it was looked at
		return Mediated{Status: mediated.Expired}, nil
	}
	if err != nil {
		return Mediated{}, unreachable(err)
	}
	switch verdict.Outcome {
	case connect.Complete:
		return a.finish(ctx, company, caller, s, verdict.Account)
	case connect.CodeRequired:
		return codeRequired(s), nil
	case connect.Failed:
	}
	return Mediated{Status: mediated.Failed}, nil
}

// finish marks the sign-in as over before it gives anything, so that of several right
// codes one does.
func (a *App) finish(ctx context.Context, company *directory.Company, caller Caller, s store.SignIn, account connect.Account) (Mediated, error) {
	for {
		s.Stage, s.Sealed, s.Account = store.StageDone, nil, account.ID
		_, err := a.Pending.Save(ctx, company.Scope, s)
		if err == nil {
			return a.complete(ctx, caller, s, account)
		}
		if !errors.Is(err, store.ErrStale) {
			return Mediated{}, err
		}
		// A parallel try of a wrong code has written; only one that ended it matters.
		if s, err = a.Pending.Find(ctx, company.Scope, s.ID); err != nil {
			return Mediated{}, err
		}
		if s.Stage != store.StageCode {
			return Mediated{}, mediated.NotFound()
		}
	}
}

func (a *App) complete(ctx context.Context, caller Caller, s store.SignIn, account connect.Account) (Mediated, error) {
	got, err := a.SignIns.SignIn(ctx, &sessionsv1.SignInRequest{
		SessionId: caller.SessionID, ClientId: caller.ClientID, Jkt: caller.JKT, Scope: s.Scope,
		Account: &sessionsv1.Account{Id: account.ID, Label: account.Label},
	})
	if err != nil {
		return Mediated{}, err
	}
	return Mediated{Status: mediated.Complete, Tokens: got.GetTokens()}, nil
}

func codeRequired(s store.SignIn) Mediated {
	return Mediated{Status: mediated.CodeRequired, SignInID: s.ID, SentTo: s.CodeSentTo, ExpiresAt: s.ExpiresAt}
}

// unreachable says that the Company couldn't be asked; everything else is as it was.
func unreachable(err error) error {
	if !errors.Is(err, connect.ErrUnavailable) {
		return err
	}
	return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the company's sign-in is briefly unavailable").
		WithRetryAfter(5 * time.Second).WithCause(err)
}
