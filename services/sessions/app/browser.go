package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// The clauses of browsers in a Session.
const (
	ActiveSession clause.ID = "poppy-0.1/5#28"
	OwnBrowser    clause.ID = "poppy-0.1/5#29"
)

const (
	cookiePrefix = "pbc"
	// cookieLifetime is how long a browser stays in a Session at most. Its agent posts a new assertion then.
	cookieLifetime = 24 * time.Hour
	// maxCookies is how many cookies of one name are looked at.
	maxCookies = 8
)

// Joining is a browser assertion that passed every check of Poppy 5 but those of the Session and replay.
type Joining struct {
	ClientID, UserID, SessionID string
	Once                        Once
}

// Joined is the cookie of a Session's browser.
type Joined struct {
	Cookie   string
	Lifetime time.Duration
}

// JoinBrowser lets a browser into a Session (Poppy 5). Its cookie takes the place of the
// Session's cookie before.
func (a *App) JoinBrowser(ctx context.Context, scope tenancy.Scope, j Joining) (Joined, error) {
	company, err := a.company(ctx, scope)
	if err != nil {
		return Joined{}, err
	}
	o, err := a.Store.Opening(ctx, scope, store.Asked{ClientID: j.ClientID, SessionID: j.SessionID})
	if err != nil {
		return Joined{}, err
	}
	now := a.Now()
	if err := admitted(o.Standing, now); err != nil {
		return Joined{}, err
	}
	if s := o.Session; s == nil || s.ClientID != j.ClientID || s.UserID != j.UserID {
		return Joined{}, invalidSession(OwnBrowser)
	}
	if over(*o.Session, company.SessionIdleLifetime, now) {
		return Joined{}, invalidSession(ActiveSession)
	}
	if err := a.claim(ctx, scope, []Once{j.Once}); err != nil {
		return Joined{}, err
	}
	out := Joined{Cookie: keys.RandomToken(cookiePrefix), Lifetime: cookieLifetime}
	if idle := company.SessionIdleLifetime; idle > 0 {
		out.Lifetime = min(out.Lifetime, idle)
	}
	err = a.Store.SaveBrowserCookie(ctx, scope, store.BrowserCookie{
		Hash: keys.HashToken(scope.CompanyID(), out.Cookie), SessionID: j.SessionID, CreatedAt: now, ExpiresAt: now.Add(out.Lifetime),
	})
	if errors.Is(err, store.ErrEnded) {
		return Joined{}, invalidSession(ActiveSession)
	}
	if err != nil {
		return Joined{}, err
	}
	a.Log.InfoContext(ctx, "browser joined session", "session", j.SessionID, "client_id", j.ClientID)
	return out, nil
}

// CookieName returns the name that the Company's cookie has. A Company that takes no
// browsers in has none, and is asked for no Session.
func (a *App) CookieName(ctx context.Context, scope tenancy.Scope) (string, error) {
	company, err := a.company(ctx, scope)
	if err != nil {
		return "", err
	}
	if company.Browser == nil {
		return "", problem.New(problem.Conflict, problem.FailedPrecondition, "", "the company's browser_cookie is not set, or the domain of its browser session endpoint not verified")
	}
	return company.Browser.CookieName, nil
}

// Visit says for which Session a browser with these cookies is there, as that Session is
// now. Of several the one set last counts: it has replaced the others (Poppy 5). ok is
// false where none is good.
func (a *App) Visit(ctx context.Context, scope tenancy.Scope, cookies []string) (c Caller, ok bool, err error) {
	company, err := a.company(ctx, scope)
	if err != nil || company.Browser == nil || len(cookies) == 0 {
		return Caller{}, false, err
	}
	hashes := make([]string, 0, len(cookies))
	for _, cookie := range cookies[:min(len(cookies), maxCookies)] {
		hashes = append(hashes, keys.HashToken(scope.CompanyID(), cookie))
	}
	visits, err := a.Store.Visits(ctx, scope, hashes)
	if err != nil {
		return Caller{}, false, err
	}
	now := a.Now()
	good := slices.IndexFunc(visits, func(v store.Visit) bool {
		return now.Before(v.Cookie.ExpiresAt) && !over(v.Session.Session, company.SessionIdleLifetime, now) && !admit(v.Standing, now).refused()
	})
	if good < 0 {
		return Caller{}, false, nil
	}
	v := visits[good]
	if now.Sub(v.Session.LastUsedAt) >= touchEvery {
		a.touches.offer(touch{scope, v.Session.ID, now})
	}
	return visitorOf(v, now), true, nil
}

// visitorOf is the Session as its website shows it: signed in by the Grant that signed it
// in last, with the scopes of that.
func visitorOf(v store.Visit, now time.Time) Caller {
	c := Caller{
		SessionID: v.Session.ID, ClientID: v.Session.ClientID, AgentName: v.Session.AgentName, UserID: v.Session.UserID,
		ExpiresAt: v.Cookie.ExpiresAt, Extensions: v.Session.Extensions,
	}
	if g := v.Session.Grant; g.InForce(now) {
		c.signIn(g, strings.Fields(g.Scope))
	}
	return c
}
