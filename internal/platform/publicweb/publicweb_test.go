package publicweb_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// hosts resolves a host to its only Company, wherever the path leads.
type hosts map[string]string

func (h hosts) Resolve(_ context.Context, host, _ string) (*directory.Company, error) {
	switch raw, ok := h[host]; {
	case raw == "down":
		return nil, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "briefly unavailable").WithRetryAfter(2 * time.Second)
	case raw == "broken":
		return nil, errors.New("secret detail")
	case ok:
		issuer, err := discovery.ParseIssuer(raw)
		return &directory.Company{Issuer: issuer}, err
	default:
		return nil, problem.New(problem.NotFound, problem.NotFoundReason, "", "not found")
	}
}

// reached answers with what a handler gets to know.
func reached(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	w.Header().Set("Reached", r.Method+" "+r.Pattern)
	w.Header().Set("Id", r.PathValue("id"))
	w.Header().Set("Sub", r.PathValue("sub"))
	w.Header().Set("Issuer", c.Issuer.String())
}

func newRouter() *publicweb.Router {
	return publicweb.New(hosts{
		"root.example": "https://root.example", "path.example": "https://path.example/t/acme", "door.example": "https://root.example", "down.example": "down", "broken.example": "broken",
	}, []publicweb.Route{
		{Method: http.MethodPost, Path: "/things", Handler: reached, Caller: publicweb.Session},
		{Method: http.MethodGet, Path: "/things/{id}", Handler: reached, Caller: publicweb.Session},
		{Method: http.MethodPost, Path: "/things/{id}", Handler: reached, Caller: publicweb.Session},
		{Method: http.MethodGet, Path: "/things/{id}/parts/{sub}", Handler: reached, Caller: publicweb.Session},
		{Method: http.MethodGet, Path: "/.well-known/about", Handler: reached, WellKnown: true, Caller: publicweb.Anyone},
		{Method: http.MethodGet, Path: "/.well-known/private", Handler: reached, Caller: publicweb.Session},
		{Method: http.MethodGet, Path: "/nobodys", Handler: reached},
		{Method: http.MethodGet, Path: "/.well-known/place/{path...}", Handler: reached, Caller: publicweb.Anyone, OfHost: true},
		{Method: http.MethodPost, Path: "/poppy/browser-session", Handler: reached, Caller: publicweb.AgentBrowser},
		{Method: http.MethodGet, Path: "/files/page-{id}.css", Handler: reached, Caller: publicweb.Anyone},
	})
}

func ask(t testing.TB, h http.Handler, method, url string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, url, nil))
	return w
}

