package discovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func hosted(endpoint, name, domain string) discovery.Settings {
	s := conversationsOnly()
	s.BrowserSessionEndpoint, s.BrowserCookie = endpoint, &discovery.BrowserCookie{Name: name, Domain: domain}
	return s
}

func domains(t *testing.T, names ...string) []discovery.Domain {
	t.Helper()
	var out []discovery.Domain
	for _, name := range names {
		d, err := discovery.ParseDomain(name)
		require.NoError(t, err)
		out = append(out, d)
	}
	return out
}

func TestBrowserCookie_NamesWithTheStrictestPrefix(t *testing.T) {
	require.Equal(t, "__Host-poppy", discovery.BrowserCookie{}.NameInUse())
	require.Equal(t, "__Secure-poppy", discovery.BrowserCookie{Domain: "harbor.example"}.NameInUse())
	require.Equal(t, "sb", discovery.BrowserCookie{Name: "sb", Domain: "harbor.example"}.NameInUse())
}

func TestCheckSettings_BrowserCookie(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#34")
	clausetest.Refuses(t, "poppy-0.1/5#34")
	const own = "https://poppy.harbor.example/join"
	for _, s := range []discovery.Settings{
		hosted(own, "", ""), hosted(own, "", "harbor.example"), hosted(own, "__Host-sb", ""), hosted(own, "__Secure-sb", "poppy.harbor.example"),
		hosted("https://harbor.example:8443/a/b-c_d.e~f", "sb", "harbor.example"),
	} {
		_, err := discovery.CheckSettings(s)
		require.NoError(t, err)
	}
	for name, c := range map[string]struct {
		s     discovery.Settings
		field string
	}{
		"no endpoint":         {hosted("", "", ""), "browser_session_endpoint"},
		"no path":             {hosted("https://harbor.example", "", ""), "browser_session_endpoint"},
		"trailing slash":      {hosted(own+"/", "", ""), "browser_session_endpoint"},
		"dot segment":         {hosted("https://harbor.example/a/../b", "", ""), "browser_session_endpoint"},
		"escape":              {hosted("https://harbor.example/%61", "", ""), "browser_session_endpoint"},
		"query":               {hosted(own+"?a=b", "", ""), "browser_session_endpoint"},
		"empty query":         {hosted(own+"?", "", ""), "browser_session_endpoint"},
		"well-known":          {hosted("https://harbor.example/.well-known/x", "", ""), "browser_session_endpoint"},
		"capital host":        {hosted("https://Harbor.example/join", "", ""), "browser_session_endpoint"},
		"default port":        {hosted("https://harbor.example:443/join", "", ""), "browser_session_endpoint"},
		"address":             {hosted("https://127.0.0.1/join", "", ""), "browser_session_endpoint"},
		"suffix":              {hosted("https://harbor.co.uk/join", "", "co.uk"), "browser_cookie.domain"},
		"private suffix":      {hosted("https://harbor.github.io/join", "", "github.io"), "browser_cookie.domain"},
		"top level":           {hosted(own, "", "example"), "browser_cookie.domain"},
		"sibling":             {hosted(own, "", "www.harbor.example"), "browser_cookie.domain"},
		"below":               {hosted(own, "", "a.poppy.harbor.example"), "browser_cookie.domain"},
		"part of a label":     {hosted(own, "", "bor.example"), "browser_cookie.domain"},
		"leading dot":         {hosted(own, "", ".harbor.example"), "browser_cookie.domain"},
		"capitals":            {hosted(own, "", "Harbor.example"), "browser_cookie.domain"},
		"host prefix":         {hosted(own, "__Host-x", "harbor.example"), "browser_cookie.name"},
		"host prefix, folded": {hosted(own, "__hOST-x", "harbor.example"), "browser_cookie.name"},
		"semicolon":           {hosted(own, "a;b", ""), "browser_cookie.name"},
		"equals":              {hosted(own, "a=b", ""), "browser_cookie.name"},
	} {
		_, err := discovery.CheckSettings(c.s)
		require.Error(t, err, name)
		require.Equal(t, c.field, problem.As(err).Fields[0].Path, name)
	}
}

func TestCheckBrowserSession_WhatIsTheCompanysToUse(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#4")
	clausetest.Refuses(t, "poppy-0.1/5#4")
	issuer, err := discovery.ParseIssuer("https://auth.harbor.example")
	require.NoError(t, err)
	verified := domains(t, "harbor.example", "quay.example")
	check := func(s discovery.Settings) error { return discovery.CheckBrowserSession(s, issuer, verified) }
	require.NoError(t, check(conversationsOnly()))
	foreign := conversationsOnly()
	foreign.BrowserSessionEndpoint = "https://elsewhere.example/join"
	require.NoError(t, check(foreign), "we don't answer there")
	for _, s := range []discovery.Settings{
		hosted("https://harbor.example/join", "", ""), hosted("https://poppy.quay.example/join", "", "quay.example"),
		hosted("https://auth.harbor.example/poppy/browser-session", "", "harbor.example"),
	} {
		require.NoError(t, check(s))
	}
	for _, s := range []discovery.Settings{
		hosted("https://elsewhere.example/join", "", ""), hosted("https://notharbor.example/join", "", ""),
		hosted("https://auth.harbor.example/oauth/token", "", ""), hosted("https://auth.harbor.example/join", "", ""),
		hosted("https://poppy.harbor.example/join", "", "elsewhere.example"),
	} {
		require.Error(t, check(s), s.BrowserSessionEndpoint)
	}
	require.Error(t, discovery.CheckBrowserSession(hosted("https://a.b.example/join", "", "b.example"), issuer, domains(t, "a.b.example")), "wider than what is verified")
	require.Error(t, discovery.CheckBrowserSession(hosted("https://harbor.example/join", "", ""), issuer, nil))
}

func TestCheckReturnTo(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#13", "poppy-0.1/5#30", "poppy-0.1/5#d39")
	clausetest.Refuses(t, "poppy-0.1/5#13", "poppy-0.1/5#30", "poppy-0.1/5#d39")
	verified := []string{"harbor.example", "quay.example"}
	for _, raw := range []string{
		"https://harbor.example", "https://harbor.example/orders?a=b", "https://www.harbor.example/", "https://a.quay.example:8443/x", "https://HARBOR.example/%20",
	} {
		require.NoError(t, discovery.CheckReturnTo(raw, verified), raw)
	}
	for _, raw := range []string{
		"", "/", "//harbor.example/", "http://harbor.example/", "javascript:alert(1)", "https:harbor.example", "https://notharbor.example/",
		"https://harbor.example.evil.example/", "https://harbor.example@evil.example/", "https://evil.example\\@harbor.example/",
		"https://evil.example/\\.harbor.example", "https://harbor.example\n/", "https://harbor.example/ a", "https://harbor.example/ä",
		"https://harbor.example./", "https://harbor.example/#a", "https://user@harbor.example/", "https://example/",
	} {
		require.Error(t, discovery.CheckReturnTo(raw, verified), raw)
	}
	require.Error(t, discovery.CheckReturnTo("https://harbor.example/", nil))
}

func TestSiteRoot(t *testing.T) {
	verified := []string{"harbor.example", "shop.harbor.example"}
	require.Equal(t, "https://harbor.example/", discovery.SiteRoot("https://poppy.harbor.example/join", verified))
	require.Equal(t, "https://harbor.example:8444/", discovery.SiteRoot("https://harbor.example:8444/join", verified))
	require.Equal(t, "https://shop.harbor.example/", discovery.SiteRoot("https://poppy.shop.harbor.example:8444/join", verified))
}
