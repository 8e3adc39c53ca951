package agent

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func redirectTo(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	}
}

func requireDiscoveryFailure(t *testing.T, err error, section, words string) {
	t.Helper()
	require.ErrorContains(t, err, words)
	require.Equal(t, ExitDiscovery, ExitCode(err))
	require.ErrorContains(t, err, "section "+section)
}

func TestDiscover_EveryCheckPasses(t *testing.T) {
	c := newFakeCompany(t)
	steps := &collect{}
	company, err := c.agent(t.TempDir(), steps).Discover(t.Context(), "Shop.Example")
	require.NoError(t, err)
	require.Equal(t, "Shop", company.Name())
	require.Equal(t, shopDomain, company.Domain())
	require.Equal(t, shopIssuer, company.Issuer())
	for i, s := range steps.steps {
		require.True(t, s.OK, s.Title)
		require.NotEmpty(t, s.Section, s.Title)
		require.Equal(t, i+1, s.Number)
	}
	require.Len(t, steps.titled("poppy_domains lists"), 1)
}

func TestDiscover_FollowsHTTPSRedirects(t *testing.T) {
	c := newFakeCompany(t)
	c.routes["shop.example/.well-known/poppy.json"] = redirectTo("https://docs.shop.example/shop/poppy.json")
	c.routes["docs.shop.example/shop/poppy.json"] = redirectTo("/v2/poppy.json")
	c.routes["docs.shop.example/v2/poppy.json"] = func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, c.document) }
	_, err := c.agent(t.TempDir(), Discard{}).Discover(t.Context(), shopDomain)
	require.NoError(t, err)
}

func TestDiscover_RefusesRedirects(t *testing.T) {
	for name, to := range map[string]string{
		"to http":        "http://docs.shop.example/poppy.json",
		"with user name": "https://me@docs.shop.example/poppy.json",
		"to itself":      "https://shop.example/.well-known/poppy.json",
		"without target": "",
		"to a data URL":  "data:application/json,{}",
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.routes["shop.example/.well-known/poppy.json"] = redirectTo(to)
			_, err := c.agent(t.TempDir(), Discard{}).Discover(t.Context(), shopDomain)
			requireDiscoveryFailure(t, err, "3", "redirect")
			require.Empty(t, c.requests("auth.shop.example/.well-known/oauth-authorization-server"))
		})
	}
}

func TestDiscover_OrganizationDomain(t *testing.T) {
	for _, tc := range []struct {
		asked, domain string
		ok            bool
	}{
		{shopDomain, shopDomain, true},
		{"www." + shopDomain, shopDomain, true},
		{shopDomain, "www." + shopDomain, true},
		{shopDomain, "SHOP.example", true},
		{shopDomain, "other.example", false},
		{shopDomain, "docs." + shopDomain, false},
		{shopDomain, "", false},
	} {
		t.Run(tc.asked+" names "+tc.domain, func(t *testing.T) {
			c := newFakeCompany(t)
			c.document["organization"] = map[string]any{"name": "Shop", "domain": tc.domain}
			c.metadata["poppy_domains"] = []string{tc.domain}
			_, err := c.agent(t.TempDir(), Discard{}).Discover(t.Context(), tc.asked)
			if tc.ok {
				require.NoError(t, err)
				return
			}
			requireDiscoveryFailure(t, err, "3.1", "organization.domain")
		})
	}
}

func TestDiscover_ProtocolVersion(t *testing.T) {
	for version, ok := range map[string]bool{"0.1": true, "0.9": true, "1.0": false, "0": false, "": false, "0.1-beta": false} {
		t.Run(version, func(t *testing.T) {
			c := newFakeCompany(t)
			c.document["protocol_version"] = version
			_, err := c.agent(t.TempDir(), Discard{}).Discover(t.Context(), shopDomain)
			if ok {
				require.NoError(t, err)
				return
			}
			requireDiscoveryFailure(t, err, "3.1", "protocol_version")
		})
	}
}

