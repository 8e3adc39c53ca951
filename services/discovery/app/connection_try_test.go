package app_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

const rsaKey = `{"kty":"RSA","use":"sig","kid":"1","n":"0vx7","e":"AQAB"}`

// metadata is a provider's discovery document with the given changes.
func metadata(t testing.TB, changes map[string]any) []byte {
	t.Helper()
	m := map[string]any{
		"issuer": idp, "authorization_endpoint": idp + "/authorize", "token_endpoint": idp + "/token", "jwks_uri": idp + "/jwks",
		"code_challenge_methods_supported": []string{"plain", "S256"},
	}
	for name, v := range changes {
		m[name] = v
		if v == nil {
			delete(m, name)
		}
	}
	raw, err := json.Marshal(m)
	require.NoError(t, err)
	return raw
}

func ok(body []byte) app.Page {
	return app.Page{Status: 200, ContentType: "application/json", Body: body}
}

func TestCheckConnection_Provider(t *testing.T) {
	const at = idp + "/.well-known/openid-configuration"
	keySet := func(keys string) []byte { return []byte(`{"keys":[` + keys + `]}`) }
	with := func(name string, v any) app.Page { return ok(metadata(t, map[string]any{name: v})) }
	good := ok(metadata(t, nil))
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	r.connect(t, scope, byOIDC())
	for name, c := range map[string]struct {
		metadata app.Page
		keys     app.Page
		steps    []string // those that were right
		failed   string
		detail   string
	}{
		"right":               {good, ok(keySet(rsaKey)), []string{"metadata", "endpoints", "keys", "pkce"}, "", "the provider takes S256"},
		"right, no PKCE":      {with("code_challenge_methods_supported", []string{"plain"}), ok(keySet(rsaKey)), []string{"metadata", "endpoints", "keys", "pkce"}, "", `the metadata has "plain" and not S256`},
		"right, PKCE unknown": {with("code_challenge_methods_supported", nil), ok(keySet(rsaKey)), []string{"metadata", "endpoints", "keys", "pkce"}, "", "the metadata doesn't say"},
		"one key of many":     {good, ok(keySet(`{"kty":"RSA","use":"enc","n":"a","e":"b"},{"kty":"EC","crv":"P-256","x":"a","y":"b"},{"kty":"new"},7`)), []string{"metadata", "endpoints", "keys", "pkce"}, "", "the provider takes S256"},

		"unreachable":          {app.Page{Failure: "the host does not resolve"}, app.Page{}, nil, "metadata", at + ": the host does not resolve"},
		"moved":                {app.Page{Status: 302, Location: "https://elsewhere.example/"}, app.Page{}, nil, "metadata", "302 to https://elsewhere.example/, and redirects are not followed"},
		"not there":            {app.Page{Status: 404, ContentType: "text/html"}, app.Page{}, nil, "metadata", "answers 404 with text/html instead of 200"},
		"a web page":           {ok([]byte("<html>")), app.Page{}, nil, "metadata", "is no sound JSON object"},
		"a member twice":       {ok([]byte(`{"issuer":"` + idp + `","issuer":"https://evil.example"}`)), app.Page{}, nil, "metadata", "is no sound JSON object"},
		"another issuer":       {with("issuer", "https://evil.example"), app.Page{}, nil, "metadata", `the metadata names the issuer "https://evil.example", and the connection has "https://id.noodle.example"`},
		"a trailing slash":     {with("issuer", idp+"/"), app.Page{}, nil, "metadata", "they differ in a trailing slash"},
		"upper case":           {with("issuer", "https://ID.noodle.example"), app.Page{}, nil, "metadata", "they differ in upper and lower case"},
		"no issuer":            {with("issuer", 7), app.Page{}, nil, "metadata", "names no issuer"},
		"no token endpoint":    {with("token_endpoint", nil), app.Page{}, []string{"metadata"}, "endpoints", "the metadata has no token_endpoint"},
		"authorize is http":    {with("authorization_endpoint", "http://id.noodle.example/a"), app.Page{}, []string{"metadata"}, "endpoints", `authorization_endpoint in the metadata is "http://id.noodle.example/a": not an https URL`},
		"keys at no URL":       {with("jwks_uri", []string{"x"}), app.Page{}, []string{"metadata"}, "endpoints", "the metadata has no jwks_uri"},
		"keys unreachable":     {good, app.Page{Failure: "no answer in time"}, []string{"metadata", "endpoints"}, "keys", idp + "/jwks: no answer in time"},
		"no keys":              {good, ok(keySet("")), []string{"metadata", "endpoints"}, "keys", "without a public key for signatures"},
		"keys are no list":     {good, ok([]byte(`{"keys":{}}`)), []string{"metadata", "endpoints"}, "keys", "its keys are no list"},
		"keys are no key set":  {good, ok([]byte(`{}`)), []string{"metadata", "endpoints"}, "keys", "no JWK set"},
		"keys are no JSON":     {good, ok([]byte(`no`)), []string{"metadata", "endpoints"}, "keys", "no sound JSON object"},
		"keys for encryption":  {good, ok(keySet(`{"kty":"RSA","use":"enc","n":"a","e":"b"}`)), []string{"metadata", "endpoints"}, "keys", "without a public key for signatures"},
		"a private key":        {good, ok(keySet(rsaKey + `,{"kty":"RSA","n":"a","e":"b","d":"c"}`)), []string{"metadata", "endpoints"}, "keys", "publishing a private key"},
		"a shared key":         {good, ok(keySet(`{"kty":"oct","k":"c2VjcmV0"}`)), []string{"metadata", "endpoints"}, "keys", "publishing a private key"},
		"keys cut in a member": {good, ok(keySet(`{"kty":"RSA","n":"a"},{"kty":"EC","crv":"P-256","x":"a"},{"kty":"OKP","crv":"X25519","x":"a"}`)), []string{"metadata", "endpoints"}, "keys", "without a public key for signatures"},
	} {
		t.Run(name, func(t *testing.T) {
			r.net.pages[at], r.net.pages[idp+"/jwks"] = c.metadata, c.keys
			steps, err := r.CheckConnection(t.Context(), scope)
			require.NoError(t, err)
			var right []string
			failed := ""
			for _, s := range steps {
				if s.OK {
					right = append(right, s.ID)
				} else {
					failed = s.ID
				}
			}
			require.Equal(t, c.steps, right)
			require.Equal(t, c.failed, failed)
			require.Contains(t, steps[len(steps)-1].Detail, c.detail)
		})
	}
}

