package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// The clauses of opening a Session.
const (
	OwnSession  clause.ID = "poppy-0.1/4.2#39"
	LiveSession clause.ID = "poppy-0.1/4.2#43"
)

// Opening asks for a Session Token for what a Session assertion says.
type Opening struct {
	Request
	UserID string
}

// Open starts a Session, or renews one with a signed-out token (Poppy 4.2). Where
// the Company wants nonces, errors carry one under problem.DPoPNonce.
func (a *App) Open(ctx context.Context, scope tenancy.Scope, r Opening) (issued Issued, err error) {
	defer func() { a.counts.open(ctx, issued, err) }()
	asked := store.Asked{ClientID: r.ClientID, SessionID: r.SessionID}
	return a.answer(ctx, scope, asked, func(company *directory.Company, o store.Opening, now time.Time) (Issued, error) {
		return a.open(ctx, company, o, r, now)
	})
}

func (a *App) open(ctx context.Context, company *directory.Company, o store.Opening, r Opening, now time.Time) (Issued, error) {
	p, err := a.begin(company, o.Standing, r.Request, now)
	if err != nil {
		return Issued{}, err
	}
	create := r.SessionID == ""
	if create {
		if ok, wait := a.Usage.Allow(company.Scope, usage.SessionQuota); !ok {
			return Issued{}, tooMany(StartLimit, wait, "the Company takes no more Sessions for now")
		}
	}
	session := store.Session{ClientID: r.ClientID, AgentName: r.AgentName, UserID: r.UserID, Extensions: listed(r.Extensions), CreatedAt: now, LastUsedAt: now}
	if create {
		session.ID = ids.New(ids.Session)
	} else {
		if err := checkSession(o.Session, r.ClientID, r.UserID, company, now); err != nil {
			return Issued{}, err
		}
		session.ID = o.Session.ID
	}
	if err := a.claim(ctx, company.Scope, p.once); err != nil {
		return Issued{}, err
	}
	// A signed-in Session stays so; its token here is signed out all the same (decision 12).
	issued, token := issue(company, p, session.ID, now)
	issued.Created = create
	err = a.Store.Issue(ctx, company.Scope, session, create, token)
	if errors.Is(err, store.ErrEnded) {
		return Issued{}, invalidSession(LiveSession)
	}
	if err != nil {
		return Issued{}, err
	}
	if create {
		a.Usage.Add(company.Scope, usage.Sessions, 1)
	}
	a.Log.InfoContext(ctx, "session token issued", "session", session.ID, "client_id", r.ClientID, "created", create, "scheme", string(issued.Scheme))
	return issued, nil
}

// checkSession gives one answer for every reason, so that ids of others can't be told from unknown ones.
func checkSession(s *store.Session, clientID, userID string, c *directory.Company, now time.Time) error {
	if s == nil || s.ClientID != clientID || s.UserID != userID {
		return invalidSession(OwnSession)
	}
	if over(*s, c.SessionIdleLifetime, now) {
		return invalidSession(LiveSession)
	}
	return nil
}

func invalidSession(id clause.ID) error {
	return problem.New(problem.Invalid, problem.InvalidSession, id, "there is no such Session of this client and User; start a new one")
}

// over reports whether a Session has ended, or was idle for so long that it counts
// as ended. Uses are noted to the minute, which is given to the agent.
func over(s store.Session, idle time.Duration, now time.Time) bool {
	return !s.EndedAt.IsZero() || idle > 0 && now.Sub(s.LastUsedAt) > idle+touchEvery
}
