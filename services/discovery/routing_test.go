package discovery_test

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	poppy "github.com/poppyfield/poppyfield/internal/poppy/discovery"
)

func TestMD01_PathIssuer_BothLocationsSameBytes(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.2#d3", "poppy-0.1/3.2#4")
	clausetest.Refuses(t, "poppy-0.1/3.2#d3")
	r := newRig(t)
	c := r.company(t, "acme", "https://poppy.host.example/t/acme", "acme.example")
	nested := r.company(t, "nested", "https://poppy.host.example/t/acme/shop", "shop.example")
	base := "https://poppy.host.example"
	for _, one := range []tenant{c, nested} {
		inserted, appended := one.issuer.MetadataURL(), one.issuer.AppendedMetadataURL()
		require.NotEqual(t, inserted, appended)
		first, second := r.get(t, inserted), r.get(t, appended)
		require.Equal(t, http.StatusOK, first.Code)
		require.Equal(t, first.Body.Bytes(), second.Body.Bytes())
		require.Equal(t, first.Header(), second.Header())
		meta, err := poppy.ParseMetadata(first.Body.Bytes(), one.issuer.String())
		require.NoError(t, err)
		require.Equal(t, one.issuer.String(), meta.Issuer)
	}
	for _, path := range []string{
		"/.well-known/oauth-authorization-server", // there is no issuer at the root
		"/.well-known/oauth-authorization-server/",
		"/.well-known/oauth-authorization-server/t/acme/",
		"/.well-known/oauth-authorization-server/t",
		"/.well-known/oauth-authorization-server/t/acm",
		"/.well-known/oauth-authorization-server/x/t/acme",
		"/.well-known/oauth-authorization-server/T/acme",
		"/.well-known/oauth-authorization-server/shop",
		"/t/acme/.well-known/oauth-authorization-server/",
		"/t/acme/.well-known/oauth-authorization-server/t/acme",
		"/t/.well-known/oauth-authorization-server/acme",
		"/t/acmes/.well-known/oauth-authorization-server",
		"/t/acme/.well-known/openid-configuration",
		"/.well-known/openid-configuration/t/acme",
		"/t/acme/poppy/shop.example/poppy.json",
		"/poppy/acme.example/poppy.json/t/acme",
		"/.well-known/poppy/acme.example/poppy.json/t/acme",
		"/poppy/webhook-keys.json/t/acme",
	} {
		requireMissing(t, r.get(t, base+path), path)
	}
}

func TestMD01_RootAndPathIssuerOnOneHost(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.2#d3")
	r := newRig(t)
	root := r.company(t, "root", "https://host.example", "root.example")
	path := r.company(t, "path", "https://host.example/t/path", "path.example")
	for _, c := range []tenant{root, path} {
		raw := r.fetch(t, c.issuer.MetadataURL())
		_, err := poppy.ParseMetadata(raw, c.issuer.String())
		require.NoError(t, err)
		require.Equal(t, raw, r.fetch(t, c.issuer.AppendedMetadataURL()))
	}
	requireMissing(t, r.get(t, documentURL(t, root, "path.example")), "document of the path issuer at the root")
	requireMissing(t, r.get(t, documentURL(t, path, "root.example")), "document of the root issuer at the path")
	requireMissing(t, r.get(t, "https://host.example/t/other/poppy/root.example/poppy.json"), "unknown path")
}

func TestMT06_SameNamesAtTwoCompanies(t *testing.T) {
	r := newRig(t)
	a := r.company(t, "a", "https://host.example/t/a", "a.example")
	b := r.company(t, "b", "https://host.example/t/b", "b.example")
	for range 2 { // also from memory
		for _, c := range []tenant{a, b} {
			require.Contains(t, string(r.fetch(t, c.issuer.MetadataURL())), `"issuer": "`+c.issuer.String()+`"`)
		}
		requireMissing(t, r.get(t, documentURL(t, a, "b.example")), "b's domain at a")
		requireMissing(t, r.get(t, documentURL(t, b, "a.example")), "a's domain at b")
	}
}

