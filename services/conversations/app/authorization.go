package app

import (
	"context"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// What a User reads where the Company asks for a sign-in without a word of its own:
// one who talks in a Direct Conversation sees messages only (Poppy 7.11).
const (
	signInNotice = "To go on with this, please sign in to your account."
	scopeNotice  = "To go on with this, more access to your account is needed. Please allow it."
)

// asking gives acts that ask for a sign-in a message that says so, unless they have one.
func asking(acts conversation.Acts) conversation.Acts {
	if acts.Authorization == nil || len(acts.Messages) > 0 {
		return acts
	}
	text := signInNotice
	if acts.Authorization.Error == "insufficient_scope" {
		text = scopeNotice
	}
	acts.Messages = []conversation.MessagePayload{notice(text)}
	return acts
}

// checkOffered reports the first scope of a that no sign-in of the Company could give.
func checkOffered(co *directory.Company, a *conversation.AuthorizationPayload) error {
	if a == nil {
		return nil
	}
	for _, scope := range strings.Fields(a.Scope) {
		if !offers(co, scope) {
			return problem.New(problem.Invalid, problem.InvalidRequest, "poppy-0.1/7.11#6", "the company doesn't offer the scope %s", scope).
				WithField("authorization.scope", "the company doesn't offer "+scope)
		}
	}
	return nil
}

func offers(co *directory.Company, scope string) bool {
	if slices.Contains(co.CustomScopes, scope) {
		return true
	}
	for _, by := range []directory.SignInType{directory.Direct, directory.Device, directory.Mediated} {
		if slices.Contains(co.SignIn.Scopes(by), scope) {
			return true
		}
	}
	return false
}

// offered is checkOffered for the Company of scope. It looks the Company up only where
// a names scopes.
func (a *App) offered(ctx context.Context, scope tenancy.Scope, asks *conversation.AuthorizationPayload) (refused, err error) {
	if asks == nil || asks.Scope == "" {
		return nil, nil
	}
	co, err := a.companies.Get(ctx, scope)
	if err != nil {
		return nil, err
	}
	return checkOffered(co, asks), nil
}
