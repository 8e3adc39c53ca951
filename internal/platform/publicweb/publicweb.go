// Package publicweb routes requests of the Internet to the endpoints of Companies.
// The Host and the path only select a Company; every URL that is published or
// compared comes from the Company's configured issuer. It never redirects
// (decision 27): a path fits exactly or isn't found.
package publicweb

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Handler answers a request to one Company's endpoint. Path parameters are in r.PathValue.
type Handler func(w http.ResponseWriter, r *http.Request, c *directory.Company)

// Route is an endpoint below a Company's issuer.
type Route struct {
	// Method, such as "POST"; "GET" answers HEAD too.
	Method string
	// Path below the issuer, with parameters: "/poppy/conversations/{id}/events".
	Path    string
	Handler Handler
	// WellKnown marks a path that, for an issuer with a path, is also found inserted between host and path (RFC 8414 3.1).
	WellKnown bool
	// Public marks a document that browsers of any origin may read; such routes answer preflight requests.
	Public bool
}

// Resolver finds the Company of a host and path.
type Resolver interface {
	Resolve(ctx context.Context, host, path string) (*directory.Company, error)
}

// Router is the public surface of the installation.
type Router struct {
	companies Resolver
	routes    []route
}

type route struct {
	Route
	segments []string
}

// New makes a router over routes.
func New(companies Resolver, routes []Route) *Router {
	rt := &Router{companies: companies}
	for _, r := range routes {
		rt.routes = append(rt.routes, route{r, strings.Split(strings.TrimPrefix(r.Path, "/"), "/")})
	}
	return rt
}

// Names lists "METHOD /path" of every route, for the table of who may call what.
func (rt *Router) Names() []string {
	var out []string
	for _, r := range rt.routes {
		out = append(out, r.Method+" "+r.Path)
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
	var allowed []string
	for _, candidate := range below(path, c.Issuer.Path()) {
		for _, r2 := range rt.routes {
			if candidate.wellKnown && !r2.WellKnown {
				continue
			}
			params, ok := match(r2.segments, candidate.path)
			if !ok {
				continue
			}
			if r2.Public && r.Method == http.MethodOptions {
				preflight(w)
				return
			}
			if r.Method != r2.Method && (r.Method != http.MethodHead || r2.Method != http.MethodGet) {
				allowed = append(allowed, r2.methods()...)
				continue
			}
			for k, v := range params {
				r.SetPathValue(k, v)
			}
			r.Pattern = r2.Method + " " + r2.Path
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
	if r.Public {
		out = append(out, http.MethodOptions)
	}
	return out
}

type candidate struct {
	path      string
	wellKnown bool
}

// below returns the path as seen from the issuer: without the issuer's path, and,
// for a well-known path, with the issuer's path taken off the end (RFC 8414 3.1).
// A proxy may have taken the issuer's path off already, so the path as it is counts as well.
func below(path, issuerPath string) []candidate {
	if issuerPath == "" {
		return []candidate{{path: path}}
	}
	var out []candidate
	if rest, ok := strings.CutPrefix(path, issuerPath); ok && strings.HasPrefix(rest, "/") {
		out = append(out, candidate{path: rest})
	}
	if rest, ok := strings.CutSuffix(path, issuerPath); ok && strings.HasPrefix(rest, "/.well-known/") {
		out = append(out, candidate{path: rest, wellKnown: true})
	}
	if len(out) == 0 && !strings.HasPrefix(path, "/.well-known/") {
		out = append(out, candidate{path: path})
	}
	return out
}

func match(segments []string, path string) (map[string]string, bool) {
	got := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(got) != len(segments) {
		return nil, false
	}
	var params map[string]string
	for i, s := range segments {
		if strings.HasPrefix(s, "{") {
			if got[i] == "" {
				return nil, false
			}
			if params == nil {
				params = map[string]string{}
			}
			params[strings.Trim(s, "{}")] = got[i]
			continue
		}
		if s != got[i] {
			return nil, false
		}
	}
	return params, true
}

func preflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD")
	h.Set("Access-Control-Allow-Headers", "If-None-Match")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}
