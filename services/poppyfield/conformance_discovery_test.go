package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// member follows names into a JSON object.
func member(t testing.TB, v any, names ...string) any {
	t.Helper()
	for _, name := range names {
		o, ok := v.(map[string]any)
		require.True(t, ok, "%v is no object on the way to %v", v, names)
		v = o[name]
	}
	return v
}

// document reads the poppy.json of a domain as an agent does: by its website's redirect.
func (co *company) document(t testing.TB, domain string) answer {
	t.Helper()
	first := co.in.get(t, "https://"+domain+"/.well-known/poppy.json")
	require.Equal(t, http.StatusFound, first.status)
	return co.in.get(t, first.header.Get("Location")).is(t, http.StatusOK, "")
}

func (co *company) metadata(t testing.TB) answer {
	t.Helper()
	return co.in.get(t, co.issuer+"/.well-known/oauth-authorization-server").is(t, http.StatusOK, "")
}

func TestDiscovery_DocumentOfADomainByItsRedirect(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3#1", "poppy-0.1/3#2", "poppy-0.1/3#3", "poppy-0.1/3#4", "poppy-0.1/3#6", "poppy-0.1/3#8", "poppy-0.1/3#9", "poppy-0.1/3#d1",
			"poppy-0.1/3.1#1", "poppy-0.1/3.1#3", "poppy-0.1/3.1#4", "poppy-0.1/3.1#5", "poppy-0.1/3.1#7", "poppy-0.1/3.1#15", "poppy-0.1/3.1#16", "poppy-0.1/3.1#6",
			"poppy-0.1/3.1#20", "poppy-0.1/3.1#d1", "poppy-0.1/7.1#1", "poppy-0.1/7.1#2", "poppy-0.1/7.1#5", "poppy-0.1/3.2#8")
		co := in.company(t, withDomain, settings(object{"organization_name": "Harbor Goods"}))
		got := co.document(t, co.domain)
		require.Equal(t, object{
			"protocol_version": "0.1",
			"organization":     object{"name": "Harbor Goods", "domain": co.domain},
			"auth":             object{"issuer": co.issuer},
			"agent":            object{"protocols": []any{object{"type": "poppy", "endpoint": co.conversationsEndpoint()}}},
		}, got.body)
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		require.True(t, strings.HasPrefix(co.issuer, "https://"))
		meta := co.metadata(t)
		require.Equal(t, co.issuer, meta.str("issuer"))
		require.Equal(t, []any{co.domain}, meta.body["poppy_domains"])
	})
}

func TestMD05_DocumentsAreCachedSharedAndNeverStale(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3.2#5")
		co := in.company(t, withDomain)
		target := co.in.get(t, "https://"+co.domain+"/.well-known/poppy.json").header.Get("Location")
		for _, at := range []string{target, co.issuer + "/.well-known/oauth-authorization-server"} {
			got := in.get(t, at).is(t, http.StatusOK, "")
			require.Equal(t, "*", got.header.Get("Access-Control-Allow-Origin"))
			require.Contains(t, got.header.Get("Cache-Control"), "max-age=300")
			tag := got.header.Get("ETag")
			require.NotEmpty(t, tag)
			same := in.get(t, at, header("If-None-Match", tag))
			require.Equal(t, http.StatusNotModified, same.status)
			require.Empty(t, same.raw)
			require.Equal(t, http.StatusOK, in.get(t, at, header("If-None-Match", `"other"`)).status)
			head := in.do(t, request(t, http.MethodHead, at, ""))
			require.Equal(t, http.StatusOK, head.status)
			require.Equal(t, tag, head.header.Get("ETag"))
			in.do(t, request(t, http.MethodPost, at, "")).is(t, http.StatusMethodNotAllowed, "method_not_allowed")
		}
		name := co.admin(t, http.MethodGet, co.name+"/domains", nil).is(t, http.StatusOK, "").body["domains"].([]any)[0].(map[string]any)["name"].(string)
		co.admin(t, http.MethodDelete, name, nil).is(t, http.StatusOK, "")
		until(t, "the domain is gone from the metadata", func() bool { return len(co.metadata(t).body["poppy_domains"].([]any)) == 0 })
		in.get(t, target).is(t, http.StatusNotFound, "not_found")
	})
}

