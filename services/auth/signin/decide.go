package signin

import (
	"context"
	"net/url"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// An Ending is how a sign-in ended. Where Location is set, the browser goes there.
type Ending struct {
	Location string
	Approved bool
}

// Approve grants the ticked scopes, as far as they were asked for and may still be
// granted. None ticked counts as declining (decision 41).
func (a *App) Approve(ctx context.Context, company *directory.Company, s store.SignIn, ticked []string) (Ending, error) {
	ctx = tenancy.Into(ctx, company.Scope)
	if s.Stage != store.StageConsent || s.Account == "" {
		return Ending{}, expired()
	}
	if len(ticked) == 0 {
		return a.decline(ctx, company, s, problem.New(problem.Forbidden, AccessDenied, NoneApproved, "the User approved no scope"))
	}
	requested, err := oauth.ParseScope(s.Scope)
	if err != nil {
		return Ending{}, err
	}
	if !requested.Covers(ticked) {
		return Ending{}, problem.New(problem.Invalid, problem.InvalidRequest, Asked, "a scope was approved that was not asked for")
	}
	found, asked, err := a.recheck(ctx, company, s)
	if err != nil {
		return Ending{}, err
	}
	if s.Kind == directory.Direct && !found.Document.HasRedirectURI(s.RedirectURI) {
		return Ending{}, notRegistered()
	}
	var granted oauth.Scope
	for _, name := range asked {
		if oauth.Scope(ticked).Contains(name) {
			granted = append(granted, name)
		}
	}
	if len(granted) == 0 {
		return Ending{}, notOffered()
	}
	return a.grant(ctx, company, s, granted)
}

func (a *App) grant(ctx context.Context, company *directory.Company, s store.SignIn, scope oauth.Scope) (Ending, error) {
	done, err := a.finish(ctx, company, s)
	if err != nil {
		return Ending{}, err
	}
	account := &sessionsv1.Account{Id: s.Account, Label: s.AccountLabel}
	if s.Kind == directory.Device {
		_, err := a.Sessions.DecideDevice(ctx, &sessionsv1.DecideDeviceRequest{DeviceId: s.DeviceID, ApprovedScope: scope.String(), Account: account})
		return Ending{Approved: true}, a.undone(ctx, company, s, done, err)
	}
	issued, err := a.Sessions.IssueCode(ctx, &sessionsv1.IssueCodeRequest{
		ClientId: s.ClientID, AgentName: s.AgentName, RedirectUri: s.RedirectURI, CodeChallenge: s.CodeChallenge, Scope: scope.String(), Account: account,
		Resource: s.Resource,
	})
	if err != nil {
		return Ending{}, a.undone(ctx, company, s, done, err)
	}
	return Ending{Approved: true, Location: location(company, s.RedirectURI, s.State, url.Values{"code": {issued.GetCode()}})}, nil
}

// finish claims the decision: of any number at once, one gets it.
func (a *App) finish(ctx context.Context, company *directory.Company, s store.SignIn) (store.SignIn, error) {
	s.Stage, s.Account, s.AccountLabel, s.UpstreamHash, s.Sealed, s.CodeSentTo = store.StageDone, "", "", "", nil, ""
	done, err := a.SignIns.Save(ctx, company.Scope, s)
	return done, stale(err)
}

// undone gives a decision that could not be carried out back to the User, where it may
// work later. before is the sign-in as it was, done as it was stored.
func (a *App) undone(ctx context.Context, company *directory.Company, before, done store.SignIn, err error) error {
	switch {
	case err == nil:
		return nil
	case problem.Is(err, problem.NotFoundReason): // decided elsewhere, or run out
		return expired()
	case problem.Is(err, problem.InvalidClient):
		p := problem.As(err)
		return problem.New(problem.Forbidden, AgentRefused, p.Clause, "%s", p.Detail)
	}
	if problem.As(err).Kind == problem.Unavailable {
		before.Version = done.Version
		// The User starts again where this fails too.
		_, _ = a.SignIns.Save(ctx, company.Scope, before)
	}
	return err
}

// Decline ends the sign-in without a grant, at whatever stage it is.
func (a *App) Decline(ctx context.Context, company *directory.Company, s store.SignIn) (Ending, error) {
	return a.decline(tenancy.Into(ctx, company.Scope), company, s, problem.New(problem.Forbidden, AccessDenied, Declined, "the User declined"))
}

func (a *App) decline(ctx context.Context, company *directory.Company, s store.SignIn, why *problem.Error) (Ending, error) {
	done, err := a.finish(ctx, company, s)
	if err != nil {
		return Ending{}, err
	}
	if s.Kind == directory.Device {
		_, err := a.Sessions.DecideDevice(ctx, &sessionsv1.DecideDeviceRequest{DeviceId: s.DeviceID})
		return Ending{}, a.undone(ctx, company, s, done, err)
	}
	return Ending{Location: a.backTo(ctx, company, s, why)}, nil
}

// backTo is where an agent gets an error of a sign-in that went on for a while. Without
// a document that has the redirect_uri now, the browser stays here.
func (a *App) backTo(ctx context.Context, company *directory.Company, s store.SignIn, why *problem.Error) string {
	found, err := a.find(ctx, company, s.ClientID, s.Resource)
	if err != nil || !found.Document.HasRedirectURI(s.RedirectURI) {
		return ""
	}
	return location(company, s.RedirectURI, s.State, url.Values{"error": {why.Reason.Wire()}, "error_description": {why.Detail}})
}

// outOfTries ends a sign-in whose one-time code was wrong too often. The agent of a
// Direct Sign-In is told, a user code may be used again.
func (a *App) outOfTries(ctx context.Context, company *directory.Company, s store.SignIn) error {
	failed := problem.New(problem.Forbidden, AccessDenied, "", "the one-time code was wrong too often")
	if s.Kind == directory.Direct {
		if to := a.backTo(ctx, company, s, failed); to != "" {
			return &ReturnError{Location: to, Cause: failed}
		}
	}
	return problem.New(problem.Forbidden, LoginFailed, "", "%s", failed.Detail)
}
