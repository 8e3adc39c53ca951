// Package publicweb routes requests of the Internet to the endpoints of Companies.
// The Host and the path only select a Company; every URL that is published or
// compared comes from the Company's configured issuer. It never redirects
// (decision 27): a path fits exactly or isn't found.
package publicweb

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Handler answers a request to one Company's endpoint. Path parameters are in r.PathValue.
type Handler func(w http.ResponseWriter, r *http.Request, c *directory.Company)

// Route is an endpoint below a Company's issuer.
type Route struct {
	// Method, such as "POST"; "GET" answers HEAD too.
	Method string
	// Path below the issuer, with at most one parameter in a segment:
	// "/poppy/conversations/{id}/events", "/assets/pages-{version}.css". A last segment such
	// as "{path...}" stands for any number of them.
	Path    string
	Handler Handler
	// WellKnown marks a path that, for an issuer with a path, is also found inserted between host and path (RFC 8414 3.1).
	WellKnown bool
	// OfHost marks a path below the host itself, whatever the issuer's is.
	OfHost bool
	// Caller says who may call. A route that doesn't say is not served.
	Caller Caller
}

// Caller is who a route is for, and so what its handler establishes before anything else.
type Caller uint8

// The callers.
const (
	// Anyone reads a public document, from pages of any origin too: such routes answer preflight requests.
	Anyone Caller = iota + 1
	// Client is a Personal Agent that proves itself by its client assertion (Poppy 4.1).
	Client
	// Session is a Personal Agent with a Session Token and a proof (Poppy 4.3).
	Session
	// Browser is a User's browser on the sign-in pages: what it may do depends on the
	// sign-in that its cookie or link belongs to.
	Browser
	// AgentBrowser is a Personal Agent's browser with an assertion of its agent (Poppy 5).
	AgentBrowser
	// Stranger is a program that nothing is known of but its address: it asks to become a client.
	Stranger
)

func (c Caller) String() string {
	switch c {
	case Anyone:
		return "anyone"
	case Client:
		return "client"
	case Session:
		return "session"
	case Browser:
		return "browser"
	case AgentBrowser:
		return "agent's browser"
	case Stranger:
		return "stranger"
	}
	return "nobody"
}

// Resolver finds the Company of a host and path.
type Resolver interface {
	Resolve(ctx context.Context, host, path string) (*directory.Company, error)
}

// Router is the public surface of the installation.
type Router struct {
	companies Resolver
	routes    []route
	flood     Flood
}

// Flood bounds what one client address may ask of one Company, whatever it asks for. The zero value is no bound.
type Flood struct {
	Limiter        *limit.Limiter
	PerMinute      int // 0 or less: no bound
	TrustedProxies []netip.Prefix
	Now            clock.Clock
}

const floodLimit clause.ID = "poppy-0.1/4.3#46"

// check counts a request before anything is done for it.
func (f Flood) check(r *http.Request, c *directory.Company) error {
	if f.Limiter == nil {
		return nil
	}
	key := c.Scope.CompanyID() + "\x00" + limit.Key(limit.ClientAddr(r, f.TrustedProxies))
	if ok, wait := f.Limiter.Allow(key, f.PerMinute, f.Now()); !ok {
		return problem.New(problem.RateLimited, problem.RateLimitedReason, floodLimit, "too many requests from this address").WithRetryAfter(wait)
	}
	return nil
}

type route struct {
	Route
	name     string
	segments []segment
	rest     bool // the last segment is left out: it fits everything
}

// segment is a part of a path: what has to be there or, around a parameter, before and after it.
type segment struct{ before, param, after string }

func segmentsOf(path string) []segment {
	var out []segment
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		before, rest, _ := strings.Cut(part, "{")
		param, after, _ := strings.Cut(rest, "}")
		out = append(out, segment{before, param, after})
	}
	return out
}

// value returns what of part fills the parameter, and whether part fits.
func (s segment) value(part string) (string, bool) {
	if s.param == "" {
		return "", part == s.before
	}
	rest, ok := strings.CutPrefix(part, s.before)
	if !ok {
		return "", false
	}
	value, ok := strings.CutSuffix(rest, s.after)
	return value, ok && value != ""
}

// New makes a router over routes.
func New(companies Resolver, routes []Route) *Router {
	rt := &Router{companies: companies}
	for _, r := range routes {
		if r.Caller == 0 {
			continue
		}
		one := route{Route: r, name: r.Method + " " + r.Path, segments: segmentsOf(r.Path)}
		if last := len(one.segments) - 1; strings.HasSuffix(one.segments[last].param, "...") {
			one.segments, one.rest = one.segments[:last], true
		}
		rt.routes = append(rt.routes, one)
	}
	return rt
}