func TestDiscovery_EverythingADocumentMayHold(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3.1#13", "poppy-0.1/3.1#17", "poppy-0.1/3.1#19", "poppy-0.1/3.1#21", "poppy-0.1/3.1#23", "poppy-0.1/3.1#24", "poppy-0.1/3#8",
			"poppy-0.1/3.3#1", "poppy-0.1/3.3#2", "poppy-0.1/3.3#3", "poppy-0.1/3.3#4", "poppy-0.1/3.3#5", "poppy-0.1/3.3#6", "poppy-0.1/3.3#8", "poppy-0.1/4.3#38")
		co := in.company(t, withDomain, settings(object{
			"organization_name": "Harbor Goods", "conversations_resource": true,
			"browser_session_endpoint": "https://harbor.example/poppy/browser-session",
			"custom_scopes":            object{"addresses": "Manage saved addresses"},
			"apis": []any{
				object{"type": "openapi", "url": "https://api.harbor.example/openapi.json", "description": "Orders", "resource": "https://api.harbor.example/"},
				object{"type": "mcp", "url": "https://mcp.harbor.example/mcp"},
			},
			"extensions": object{
				"operations":            object{"version": "1", "fields_json": `{"endpoint":"https://api.harbor.example/poppy/operations"}`},
				"harbor.example/wrap":   object{"version": "2", "fields_json": `{"paper":["red","blue"]}`},
				"other.example/loyalty": object{"version": "1"},
			},
		}))
		got := co.document(t, co.domain).body
		require.Equal(t, object{"addresses": "Manage saved addresses"}, member(t, got, "auth", "custom_scopes"))
		require.Equal(t, "https://harbor.example/poppy/browser-session", member(t, got, "web", "browser_session_endpoint"))
		require.Equal(t, []any{object{"type": "poppy", "endpoint": co.conversationsEndpoint(), "resource": co.conversationsEndpoint()}}, member(t, got, "agent", "protocols"))
		require.Equal(t, []any{
			object{"type": "openapi", "url": "https://api.harbor.example/openapi.json", "description": "Orders", "resource": "https://api.harbor.example/"},
			object{"type": "mcp", "url": "https://mcp.harbor.example/mcp"},
		}, got["apis"])
		require.Equal(t, object{
			"operations":            object{"version": "1", "endpoint": "https://api.harbor.example/poppy/operations"},
			"harbor.example/wrap":   object{"version": "2", "paper": []any{"red", "blue"}},
			"other.example/loyalty": object{"version": "1"},
		}, got["extensions"])
	})
}

