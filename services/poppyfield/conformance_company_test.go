package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/services/admin"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// company is a Company as its staff know it.
type company struct {
	in      *installation
	name    string // companies/cmp_…
	issuer  string
	host    string // of the issuer, without the port
	domain  string
	key     string // an operator's
	backend *backend
}

// plan says what a Company of a test is like; nil members keep what there is.
type plan struct {
	path                         string // of the issuer
	settings, limits             object
	backendSettings, admission   object
	withDomain, unpublished, off bool
}

// company makes a Company through the admin API: published, with a backend that
// answers, and with limits that no test meets by chance.
func (in *installation) company(t testing.TB, change ...func(*plan)) *company {
	t.Helper()
	p := plan{limits: object{"requests_per_minute": 60000, "session_starts_per_minute": 6000}}
	for _, c := range change {
		c(&p)
	}
	// A key of its own: the rates of the admin API are per key.
	key, err := admin.CreateOperatorKey(t.Context(), in.process.db, t.Name(), time.Time{})
	require.NoError(t, err)
	slug := "c-" + strings.ToLower(strings.NewReplacer("-", "x", "_", "y").Replace(fixture.RandomID()))
	co := &company{in: in, key: key, host: slug + "." + devDomain, backend: in.backend()}
	create := object{"slug": slug, "display_name": "Company " + slug, "kind": "COMPANY_KIND_TEST"}
	if p.path != "" {
		create["issuer"] = "https://" + slug + "." + in.hosted + p.path
	}
	made := co.admin(t, http.MethodPost, "companies", create).is(t, http.StatusOK, "")
	co.name, co.issuer = made.str("name"), made.str("issuer")
	if p.settings != nil {
		co.patch(t, "discoverySettings", p.settings)
	}
	co.patch(t, "limits", p.limits)
	if p.admission != nil {
		co.patch(t, "admission", p.admission)
	}
	if !p.off {
		set := object{"url": co.backend.url}
		for name, value := range p.backendSettings {
			set[name] = value
		}
		co.patch(t, "backend", set)
	}
	if !p.unpublished {
		co.admin(t, http.MethodPost, co.name+":publish", object{}).is(t, http.StatusOK, "")
	}
	if p.withDomain {
		co.domain = in.shop(t)
		co.own(t, co.domain)
	}
	return co
}

// The usual changes of a plan.
func withDomain(p *plan)  { p.withDomain = true }
func unpublished(p *plan) { p.unpublished = true }
func noBackend(p *plan)   { p.off = true }
func settings(s object) func(*plan) {
	return func(p *plan) { p.settings = s }
}

func limits(l object) func(*plan) {
	return func(p *plan) {
		for name, value := range l {
			p.limits[name] = value
		}
	}
}
func issuerPath(path string) func(*plan) { return func(p *plan) { p.path = path } }
func admission(a object) func(*plan)     { return func(p *plan) { p.admission = a } }
func backendSettings(b object) func(*plan) {
	return func(p *plan) { p.backendSettings = b }
}

// admin calls the admin API; path is below /v1/.
func (co *company) admin(t testing.TB, method, path string, body any) answer {
	t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(t, err)
	if body == nil {
		raw = nil
	}
	_, port, err := net.SplitHostPort(co.in.address)
	require.NoError(t, err)
	return co.in.do(t, request(t, method, "https://"+apiHost+":"+port+"/v1/"+path, string(raw),
		header("Authorization", "Bearer "+co.key), header("Content-Type", "application/json")))
}

// patch sets fields of one of the Company's settings.
func (co *company) patch(t testing.TB, what string, set object) answer {
	t.Helper()
	var mask []string
	for name := range set {
		mask = append(mask, name)
	}
	return co.admin(t, http.MethodPatch, co.name+"/"+what+"?update_mask="+url.QueryEscape(strings.Join(mask, ",")), set).is(t, http.StatusOK, "")
}

// shop takes the name of a website that no Company has yet. Its subdomain "sub." exists too.
func (in *installation) shop(t testing.TB) string {
	t.Helper()
	in.mu.Lock()
	defer in.mu.Unlock()
	require.NotEmpty(t, in.shops, "shopCount is too small")
	name := in.shops[0]
	in.shops = in.shops[1:]
	return name
}

// own registers a domain, has its website redirect here, and has it checked.
func (co *company) own(t testing.TB, domain string) answer {
	t.Helper()
	made := co.admin(t, http.MethodPost, co.name+"/domains", object{"domain": domain}).is(t, http.StatusOK, "")
	co.in.web.put(made.str("domain")+"/.well-known/poppy.json", redirect(made.str("redirect_target")))
	got := co.admin(t, http.MethodPost, made.str("name")+":check", object{}).is(t, http.StatusOK, "")
	require.Equal(t, "DOMAIN_STATE_VERIFIED", got.str("state"), "%s", got.raw)
	// Every process hears of it by the bus.
	until(t, "the document is served", func() bool { return co.in.get(t, made.str("redirect_target")).status == http.StatusOK })
	return got
}

func redirect(target string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) }
}

// signing has the Company make an HMAC secret and returns both keys of its webhooks.
func (co *company) signing(t testing.TB) (webhook.Secret, webhook.PublicKey) {
	t.Helper()
	made := co.admin(t, http.MethodPost, co.name+"/backend:rotateSecret", object{"kind": "SECRET_KIND_HMAC"}).is(t, http.StatusOK, "")
	secret, err := webhook.ParseSecret(made.str("secret"))
	require.NoError(t, err)
	keys, err := webhook.ParseKeySet(co.in.get(t, co.issuer+"/poppy/webhook-keys.json").is(t, http.StatusOK, "").raw)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	return secret, keys[0].Key
}

// rule makes an admission rule and returns its name.
func (co *company) rule(t testing.TB, clientID, effect string) string {
	t.Helper()
	return co.admin(t, http.MethodPost, co.name+"/admissionRules",
		object{"client_id": clientID, "effect": "ADMISSION_EFFECT_" + effect}).is(t, http.StatusOK, "").str("name")
}

// say posts a message of the Company.
func (co *company) say(t testing.TB, conversation string, message object) answer {
	t.Helper()
	return co.admin(t, http.MethodPost, co.name+"/conversations/"+conversation+":postMessage", object{"message": message})
}

// act calls a method of one of the Company's conversations.
func (co *company) act(t testing.TB, conversation, verb string, body object) answer {
	t.Helper()
	return co.admin(t, http.MethodPost, co.name+"/conversations/"+conversation+":"+verb, body)
}

// staff has a person be there to take conversations.
func (co *company) staff(t testing.TB, person, ttl string) {
	t.Helper()
	co.admin(t, http.MethodPost, co.name+"/inbox:setPresence", object{"person": person, "ttl": ttl}).is(t, http.StatusOK, "")
}