// Bound has the router refuse what is more than f.
func (rt *Router) Bound(f Flood) *Router {
	rt.flood = f
	return rt
}

// Table says of every route, as "METHOD /path", who may call it.
func (rt *Router) Table() map[string]Caller {
	out := make(map[string]Caller, len(rt.routes))
	for _, r := range rt.routes {
		out[r.name] = r.Caller
	}
	return out
}

// ServeHTTP implements http.Handler.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, ok := httpx.NormalizeHost(r.Host)
	if !ok {
		httpx.WriteNotFound(w)
		return
	}
	// The path as it came: a decoded slash must not become a separator.
	path := r.URL.EscapedPath()
	c, err := rt.companies.Resolve(r.Context(), host, path)
	if err != nil {
		if problem.Is(err, problem.NotFoundReason) {
			httpx.WriteNotFound(w)
			return
		}
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
		return
	}
	if err := rt.flood.check(r, c); err != nil {
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
		return
	}
	var allowed []string
	candidates, n := below(path, c.Issuer.Path())
	if host == c.Issuer.Hostname() {
		candidates[n] = candidate{path: path, ofHost: true}
		n++
	} else {
		// The Company's browser session endpoint, which alone is found elsewhere.
		candidates, n = [3]candidate{{path: discovery.BrowserSessionPath}}, 1
	}
	for _, candidate := range candidates[:n] {
		for i := range rt.routes {
			r2 := &rt.routes[i]
			if candidate.wellKnown && !r2.WellKnown || candidate.ofHost != r2.OfHost || !r2.matches(candidate.path) {
				continue
			}
			if r2.Caller == Anyone && r.Method == http.MethodOptions {
				preflight(w)
				return
			}
			if r.Method != r2.Method && (r.Method != http.MethodHead || r2.Method != http.MethodGet) {
				allowed = append(allowed, r2.methods()...)
				continue
			}
			r2.setValues(r, candidate.path)
			r.Pattern = r2.name
			r2.Handler(w, r, c)
			return
		}
	}
	if len(allowed) > 0 {
		slices.Sort(allowed)
		httpx.WriteMethodNotAllowed(w, slices.Compact(allowed)...)
		return
	}
	httpx.WriteNotFound(w)
}

// methods lists what the route answers.
func (r *route) methods() []string {
	out := []string{r.Method}
	if r.Method == http.MethodGet {
		out = append(out, http.MethodHead)
	}
	if r.Caller == Anyone {
		out = append(out, http.MethodOptions)
	}
	return out
}

type candidate struct {
	path      string
	wellKnown bool
	ofHost    bool
}

// below returns the path as seen from the issuer: without the issuer's path, and,
// for a well-known path, with the issuer's path taken off the end (RFC 8414 3.1).
// A proxy may have taken the issuer's path off already, so the path as it is counts as well.
// There is room for one more.
func below(path, issuerPath string) (out [3]candidate, n int) {
	if issuerPath == "" {
		return [3]candidate{{path: path}}, 1
	}
	if rest, ok := strings.CutPrefix(path, issuerPath); ok && strings.HasPrefix(rest, "/") {
		out[n] = candidate{path: rest}
		n++
	}
	if rest, ok := strings.CutSuffix(path, issuerPath); ok && strings.HasPrefix(rest, "/.well-known/") {
		out[n] = candidate{path: rest, wellKnown: true}
		n++
	}
	if n == 0 && !strings.HasPrefix(path, "/.well-known/") {
		return [3]candidate{{path: path}}, 1
	}
	return out, n
}

// matches reports whether path has the route's segments, and something for each parameter.
func (r *route) matches(path string) bool {
	rest, more := strings.TrimPrefix(path, "/"), true
	for _, want := range r.segments {
		if !more {
			return false
		}
		var got string
		got, rest, more = strings.Cut(rest, "/")
		if _, ok := want.value(got); !ok {
			return false
		}
	}
	return more == r.rest
}

// setValues gives the handler the parameters in a path that matches.
func (r *route) setValues(req *http.Request, path string) {
	rest := strings.TrimPrefix(path, "/")
	for _, want := range r.segments {
		var got string
		got, rest, _ = strings.Cut(rest, "/")
		if value, ok := want.value(got); ok && want.param != "" {
			req.SetPathValue(want.param, value)
		}
	}
}

func preflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD")
	h.Set("Access-Control-Allow-Headers", "If-None-Match")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}