// Settings that would break the document are refused before anything of it is served.
func TestDiscovery_SettingsThatBreakTheDocumentAreRefused(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/3.3#2", "poppy-0.1/3.3#4", "poppy-0.1/3.3#8", "poppy-0.1/3.1#3", "poppy-0.1/3.1#14", "poppy-0.1/3.1#17", "poppy-0.1/3.1#19", "poppy-0.1/3.1#20", "poppy-0.1/3.1#21", "poppy-0.1/3.1#23",
			"poppy-0.1/3.3#3", "poppy-0.1/3.3#5", "poppy-0.1/3.3#6", "poppy-0.1/3.1#13")
		clausetest.Covers(t, "poppy-0.1/3.1#14")
		co := in.company(t, withDomain)
		before := co.document(t, co.domain)
		for name, c := range map[string]struct {
			set   object
			field string
		}{
			"reserved scope":              {object{"custom_scopes": object{"poppy:admin": "Everything"}}, "custom_scopes.poppy:admin"},
			"scope without description":   {object{"custom_scopes": object{"addresses": ""}}, "custom_scopes.addresses"},
			"plain extension of nobody":   {object{"extensions": object{"loyalty": object{"version": "1"}}}, "extensions.loyalty"},
			"extension without version":   {object{"extensions": object{"a.example/b": object{}}}, "version"},
			"operations without endpoint": {object{"extensions": object{"operations": object{"version": "1"}}}, "extensions.operations"},
			"API over http":               {object{"apis": []any{object{"type": "openapi", "url": "http://api.example/openapi.json"}}}, "apis[0].url"},
			"API of no known type":        {object{"apis": []any{object{"type": "soap", "url": "https://api.example/wsdl"}}}, "apis[0].type"},
			"API without url":             {object{"apis": []any{object{"type": "mcp"}}}, "apis[0].url"},
			"resource that is no URI":     {object{"apis": []any{object{"type": "openapi", "url": "https://api.example/o.json", "resource": "orders"}}}, "apis[0].resource"},
			"browser session over http":   {object{"browser_session_endpoint": "http://shop.example/join"}, "browser_session_endpoint"},
			"nothing to offer":            {object{"conversations_enabled": false}, ""},
			"line break in the name":      {object{"organization_name": "A\nB"}, "organization_name"},
		} {
			t.Run(name, func(t *testing.T) {
				var mask []string
				for field := range c.set {
					mask = append(mask, field)
				}
				got := co.admin(t, http.MethodPatch, co.name+"/discoverySettings?update_mask="+strings.Join(mask, ","), c.set)
				require.Equal(t, http.StatusBadRequest, got.status, "%s", got.raw)
				require.Contains(t, string(got.raw), c.field)
			})
		}
		require.Equal(t, before.raw, co.document(t, co.domain).raw)
	})
}

func TestDiscovery_OneCompanyOfSeveralDomains(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3#d1", "poppy-0.1/3#d39", "poppy-0.1/3.2#1", "poppy-0.1/3.2#2", "poppy-0.1/3.2#3", "poppy-0.1/3.2#5", "poppy-0.1/3.2#8", "poppy-0.1/3.1#4")
		co := in.company(t, withDomain)
		second, sub := in.shop(t), "sub."+co.domain
		co.own(t, strings.ToUpper(second)+".")
		co.own(t, sub)
		for _, domain := range []string{co.domain, second, sub} {
			got := co.document(t, domain)
			require.Equal(t, domain, member(t, got.body, "organization", "domain"))
			require.Equal(t, co.issuer, member(t, got.body, "auth", "issuer"))
		}
		require.ElementsMatch(t, []any{co.domain, second, sub}, co.metadata(t).body["poppy_domains"])
		// What an agent learns at either domain is one endpoint: its User is one User there.
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		s.again(t).read(t, id, "").is(t, http.StatusOK, "")
	})
}