func TestDiscover_IssuerHasToAgree(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fakeCompany)
		words  string
	}{
		"another issuer":         {func(c *fakeCompany) { c.metadata["issuer"] = "https://auth.other.example" }, "issuer of the metadata"},
		"a slash more":           {func(c *fakeCompany) { c.metadata["issuer"] = shopIssuer + "/" }, "issuer of the metadata"},
		"another case":           {func(c *fakeCompany) { c.metadata["issuer"] = "https://AUTH.shop.example" }, "issuer of the metadata"},
		"domain not listed":      {func(c *fakeCompany) { c.metadata["poppy_domains"] = []string{"other.example"} }, "poppy_domains"},
		"no poppy_domains":       {func(c *fakeCompany) { delete(c.metadata, "poppy_domains") }, "poppy_domains"},
		"no token_endpoint":      {func(c *fakeCompany) { delete(c.metadata, "token_endpoint") }, "token_endpoint"},
		"http token_endpoint":    {func(c *fakeCompany) { c.metadata["token_endpoint"] = "http://auth.shop.example/t" }, "token_endpoint"},
		"no revocation_endpoint": {func(c *fakeCompany) { delete(c.metadata, "revocation_endpoint") }, "revocation_endpoint"},
		"http issuer":            {func(c *fakeCompany) { c.document["auth"] = map[string]any{"issuer": "http://auth.shop.example"} }, "auth.issuer"},
		"no auth":                {func(c *fakeCompany) { delete(c.document, "auth") }, "auth"},
		"direct without endpoint": {func(c *fakeCompany) {
			c.document["auth"] = map[string]any{"issuer": shopIssuer, "direct": map[string]any{}}
		}, "authorization_endpoint"},
		"algorithms without ours": {func(c *fakeCompany) { c.metadata["dpop_signing_alg_values_supported"] = []string{"PS256"} }, "ES256"},
		"http conversations": {func(c *fakeCompany) {
			c.document["agent"] = map[string]any{"protocols": []any{map[string]any{"type": "poppy", "endpoint": "http://x.example/"}}}
		}, "conversation endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			tc.change(c)
			a := c.agent(t.TempDir(), Discard{})
			_, err := a.Talk(t.Context(), shopDomain, "hello", TalkOptions{Sender: "human"})
			require.ErrorContains(t, err, tc.words)
			require.Equal(t, ExitDiscovery, ExitCode(err))
			require.Empty(t, c.requests("auth.shop.example/oauth/token"), "nothing is sent to a Company that failed a check")
		})
	}
}

func TestDiscover_MetadataIsNotRedirected(t *testing.T) {
	c := newFakeCompany(t)
	c.routes["auth.shop.example/.well-known/oauth-authorization-server"] = redirectTo("https://docs.shop.example/metadata")
	_, err := c.agent(t.TempDir(), Discard{}).Discover(t.Context(), shopDomain)
	requireDiscoveryFailure(t, err, "3.2", "status 302")
	require.Empty(t, c.requests("docs.shop.example/metadata"))
}

func TestDiscover_IssuerWithPath(t *testing.T) {
	for _, at := range []string{"/.well-known/oauth-authorization-server/t/shop", "/t/shop/.well-known/oauth-authorization-server"} {
		t.Run(at, func(t *testing.T) {
			c := newFakeCompany(t)
			issuer := shopIssuer + "/t/shop"
			c.document["auth"] = map[string]any{"issuer": issuer}
			c.metadata["issuer"] = issuer
			c.routes["auth.shop.example"+at] = func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, c.metadata) }
			company, err := c.agent(t.TempDir(), Discard{}).Discover(t.Context(), shopDomain)
			require.NoError(t, err)
			require.Equal(t, issuer, company.Issuer())
		})
	}
}

func TestDiscover_StepsOverWhatItDoesNotKnow(t *testing.T) {
	c := newFakeCompany(t)
	c.document["future"] = []int{1}
	c.document["extensions"] = map[string]any{"other.example/gift-wrap": map[string]any{"version": "3", "x": 1}}
	c.document["apis"] = []any{map[string]any{"type": "graphql", "url": "https://x.example"}}
	c.document["agent"] = map[string]any{"protocols": []any{
		map[string]any{"type": "telepathy", "endpoint": "mind://x"},
		map[string]any{"type": "poppy", "endpoint": shopTalk},
	}}
	c.metadata["jwks_uri"] = "nonsense"
	steps := &collect{}
	company, err := c.agent(t.TempDir(), steps).Discover(t.Context(), shopDomain)
	require.NoError(t, err)
	require.Equal(t, shopTalk, company.conversations)
	require.Len(t, steps.titled("Skip conversation protocols"), 1)
	require.Len(t, steps.titled("Ignore extensions"), 1)
}

func TestDiscover_RefusesBadBytes(t *testing.T) {
	for name, body := range map[string]string{
		"repeated member": `{"protocol_version":"0.1","protocol_version":"0.1"}`,
		"not an object":   `[]`,
		"cut":             `{"protocol_version":`,
		"html":            `<html>`,
		"too large":       `{"x":"` + strings.Repeat("a", documentLimit) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.routes["shop.example/.well-known/poppy.json"] = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
			_, err := c.agent(t.TempDir(), Discard{}).Discover(t.Context(), shopDomain)
			require.Error(t, err)
			require.Contains(t, []int{ExitDiscovery, ExitNetwork}, ExitCode(err))
		})
	}
}