// The proxy in front may take the issuer's path off (DP-04), or end TLS and speak
// plain HTTP to another port (DP-01): what is published stays the same.
func TestDP01_DP04_BehindAProxy(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.2#d2")
	clausetest.Refuses(t, "poppy-0.1/3.2#d2")
	r := newRig(t)
	c := r.company(t, "acme", "https://api.host.example/t/acme", "acme.example")
	direct := r.fetch(t, documentURL(t, c, "acme.example"))
	meta := r.fetch(t, c.issuer.MetadataURL())
	require.Equal(t, direct, r.fetch(t, "http://127.0.0.1:8080/poppy/acme.example/poppy.json", "Host", "api.host.example"))
	require.Equal(t, direct, r.fetch(t, "http://127.0.0.1:8080/t/acme/poppy/acme.example/poppy.json", "Host", "api.host.example:8080"))
	require.Equal(t, meta, r.fetch(t, "http://127.0.0.1:8080/t/acme/.well-known/oauth-authorization-server", "Host", "api.host.example"))

	forged := []string{
		"Host", "API.Host.Example.:1234", "X-Forwarded-Host", "evil.example", "X-Forwarded-Proto", "http", "X-Forwarded-Port", "81",
		"X-Forwarded-Prefix", "/evil", "Forwarded", "host=evil.example;proto=http", "X-Original-URL", "/evil", "X-Rewrite-URL", "/evil",
	}
	require.Equal(t, direct, r.fetch(t, documentURL(t, c, "acme.example"), forged...))
	require.Equal(t, meta, r.fetch(t, c.issuer.MetadataURL(), forged...))
	require.NotContains(t, string(direct)+string(meta), "evil")
	// X-Forwarded-Host doesn't select a Company either.
	requireMissing(t, r.get(t, documentURL(t, c, "acme.example"), "Host", "unknown.example", "X-Forwarded-Host", "api.host.example"), "forwarded host")

	// With a second Company on the host a path without prefix belongs to nobody.
	r.company(t, "other", "https://api.host.example/t/other")
	requireMissing(t, r.get(t, "https://api.host.example/poppy/acme.example/poppy.json"), "which Company?")
}

func TestMT07_HostSelectsTheCompany(t *testing.T) {
	r := newRig(t)
	c := r.company(t, "acme", "https://acme.example", "acme.example")
	r.company(t, "other", "https://other.example", "other.example")
	want := r.fetch(t, c.issuer.MetadataURL())
	url := c.issuer.MetadataURL()
	for _, host := range []string{"acme.example", "ACME.EXAMPLE", "acme.example.", "acme.example:443", "acme.example:8443", "Acme.Example.:443", "acme.example:"} {
		require.Equal(t, want, r.fetch(t, url, "Host", host), host)
	}
	for _, host := range []string{
		"", "unknown.example", "acme.example.evil.example", "evil-acme.example", "acme", "example", "acme.example:0", "acme.example:99999", "acme.example:x",
		"acme.example..", ".acme.example", "acme..example", "exa mple:abc", "acme.example/", "acme.example@evil.example", "user@acme.example", "acme.example,other.example",
		"acme.example other.example", "127.0.0.1", "[::1]", "[::1", "[acme.example]", "acme.example\x00", "acmé.example", strings.Repeat("a", 300) + ".example", "%61cme.example",
	} {
		requireMissing(t, r.get(t, url, "Host", host), host)
	}
}

// raw sends a request as written to a real server and returns the answer.
func raw(t *testing.T, addr, request string) *http.Response {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte(request))
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestMT07_DP11_RawRequests(t *testing.T) {
	r := newRig(t)
	r.company(t, "acme", "https://acme.example", "acme.example")
	r.company(t, "other", "https://other.example", "other.example")
	s := httptest.NewServer(r.router)
	t.Cleanup(s.Close)
	const path = "/poppy/acme.example/poppy.json"
	for name, c := range map[string]struct {
		line   string
		hosts  []string
		status int
	}{
		"plain":                                {"GET " + path, []string{"acme.example"}, 200},
		"absolute form names the host":         {"GET http://acme.example" + path, []string{"other.example"}, 200},
		"absolute form to another host":        {"GET http://other.example" + path, []string{"acme.example"}, 404},
		"absolute form to an unknown host":     {"GET http://unknown.example" + path, []string{"acme.example"}, 404},
		"absolute form, https and credentials": {"GET https://u:p@acme.example:443" + path, []string{"x.example"}, 200},
		"two Hosts":                            {"GET " + path, []string{"acme.example", "other.example"}, 400},
		"no Host":                              {"GET " + path, nil, 400},
		"malformed Host":                       {"GET " + path, []string{"exa mple:abc"}, 400},
		"Host with a path":                     {"GET " + path, []string{"acme.example/x"}, 400},
		"Host with a bad port":                 {"GET " + path, []string{"acme.example:abc"}, 404},
		"double slash":                         {"GET /" + path, []string{"acme.example"}, 404},
		"double slash inside":                  {"GET /poppy//acme.example/poppy.json", []string{"acme.example"}, 404},
		"scheme-relative":                      {"GET //acme.example" + path, []string{"acme.example"}, 404},
		"dot segments":                         {"GET /poppy/x/../acme.example/poppy.json", []string{"acme.example"}, 404},
		"dot segment":                          {"GET /./poppy/acme.example/poppy.json", []string{"acme.example"}, 404},
		"escaped dot segments":                 {"GET /poppy/x/%2e%2e/acme.example/poppy.json", []string{"acme.example"}, 404},
		"escaped slash":                        {"GET /poppy%2facme.example/poppy.json", []string{"acme.example"}, 404},
		"escaped slash in the domain":          {"GET /poppy/acme.example%2fx/poppy.json", []string{"acme.example"}, 404},
		"escaped letter":                       {"GET /%70oppy/acme.example/poppy.json", []string{"acme.example"}, 404},
		"escaped letter in the domain":         {"GET /poppy/%61cme.example/poppy.json", []string{"acme.example"}, 404},
		"escaped NUL":                          {"GET /poppy/acme.example%00/poppy.json", []string{"acme.example"}, 404},
		"broken escape":                        {"GET /poppy/acme.example%zz/poppy.json", []string{"acme.example"}, 400},
		"backslash":                            {`GET /poppy\acme.example/poppy.json`, []string{"acme.example"}, 404},
		"query is ignored":                     {"GET " + path + "?domain=other.example", []string{"acme.example"}, 200},
		"asterisk":                             {"OPTIONS *", []string{"acme.example"}, 200}, // net/http answers it by itself
		"no leading slash":                     {"GET poppy/acme.example/poppy.json", []string{"acme.example"}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			request := c.line + " HTTP/1.1\r\n"
			for _, h := range c.hosts {
				request += "Host: " + h + "\r\n"
			}
			res := raw(t, s.Listener.Addr().String(), request+"Connection: close\r\n\r\n")
			require.Equal(t, c.status, res.StatusCode)
			require.Empty(t, res.Header.Get("Location"))
			if c.status == 404 {
				require.Equal(t, "application/json", res.Header.Get("Content-Type"))
				require.Equal(t, int64(21), res.ContentLength)
			}
		})
	}
}