// PJ-02, PJ-10, MT-09: who doesn't control a domain doesn't speak for it.
func TestPJ10_DomainsWithoutProofAreNotServed(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/3#1", "poppy-0.1/3#2", "poppy-0.1/3#4", "poppy-0.1/3#6", "poppy-0.1/3#d1", "poppy-0.1/3#d39", "poppy-0.1/3.1#4", "poppy-0.1/3.1#5", "poppy-0.1/3.2#5", "poppy-0.1/3.1#d1")
		co, other := in.company(t, withDomain), in.company(t)
		domain := in.shop(t)
		made := co.admin(t, http.MethodPost, co.name+"/domains", object{"domain": domain}).is(t, http.StatusOK, "")
		target := made.str("redirect_target")
		in.get(t, target).is(t, http.StatusNotFound, "not_found")
		for name, page := range map[string]http.HandlerFunc{
			"no such page":        http.NotFound,
			"PJ-01 HTML shell":    document("text/html", []byte("<html>")),
			"PJ-01 JSON":          document("application/json", []byte(`{"protocol_version":"0.1"}`)),
			"PJ-01 empty":         func(http.ResponseWriter, *http.Request) {},
			"PJ-10 http":          redirect("http" + strings.TrimPrefix(target, "https")),
			"PJ-10 loop":          redirect("https://" + domain + "/.well-known/poppy.json"),
			"PJ-10 loopback":      redirect("https://127.0.0.1/poppy.json"),
			"PJ-02 another's":     redirect(strings.Replace(target, domain, co.domain, 1)),
			"MT-09 other Company": redirect(other.issuer + "/poppy/" + domain + "/poppy.json"),
		} {
			t.Run(name, func(t *testing.T) {
				in.web.put(domain+"/.well-known/poppy.json", page)
				got := co.admin(t, http.MethodPost, made.str("name")+":check", object{}).is(t, http.StatusOK, "")
				require.Equal(t, "DOMAIN_STATE_PENDING", got.str("state"), "%s", got.raw)
				require.NotEmpty(t, got.body["observations"])
				in.get(t, target).is(t, http.StatusNotFound, "not_found")
			})
		}
		require.Equal(t, []any{co.domain}, co.metadata(t).body["poppy_domains"])
		t.Run("MT-09 of another Company", func(t *testing.T) {
			for _, name := range []string{co.domain, "www." + co.domain, strings.ToUpper(co.domain), co.domain + "."} {
				made := other.admin(t, http.MethodPost, other.name+"/domains", object{"domain": name})
				if made.status != http.StatusOK {
					continue
				}
				got := other.admin(t, http.MethodPost, made.str("name")+":check", object{}).is(t, http.StatusOK, "")
				require.NotEqual(t, "DOMAIN_STATE_VERIFIED", got.str("state"))
				other.admin(t, http.MethodDelete, made.str("name"), nil).is(t, http.StatusOK, "")
			}
			in.get(t, other.issuer+"/poppy/"+co.domain+"/poppy.json").is(t, http.StatusNotFound, "not_found")
			require.Empty(t, other.metadata(t).body["poppy_domains"])
		})
		t.Run("no domain", func(t *testing.T) {
			for _, name := range []string{"localhost", "127.0.0.1", "a b.example", "https://shop.example", "shop.example:443", "-.example"} {
				require.Equal(t, http.StatusBadRequest, co.admin(t, http.MethodPost, co.name+"/domains", object{"domain": name}).status, name)
			}
		})
	})
}

func TestMD04_MetadataSaysWhatTheServerDoes(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3.2#4", "poppy-0.1/3.2#9", "poppy-0.1/3.2#11", "poppy-0.1/3.2#12", "poppy-0.1/3.2#15", "poppy-0.1/3.2#d10", "poppy-0.1/4#33")
		co := in.company(t)
		got := co.metadata(t)
		require.Equal(t, co.issuer, got.str("issuer"))
		require.Equal(t, co.tokenEndpoint(), got.str("token_endpoint"))
		require.Equal(t, co.revocationEndpoint(), got.str("revocation_endpoint"))
		require.Equal(t, []any{}, got.body["poppy_domains"])
		algs := []any{"ES256", "ES384", "EdDSA", "PS256", "RS256"}
		require.Equal(t, algs, got.body["token_endpoint_auth_signing_alg_values_supported"])
		require.Equal(t, algs, got.body["dpop_signing_alg_values_supported"])
		require.Equal(t, []any{"private_key_jwt"}, got.body["token_endpoint_auth_methods_supported"])
		require.Equal(t, []any{"urn:ietf:params:oauth:grant-type:jwt-bearer"}, got.body["grant_types_supported"])
		require.Equal(t, true, got.body["client_id_metadata_document_supported"])
		// Signed out only: no endpoint is promised for a sign-in that isn't offered.
		require.NotContains(t, got.body, "authorization_endpoint")
		require.NotContains(t, got.body, "device_authorization_endpoint")
		for _, path := range []string{"/oauth/device", "/poppy/sign-in"} {
			in.do(t, request(t, http.MethodPost, co.issuer+path, "")).is(t, http.StatusNotFound, "not_found")
		}
		in.get(t, co.issuer+"/oauth/authorize").is(t, http.StatusNotFound, "")
	})
}