func TestDiscover_HonoursCaching(t *testing.T) {
	c := newFakeCompany(t)
	c.routes["shop.example/.well-known/poppy.json"] = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("ETag", `"v1"`)
		if r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		writeJSON(w, 200, c.document)
	}
	dir := t.TempDir()
	asked := func() int { return len(c.requests("shop.example/.well-known/poppy.json")) }
	for range 2 { // two runs with one directory
		_, err := c.agent(dir, Discard{}).Discover(t.Context(), shopDomain)
		require.NoError(t, err)
	}
	require.Equal(t, 1, asked(), "fresh: not asked again")

	c.clock.Advance(61 * time.Second)
	a := c.agent(dir, Discard{})
	for range 2 {
		_, err := a.Discover(t.Context(), shopDomain)
		require.NoError(t, err)
	}
	require.Equal(t, 2, asked(), "stale: revalidated once")
	require.Equal(t, `"v1"`, c.requests("shop.example/.well-known/poppy.json")[1].header.Get("If-None-Match"))
	require.Len(t, c.requests("auth.shop.example/.well-known/oauth-authorization-server"), 4, "without caching headers: asked each time")
}

func TestFreshness(t *testing.T) {
	now := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for name, tc := range map[string]struct {
		header http.Header
		life   time.Duration
		stored bool
	}{
		"max-age":            {http.Header{"Cache-Control": {"public, max-age=60"}}, time.Minute, true},
		"max-age minus age":  {http.Header{"Cache-Control": {"max-age=60"}, "Age": {"50"}}, 10 * time.Second, true},
		"no-store":           {http.Header{"Cache-Control": {"max-age=60", "no-store"}}, 0, false},
		"no-cache":           {http.Header{"Cache-Control": {"no-cache, max-age=60"}}, 0, true},
		"vary star":          {http.Header{"Cache-Control": {"max-age=60"}, "Vary": {"*"}}, 0, false},
		"expires":            {http.Header{"Expires": {at(time.Hour)}, "Date": {at(0)}}, time.Hour, true},
		"expires in past":    {http.Header{"Expires": {at(-time.Hour)}}, 0, true},
		"max-age beats both": {http.Header{"Cache-Control": {"max-age=5"}, "Expires": {at(time.Hour)}}, 5 * time.Second, true},
		"unreadable":         {http.Header{"Cache-Control": {"max-age=soon"}}, 0, true},
		"a year":             {http.Header{"Cache-Control": {"max-age=31536000"}}, cacheCeiling, true},
		"nothing":            {http.Header{}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			life, stored := freshness(tc.header, now)
			require.Equal(t, tc.stored, stored)
			require.Equal(t, tc.life, life)
		})
	}
}

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]target{
		"example.com":                {"example.com", "example.com"},
		"EXAMPLE.com.":               {"example.com", "example.com"},
		"example.com:8443":           {"example.com:8443", "example.com"},
		"example.com:443":            {"example.com", "example.com"},
		"https://www.example.com/":   {"www.example.com", "www.example.com"},
		"bücher.example":             {"xn--bcher-kva.example", "xn--bcher-kva.example"},
		"noodle-bar.localhost:18443": {"noodle-bar.localhost:18443", "noodle-bar.localhost"},
	} {
		got, err := parseTarget(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got)
	}
	for _, in := range []string{"", "http://example.com", "example.com/path", "user@example.com", "192.0.2.1", "[::1]", "example.com:http", "a b.example", "?"} {
		_, err := parseTarget(in)
		require.Error(t, err, in)
		require.Equal(t, ExitUsage, ExitCode(err))
	}
}

func FuzzDocuments(f *testing.F) {
	f.Add([]byte(`{"protocol_version":"0.1","organization":{"name":"Shop","domain":"shop.example"},"auth":{"issuer":"https://a.example"},"agent":{"protocols":[{"type":"poppy","endpoint":"https://b.example/c"}]}}`))
	f.Add([]byte(`{"issuer":"https://a.example","token_endpoint":"https://a.example/t","poppy_domains":["shop.example"]}`))
	f.Add([]byte(`{"web":null,"apis":[{}],"extensions":{"a":{"version":"1"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if doc, err := parsePoppyDocument(raw); err == nil {
			a := &Agent{reporter: Discard{}, clock: newTestClock()}
			list := &checklist{agent: a}
			c := a.checkDocument(target{"shop.example", "shop.example"}, doc, list)
			if list.failed == nil && c.conversations != "" {
				_, err := httpsURL(c.conversations)
				require.NoError(t, err)
			}
		}
		_, _ = parseMetadata(raw)
	})
}
