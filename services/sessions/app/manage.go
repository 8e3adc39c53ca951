package app

import (
	"context"
	"errors"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// EndSession ends a Session; one that has ended stays as it is.
func (a *App) EndSession(ctx context.Context, scope tenancy.Scope, id string) (store.SessionView, error) {
	s, ended, err := a.Store.End(ctx, scope, id, a.Now())
	if err != nil {
		return store.SessionView{}, found(err)
	}
	if ended {
		a.sessionChanged(ctx, scope, id)
	}
	return a.shown(ctx, scope, s)
}

// Session returns one Session as it stands: one that idled out has its end set.
func (a *App) Session(ctx context.Context, scope tenancy.Scope, id string) (store.SessionView, error) {
	s, err := a.Store.Session(ctx, scope, id)
	if err != nil {
		return store.SessionView{}, found(err)
	}
	return a.shown(ctx, scope, s)
}

// Sessions returns at most limit Sessions, the newest first.
func (a *App) Sessions(ctx context.Context, scope tenancy.Scope, after store.Place, limit int) ([]store.SessionView, error) {
	list, err := a.Store.Sessions(ctx, scope, after, limit)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i], err = a.shown(ctx, scope, list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (a *App) shown(ctx context.Context, scope tenancy.Scope, s store.SessionView) (store.SessionView, error) {
	c, err := a.Companies.Get(ctx, scope)
	if err != nil {
		return store.SessionView{}, err
	}
	if s.EndedAt.IsZero() && over(s.Session, c.SessionIdleLifetime, a.Now()) {
		s.EndedAt = s.LastUsedAt.Add(c.SessionIdleLifetime)
	}
	return s, nil
}

// Admission returns the Company's policy.
func (a *App) Admission(ctx context.Context, scope tenancy.Scope) (store.Admission, error) {
	return a.Store.Admission(ctx, scope)
}

// SaveAdmission replaces the policy that has p's version.
func (a *App) SaveAdmission(ctx context.Context, scope tenancy.Scope, p store.Admission) (store.Admission, error) {
	p.UpdatedAt = a.Now()
	saved, err := a.Store.SaveAdmission(ctx, scope, p)
	if errors.Is(err, store.ErrStale) {
		return store.Admission{}, Stale()
	}
	if err != nil {
		return store.Admission{}, err
	}
	a.admissionChanged(ctx, scope)
	return saved, nil
}

// Rules returns at most limit rules with ids above after, oldest first.
func (a *App) Rules(ctx context.Context, scope tenancy.Scope, after string, limit int) ([]store.Rule, error) {
	return a.Store.Rules(ctx, scope, after, limit)
}

// PutRule adds the rule of an agent, or replaces the one it has.
func (a *App) PutRule(ctx context.Context, scope tenancy.Scope, r store.Rule) (store.Rule, error) {
	now := a.Now()
	if err := parseClientID(r.ClientID); err != nil {
		return store.Rule{}, badField("admission_rule.client_id", "is no client_id: "+problem.As(err).Detail)
	}
	if !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(now) {
		return store.Rule{}, badField("admission_rule.expire_time", "is in the past")
	}
	if strings.ContainsRune(r.Reason, 0) {
		return store.Rule{}, badField("admission_rule.reason", "holds a NUL")
	}
	r.ID, r.CreatedAt = ids.New(ids.AdmissionRule), now
	saved, err := a.Store.PutRule(ctx, scope, r)
	if err != nil {
		return store.Rule{}, err
	}
	a.admissionChanged(ctx, scope)
	return saved, nil
}

// DeleteRule removes a rule.
func (a *App) DeleteRule(ctx context.Context, scope tenancy.Scope, id string) error {
	if err := a.Store.DeleteRule(ctx, scope, id, a.Now()); err != nil {
		return found(err)
	}
	a.admissionChanged(ctx, scope)
	return nil
}

func (a *App) sessionChanged(ctx context.Context, scope tenancy.Scope, id string) {
	subject, err := bus.SessionSubject(scope.CompanyID(), id)
	a.ring(ctx, subject, err)
}

func (a *App) admissionChanged(ctx context.Context, scope tenancy.Scope) {
	subject, err := bus.CompanySubject(scope.CompanyID())
	a.ring(ctx, subject, err)
}

// Stale is the answer to a change of something that somebody else changed meanwhile.
func Stale() error {
	return problem.New(problem.Conflict, problem.EtagMismatch, "", "it was changed meanwhile; read it again")
}

func found(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return problem.New(problem.NotFound, problem.NotFoundReason, "", "not found")
	}
	return err
}

func badField(path, detail string) error {
	return problem.New(problem.Invalid, problem.InvalidRequest, "", "%s %s", path, detail).WithField(path, detail)
}