func TestMD01_IssuerWithAPath(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3.2#4", "poppy-0.1/3.2#d3", "poppy-0.1/4.2#16", "poppy-0.1/4.3#20")
		clausetest.Refuses(t, "poppy-0.1/3.2#4", "poppy-0.1/3.2#d3")
		co := in.company(t, withDomain, issuerPath("/t/acme"))
		origin := strings.TrimSuffix(co.issuer, "/t/acme")
		appended := co.metadata(t)
		inserted := in.get(t, origin+"/.well-known/oauth-authorization-server/t/acme").is(t, http.StatusOK, "")
		require.Equal(t, appended.raw, inserted.raw)
		require.Equal(t, co.issuer, inserted.str("issuer"))
		for _, path := range []string{
			"/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server/", "/.well-known/oauth-authorization-server/t/acme/",
			"/.well-known/oauth-authorization-server/t", "/t/.well-known/oauth-authorization-server", "/.well-known/openid-configuration", "/",
		} {
			in.get(t, origin+path).is(t, http.StatusNotFound, "not_found")
		}
		// IS-03: the document and the metadata name each other.
		doc := co.document(t, co.domain).body
		require.Equal(t, co.issuer, member(t, doc, "auth", "issuer"))
		require.Equal(t, co.conversationsEndpoint(), member(t, doc, "agent", "protocols").([]any)[0].(map[string]any)["endpoint"])
		require.Equal(t, []any{co.domain}, inserted.body["poppy_domains"])
		// DP-04: the endpoints are where the metadata says.
		s := co.visitor(t)
		s.read(t, s.talk(t, "Hello"), "").is(t, http.StatusOK, "")
		wrong := request(t, http.MethodPost, co.tokenEndpoint(), co.form(t, s.agent, s.user).Encode(), header("Content-Type", "application/x-www-form-urlencoded"),
			header("DPoP", s.rootProof(t, origin+"/oauth/token")))
		in.do(t, wrong).is(t, http.StatusBadRequest, "invalid_dpop_proof")
	})
}

