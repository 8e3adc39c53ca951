package discovery_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func domain(t testing.TB, raw string) discovery.Domain {
	t.Helper()
	d, err := discovery.ParseDomain(raw)
	require.NoError(t, err)
	return d
}

func issuer(t testing.TB, raw string) discovery.Issuer {
	t.Helper()
	i, err := discovery.ParseIssuer(raw)
	require.NoError(t, err)
	return i
}

func TestPJ02_ParseDomain_RegisteredForm(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.1#d1", "poppy-0.1/3#d39")
	for raw, want := range map[string]string{
		"example.com":                        "example.com",
		"EXAMPLE.Com":                        "example.com",
		"example.com.":                       "example.com",
		"www.example.com":                    "example.com",
		"WWW.Example.com.":                   "example.com",
		"shop.example.com":                   "shop.example.com",
		"wwwexample.com":                     "wwwexample.com",
		"www.com":                            "www.com", // without www. only a single label is left
		"bücher.example":                     "xn--bcher-kva.example",
		"BÜCHER.example":                     "xn--bcher-kva.example",
		"xn--bcher-kva.example":              "xn--bcher-kva.example",
		"straße.example":                     "xn--strae-oqa.example",
		"例え。テスト":                             "xn--r8jz45g.xn--zckzah",
		"noodle-bar.localhost":               "noodle-bar.localhost",
		"shop.test":                          "shop.test",
		"a--b.example":                       "a--b.example",
		"1.example":                          "1.example",
		"ｅｘａｍｐｌｅ.com":                        "example.com",
		strings.Repeat("a", 63) + ".example": strings.Repeat("a", 63) + ".example",
	} {
		d, err := discovery.ParseDomain(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, d.String(), raw)
		again, err := discovery.ParseDomain(d.String())
		require.NoError(t, err, raw)
		require.Equal(t, d, again, raw)
	}
}

func TestPJ02_ParseDomain_Refused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.1#d1")
	for _, raw := range []string{
		"", ".", "..", "com", "localhost", "example..com", ".example.com", "example.com:443", "https://example.com",
		"example.com/", "user@example.com", "127.0.0.1", "127.1", "1.2.3.0x7f", "example.0x", "[::1]", "::1", "１２７.0.0.1",
		"-a.example", "a-.example", "a_b.example", "a b.example", "exa\x00mple.com", "example.com\n", "*.example.com",
		"www.www.example.com", "xn--a.example", "\xff.example", "\ufffd.example", "a\u200db.example",
		strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 127) + "example", strings.Repeat("a", 5000),
	} {
		_, err := discovery.ParseDomain(raw)
		require.True(t, problem.Is(err, problem.InvalidRequest), "%q: %v", raw, err)
		require.Equal(t, problem.Invalid, problem.As(err).Kind)
	}
}

func TestParseIssuer_OneSpelling(t *testing.T) {
	for raw, parts := range map[string][2]string{
		"https://poppy.example":                                   {"poppy.example", ""},
		"https://poppy.example:8443":                              {"poppy.example:8443", ""},
		"https://noodle-bar.poppyfield.localhost:8443":            {"noodle-bar.poppyfield.localhost:8443", ""},
		"https://poppy.host.example/t/acme":                       {"poppy.host.example", "/t/acme"},
		"https://host.example/v1/channels/ch_1/poppy":             {"host.example", "/v1/channels/ch_1/poppy"},
		"https://localhost/~a.b-c":                                {"localhost", "/~a.b-c"},
		"https://xn--bcher-kva.example/" + strings.Repeat("a", 9): {"xn--bcher-kva.example", "/aaaaaaaaa"},
	} {
		i, err := discovery.ParseIssuer(raw)
		require.NoError(t, err, raw)
		require.Equal(t, raw, i.String())
		require.Equal(t, parts[0], i.Host())
		require.Equal(t, parts[1], i.Path())
		require.NotContains(t, i.Hostname(), ":")
	}
}

