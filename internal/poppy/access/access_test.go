package access_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func orders() *access.Table {
	return access.NewTable([]access.API{
		{
			URL: "https://example.com/openapi.json", Bases: []string{"https://api.example.com", "https://example.com/api/v2/"},
			Rules: []access.Rule{
				{Methods: []string{"GET"}, Path: "/products/**"},
				{Methods: []string{"GET"}, Path: "/orders", SignIn: true},
				{Methods: []string{"GET"}, Path: "/orders/*", Scopes: []string{"poppy:read"}},
				{Methods: []string{"POST"}, Path: "/orders/*/exchanges", Scopes: []string{"poppy:read", "poppy:write"}},
				{Path: "/open"},
			},
		},
		{URL: "https://example.com/stores.json", Bases: []string{"https://api.example.com/stores"}},
		{URL: "https://mcp.example.com/mcp", MCP: true, Resource: "https://mcp.example.com/mcp"},
	})
}

func TestFind_TheMostExactAPI(t *testing.T) {
	for raw, want := range map[string][2]string{
		"https://api.example.com/orders":              {"https://example.com/openapi.json", "https://api.example.com/orders"},
		"https://api.example.com/":                    {"https://example.com/openapi.json", "https://api.example.com/"},
		"https://api.example.com":                     {"https://example.com/openapi.json", "https://api.example.com"},
		"http://api.example.com/orders?page=2":        {"https://example.com/openapi.json", "https://api.example.com/orders"}, // behind a proxy
		"https://API.example.com:443/orders":          {"https://example.com/openapi.json", "https://api.example.com/orders"},
		"https://example.com/api/v2/orders/ord%5F7Hk": {"https://example.com/openapi.json", "https://example.com/api/v2/orders/ord%5F7Hk"},
		"https://api.example.com/stores/7":            {"https://example.com/stores.json", "https://api.example.com/stores/7"},
		"https://api.example.com/storesX":             {"https://example.com/openapi.json", "https://api.example.com/storesX"},
		"https://mcp.example.com/mcp":                 {"https://mcp.example.com/mcp", "https://mcp.example.com/mcp"},
	} {
		got, err := orders().Find("GET", raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, [2]string{got.API.URL, got.URL}, raw)
	}
}

func TestFind_RefusesWhatIsNoAPIsOrCanBeReadTwoWays(t *testing.T) {
	for _, raw := range []string{
		"", "/orders", "api.example.com/orders", "ftp://api.example.com/orders", "https://u:p@api.example.com/orders", "https:api.example.com",
		"https://other.example/orders", "https://api.example.com:8443/orders", "https://example.com/api/v1/orders", "https://example.com/api/v22",
		"https://mcp.example.com/other", "https://evil.example\\@api.example.com/",
		"https://api.example.com/open/../orders", "https://api.example.com/./orders", "https://api.example.com//orders", "https://api.example.com/open//orders",
		"https://api.example.com/open/%2e%2e/orders", "https://api.example.com/open%2F..%2Forders", "https://api.example.com/open%5c..%5corders",
		"https://api.example.com/open#/../orders", "https://api.example.com/open#", "https://api.example.com?/orders", "https://api.example.com/open%2Forders\"",
		"https://api.example.com/open/..;x/orders", "https://api.example.com/;/orders", "https://api.example.com/a%00b", "https://api.example.com/%zz",
	} {
		_, err := orders().Find("GET", raw)
		require.True(t, problem.Is(err, problem.InvalidRequest), "%q: %v", raw, err)
	}
}