// MT-07, decision 2: Host selects a Company and says nothing else.
func TestMT07_HostOnlySelects(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3.2#d2", "poppy-0.1/4.2#d2", "poppy-0.1/4.3#d2")
		clausetest.Refuses(t, "poppy-0.1/3.2#d2", "poppy-0.1/4.2#d2", "poppy-0.1/4.3#d2")
		co := in.company(t)
		want := co.metadata(t).raw
		at := co.issuer + "/.well-known/oauth-authorization-server"
		for name, change := range map[string]func(*http.Request){
			"upper case":        func(r *http.Request) { r.Host = strings.ToUpper(r.URL.Host) },
			"trailing dot":      func(r *http.Request) { r.Host = co.host + "." },
			"no port":           func(r *http.Request) { r.Host = co.host },
			"another port":      func(r *http.Request) { r.Host = co.host + ":8443" },
			"X-Forwarded-Host":  header("X-Forwarded-Host", "evil.example"),
			"X-Forwarded-Proto": header("X-Forwarded-Proto", "http"),
			"Forwarded":         header("Forwarded", "host=evil.example;proto=http"),
		} {
			t.Run(name, func(t *testing.T) { require.Equal(t, want, in.get(t, at, change).is(t, http.StatusOK, "").raw) })
		}
		for _, host := range []string{"unknown." + in.hosted, "evil.example", "x." + co.host, "."} {
			in.get(t, at, func(r *http.Request) { r.Host = host }).is(t, http.StatusNotFound, "not_found")
		}
		// A request that comes by another spelling of the host is judged by the configured one.
		s := co.visitor(t)
		other := func(r *http.Request) {
			r.Host = co.host + ":8443"
			r.Header.Set("X-Forwarded-Host", "evil.example")
		}
		s.post(t, conversationsPath, text("Hello"), other).is(t, http.StatusCreated, "")
		a := in.agent(t)
		r := co.tokenRequest(t, co.form(t, a, "usr_1"), co.proof(t, s.key))
		other(r)
		in.do(t, r).is(t, http.StatusOK, "")
		// … and a proof or assertion made for what Host says isn't.
		elsewhere := "https://" + co.host + ":8443"
		r = s.request(t, http.MethodPost, conversationsPath, text("Hello"), header("DPoP", s.proofFor(t, http.MethodPost, elsewhere+conversationsPath)))
		other(r)
		in.do(t, r).is(t, http.StatusUnauthorized, "invalid_dpop_proof")
		r = co.tokenRequest(t, a.TokenForm(t, "usr_1", elsewhere+"/oauth/token", now()), co.proof(t, s.key))
		other(r)
		in.do(t, r).is(t, http.StatusUnauthorized, "invalid_client")
		form := co.form(t, a, "usr_1", with("assertion", a.SessionAssertion(t, "usr_1", elsewhere+"/oauth/token", now())))
		r = co.tokenRequest(t, form, co.proof(t, s.key))
		other(r)
		in.do(t, r).is(t, http.StatusBadRequest, "invalid_grant")
	})
}

// An unknown host, a domain of nobody and a Company that is off are the same.
func TestDiscovery_OneAnswerForWhatIsNotThere(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/3#d1", "poppy-0.1/3.2#d3")
		co, setting := in.company(t, withDomain), in.company(t, unpublished)
		s := co.visitor(t)
		target := in.get(t, "https://"+co.domain+"/.well-known/poppy.json").header.Get("Location")
		unknown := in.get(t, "https://nobody."+in.hosted+"/.well-known/oauth-authorization-server").is(t, http.StatusNotFound, "not_found")
		same := func(got answer) {
			t.Helper()
			require.Equal(t, http.StatusNotFound, got.status)
			require.Equal(t, unknown.raw, got.raw)
			for _, a := range []answer{got, unknown} {
				a.header.Del("Date")
				a.header.Del("X-Request-Id")
			}
			require.Equal(t, unknown.header, got.header)
		}
		same(in.get(t, co.issuer+"/poppy/other.example/poppy.json"))
		same(in.get(t, co.issuer+"/nothing"))
		same(in.get(t, setting.issuer+"/.well-known/oauth-authorization-server"))
		co.admin(t, http.MethodPost, co.name+":disable", object{}).is(t, http.StatusOK, "")
		until(t, "the Company is off the air", func() bool { return in.get(t, target).status == http.StatusNotFound })
		same(in.get(t, target))
		same(in.get(t, co.issuer+"/.well-known/oauth-authorization-server"))
		same(co.token(t, co.form(t, s.agent, s.user), co.proof(t, s.key)))
		same(s.post(t, conversationsPath, text("Hello")))
		co.admin(t, http.MethodPost, co.name+":enable", object{}).is(t, http.StatusOK, "")
		until(t, "the Company is back", func() bool { return in.get(t, target).status == http.StatusOK })
		s.post(t, conversationsPath, text("Hello")).is(t, http.StatusCreated, "")
	})
}