func TestServeHTTP_Matching(t *testing.T) {
	rt := newRouter()
	for name, c := range map[string]struct {
		method, url string
		reached     string // "" for 404
		id, sub     string
	}{
		"plain":                          {"POST", "https://root.example/things", "POST /things", "", ""},
		"parameter":                      {"GET", "https://root.example/things/a", "GET /things/{id}", "a", ""},
		"same path, other method":        {"POST", "https://root.example/things/a", "POST /things/{id}", "a", ""},
		"two parameters":                 {"GET", "https://root.example/things/a/parts/b", "GET /things/{id}/parts/{sub}", "a", "b"},
		"HEAD of GET":                    {"HEAD", "https://root.example/things/a", "GET /things/{id}", "a", ""},
		"escapes stay":                   {"GET", "https://root.example/things/a%2Fb", "GET /things/{id}", "a%2Fb", ""},
		"escaped letters stay":           {"GET", "https://root.example/things/%61", "GET /things/{id}", "%61", ""},
		"a word that is a segment":       {"GET", "https://root.example/things/parts", "GET /things/{id}", "parts", ""},
		"parameter inside a segment":     {"GET", "https://root.example/files/page-a1.css", "GET /files/page-{id}.css", "a1", ""},
		"nothing inside a segment":       {"GET", "https://root.example/files/page-.css", "", "", ""},
		"overlap inside a segment":       {"GET", "https://root.example/files/page-css", "", "", ""},
		"another end of a segment":       {"GET", "https://root.example/files/page-a1.js", "", "", ""},
		"another beginning of a segment": {"GET", "https://root.example/files/pag-a1.css", "", "", ""},
		"browsers at the issuer":         {"POST", "https://root.example/poppy/browser-session", "POST /poppy/browser-session", "", ""},
		"browsers at a host of theirs":   {"POST", "https://door.example/join", "POST /poppy/browser-session", "", ""},
		"nothing else at that host":      {"POST", "https://door.example/things", "POST /poppy/browser-session", "", ""},
		"query":                          {"GET", "https://root.example/things/a?b=/c", "GET /things/{id}", "a", ""},
		"well-known at the root":         {"GET", "https://root.example/.well-known/about", "GET /.well-known/about", "", ""},
		"below the issuer's path":        {"POST", "https://path.example/t/acme/things", "POST /things", "", ""},
		"prefix taken off by a proxy":    {"POST", "https://path.example/things", "POST /things", "", ""},
		"well-known, appended":           {"GET", "https://path.example/t/acme/.well-known/about", "GET /.well-known/about", "", ""},
		"well-known, inserted":           {"GET", "https://path.example/.well-known/about/t/acme", "GET /.well-known/about", "", ""},
		"not a well-known, appended":     {"GET", "https://path.example/t/acme/.well-known/private", "GET /.well-known/private", "", ""},
		"empty parameter":                {"GET", "https://root.example/things/", "", "", ""},
		"trailing slash":                 {"GET", "https://root.example/things/a/", "", "", ""},
		"double slash":                   {"GET", "https://root.example//things/a", "", "", ""},
		"double slash inside":            {"GET", "https://root.example/things//a", "", "", ""},
		"dot segments":                   {"GET", "https://root.example/x/../things/a", "", "", ""},
		"case":                           {"GET", "https://root.example/Things/a", "", "", ""},
		"escaped word":                   {"GET", "https://root.example/%74hings/a", "", "", ""},
		"too long":                       {"GET", "https://root.example/things/a/parts/b/c", "", "", ""},
		"empty path":                     {"GET", "https://root.example", "", "", ""},
		"prefix twice":                   {"POST", "https://path.example/t/acme/t/acme/things", "", "", ""},
		"prefix of another":              {"POST", "https://path.example/t/acmes/things", "", "", ""},
		"prefix alone":                   {"POST", "https://path.example/t/acme", "", "", ""},
		"prefix, case":                   {"POST", "https://path.example/T/acme/things", "", "", ""},
		"prefix, escaped":                {"POST", "https://path.example/t/%61cme/things", "", "", ""},
		"prefix at the end":              {"POST", "https://path.example/things/t/acme", "", "", ""},
		"well-known without the path":    {"GET", "https://path.example/.well-known/about", "", "", ""},
		"not a well-known, inserted":     {"GET", "https://path.example/.well-known/private/t/acme", "", "", ""},
		"well-known, inserted and slash": {"GET", "https://path.example/.well-known/about/t/acme/", "", "", ""},
		"of the host":                    {"GET", "https://root.example/.well-known/place/a/b", "GET /.well-known/place/{path...}", "", ""},
		"of the host, nothing more":      {"GET", "https://root.example/.well-known/place/", "GET /.well-known/place/{path...}", "", ""},
		"of the host, no slash":          {"GET", "https://root.example/.well-known/place", "", "", ""},
		"of a host with a path":          {"GET", "https://path.example/.well-known/place/t/acme/a", "GET /.well-known/place/{path...}", "", ""},
		"of the host, below the path":    {"GET", "https://path.example/t/acme/.well-known/place/a", "", "", ""},
		"unknown host":                   {"POST", "https://unknown.example/things", "", "", ""},
		"malformed host":                 {"POST", "https://-.example/things", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := ask(t, rt, c.method, c.url)
			if c.reached == "" {
				require.Equal(t, http.StatusNotFound, w.Code, w.Header().Get("Reached"))
				require.Equal(t, `{"error":"not_found"}`, w.Body.String())
				return
			}
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, c.method+" "+c.reached, w.Header().Get("Reached"))
			require.Equal(t, c.id, w.Header().Get("Id"))
			require.Equal(t, c.sub, w.Header().Get("Sub"))
		})
	}
}