func TestCheck_TheFirstRuleThatFits(t *testing.T) {
	both := []string{"poppy:read", "poppy:write"}
	for name, c := range map[string]struct {
		method, path string
		signedIn     bool
		scopes       []string
		want         problem.Reason
		scope        string
	}{
		"open to every Session":          {"GET", "/products/7/reviews", false, nil, "", ""},
		"the pattern's own path":         {"GET", "/products", false, nil, "", ""},
		"HEAD is as GET":                 {"HEAD", "/products/7", false, nil, "", ""},
		"signed out":                     {"GET", "/orders", false, nil, problem.SignInRequired, ""},
		"signed in":                      {"GET", "/orders", true, nil, "", ""},
		"a slash at the end":             {"GET", "/orders/", false, nil, problem.SignInRequired, ""},
		"parameters of a segment":        {"GET", "/orders;a=b", false, nil, problem.SignInRequired, ""},
		"an escaped letter":              {"GET", "/%6Frders", false, nil, problem.SignInRequired, ""},
		"scopes imply signing in":        {"GET", "/orders/7", false, nil, problem.SignInRequired, "poppy:read"},
		"without the scope":              {"GET", "/orders/7", true, []string{"other"}, problem.InsufficientScope, "poppy:read"},
		"with the scope":                 {"GET", "/orders/7", true, []string{"poppy:read"}, "", ""},
		"all scopes are needed":          {"POST", "/orders/7/exchanges", true, []string{"poppy:read"}, problem.InsufficientScope, "poppy:read poppy:write"},
		"with all":                       {"POST", "/orders/7/exchanges", true, both, "", ""},
		"another method":                 {"DELETE", "/orders/7", true, both, problem.AccessDenied, ""},
		"a method in small letters":      {"get", "/products", true, both, problem.AccessDenied, ""},
		"no rule":                        {"GET", "/admin", true, both, problem.AccessDenied, ""},
		"deeper than the rule":           {"GET", "/orders/7/8", true, both, problem.AccessDenied, ""},
		"a rule for every method":        {"PATCH", "/open", false, nil, "", ""},
		"an API without rules takes all": {"DELETE", "/stores/7", false, nil, "", ""},
	} {
		target, err := orders().Find(c.method, "https://api.example.com"+c.path)
		require.NoError(t, err, name)
		err = target.Check(c.signedIn, c.scopes)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.True(t, problem.Is(err, c.want), "%s: %v", name, err)
		require.Equal(t, c.scope, problem.As(err).Extra["scope"], name)
	}
}

func TestCheckRules_NamesEveryFault(t *testing.T) {
	var bad []string
	access.CheckRules([]access.Rule{
		{Methods: []string{"GET", "get", ""}, Path: "orders"},
		{Path: "/a/../b"},
		{Path: "/**/a"},
		{Path: "/a*"},
		{Path: "/a?b"},
		{Path: "/%41"},
		{Path: "/" + strings.Repeat("a", 1000)},
		{Path: "/", Scopes: []string{"x", "poppy:admin", "x"}},
		{Path: "/orders/*/**", Methods: []string{"GET"}, Scopes: []string{"x"}},
	}, func(scope string) bool { return scope == "x" }, func(path, _ string) { bad = append(bad, path) })
	require.Equal(t, []string{
		"rules[0].methods[1]", "rules[0].methods[2]", "rules[0].path", "rules[1].path", "rules[2].path", "rules[3].path", "rules[4].path", "rules[5].path",
		"rules[6].path", "rules[7].scopes[1]", "rules[7].scopes[2]",
	}, bad)
}

func TestCheckBase(t *testing.T) {
	for _, good := range []string{"https://api.example.com", "https://api.example.com/", "https://example.com/api/v2/"} {
		require.Empty(t, access.CheckBase(good), good)
	}
	for _, bad := range []string{"https://example.com/a/../b", "https://example.com//a", "https://example.com/?x", "https://example.com/?", "https://example.com/%2e"} {
		require.NotEmpty(t, access.CheckBase(bad), bad)
	}
}

// Whatever is found is below a base of the API, and its rules see the path that a server would resolve.
func FuzzFind(f *testing.F) {
	for _, s := range []string{"/orders", "/open/%2e%2e/orders", "//x", "/a;b/c", "/%5c", "/orders/%2525"} {
		f.Add(s)
	}
	table := orders()
	f.Fuzz(func(t *testing.T, path string) {
		got, err := table.Find("GET", "https://api.example.com"+path)
		if err != nil {
			return
		}
		u, err := url.Parse(got.URL)
		require.NoError(t, err)
		require.Equal(t, "api.example.com", u.Host)
		for segment := range strings.SplitSeq(strings.Trim(u.Path, "/"), "/") {
			name, _, _ := strings.Cut(segment, ";")
			require.NotContains(t, []string{".", ".."}, name)
		}
		require.NotContains(t, u.Path, "\\")
		require.NotContains(t, u.Path, "//")
	})
}