// Both sides ignore what they don't know (Poppy 3.3).
func TestDiscovery_UnknownFieldsAndExtensionsAreIgnored(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3.1#22", "poppy-0.1/3.3#9", "poppy-0.1/3.3#10", "poppy-0.1/3.3#11", "poppy-0.1/4.1#5", "poppy-0.1/4.1#12", "poppy-0.1/4.1#13", "poppy-0.1/3.3#7")
		co := in.company(t)
		a := in.unpublished(t)
		in.web.publish(a)
		var doc object
		require.NoError(t, json.Unmarshal(a.Document(), &doc))
		doc["extensions"] = object{"operations": object{"version": "1"}, "agents.example/telepathy": object{"version": "9", "range": 3}}
		doc["future"] = object{"a": []any{1}}
		raw, err := json.Marshal(doc)
		require.NoError(t, err)
		in.web.put(strings.TrimPrefix(a.ClientID, "https://"), document("application/json", raw))
		s := co.open(t, a, "usr_1")
		body := text("Hello")
		body["future"] = 1
		body["message"].(object)["future"] = object{"x": nil}
		id := s.post(t, conversationsPath, body).is(t, http.StatusCreated, "").str("conversation_id")
		require.NotContains(t, s.settled(t, id)[0].Message, "future")
		co.token(t, co.form(t, a, "usr_1", with("future", "1")), co.proof(t, s.key)).is(t, http.StatusOK, "")
	})
}

func TestDiscovery_NoRedirectWhereCredentialsGo(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.3#d27")
		clausetest.Refuses(t, "poppy-0.1/4.3#d27")
		co := in.company(t)
		s := co.visitor(t)
		for _, path := range []string{"/oauth/token/", "//oauth/token", "/oauth/../oauth/token", conversationsPath + "/", "/oauth/revoke/", "/OAUTH/token"} {
			got := in.do(t, request(t, http.MethodPost, co.issuer+path, co.form(t, s.agent, s.user).Encode(), header("Content-Type", "application/x-www-form-urlencoded")))
			require.Equal(t, http.StatusNotFound, got.status, path)
			require.Empty(t, got.header.Get("Location"))
		}
		for _, path := range []string{"/oauth/token", conversationsPath, "/oauth/revoke"} {
			got := in.get(t, co.issuer+path).is(t, http.StatusMethodNotAllowed, "method_not_allowed")
			require.Equal(t, "POST", got.header.Get("Allow"))
		}
		u, err := url.Parse(co.issuer)
		require.NoError(t, err)
		// Plain HTTP at this port is no request at all.
		res, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+in.address+"/oauth/token", nil)
		require.NoError(t, err)
		res.Host = u.Host
		got, err := in.try(res)
		require.True(t, err != nil || got.status == http.StatusBadRequest)
	})
}

// PJ-07: the issuer is one string for good, and one Company's.
func TestPJ07_Issuers(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3.1#7", "poppy-0.1/3.2#1", "poppy-0.1/3.2#8")
		clausetest.Refuses(t, "poppy-0.1/3.1#7", "poppy-0.1/3.2#1", "poppy-0.1/3.2#2", "poppy-0.1/3.2#8")
		co, fresh := in.company(t), in.company(t, unpublished)
		for _, issuer := range []string{
			"http://" + fresh.host, "https://" + fresh.host + "/?x=1", "https://" + fresh.host + "/#x", "https://u:p@" + fresh.host, "https://127.0.0.1", "https://" + fresh.host + "/", "ftp://x", "x",
		} {
			got := fresh.admin(t, http.MethodPatch, fresh.name+"?update_mask=issuer", object{"issuer": issuer})
			require.Equal(t, http.StatusBadRequest, got.status, "%s: %s", issuer, got.raw)
		}
		require.Equal(t, http.StatusConflict, fresh.admin(t, http.MethodPatch, fresh.name+"?update_mask=issuer", object{"issuer": co.issuer}).status)
		require.Equal(t, http.StatusConflict, co.admin(t, http.MethodPatch, co.name+"?update_mask=issuer", object{"issuer": "https://new." + in.hosted}).status)
		require.Equal(t, co.issuer, co.metadata(t).str("issuer"))
	})
}