func TestServeHTTP_OtherMethod(t *testing.T) {
	rt := newRouter()
	for url, allow := range map[string]string{
		"https://root.example/things":                     "POST",
		"https://root.example/things/a":                   "GET, HEAD, POST",
		"https://root.example/things/a/parts/b":           "GET, HEAD",
		"https://root.example/.well-known/about":          "GET, HEAD, OPTIONS",
		"https://path.example/.well-known/about/t/acme":   "GET, HEAD, OPTIONS",
		"https://path.example/t/acme/.well-known/private": "GET, HEAD",
		"https://door.example/things/a":                   "POST",
	} {
		w := ask(t, rt, http.MethodDelete, url)
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, url)
		require.Equal(t, allow, w.Header().Get("Allow"), url)
	}
	require.Equal(t, http.StatusMethodNotAllowed, ask(t, rt, http.MethodHead, "https://root.example/things").Code, "HEAD stands for GET alone")
}

func TestServeHTTP_PreflightOfPublicRoutesAlone(t *testing.T) {
	rt := newRouter()
	w := ask(t, rt, http.MethodOptions, "https://root.example/.well-known/about")
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
	w = ask(t, rt, http.MethodOptions, "https://root.example/things")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
}

func TestServeHTTP_DirectoryAwayIsNotNotFound(t *testing.T) {
	rt := newRouter()
	w := ask(t, rt, http.MethodPost, "https://down.example/things")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
	w = ask(t, rt, http.MethodPost, "https://broken.example/things")
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.NotContains(t, w.Body.String(), "secret")
}

func TestTable_SaysWhoMayCall(t *testing.T) {
	table := newRouter().Table()
	require.Equal(t, publicweb.Session, table["GET /things/{id}/parts/{sub}"])
	require.Equal(t, publicweb.Anyone, table["GET /.well-known/about"])
	require.Equal(t, publicweb.AgentBrowser, table["POST /poppy/browser-session"])
	require.Len(t, table, 9)
}

func TestNew_RouteThatNobodyMayCallIsNotServed(t *testing.T) {
	require.Equal(t, http.StatusNotFound, ask(t, newRouter(), http.MethodGet, "https://root.example/nobodys").Code)
}

func TestBound_ByAddressAndCompanyWhateverIsAsked(t *testing.T) {
	now := clock.NewManual(time.Unix(1_800_000_000, 0))
	rt := newRouter().Bound(publicweb.Flood{
		Limiter: limit.New(0), PerMinute: 3, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Now: now.Now,
	})
	from := func(peer, forwarded, method, url string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, url, nil)
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-For", forwarded)
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, r)
		return w
	}
	// What a stranger says of its address counts for nothing.
	require.Equal(t, 200, from("192.0.2.1:1", "198.51.100.1", "GET", "https://root.example/things/a").Code)
	require.Equal(t, 404, from("192.0.2.1:2", "198.51.100.2", "GET", "https://root.example/nothing").Code)
	require.Equal(t, 204, from("192.0.2.1:3", "198.51.100.3", "OPTIONS", "https://root.example/.well-known/about").Code)
	w := from("192.0.2.1:4", "198.51.100.4", "GET", "https://root.example/things/a")
	require.Equal(t, 429, w.Code)
	require.Equal(t, "20", w.Header().Get("Retry-After"))
	require.Contains(t, w.Body.String(), `"rate_limited"`)
	require.Empty(t, w.Header().Get("Reached"))
	// What a proxy says does.
	require.Equal(t, 429, from("10.1.1.1:1", "192.0.2.1", "GET", "https://root.example/things/a").Code)
	require.Equal(t, 200, from("10.1.1.1:1", "198.51.100.1", "GET", "https://root.example/things/a").Code)
	now.Advance(20 * time.Second)
	require.Equal(t, 200, from("192.0.2.1:1", "", "GET", "https://root.example/things/a").Code)
}
