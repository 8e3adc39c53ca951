package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Once is a value that is good once: a jti that passed every other check.
type Once struct {
	Kind     string // a kind of package replay
	Owner    string // client_id of an assertion, key thumbprint of a proof
	JTI      string
	IssuedAt time.Time
	Until    time.Time // until when it has to be remembered
}

func onceOf(p dpop.VerifiedProof) Once {
	return Once{Kind: replay.KindDPoP, Owner: p.JKT(), JTI: p.JTI(), IssuedAt: p.IssuedAt(), Until: p.ReplayUntil()}
}

// ClaimOnce claims values of requests that open no Session.
func (a *App) ClaimOnce(ctx context.Context, scope tenancy.Scope, once []Once) error {
	return a.claim(ctx, scope, once)
}

// claim claims the values in turn; the first that isn't new decides the error. It
// comes after every other check, so that nobody uses up a jti by a request that
// would have been refused anyway (decision 7).
func (a *App) claim(ctx context.Context, scope tenancy.Scope, once []Once) error {
	for _, o := range once {
		r, ok := replayRule(o.Kind)
		if !ok {
			return errors.New("once-only value of an unknown kind")
		}
		err := a.Memory.Claim(ctx, scope.CompanyID(), o.Kind, o.Owner, o.JTI, o.IssuedAt, o.Until)
		switch {
		case err == nil:
		case errors.Is(err, replay.ErrSeen):
			return problem.New(r.kind, r.reason, r.clause, "the %s was used before", r.name)
		case errors.Is(err, replay.ErrExpired):
			return problem.New(r.kind, r.reason, r.clause, "the %s has expired", r.name)
		case errors.Is(err, replay.ErrBeforeMemory):
			return problem.New(r.kind, r.reason, r.clause, "whether the %s was used before is not known; send a new one", r.name)
		case errors.Is(err, replay.ErrUnavailable):
			return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, r.clause, "the service is briefly unavailable").
				WithRetryAfter(time.Second).WithCause(err)
		default:
			return err
		}
	}
	return nil
}

// A rule says how the reuse of a value is answered.
type rule struct {
	kind   problem.Kind
	reason problem.Reason
	clause clause.ID
	name   string
}

func replayRule(kind string) (rule, bool) {
	switch kind {
	case replay.KindClientAssertion:
		return rule{problem.Unauthenticated, problem.InvalidClient, "poppy-0.1/4.1#d7", "client assertion"}, true
	case replay.KindSessionAssertion:
		return rule{problem.Invalid, problem.InvalidGrant, "poppy-0.1/4.2#20", "Session assertion"}, true
	case replay.KindBrowserAssertion:
		return rule{problem.Invalid, problem.InvalidRequest, "poppy-0.1/5#26", "browser assertion"}, true
	case replay.KindDPoP:
		return rule{problem.Unauthenticated, problem.InvalidDPoPProof, "poppy-0.1/4.3#22", "DPoP proof"}, true
	}
	return rule{}, false
}
