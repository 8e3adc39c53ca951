// Package web is the HTTP of the endpoints that agents call: OAuth's, with forms in
// and JSON out, and Mediated Sign-In's. Nothing is cached, nothing redirected. What a
// request gets is decided in package app.
package web

import (
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/app"
)

// Config of the endpoints.
type Config struct {
	// TrustedProxies are believed about the client's address.
	TrustedProxies []netip.Prefix
	// PerMinute bounds the requests of one client address to one Company, before
	// anything costly is done for them; 0 or less is no bound.
	PerMinute int
}

// Endpoints answers requests to the OAuth endpoints.
type Endpoints struct {
	cfg      Config
	app      *app.App
	sessions sessionsv1.SessionsServiceClient
	asked    Asked
	clients  Registrations
	flood    *limit.Limiter
	now      clock.Clock
	log      *slog.Logger
}

// Deps is what the endpoints work with.
type Deps struct {
	App *app.App
	// Sessions judges the tokens of Mediated Sign-In.
	Sessions sessionsv1.SessionsServiceClient
	// Asked says what a Company asks for in Mediated Sign-In.
	Asked Asked
	// Clients takes clients that register themselves.
	Clients Registrations
	// Limiter counts requests of addresses; nil for one of this process alone.
	Limiter *limit.Limiter
	Now     clock.Clock
	Log     *slog.Logger
}

// New makes the endpoints.
func New(cfg Config, d Deps) *Endpoints {
	return &Endpoints{cfg: cfg, app: d.App, sessions: d.Sessions, asked: d.Asked, clients: d.Clients, flood: limit.Or(d.Limiter), now: d.Now, log: d.Log}
}

// Routes of the endpoints.
func (e *Endpoints) Routes() []publicweb.Route {
	return []publicweb.Route{
		{Method: http.MethodPost, Path: "/oauth/token", Handler: e.token, Caller: publicweb.Client},
		{Method: http.MethodPost, Path: "/oauth/revoke", Handler: e.revoke, Caller: publicweb.Client},
		{Method: http.MethodPost, Path: "/oauth/register", Handler: e.register, Caller: publicweb.Stranger},
		{Method: http.MethodPost, Path: "/oauth/device", Handler: e.device, Caller: publicweb.Client},
		{Method: http.MethodPost, Path: "/poppy/sign-in", Handler: e.mediated(e.signIn), Caller: publicweb.Session},
		{Method: http.MethodPost, Path: "/poppy/sign-in/{id}", Handler: e.mediated(e.code), Caller: publicweb.Session},
	}
}

// form reads the request's form. Everything in it is cheap; what isn't comes after
// the client's address was counted.
func (e *Endpoints) form(w http.ResponseWriter, r *http.Request, c *directory.Company) (oauth.Form, error) {
	if err := e.count(c, e.address(r)); err != nil {
		return oauth.Form{}, err
	}
	if err := oauth.CheckNoTokenInQuery(r.URL.RawQuery); err != nil {
		return oauth.Form{}, err
	}
	if err := oauth.CheckFormContentType(r.Header.Get("Content-Type")); err != nil {
		return oauth.Form{}, err
	}
	body, err := httpx.ReadBody(w, r, oauth.MaxForm)
	if err != nil {
		return oauth.Form{}, err
	}
	return oauth.ParseForm(body)
}

// address names where a request came from, for limiting.
func (e *Endpoints) address(r *http.Request) string {
	return limit.Key(limit.ClientAddr(r, e.cfg.TrustedProxies))
}

func (e *Endpoints) count(c *directory.Company, address string) error {
	if ok, wait := e.flood.Allow(c.Scope.CompanyID()+"\x00"+address, e.cfg.PerMinute, e.now()); !ok {
		return problem.New(problem.RateLimited, problem.RateLimitedReason, "poppy-0.1/4.3#46", "too many requests from this address").WithRetryAfter(wait)
	}
	return nil
}

func (e *Endpoints) refuse(w http.ResponseWriter, r *http.Request, c *directory.Company, err error) {
	p := problem.As(err)
	e.log.InfoContext(r.Context(), "oauth request refused", "route", r.Pattern, "company", c.Scope, "reason", string(p.Reason), "clause", string(p.Clause), "detail", p.Detail)
	httpx.WriteOAuthError(w, r, p, httpx.TokenEndpoint)
}

// uncacheable says so to caches of every age (RFC 6749 section 5.1).
func uncacheable(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
}