func TestCheckConnection_IssuerWithPathAndSlash(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	change := byOIDC()
	change.OIDC.Issuer = "https://login.example/tenant/"
	r.connect(t, scope, change)
	r.net.pages["https://login.example/tenant/.well-known/openid-configuration"] = ok(metadata(t, map[string]any{"issuer": "https://login.example/tenant/"}))
	r.net.pages[idp+"/jwks"] = ok([]byte(`{"keys":[` + rsaKey + `]}`))
	steps, err := r.CheckConnection(t.Context(), scope)
	require.NoError(t, err)
	require.Len(t, steps, 4)
	require.Equal(t, "https://login.example/tenant/.well-known/openid-configuration", r.net.gets[0])
}

func TestCheckConnection_Away(t *testing.T) {
	r := newRigWith(t, app.Config{HostedDomain: "poppyfield.example", Bounds: app.DefaultBounds(), LookTime: 50 * time.Millisecond})
	scope, _ := r.company(t, "noodle")
	r.connect(t, scope, byOIDC())
	const at = idp + "/.well-known/openid-configuration"
	r.net.down[at] = errRelay
	_, err := r.CheckConnection(t.Context(), scope)
	require.ErrorIs(t, err, errRelay)
	delete(r.net.down, at)
	r.net.hang[at] = true
	steps, err := r.CheckConnection(t.Context(), scope)
	require.NoError(t, err)
	require.Equal(t, []app.Step{{ID: "metadata", Detail: at + ": no answer within 50ms"}}, steps)
}

func TestCheckConnection_OtherMethods(t *testing.T) {
	r := newRig(t)
	live, _ := r.company(t, "noodle")
	trial, _ := r.companyOfKind(t, "trial", app.Test)
	steps := func() app.Step {
		got, err := r.CheckConnection(t.Context(), live)
		require.NoError(t, err)
		require.Len(t, got, 1)
		return got[0]
	}
	require.Equal(t, app.Step{ID: "method", Detail: "no method is set: Users can't sign in"}, steps())
	check := byWebhook()
	check.Method = nil
	r.connect(t, live, check)
	require.Contains(t, steps().Detail, "it is tried with the first sign-in", "Mediated Sign-In needs no method")
	r.connect(t, live, byWebhook())
	require.Equal(t, "url", steps().ID)
	require.True(t, steps().OK)
	r.connect(t, live, app.ConnectionChange{Method: to(app.LoginHandoff), LoginURL: to("https://noodle.example/login")})
	require.Equal(t, app.Step{ID: "url", OK: true, Detail: "https://noodle.example/login is well-formed; browsers are sent to it with a login_challenge"}, steps())

	r.connect(t, trial, app.ConnectionChange{Method: to(app.TestAccounts), TestAccounts: &[]app.NewTestAccount{mia()}})
	got, err := r.CheckConnection(t.Context(), trial)
	require.NoError(t, err)
	require.Equal(t, []app.Step{{ID: "accounts", OK: true, Detail: "there are 1 test accounts"}}, got)
	require.Empty(t, r.net.gets, "only a provider has something to read")
}

// What is taken from a provider's documents is what they say to any other reader.
func FuzzProvider(f *testing.F) {
	f.Add(metadata(f, nil))
	f.Add([]byte(`{"issuer":1,"jwks_uri":null,"code_challenge_methods_supported":[1,"S256",{}]}`))
	f.Add([]byte(`{"keys":[` + rsaKey + `,{"kty":"oct","k":"x"},[],null]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"a","y":"b"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if n, detail := app.CountKeys(raw); n > 0 {
			require.Empty(t, detail)
			var set map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(raw, &set))
			var keys []json.RawMessage
			require.NoError(t, json.Unmarshal(set["keys"], &keys))
			require.LessOrEqual(t, n, len(keys))
		} else {
			require.NotEmpty(t, detail)
		}
		issuer, endpoints, fault, err := app.ParseProvider(raw)
		if err != nil {
			return
		}
		var m map[string]any
		require.NoError(t, json.Unmarshal(raw, &m))
		same := func(name, got string) {
			if got != "" {
				require.Equal(t, fmt.Sprint(m[name]), got)
			}
		}
		same("issuer", issuer)
		for i, name := range []string{"authorization_endpoint", "token_endpoint", "jwks_uri"} {
			same(name, endpoints[i])
			if fault == "" {
				require.NoError(t, discovery.CheckURL(endpoints[i]))
			}
		}
	})
}
