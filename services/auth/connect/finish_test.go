package connect_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/services/auth/connect"
)

func TestFinish_CodeForAccount(t *testing.T) {
	r := newRig(t)
	up, query := r.begin(t)
	got, err := r.oidc.Finish(t.Context(), r.company, up, query)
	require.NoError(t, err)
	require.Equal(t, connect.Account{ID: "mia-1", Label: "mia@example.com"}, got)
	sent := r.idp.last(t, "/token")
	require.Equal(t, url.Values{
		"grant_type": {"authorization_code"}, "code": {"canary-code"}, "redirect_uri": {"https://shop.example/oauth/callback"}, "code_verifier": {up.Verifier},
	}, sent.form)
	// Both halves are form-encoded before they are joined: RFC6749/2.3.1.
	want := base64.StdEncoding.EncodeToString([]byte(clientID + ":" + url.QueryEscape(secret)))
	require.Equal(t, "Basic "+want, sent.authorization)
	for _, scope := range r.outside.scopes {
		require.Equal(t, r.company.Scope, scope)
	}
	require.Zero(t, r.idp.count("/userinfo"), "the ID token had all")
}

func TestFinish_WaysOfTheClient(t *testing.T) {
	for name, c := range map[string]struct {
		methods any
		public  bool
		basic   bool
		form    bool
	}{
		"default":        {nil, false, true, false},
		"basic":          {[]string{"client_secret_basic"}, false, true, false},
		"post":           {[]string{"private_key_jwt", "client_secret_post"}, false, false, true},
		"public":         {[]string{"none"}, true, false, false},
		"public, unsaid": {nil, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.idp.metadata["token_endpoint_auth_methods_supported"] = c.methods
			if c.public {
				r.company.SignIn.OIDC.SealedSecret = nil
			}
			_, err := r.login(t, nil)
			require.NoError(t, err)
			sent := r.idp.last(t, "/token")
			require.Equal(t, c.basic, sent.authorization != "")
			require.Equal(t, c.form, sent.form.Get("client_secret") == secret)
			require.Equal(t, !c.basic, sent.form.Get("client_id") == clientID)
			require.Len(t, sent.form.Get("code_verifier"), 43)
		})
	}
}

