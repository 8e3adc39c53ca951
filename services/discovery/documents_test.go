package discovery_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	poppy "github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

// pair reads the document of a domain and its metadata as an agent does.
func (r *rig) pair(t testing.TB, c tenant, asked, registered string) (poppy.Document, poppy.Metadata) {
	t.Helper()
	w := r.get(t, documentURL(t, c, registered))
	require.NoError(t, poppy.CheckServed(w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()))
	doc, err := poppy.ParseDocument(w.Body.Bytes(), asked)
	require.NoError(t, err)
	require.NoError(t, poppy.CheckPublished(doc))
	inserted, appended, err := poppy.MetadataURLs(doc.Auth.Issuer)
	require.NoError(t, err)
	raw := r.fetch(t, inserted)
	require.Equal(t, raw, r.fetch(t, appended))
	meta, err := poppy.ParseMetadata(raw, doc.Auth.Issuer)
	require.NoError(t, err)
	require.NoError(t, poppy.CheckPair(doc, meta))
	return doc, meta
}

func TestPJ02_IS03_DocumentOfEachDomain(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3#3", "poppy-0.1/3#4", "poppy-0.1/3#8", "poppy-0.1/3#9", "poppy-0.1/3#d1", "poppy-0.1/3#d39",
		"poppy-0.1/3.1#1", "poppy-0.1/3.1#3", "poppy-0.1/3.1#4", "poppy-0.1/3.1#5", "poppy-0.1/3.1#6", "poppy-0.1/3.1#7", "poppy-0.1/3.1#15", "poppy-0.1/3.1#16",
		"poppy-0.1/3.1#20", "poppy-0.1/3.1#d1", "poppy-0.1/3.2#2", "poppy-0.1/3.2#4", "poppy-0.1/3.2#5", "poppy-0.1/3.2#8", "poppy-0.1/3.2#9",
		"poppy-0.1/3.2#11", "poppy-0.1/3.2#12", "poppy-0.1/3.2#15", "poppy-0.1/3.2#d10")
	each(t, func(t *testing.T, r *rig) {
		for _, issuer := range []string{"", "https://poppy.host.example", "https://host.example:8443/t/noodle"} {
			slug := "c" + strconv.Itoa(len(issuer))
			names := map[string]string{ // as asked for, and as registered
				slug + ".example": slug + ".example", "www." + slug + ".example": slug + ".example", "SHOP." + slug + ".example": "shop." + slug + ".example",
				"bücher-" + slug + ".example": "bücher-" + slug + ".example",
			}
			c := r.company(t, slug, issuer, slug+".example", "shop."+slug+".example", "bücher-"+slug+".example")
			for asked, registered := range names {
				doc, meta := r.pair(t, c, asked, registered)
				want, err := poppy.ParseDomain(asked)
				require.NoError(t, err)
				require.Equal(t, want, doc.Domain)
				require.Equal(t, "Noodle Bar "+slug, doc.Name)
				require.Equal(t, "0.1", doc.ProtocolVersion)
				require.Equal(t, c.issuer.String(), doc.Auth.Issuer)
				require.Equal(t, &poppy.Auth{Issuer: c.issuer.String()}, doc.Auth, "nothing but signed-out Sessions")
				p, ok := doc.Conversation()
				require.True(t, ok)
				require.Equal(t, c.issuer.ConversationsEndpoint(), p.Endpoint)
				require.Len(t, meta.PoppyDomains, 3)
				require.Equal(t, c.issuer.TokenEndpoint(), meta.TokenEndpoint)
				require.Equal(t, c.issuer.RevocationEndpoint(), meta.RevocationEndpoint)
				require.Equal(t, poppy.SigningAlgorithms(), meta.DPoPSigningAlgs)
			}
		}
	})
}

func TestPJ02_DocumentSpeaksForNoOtherDomain(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3#d1", "poppy-0.1/3.1#4", "poppy-0.1/3.2#8")
	r := newRig(t)
	c := r.company(t, "noodle", "", "noodle.example", "shop.noodle.example")
	other := r.company(t, "soup", "", "soup.example")
	raw := r.fetch(t, documentURL(t, c, "noodle.example"))
	for _, host := range []string{"shop.noodle.example", "soup.example", "noodle.example.evil.example", "xn--bcher-kva.example"} {
		_, err := poppy.ParseDocument(raw, host)
		require.Error(t, err)
	}
	doc, err := poppy.ParseDocument(raw, "noodle.example")
	require.NoError(t, err)
	meta := r.fetch(t, other.issuer.MetadataURL())
	_, err = poppy.ParseMetadata(meta, doc.Auth.Issuer)
	require.Error(t, err)
	theirs, err := poppy.ParseMetadata(meta, other.issuer.String())
	require.NoError(t, err)
	require.Error(t, poppy.CheckPair(doc, theirs))
}