func TestRoutes_NeverRedirect(t *testing.T) {
	r := newRig(t)
	c := r.company(t, "acme", "https://host.example/t/acme", "acme.example")
	base := "/t/acme"
	for _, path := range []string{
		"", "/", "/poppy", "/poppy/", "/poppy/acme.example", "/poppy/acme.example/", "/poppy/acme.example/poppy.json", "/poppy/acme.example/poppy.json/",
		"//poppy/acme.example/poppy.json", "/poppy/../poppy/acme.example/poppy.json", "/.well-known", "/.well-known/", "/.well-known/oauth-authorization-server",
		"/.well-known/oauth-authorization-server/", "/oauth/token", "/oauth/token/", "/index.html",
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions} {
			w := r.ask(t, method, "http://"+c.issuer.Host()+base+path)
			require.False(t, w.Code >= 300 && w.Code < 400, "%s %s: %d", method, path, w.Code)
			require.Empty(t, w.Header().Get("Location"))
			require.NotContains(t, w.Body.String(), "<")
		}
	}
}

func TestRoutes_OtherMethods(t *testing.T) {
	r := newRig(t)
	c := r.company(t, "acme", "", "acme.example")
	for _, url := range []string{documentURL(t, c, "acme.example"), c.issuer.MetadataURL(), c.issuer.WebhookKeysURL(), documentURL(t, c, "unknown.example")} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodTrace, "get"} {
			w := r.ask(t, method, url)
			require.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
			require.Equal(t, "GET, HEAD, OPTIONS", w.Header().Get("Allow"))
			require.JSONEq(t, `{"error":"method_not_allowed"}`, w.Body.String())
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		}
	}
}

func TestRoutes_AnyoneReadsDocuments(t *testing.T) {
	r := newRig(t)
	require.Equal(t, map[string]publicweb.Caller{
		"GET /poppy/{domain}/poppy.json": publicweb.Anyone, "GET /.well-known/oauth-authorization-server": publicweb.Anyone, "GET /poppy/webhook-keys.json": publicweb.Anyone, "GET /poppy/egress-addresses.json": publicweb.Anyone,
		"GET /poppy/logo": publicweb.Anyone, "GET /poppy/resources/{key}.json": publicweb.Anyone,
		"GET /.well-known/oauth-protected-resource": publicweb.Anyone, "GET /.well-known/oauth-protected-resource/{path...}": publicweb.Anyone,
	}, r.router.Table())
}

func TestEgressAddresses_AnyoneReadsThem(t *testing.T) {
	r := newRig(t)
	c := r.company(t, "acme", "", "acme.example")
	w := r.get(t, c.issuer.String()+"/poppy/egress-addresses.json")
	require.Equal(t, http.StatusOK, w.Code)
	require.JSONEq(t, `{"addresses":["203.0.113.7/32","2001:db8::/64"]}`, w.Body.String())
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
}