func TestFinish_EveryAlgorithm(t *testing.T) {
	r := newRig(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for alg, key := range map[jose.Alg]crypto.Signer{jose.RS256: rsaKey, jose.PS256: rsaKey, jose.ES256: p256, jose.ES384: p384, jose.EdDSA: ed} {
		for _, kid := range []string{"", string(alg)} {
			signer, err := jose.NewSigner(key)
			require.NoError(t, err)
			if alg == jose.PS256 {
				signer, err = signer.WithPSS()
				require.NoError(t, err)
			}
			require.Equal(t, alg, signer.Alg())
			r.idp.signWith(signer, kid)
			r.clock.Advance(6 * time.Minute)
			_, err = r.login(t, map[string]any{"exp": r.clock.Now().Add(time.Minute).Unix()})
			require.NoError(t, err, "%s %q", alg, kid)
		}
	}
}

func TestFinish_AnswerOfAnotherLogin(t *testing.T) {
	r := newRig(t)
	up, query := r.begin(t)
	other, otherQuery := r.begin(t)
	for name, c := range map[string]struct {
		up    connect.Upstream
		query url.Values
	}{
		"another state": {up, otherQuery},
		"no state":      {up, url.Values{"code": {"canary-code"}}},
		"state twice":   {up, url.Values{"state": {up.State, up.State}, "code": {"canary-code"}}},
		"code twice":    {up, url.Values{"state": {up.State}, "code": {"canary-code", "canary-code"}}},
		"iss twice":     {up, url.Values{"state": {up.State}, "code": {"canary-code"}, "iss": {idpIssuer, "canary"}}},
		"error twice":   {up, url.Values{"state": {up.State}, "error": {"a", "canary"}}},
		"no code":       {up, url.Values{"state": {up.State}}},
		"empty code":    {up, url.Values{"state": {up.State}, "code": {""}}},
		"long code":     {up, url.Values{"state": {up.State}, "code": {strings.Repeat("canary", 1000)}}},
		"nothing":       {connect.Upstream{}, url.Values{"state": {""}, "code": {"canary-code"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.oidc.Finish(t.Context(), r.company, c.up, c.query)
			requireRefused(t, err, "")
		})
	}
	require.Zero(t, r.idp.count("/token"), "no code of it was used")
	// The nonce in the provider's ID token is now that of the second login.
	_, err := r.oidc.Finish(t.Context(), r.company, up, query)
	requireRefused(t, err, "")
	require.ErrorContains(t, err, "nonce")
	_, err = r.oidc.Finish(t.Context(), r.company, other, otherQuery)
	require.NoError(t, err)
}

func TestFinish_Iss(t *testing.T) {
	for _, advertised := range []bool{false, true} {
		r := newRig(t)
		r.idp.metadata["authorization_response_iss_parameter_supported"] = advertised
		for iss, ok := range map[string]bool{idpIssuer: true, "": !advertised, idpIssuer + "/": false, "https://canary.example": false} {
			for _, answer := range []string{"code", "error"} {
				up, query := r.begin(t)
				query.Del("code")
				query.Set(answer, "access_denied")
				if iss != "" {
					query.Set("iss", iss)
				}
				_, err := r.oidc.Finish(t.Context(), r.company, up, query)
				switch {
				case ok && answer == "code":
					require.NoError(t, err)
				case ok:
					requireRefused(t, err, "access_denied")
				default:
					requireRefused(t, err, "")
				}
			}
		}
		up, query := r.begin(t)
		query.Set("iss", "")
		_, err := r.oidc.Finish(t.Context(), r.company, up, query)
		requireRefused(t, err, "")
	}
}

func TestFinish_ErrorOfTheProvider(t *testing.T) {
	r := newRig(t)
	for code, want := range map[string]string{
		"access_denied": "access_denied", "login_required": "login_required", "server_error": "server_error",
		"Canary": "other", "<canary>": "other", strings.Repeat("a", 65): "other",
	} {
		up, query := r.begin(t)
		query.Set("error", code)
		query.Set("error_description", "canary")
		_, err := r.oidc.Finish(t.Context(), r.company, up, query)
		requireRefused(t, err, want)
	}
	require.Zero(t, r.idp.count("/token"))
}

func TestFinish_ClaimsThatDoNotHold(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	for name, claims := range map[string]map[string]any{
		"another issuer":     {"iss": "https://other.example"},
		"no issuer":          {"iss": nil},
		"another audience":   {"aud": "canary"},
		"other audiences":    {"aud": []string{"a", "b"}, "azp": clientID},
		"no audience":        {"aud": nil},
		"many without azp":   {"aud": []string{clientID, "other"}},
		"another azp":        {"azp": "other"},
		"azp of many":        {"aud": []string{clientID, "other"}, "azp": "other"},
		"azp no string":      {"azp": 5},
		"expired":            {"exp": now.Add(-31 * time.Second).Unix()},
		"no exp":             {"exp": nil},
		"not yet":            {"nbf": now.Add(time.Hour).Unix()},
		"no nonce":           {"nonce": nil},
		"another nonce":      {"nonce": "canary"},
		"no sub":             {"sub": nil},
		"empty sub":          {"sub": ""},
		"long sub":           {"sub": strings.Repeat("a", 256)},
		"sub with a newline": {"sub": "a\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.login(t, claims)
			requireRefused(t, err, "")
		})
	}
	for name, claims := range map[string]map[string]any{
		"list of one": {"aud": []string{clientID}}, "azp": {"azp": clientID}, "many with azp": {"aud": []string{"other", clientID}, "azp": clientID},
		"clock behind": {"exp": now.Add(-29 * time.Second).Unix()}, "longest sub": {"sub": strings.Repeat("é", 255)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.login(t, claims)
			require.NoError(t, err)
		})
	}
}

// forge makes an ID token whose claims all hold, with a header and signature of any kind.
func (r *rig) forge(t testing.TB, header map[string]any, sign func(content []byte) []byte) connect.Upstream {
	t.Helper()
	up, _ := r.begin(t)
	h, err := json.Marshal(header)
	require.NoError(t, err)
	payload, err := json.Marshal(r.idp.claims)
	require.NoError(t, err)
	content := base64.RawURLEncoding.EncodeToString(h) + "." + base64.RawURLEncoding.EncodeToString(payload)
	r.idp.mu.Lock()
	defer r.idp.mu.Unlock()
	r.idp.idToken = content + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(content)))
	return up
}