func TestMD04_MetadataPromisesWhatIsThere(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.2#9", "poppy-0.1/3.2#13", "poppy-0.1/3.2#14", "poppy-0.1/3.2#d10")
	r := newRig(t)
	c := r.company(t, "noodle", "", "noodle.example")
	var m map[string]any
	require.NoError(t, json.Unmarshal(r.fetch(t, c.issuer.MetadataURL()), &m))
	algorithms := []any{"ES256", "ES384", "EdDSA", "PS256", "RS256"}
	require.Equal(t, map[string]any{
		"issuer": c.issuer.String(), "token_endpoint": c.issuer.TokenEndpoint(), "revocation_endpoint": c.issuer.RevocationEndpoint(),
		"poppy_domains": []any{"noodle.example"}, "response_types_supported": []any{},
		"grant_types_supported":                 []any{"urn:ietf:params:oauth:grant-type:jwt-bearer"},
		"token_endpoint_auth_methods_supported": []any{"private_key_jwt"}, "token_endpoint_auth_signing_alg_values_supported": algorithms,
		"revocation_endpoint_auth_methods_supported": []any{"private_key_jwt"}, "revocation_endpoint_auth_signing_alg_values_supported": algorithms,
		"dpop_signing_alg_values_supported": algorithms, "client_id_metadata_document_supported": true,
	}, m, "no sign-in is offered, so no endpoint, grant or response of one is listed")
}

func TestSettings_AppearInTheDocument(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.1#13", "poppy-0.1/3.1#14", "poppy-0.1/3.1#17", "poppy-0.1/3.1#19", "poppy-0.1/3.1#21", "poppy-0.1/3.1#23",
		"poppy-0.1/3.1#24", "poppy-0.1/3.3#8",
		"poppy-0.1/3.3#2", "poppy-0.1/3.3#3", "poppy-0.1/3.3#5", "poppy-0.1/3.3#6")
	r := newRig(t)
	c := r.company(t, "noodle", "", "noodle.example")
	r.settings(t, c, &adminv1.DiscoverySettings{
		OrganizationName: "Nudelbar <&> Söhne", ConversationsEnabled: true, ConversationsResource: true,
		Apis: []*adminv1.Api{
			{Type: "openapi", Url: "https://api.noodle.example/openapi.json", Description: "Orders", Resource: "https://api.noodle.example"},
			{Type: "mcp", Url: "https://mcp.noodle.example/mcp"},
		},
		BrowserSessionEndpoint: "https://noodle.example/poppy/browser-session",
		CustomScopes:           map[string]string{"addresses": "Manage addresses"},
		Extensions: map[string]*adminv1.Extension{
			"operations":          {Version: "1", FieldsJson: `{"endpoint":"https://api.noodle.example/operations"}`},
			"noodle.example/wrap": {Version: "2", FieldsJson: `{"paper":["red"],"n":1.0}`},
		},
	})
	doc, _ := r.pair(t, c, "noodle.example", "noodle.example")
	require.Equal(t, "Nudelbar <&> Söhne", doc.Name)
	require.Equal(t, "https://noodle.example/poppy/browser-session", doc.BrowserSessionEndpoint)
	require.Equal(t, map[string]string{"addresses": "Manage addresses"}, doc.Auth.CustomScopes)
	p, _ := doc.Conversation()
	require.Equal(t, c.issuer.ConversationsEndpoint(), p.Resource)
	require.Len(t, doc.APIs, 2)
	require.Empty(t, doc.APIs[1].Resource)
	require.Equal(t, "1", doc.Extensions["operations"].Version)
	require.JSONEq(t, `{"version":"2","paper":["red"],"n":1.0}`, string(doc.Extensions["noodle.example/wrap"].Raw))
}

