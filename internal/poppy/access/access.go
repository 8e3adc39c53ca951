// Package access says which of a Company's APIs a request is for, and what that API
// asks of the Session that makes it (Poppy 4.3, 4.4 and 6).
package access

import (
	"net/url"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The clauses of what an API asks for.
const (
	SignInFirst  clause.ID = "poppy-0.1/6#23"
	ScopesNeeded clause.ID = "poppy-0.1/6#25"
)

// API is an entry of apis as far as requests to it are judged.
type API struct {
	URL string `json:"url"` // of the entry, which names it
	MCP bool   `json:"mcp,omitempty"`
	// Resource that tokens have to be issued for; empty: any of the Company's. An MCP server's is its URL.
	Resource string `json:"resource,omitempty"`
	// Bases are the https URLs below which the API is found; an MCP server's is its URL.
	Bases []string `json:"bases,omitempty"`
	// Metadata is where an MCP server's protected resource metadata is (RFC 9728).
	Metadata string `json:"metadata,omitempty"`
	// Rules apply in their order: the first that fits decides. An API without rules takes
	// every Session; one with rules refuses what none of them fits.
	Rules []Rule `json:"rules,omitempty"`
}

// Rule says what requests to a part of an API need.
type Rule struct {
	Methods []string `json:"methods,omitempty"` // none: every method; GET stands for HEAD, too
	// Path below a base, such as /orders/*/exchanges: * is one segment, and ** at the end any number.
	Path   string   `json:"path"`
	SignIn bool     `json:"sign_in,omitempty"`
	Scopes []string `json:"scopes,omitempty"` // all of them are needed; they imply SignIn
}

// Table finds the API of a request.
type Table struct {
	apis   []API
	byHost map[string][]base // the longest path first
}

type base struct {
	api    *API
	rules  []rule
	origin string
	prefix []string
}

// rule is a Rule with the segments of its path.
type rule struct {
	Rule
	segments []string
}

// NewTable makes the table of checked APIs.
func NewTable(apis []API) *Table {
	t := &Table{apis: apis, byHost: map[string][]base{}}
	for i := range apis {
		api := &apis[i]
		var rules []rule
		for _, r := range api.Rules {
			segments, _ := split(r.Path) // it was checked
			rules = append(rules, rule{r, segments})
		}
		bases := api.Bases
		if api.MCP {
			bases = []string{api.URL}
		}
		for _, raw := range bases {
			u, err := url.Parse(raw)
			if err != nil { // it was checked
				continue
			}
			segments, ok := split(u.EscapedPath())
			if !ok {
				continue
			}
			host := hostOf(u.Host)
			t.byHost[host] = append(t.byHost[host], base{api, rules, u.Scheme + "://" + u.Host, segments})
		}
	}
	for _, all := range t.byHost {
		slices.SortStableFunc(all, func(a, b base) int { return len(b.prefix) - len(a.prefix) })
	}
	return t
}

// All returns the APIs that requests can be for; nobody may change them.
func (t *Table) All() []API {
	return slices.DeleteFunc(slices.Clone(t.apis), func(a API) bool { return !a.MCP && len(a.Bases) == 0 })
}

// Equal reports whether requests to both are judged alike.
func (a API) Equal(o API) bool {
	return a.URL == o.URL && a.MCP == o.MCP && a.Resource == o.Resource && a.Metadata == o.Metadata && slices.Equal(a.Bases, o.Bases) && slices.EqualFunc(a.Rules, o.Rules, Rule.equal)
}

// Refused returns the refusal of a request to a: an MCP server's says where its client
// learns how to get a token (RFC 9728 section 5.1).
func (a API) Refused(err error) error {
	if !a.MCP || a.Metadata == "" {
		return err
	}
	return problem.As(err).WithExtra(problem.ResourceMetadata, a.Metadata)
}

func (r Rule) equal(o Rule) bool {
	return slices.Equal(r.Methods, o.Methods) && r.Path == o.Path && r.SignIn == o.SignIn && slices.Equal(r.Scopes, o.Scopes)
}

// Target is a request to a known API.
type Target struct {
	API *API
	// URL is what a proof of the request names (htu): its path at the API's configured
	// address, whatever scheme the request came with behind a proxy.
	URL string

	ruled bool
	rule  *rule // that fits; nil for none
}

// Find returns what a request with method to an absolute URL is for. A URL of no API, or
// one that two servers might read differently, is an error of the caller's.
func (t *Table) Find(method, raw string) (Target, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || u.Opaque != "" || u.Scheme != "https" && u.Scheme != "http" {
		return Target{}, invalid("is no absolute http or https URL")
	}
	path := u.EscapedPath()
	segments, ok := split(path)
	// RawPath is what came, where EscapedPath had to mend it.
	if _, asItCame := split(u.RawPath); !ok || !asItCame {
		return Target{}, invalid("has a path that servers read differently: with dots, empty segments or encoded slashes")
	}
	// No client sends a fragment, and what some servers take it for is a part of the path.
	if strings.Contains(raw, "#") || path == "" && strings.Contains(raw, "?") {
		return Target{}, invalid("has a path that servers read differently: a fragment, or a query without a path")
	}
	for _, b := range t.byHost[hostOf(u.Host)] {
		// An MCP server is the one URL that tokens are issued for, and what is below it.
		if len(segments) < len(b.prefix) || !slices.Equal(segments[:len(b.prefix)], b.prefix) {
			continue
		}
		out := Target{API: b.api, URL: b.origin + path, ruled: len(b.rules) > 0}
		for i := range b.rules {
			if b.rules[i].fits(method, segments[len(b.prefix):]) {
				out.rule = &b.rules[i]
				break
			}
		}
		return out, nil
	}
	return Target{}, invalid("belongs to none of the Company's APIs: an entry of apis has to have it in its base_urls")
}

// Check says whether a Session may make the request.
func (t Target) Check(signedIn bool, scopes []string) error {
	switch {
	case !t.ruled:
		return nil
	case t.rule == nil:
		return problem.New(problem.Forbidden, problem.AccessDenied, "", "agents may not do this here")
	}
	need := strings.Join(t.rule.Scopes, " ")
	if !signedIn && (t.rule.SignIn || need != "") {
		err := problem.New(problem.Forbidden, problem.SignInRequired, SignInFirst, "the User has to sign in for this")
		if need != "" {
			err = err.WithExtra("scope", need)
		}
		return err
	}
	for _, scope := range t.rule.Scopes {
		if !slices.Contains(scopes, scope) {
			return problem.New(problem.Forbidden, problem.InsufficientScope, ScopesNeeded, "this needs more than the User has granted").WithExtra("scope", need)
		}
	}
	return nil
}

func (r *rule) fits(method string, segments []string) bool {
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, method) && (method != "HEAD" || !slices.Contains(r.Methods, "GET")) {
		return false
	}
	for i, w := range r.segments {
		if w == "**" {
			return true
		}
		if i >= len(segments) || w != "*" && w != segments[i] {
			return false
		}
	}
	return len(segments) == len(r.segments)
}

// split returns the decoded segments of a path. A slash at the end, and parameters of a
// segment, make no difference, since to many servers they don't. It refuses what servers
// resolve in different ways: rules would judge another path than the one that is served.
func split(path string) ([]string, bool) {
	var out []string
	rest := strings.TrimPrefix(path, "/")
	for rest != "" {
		raw, after, _ := strings.Cut(rest, "/")
		rest = after
		segment, err := url.PathUnescape(raw)
		if err != nil || strings.ContainsAny(segment, "/\\\x00") {
			return nil, false
		}
		segment, _, _ = strings.Cut(segment, ";")
		if segment == "." || segment == ".." || segment == "" {
			return nil, false
		}
		out = append(out, segment)
	}
	return out, true
}

// hostOf is a host without the ports that http and https imply.
func hostOf(host string) string {
	host = strings.ToLower(host)
	for _, port := range []string{":443", ":80"} {
		if rest, ok := strings.CutSuffix(host, port); ok {
			return rest
		}
	}
	return host
}

func invalid(detail string) error {
	return problem.New(problem.Invalid, problem.InvalidRequest, "", "the url %s", detail).WithField("url", detail)
}