func TestPJ07_ParseIssuer_Refused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.1#7")
	for _, raw := range []string{
		"", "poppy.example", "http://poppy.example", "HTTPS://poppy.example", "https://", "https:///t", "https://Poppy.example",
		"https://poppy.example/", "https://poppy.example/t/", "https://poppy.example//t", "https://poppy.example/./t",
		"https://poppy.example/t/..", "https://poppy.example:443", "https://poppy.example:0443", "https://poppy.example:0",
		"https://poppy.example:65536", "https://poppy.example:", "https://poppy.example:+1", "https://u@poppy.example",
		"https://poppy.example?x", "https://poppy.example/t?x=1", "https://poppy.example#f", "https://poppy.example/%74",
		"https://poppy.example/a b", "https://poppy.example/ä", "https://bücher.example", "https://127.0.0.1", "https://[::1]",
		"https://poppy.example.", "https://poppy.example/.well-known/x", "https://poppy.example\\t", " https://poppy.example",
		"https://poppy.example/" + strings.Repeat("a", 512),
	} {
		_, err := discovery.ParseIssuer(raw)
		require.True(t, problem.Is(err, problem.InvalidRequest), "%q: %v", raw, err)
	}
}

func TestIssuer_Endpoints(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.2#d2", "poppy-0.1/3#d1")
	i := issuer(t, "https://poppy.host.example/t/acme")
	require.Equal(t, "https://poppy.host.example/t/acme/oauth/token", i.TokenEndpoint())
	require.Equal(t, "https://poppy.host.example/t/acme/oauth/revoke", i.RevocationEndpoint())
	require.Equal(t, "https://poppy.host.example/t/acme/oauth/authorize", i.AuthorizationEndpoint())
	require.Equal(t, "https://poppy.host.example/t/acme/oauth/device", i.DeviceAuthorizationEndpoint())
	require.Equal(t, "https://poppy.host.example/t/acme/poppy/sign-in", i.SignInEndpoint())
	require.Equal(t, "https://poppy.host.example/t/acme/poppy/conversations", i.ConversationsEndpoint())
	require.Equal(t, "https://poppy.host.example/t/acme/poppy/conversations/cnv_1/events", i.ConversationEndpoint("cnv_1", "events"))
	require.Equal(t, "https://poppy.host.example/t/acme/poppy/webhook-keys.json", i.WebhookKeysURL())
	a, b := i.DocumentURL(domain(t, "a.example")), i.DocumentURL(domain(t, "b.example"))
	require.Equal(t, "https://poppy.host.example/t/acme/poppy/a.example/poppy.json", a)
	require.NotEqual(t, a, b)
}

func TestMD01_MetadataURLs(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.2#d3")
	i := issuer(t, "https://poppy.host.example/t/acme")
	require.Equal(t, "https://poppy.host.example/.well-known/oauth-authorization-server/t/acme", i.MetadataURL())
	require.Equal(t, "https://poppy.host.example/t/acme/.well-known/oauth-authorization-server", i.AppendedMetadataURL())
	root := issuer(t, "https://poppy.example")
	require.Equal(t, root.MetadataURL(), root.AppendedMetadataURL())

	for _, raw := range []string{"https://poppy.host.example/t/acme", "https://poppy.host.example/t/acme/"} {
		inserted, appended, err := discovery.MetadataURLs(raw)
		require.NoError(t, err)
		require.Equal(t, i.MetadataURL(), inserted)
		require.Equal(t, i.AppendedMetadataURL(), appended)
	}
	for _, raw := range []string{"", "http://a.example", "https://a.example?x", "https://u@a.example", "https://a.example#", "https://", "::"} {
		_, _, err := discovery.MetadataURLs(raw)
		require.True(t, problem.Is(err, discovery.InvalidDocument), raw)
	}
}

func FuzzParseDomain(f *testing.F) {
	for _, s := range []string{"example.com", "WWW.Example.com.", "bücher.example", "127.0.0.1", "xn--a.b", "a..b", "www.www.a.b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		d, err := discovery.ParseDomain(raw)
		if err != nil {
			require.NotEqual(t, problem.Internal, problem.As(err).Kind)
			return
		}
		again, err := discovery.ParseDomain(d.String())
		require.NoError(t, err)
		require.Equal(t, d, again)
	})
}

func FuzzParseIssuer(f *testing.F) {
	for _, s := range []string{"https://a.example", "https://a.example:8443/t/acme", "https://a.example/", "https://A.example", "https://a/%2e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		i, err := discovery.ParseIssuer(raw)
		if err != nil {
			return
		}
		require.Equal(t, raw, i.String())
		_, _, err = discovery.MetadataURLs(raw)
		require.NoError(t, err)
	})
}