func TestMissing_OneAnswerForEverything(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3#d1", "poppy-0.1/3.2#d3")
	r := newRig(t)
	c := r.company(t, "noodle", "", "noodle.example")
	r.company(t, "soup", "", "soup.example")
	r.register(t, c, "unproven.example")
	draft := r.setUp(t, "draft", "")
	r.verify(t, draft, "draft.example")
	off := r.company(t, "off", "", "off.example")
	require.Equal(t, http.StatusOK, r.get(t, documentURL(t, off, "off.example")).Code)
	_, err := r.companies.DisableCompany(off.ctx(t), &adminv1.DisableCompanyRequest{Name: off.name})
	require.NoError(t, err)
	r.dir.Forget()

	base := c.issuer.String()
	for what, url := range map[string]string{
		"unknown domain":               base + "/poppy/unknown.example/poppy.json",
		"domain of another Company":    base + "/poppy/soup.example/poppy.json",
		"unproven domain":              base + "/poppy/unproven.example/poppy.json",
		"www. of a domain":             base + "/poppy/www.noodle.example/poppy.json",
		"upper case":                   base + "/poppy/NOODLE.example/poppy.json",
		"unknown host":                 "https://unknown.poppyfield.example/poppy/noodle.example/poppy.json",
		"host of another Company":      "https://soup.poppyfield.example/poppy/noodle.example/poppy.json",
		"the hosted domain itself":     "https://poppyfield.example/poppy/noodle.example/poppy.json",
		"metadata of an unknown host":  "https://unknown.poppyfield.example/.well-known/oauth-authorization-server",
		"unpublished Company":          draft.issuer.String() + "/poppy/draft.example/poppy.json",
		"metadata of an unpublished":   draft.issuer.MetadataURL(),
		"disabled Company":             off.issuer.String() + "/poppy/off.example/poppy.json",
		"metadata of a disabled":       off.issuer.MetadataURL(),
		"keys of a disabled":           off.issuer.WebhookKeysURL(),
		"unknown path":                 base + "/",
		"well-known path of the site":  base + "/.well-known/poppy.json",
		"metadata, trailing slash":     base + "/.well-known/oauth-authorization-server/",
		"metadata, another path":       base + "/.well-known/oauth-authorization-server/t/noodle",
		"OpenID configuration":         base + "/.well-known/openid-configuration",
		"document, trailing slash":     base + "/poppy/noodle.example/poppy.json/",
		"document, no name":            base + "/poppy/poppy.json",
		"document, more in the path":   base + "/poppy/noodle.example/x/poppy.json",
		"document, case of the path":   base + "/Poppy/noodle.example/poppy.json",
		"document, extension":          base + "/poppy/noodle.example/poppy.json.html",
		"keys, trailing slash":         base + "/poppy/webhook-keys.json/",
		"path parameter in the domain": base + "/poppy/noodle.example;x/poppy.json",
	} {
		requireMissing(t, r.get(t, url), what)
	}
}

func TestMissing_SameForEveryMethodOfAnUnknownHost(t *testing.T) {
	r := newRig(t)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions, http.MethodDelete, "PROPFIND"} {
		requireMissing(t, r.ask(t, method, "https://unknown.example/.well-known/oauth-authorization-server"), method)
	}
}

func TestMD05_CachingAndCORS(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3.2#4", "poppy-0.1/3#8")
	r := newRig(t)
	c := r.company(t, "noodle", "", "noodle.example")
	for _, url := range []string{documentURL(t, c, "noodle.example"), c.issuer.MetadataURL(), c.issuer.WebhookKeysURL()} {
		w := r.get(t, url, "Origin", "https://anywhere.example")
		require.Equal(t, http.StatusOK, w.Code)
		h := w.Header()
		require.Equal(t, "*", h.Get("Access-Control-Allow-Origin"))
		require.Empty(t, h.Get("Access-Control-Allow-Credentials"))
		require.Equal(t, "public, max-age=300", h.Get("Cache-Control"))
		require.Equal(t, strconv.Itoa(w.Body.Len()), h.Get("Content-Length"))
		require.Empty(t, h.Get("Set-Cookie"))
		require.Empty(t, h.Get("Location"))
		etag := h.Get("ETag")
		require.Regexp(t, `^"[A-Za-z0-9_-]{22}"$`, etag)

		head := r.ask(t, http.MethodHead, url, "Origin", "https://anywhere.example")
		require.Equal(t, http.StatusOK, head.Code)
		require.Equal(t, h, head.Header())
		require.Zero(t, head.Body.Len())

		for _, same := range []string{etag, "W/" + etag, `"other", ` + etag, "*"} {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				w := r.ask(t, method, url, "If-None-Match", same)
				require.Equal(t, http.StatusNotModified, w.Code, same)
				require.Equal(t, etag, w.Header().Get("ETag"))
				require.Equal(t, "public, max-age=300", w.Header().Get("Cache-Control"))
				require.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
				require.Zero(t, w.Body.Len())
			}
		}
		for _, other := range []string{`"other"`, etag[1 : len(etag)-1], "garbage"} {
			require.Equal(t, http.StatusOK, r.get(t, url, "If-None-Match", other).Code, other)
		}
		w = r.get(t, url, "If-None-Match", `"a"`, "If-None-Match", etag)
		require.Equal(t, http.StatusNotModified, w.Code)

		w = r.ask(t, http.MethodOptions, url, "Origin", "https://anywhere.example", "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "if-none-match")
		require.Equal(t, http.StatusNoContent, w.Code)
		require.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
		require.Equal(t, "GET, HEAD", w.Header().Get("Access-Control-Allow-Methods"))
		require.Equal(t, "If-None-Match", w.Header().Get("Access-Control-Allow-Headers"))
		require.Empty(t, w.Header().Get("Access-Control-Allow-Credentials"))
	}
}