func TestFinish_SignaturesThatDoNotHold(t *testing.T) {
	r := newRig(t)
	none := func([]byte) []byte { return nil }
	stranger, err := jose.GenerateSigner()
	require.NoError(t, err)
	byStranger := func([]byte) []byte { return make([]byte, 64) }
	hmacWith := func(key []byte) func([]byte) []byte {
		return func(content []byte) []byte {
			mac := hmac.New(sha256.New, key)
			mac.Write(content)
			return mac.Sum(nil)
		}
	}
	for name, c := range map[string]struct {
		header map[string]any
		sign   func([]byte) []byte
	}{
		"none":                   {map[string]any{"alg": "none"}, none},
		"None":                   {map[string]any{"alg": "None", "kid": "k1"}, none},
		"no alg":                 {map[string]any{"kid": "k1"}, none},
		"HMAC of the public key": {map[string]any{"alg": "HS256", "kid": "k1"}, hmacWith(r.idp.jwks)},
		"HMAC of the secret":     {map[string]any{"alg": "HS256"}, hmacWith([]byte(secret))},
		"another algorithm":      {map[string]any{"alg": "RS512", "kid": "k1"}, byStranger},
		"of another key type":    {map[string]any{"alg": "RS256", "kid": "k1"}, byStranger},
		"empty":                  {map[string]any{"alg": "ES256", "kid": "k1"}, none},
		"zeros":                  {map[string]any{"alg": "ES256", "kid": "k1"}, byStranger},
		"own key in the header":  {map[string]any{"alg": "ES256", "jwk": json.RawMessage(stranger.PublicJWK(""))}, byStranger},
		"critical":               {map[string]any{"alg": "ES256", "kid": "k1", "crit": []string{"canary"}, "canary": 1}, byStranger},
	} {
		t.Run(name, func(t *testing.T) {
			up := r.forge(t, c.header, c.sign)
			_, err := r.oidc.Finish(t.Context(), r.company, up, url.Values{"state": {up.State}, "code": {"canary-code"}})
			requireRefused(t, err, "")
		})
	}
	t.Run("signed by a stranger under a known kid", func(t *testing.T) {
		up, query := r.begin(t)
		payload, err := json.Marshal(r.idp.claims)
		require.NoError(t, err)
		r.idp.idToken, err = stranger.Sign(jose.SignHeader{KID: "k1"}, payload)
		require.NoError(t, err)
		_, err = r.oidc.Finish(t.Context(), r.company, up, query)
		requireRefused(t, err, "")
	})
	for _, raw := range []string{"canary", "a.b.c", "..", "e30.e30.", "e30.e30", strings.Repeat("a", 20000)} {
		up, query := r.begin(t)
		r.idp.idToken = raw
		_, err := r.oidc.Finish(t.Context(), r.company, up, query)
		requireRefused(t, err, "")
	}
}

func TestFinish_RepeatedClaims(t *testing.T) {
	r := newRig(t)
	up, query := r.begin(t)
	payload, err := json.Marshal(r.idp.claims)
	require.NoError(t, err)
	r.idp.idToken, err = r.idp.signer.Sign(jose.SignHeader{KID: "k1"}, append([]byte(`{"sub":"canary",`), payload[1:]...))
	require.NoError(t, err)
	_, err = r.oidc.Finish(t.Context(), r.company, up, query)
	requireRefused(t, err, "")
}

func TestFinish_TokenEndpoint(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		status            int
		contentType, body string
		code              string // of the refusal; empty: unavailable
	}{
		"wrong code":     {400, "application/json", `{"error":"invalid_grant","error_description":"canary"}`, "invalid_grant"},
		"wrong secret":   {401, "application/json", `{"error":"invalid_client"}`, "invalid_client"},
		"error with 200": {200, "application/json", `{"error":"invalid_grant"}`, "invalid_grant"},
		"odd error":      {400, "application/json", `{"error":"canary\n"}`, "other"},
		"no JSON":        {400, "text/html", `canary`, ""},
		"not there":      {404, "text/html", `canary`, ""},
		"redirect":       {302, "text/html", `canary`, ""},
		"too often":      {429, "application/json", `{"error":"slow_down"}`, ""},
		"server error":   {500, "application/json", `{"error":"canary"}`, ""},
		"down":           {503, "text/html", `canary`, ""},
		"garbage":        {200, "application/json", `canary`, ""},
		"no tokens":      {200, "application/json", `{"canary":1}`, ""},
		"broken":         {0, "", "", ""},
		"too large":      {200, "application/json", `{"access_token":"` + strings.Repeat("a", 1<<20) + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r.idp.fails("/token", c.status, c.contentType, c.body)
			_, err := r.login(t, nil)
			if c.code == "" {
				requireUnavailable(t, err)
				return
			}
			requireRefused(t, err, c.code)
		})
	}
	for _, body := range []string{`{"access_token":"canary"}`, `{"access_token":"canary","id_token":""}`, `{"access_token":"canary","id_token":{"canary":1}}`} {
		r.idp.fails("/token", 200, "application/json", body)
		_, err := r.login(t, nil)
		requireRefused(t, err, "")
	}
	require.Zero(t, r.idp.count("/elsewhere"))
}
