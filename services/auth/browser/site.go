// Package browser is the HTTP of browsers: of Users' on the sign-in pages, with cookies,
// forms, redirects and which page shows what, and of Personal Agents' that join a Session.
// How a sign-in goes on is decided in package signin, who may join in package app, how a
// page looks in web/pages.
//
// Secrets of this part are in queries, forms and cookies, so none of those is ever
// logged. GET and HEAD decide nothing (Poppy 4.6).
package browser

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/agents"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/signin"
	"github.com/poppyfield/poppyfield/web/pages"
)

// Config of the pages.
type Config struct {
	// TrustedProxies are believed about the client's address.
	TrustedProxies []netip.Prefix
	// PerMinute bounds the requests of one client address to one Company's pages; 0 or
	// less is no bound.
	PerMinute int
}

// Form says what a Company's own login form has.
type Form interface {
	Fields(company *directory.Company) []discovery.MediatedField
	// TestUsers are the made-up accounts of a Company for trying out.
	TestUsers(company *directory.Company) ([]connect.TestUser, error)
}

// Fetcher fetches agents' logos, past the address guard.
type Fetcher interface {
	Fetch(ctx context.Context, r agents.Request) (agents.Response, error)
}

// Deps is what the pages work with.
type Deps struct {
	App   *signin.App
	Form  Form
	Logos Fetcher
	Joins Joins
	// Limiter counts requests of addresses; nil for one of this process alone.
	Limiter *limit.Limiter
	Now     clock.Clock
	Log     *slog.Logger
}

// Site answers browsers.
type Site struct {
	cfg   Config
	app   *signin.App
	form  Form
	joins Joins
	logos *logos
	pages *pages.Renderer
	flood *limit.Limiter
	now   clock.Clock
	log   *slog.Logger
}

// New makes the site.
func New(cfg Config, d Deps) (*Site, error) {
	if d.App == nil || d.Form == nil || d.Logos == nil || d.Joins == nil || d.Now == nil || d.Log == nil {
		return nil, errors.New("browser: a dependency is missing")
	}
	renderer, err := pages.New()
	if err != nil {
		return nil, err
	}
	return &Site{
		cfg: cfg, app: d.App, form: d.Form, joins: d.Joins, logos: newLogos(d.Logos, d.Now), pages: renderer,
		flood: limit.Or(d.Limiter), now: d.Now, log: d.Log,
	}, nil
}

// Routes of the site.
func (s *Site) Routes() []publicweb.Route {
	page := func(method, path string, h publicweb.Handler) publicweb.Route {
		return publicweb.Route{Method: method, Path: path, Handler: s.limited(h), Caller: publicweb.Browser}
	}
	return []publicweb.Route{
		page(http.MethodGet, "/oauth/authorize", s.authorize),
		page(http.MethodGet, "/oauth/callback", s.callback),
		page(http.MethodGet, "/device", s.deviceForm),
		page(http.MethodPost, "/device", s.deviceAnswer),
		page(http.MethodGet, "/sign-in/{id}", s.show),
		page(http.MethodPost, "/sign-in/{id}", s.answer),
		page(http.MethodGet, "/sign-in/{id}/resume", s.resume),
		page(http.MethodGet, "/sign-in/{id}/agent-logo", s.agentLogo),
		page(http.MethodGet, "/account/agents", s.connectedAgents),
		page(http.MethodPost, "/account/agents", s.disconnectAgents),
		{Method: http.MethodPost, Path: discovery.BrowserSessionPath, Handler: s.limited(s.join), Caller: publicweb.AgentBrowser},
		{Method: http.MethodGet, Path: "/assets/pages-{version}.css", Handler: s.stylesheet, Caller: publicweb.Anyone},
		{Method: http.MethodGet, Path: "/assets/brand.css", Handler: s.brandStylesheet, Caller: publicweb.Anyone},
	}
}

// limited counts the client's address before anything costly is done for it.
func (s *Site) limited(next publicweb.Handler) publicweb.Handler {
	return func(w http.ResponseWriter, r *http.Request, c *directory.Company) {
		if ok, wait := s.flood.Allow(c.Scope.CompanyID()+"\x00"+s.address(r), s.cfg.PerMinute, s.now()); !ok {
			s.fail(w, r, c, problem.New(problem.RateLimited, problem.RateLimitedReason, "poppy-0.1/4.3#46", "too many requests from this address").WithRetryAfter(wait))
			return
		}
		next(w, r, c)
	}
}

func (s *Site) address(r *http.Request) string {
	return limit.Key(limit.ClientAddr(r, s.cfg.TrustedProxies))
}