func TestMD05_ETagChangesWithTheDocument(t *testing.T) {
	r := newRig(t)
	c := r.company(t, "noodle", "", "noodle.example", "soup.example")
	url := documentURL(t, c, "noodle.example")
	first := r.get(t, url).Header().Get("ETag")
	require.NotEqual(t, first, r.get(t, documentURL(t, c, "soup.example")).Header().Get("ETag"))
	r.settings(t, c, &adminv1.DiscoverySettings{OrganizationName: "Renamed"})
	w := r.get(t, url, "If-None-Match", first)
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "Renamed")
	// A change that isn't seen in the document keeps it.
	second := w.Header().Get("ETag")
	r.verify(t, c, "other.example")
	require.Equal(t, http.StatusNotModified, r.get(t, url, "If-None-Match", second).Code)
}

func TestMD05_RemovedDomainIsGoneAtTheNextRequest(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.2#5", "poppy-0.1/3#d1")
	each(t, func(t *testing.T, r *rig) {
		c := r.company(t, "noodle", "", "stays.example")
		name := r.verify(t, c, "leaves.example")
		require.Contains(t, string(r.fetch(t, c.issuer.MetadataURL())), "leaves.example")
		require.Equal(t, http.StatusOK, r.get(t, documentURL(t, c, "leaves.example")).Code)
		_, err := r.domains.DeleteDomain(c.ctx(t), &adminv1.DeleteDomainRequest{Name: name})
		require.NoError(t, err)
		// The clock stands still: only the bus can have told.
		require.Eventually(t, func() bool {
			return r.get(t, documentURL(t, c, "leaves.example")).Code == http.StatusNotFound
		}, 10*time.Second, time.Millisecond)
		requireMissing(t, r.get(t, documentURL(t, c, "leaves.example")), "removed domain")
		require.NotContains(t, string(r.fetch(t, c.issuer.MetadataURL())), "leaves.example")
		r.fetch(t, documentURL(t, c, "stays.example"))
	})
}

func TestMD05_RemovedDomainIsGoneWithinASecondOfSilence(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newRigOn(t, d, options{silent: true})
		c := r.company(t, "noodle", "", "stays.example")
		name := r.verify(t, c, "leaves.example")
		url := documentURL(t, c, "leaves.example")
		r.fetch(t, url)
		_, err := r.domains.DeleteDomain(c.ctx(t), &adminv1.DeleteDomainRequest{Name: name})
		require.NoError(t, err)
		r.clock.Advance(time.Second)
		requireMissing(t, r.get(t, url), "removed domain")
		require.NotContains(t, string(r.fetch(t, c.issuer.MetadataURL())), "leaves.example")

		_, err = r.companies.DisableCompany(c.ctx(t), &adminv1.DisableCompanyRequest{Name: c.name})
		require.NoError(t, err)
		r.clock.Advance(time.Second)
		requireMissing(t, r.get(t, c.issuer.MetadataURL()), "disabled Company")
		_, err = r.companies.EnableCompany(c.ctx(t), &adminv1.EnableCompanyRequest{Name: c.name})
		require.NoError(t, err)
		r.clock.Advance(time.Second)
		r.fetch(t, documentURL(t, c, "stays.example"))
	})
}

func TestWebhookKeys_OfEachCompany(t *testing.T) {
	r := newRig(t)
	a, b := r.company(t, "a", ""), r.company(t, "b", "https://host.example/t/b")
	key := func(c tenant, id string, seed byte) string {
		k, err := webhook.NewPrivateKey([]byte(string(make([]byte, 31)) + string(rune(seed))))
		require.NoError(t, err)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.keys[c.scope.CompanyID()] = append(r.keys[c.scope.CompanyID()], &relayv1.PublicKey{Id: id, PublicKey: k.Public().String()})
		return k.Public().String()
	}
	first, other := key(a, "whs_1", 1), key(b, "whs_2", 2)
	read := func(c tenant) []string {
		set, err := webhook.ParseKeySet(r.fetch(t, c.issuer.WebhookKeysURL()))
		require.NoError(t, err)
		var out []string
		for _, k := range set {
			out = append(out, k.Key.String())
		}
		return out
	}
	require.Equal(t, []string{first}, read(a))
	require.Equal(t, []string{other}, read(b))

	// Asked for once in a while, however many ask for them.
	asked := r.asked
	read(a)
	require.Equal(t, asked, r.asked)
	second := key(a, "whs_3", 3)
	r.clock.Advance(11 * time.Second)
	require.Equal(t, []string{first, second}, read(a))
	require.Equal(t, []string{other}, read(b))
}

func TestWebhookKeys_EmptyList(t *testing.T) {
	r := newRig(t)
	c := r.company(t, "noodle", "")
	require.JSONEq(t, `{"keys":[]}`, string(r.fetch(t, c.issuer.WebhookKeysURL())))
}
