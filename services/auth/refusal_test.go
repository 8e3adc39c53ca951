package auth_test

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

const (
	bad          = http.StatusBadRequest
	unauthorized = http.StatusUnauthorized
)

// Every parameter of a token request that is missing, doubled or wrong.
func TestToken_Parameters(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#48", "poppy-0.1/4.2#49", "poppy-0.1/4.2#59", "poppy-0.1/4.2#65", "poppy-0.1/4.2#66", "poppy-0.1/4.2#d26", "poppy-0.1/4.3#d26")
	clausetest.Refuses(t, "poppy-0.1/4.2#5", "poppy-0.1/4.2#7", "poppy-0.1/4.2#9", "poppy-0.1/4.2#11", "poppy-0.1/4.2#12", "poppy-0.1/4.2#13", "poppy-0.1/4.2#58", "poppy-0.1/4.2#59", "poppy-0.1/4.2#65",
		"poppy-0.1/4.2#66", "poppy-0.1/4.2#d26", "poppy-0.1/4.3#d26", "poppy-0.1/4.3#45", "poppy-0.1/4#31", "poppy-0.1/4.2#37", "poppy-0.1/4#23", "poppy-0.1/4.1#14")
	each(t, func(t *testing.T, r *rig) {
		for name, c := range map[string]struct {
			change func(*request)
			status int
			code   string
		}{
			"no grant_type":            {func(q *request) { q.set("grant_type", "") }, bad, "invalid_request"},
			"grant of no protocol":     {func(q *request) { q.set("grant_type", "password") }, bad, "unsupported_grant_type"},
			"client_credentials":       {func(q *request) { q.set("grant_type", "client_credentials") }, bad, "unsupported_grant_type"},
			"authorization_code":       {func(q *request) { q.set("grant_type", "authorization_code") }, bad, "unsupported_grant_type"},
			"refresh_token":            {func(q *request) { q.set("grant_type", "refresh_token").set("refresh_token", "pat_x") }, bad, "unsupported_grant_type"},
			"device_code":              {func(q *request) { q.set("grant_type", "urn:ietf:params:oauth:grant-type:device_code") }, bad, "unsupported_grant_type"},
			"no assertion":             {func(q *request) { q.set("assertion", "") }, bad, "invalid_request"},
			"no client_id":             {func(q *request) { q.set("client_id", "") }, unauthorized, "invalid_client"},
			"no client_assertion":      {func(q *request) { q.set("client_assertion", "") }, unauthorized, "invalid_client"},
			"no client_assertion_type": {func(q *request) { q.set("client_assertion_type", "") }, unauthorized, "invalid_client"},
			"client_secret":            {func(q *request) { q.set("client_secret", "s3cret") }, bad, "invalid_request"},
			"saml": {func(q *request) {
				q.set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:saml2-bearer")
			}, unauthorized, "invalid_client"},
			"GW-08 two client_id":      {func(q *request) { q.extra = "&client_id=" + url.QueryEscape(r.agent.ClientID) }, bad, "invalid_request"},
			"GW-08 two scope":          {func(q *request) { q.extra = "&scope=&scope=" }, bad, "invalid_request"},
			"GW-08 two grant_type":     {func(q *request) { q.extra = "&grant_type=x" }, bad, "invalid_request"},
			"GW-08 two assertions":     {func(q *request) { q.extra = "&assertion=x" }, bad, "invalid_request"},
			"GW-08 two unknown":        {func(q *request) { q.extra = "&x=1&x=2" }, bad, "invalid_request"},
			"bad escape":               {func(q *request) { q.extra = "&x=%zz" }, bad, "invalid_request"},
			"JSON":                     {func(q *request) { q.contentType = "application/json" }, bad, "invalid_request"},
			"multipart":                {func(q *request) { q.contentType = "multipart/form-data; boundary=x" }, bad, "invalid_request"},
			"no content type":          {func(q *request) { q.contentType = "" }, bad, "invalid_request"},
			"too large":                {func(q *request) { q.set("x", strings.Repeat("x", 64<<10)) }, http.StatusRequestEntityTooLarge, "request_too_large"},
			"SC-03 scope":              {func(q *request) { q.set("scope", "poppy:read") }, bad, "invalid_scope"},
			"SC-03 unknown scope":      {func(q *request) { q.set("scope", "poppy:read foo") }, bad, "invalid_scope"},
			"SC-03 two spaces":         {func(q *request) { q.set("scope", "poppy:read  poppy:write") }, bad, "invalid_scope"},
			"SC-03 scope twice":        {func(q *request) { q.set("scope", "poppy:read poppy:read") }, bad, "invalid_scope"},
			"SC-03 tab":                {func(q *request) { q.set("scope", "poppy:read\tpoppy:write") }, bad, "invalid_scope"},
			"LG-03 token in the query": {func(q *request) { q.url += "?access_token=pst_x" }, bad, "invalid_request"},
			"assertion in the query":   {func(q *request) { q.url += "?client_assertion=x" }, bad, "invalid_request"},
			"LG-03 proof in the query": {func(q *request) { q.url += "?DPoP=x" }, bad, "invalid_request"},
			"two DPoP headers":         {func(q *request) { q.proofs = append(q.proofs, q.proofs[0]) }, bad, "invalid_request"},
			"GW-08 parameters in query": {func(q *request) {
				q.url += "?client_assertion=" + q.form.Get("client_assertion")
				q.set("client_assertion", "")
			}, bad, "invalid_request"},
		} {
			t.Run(name, func(t *testing.T) {
				q := r.start(t)
				c.change(q)
				r.refused(t, q, c.status, c.code)
			})
		}
		// A parameter without a value counts as left out, an unknown one as not there.
		q := r.start(t)
		q.extra = "&scope=&resource=&session_id=&audience=x"
		q.contentType = "Application/X-WWW-Form-Urlencoded; charset=utf-8"
		r.ok(t, q)
	})
}

func TestToken_OtherMethodsAndPathsNeverRedirect(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#d27")
	clausetest.Refuses(t, "poppy-0.1/4.3#d27")
	each(t, func(t *testing.T, r *rig) {
		for _, path := range []string{"/oauth/token", "/oauth/revoke"} {
			a := r.serve(t, httptest.NewRequestWithContext(t.Context(), http.MethodGet, r.company.Issuer.String()+path, nil))
			require.Equal(t, http.StatusMethodNotAllowed, a.status)
			require.Equal(t, "POST", a.header.Get("Allow"))
		}
		for _, path := range []string{"/oauth/token/", "//oauth/token", "/oauth/../oauth/token", "/OAuth/token"} {
			q := r.start(t)
			q.url = r.company.Issuer.String() + path
			a := r.send(t, q)
			require.Equal(t, http.StatusNotFound, a.status, path)
			require.Empty(t, a.header.Get("Location"))
		}
		// Plain HTTP from a proxy is neither redirected nor a reason to expect another htu (DP-01).
		q := r.start(t)
		q.url = strings.Replace(q.url, "https://", "http://", 1)
		r.ok(t, q)
	})
}

// What the Host and forwarding headers say never becomes an audience or an htu.
func TestDP01_ExpectedURLComesFromConfiguration(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#d2", "poppy-0.1/4.3#d2")
	clausetest.Refuses(t, "poppy-0.1/4.2#d2", "poppy-0.1/4.3#d2")
	each(t, func(t *testing.T, r *rig) {
		q := r.start(t)
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.company.Issuer.Host()+":8080/oauth/token", strings.NewReader(q.form.Encode()))
		req.Header.Set("Content-Type", q.contentType)
		req.Header.Set("DPoP", q.proofs[0])
		req.Header.Set("X-Forwarded-Proto", "http")
		req.Header.Set("X-Forwarded-Host", "evil.example")
		require.Equal(t, http.StatusOK, r.serve(t, req).status)

		local := "http://" + r.company.Issuer.Host() + ":8080/oauth/token"
		q = r.start(t)
		q.url, q.proofs = local, []string{fixture.Proof(t, r.key, http.MethodPost, local, "", r.now())}
		r.refused(t, q, bad, "invalid_dpop_proof")
		q = r.start(t)
		q.url = local
		q.set("assertion", r.agent.SessionAssertion(t, user, local, r.now()))
		r.refused(t, q, bad, "invalid_grant")
		q = r.start(t)
		q.url = local
		q.set("client_assertion", r.agent.ClientAssertion(t, local, r.now()))
		r.refused(t, q, unauthorized, "invalid_client")
	})
}

// The client assertion of Poppy 4.1.
func TestToken_ClientAssertion(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#d4", "poppy-0.1/4.1#d7", "poppy-0.1/4.1#d8", "poppy-0.1/4.2#d6", "poppy-0.1/4.2#51")
	clausetest.Refuses(t, "poppy-0.1/4.1#d4", "poppy-0.1/4.1#d7", "poppy-0.1/4.1#d8", "poppy-0.1/4.1#d10", "poppy-0.1/4.2#d6", "poppy-0.1/4.2#21", "poppy-0.1/4.2#51", "poppy-0.1/4.1#14")
	each(t, func(t *testing.T, r *rig) {
		te, issuer := r.company.Issuer.TokenEndpoint(), r.company.Issuer.String()
		now := r.now()
		for name, changes := range map[string][]fixture.Change{
			"PK-01 token endpoint": nil,
			"PK-01 issuer":         {fixture.Claim("aud", issuer)},
			"PK-02 array":          {fixture.Claim("aud", []string{te, issuer})},
			"array of one":         {fixture.Claim("aud", []string{te})},
			"no typ":               {fixture.Typ("")},
			"no kid":               {fixture.KID("")},
			"jti of 16":            {fixture.Claim("jti", "0123456789abcde"+name16(0))},
			"skew":                 {fixture.Times(now.Add(29*time.Second), now.Add(60*time.Second))},
			"just expired":         {fixture.Times(now.Add(-60*time.Second), now.Add(-29*time.Second))},
			"300 s":                {fixture.Times(now, now.Add(300*time.Second))},
		} {
			t.Run(name, func(t *testing.T) {
				r.ok(t, r.start(t).set("client_assertion", r.agent.ClientAssertion(t, te, now, changes...)))
			})
		}
		for name, changes := range map[string][]fixture.Change{
			"foreign aud":            {fixture.Claim("aud", "https://other.example/oauth/token")},
			"PK-02 foreign in array": {fixture.Claim("aud", []string{te, "https://other.example/oauth/token"})},
			"revocation endpoint":    {fixture.Claim("aud", r.company.Issuer.RevocationEndpoint())},
			"issuer with slash":      {fixture.Claim("aud", issuer+"/")},
			"no aud":                 {fixture.Claim("aud", nil)},
			"empty array":            {fixture.Claim("aud", []string{})},
			"PK-16 sub":              {fixture.Claim("sub", user)},
			"PK-16 iss":              {fixture.Claim("iss", "https://other.example/agent.json")},
			"PK-16 no iss":           {fixture.Claim("iss", nil)},
			"PK-13 a day":            {fixture.Times(now, now.Add(24*time.Hour))},
			"PK-13 301 s":            {fixture.Times(now, now.Add(301*time.Second))},
			"PK-13 no exp":           {fixture.Claim("exp", nil)},
			"PK-13 no iat":           {fixture.Claim("iat", nil)},
			"PK-13 iat to come":      {fixture.Times(now.Add(31*time.Second), now.Add(90*time.Second))},
			"PK-13 nbf to come":      {fixture.Claim("nbf", now.Add(10*time.Minute).Unix())},
			"PK-13 exp before iat":   {fixture.Times(now, now.Add(-time.Second))},
			"expired":                {fixture.Times(now.Add(-91*time.Second), now.Add(-31*time.Second))},
			"no jti":                 {fixture.Claim("jti", nil)},
			"jti of 15":              {fixture.Claim("jti", "0123456789abcde")},
			"jti of 257":             {fixture.Claim("jti", strings.Repeat("x", 257))},
			"PK-11 other key":        {fixture.SignedBy(fixture.NewKey(t))},
			"browser assertion":      {fixture.Typ("poppy-browser+jwt")},
			"typ of a proof":         {fixture.Typ("dpop+jwt")},
			"unknown kid":            {fixture.KID("k2")},
		} {
			t.Run(name, func(t *testing.T) {
				r.refused(t, r.start(t).set("client_assertion", r.agent.ClientAssertion(t, te, now, changes...)), unauthorized, "invalid_client")
			})
		}
		for name, raw := range mangled(r.agent.ClientAssertion(t, te, now)) {
			t.Run(name, func(t *testing.T) {
				a := r.refused(t, r.start(t).set("client_assertion", raw), unauthorized, "invalid_client")
				require.NotContains(t, a.raw, raw)
			})
		}
		t.Run("a Session assertion in its place", func(t *testing.T) {
			r.refused(t, r.start(t).set("client_assertion", r.agent.SessionAssertion(t, user, te, now)), unauthorized, "invalid_client")
		})
		t.Run("a proof in its place", func(t *testing.T) {
			r.refused(t, r.start(t).set("client_assertion", fixture.Proof(t, r.agent.Signer, http.MethodPost, te, "", now)), unauthorized, "invalid_client")
		})
	})
}

// name16 tells jti of several databases apart at their shortest.
func name16(n int) string { return string(rune('a' + n)) }

// mangled are the ways of PK-11 to break a signed token.
func mangled(raw string) map[string]string {
	parts := strings.Split(raw, ".")
	b64 := base64.RawURLEncoding.EncodeToString
	out := map[string]string{
		"PK-11 empty signature":  parts[0] + "." + parts[1] + ".",
		"PK-11 no signature":     parts[0] + "." + parts[1],
		"PK-11 payload":          parts[0] + "." + b64([]byte(`{"iss":"x"}`)) + "." + parts[2],
		"PK-17 dots":             strings.Repeat(".", 20_000),
		"PK-17 large":            raw + strings.Repeat("A", 17<<10),
		"not a token":            "x",
		"an encrypted one":       "a.b.c.d.e",
		"white space":            raw + "\n",
		"padding":                raw + "=",
		"PK-11 another's header": b64([]byte(`{"alg":"ES256","kid":"k1","crit":["x"],"x":1}`)) + "." + parts[1] + "." + parts[2],
	}
	for _, alg := range []string{"none", "NONE", "nOnE", "HS256", "HS512", "ES256 ", "es256", "ES512", ""} {
		out["PK-11 alg "+alg] = b64([]byte(`{"alg":"`+alg+`","kid":"k1"}`)) + "." + parts[1] + "." + parts[2]
	}
	return out
}

// The Session assertion of Poppy 4.2.
func TestToken_SessionAssertion(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#d5", "poppy-0.1/4.2#d7", "poppy-0.1/4.2#d8", "poppy-0.1/4.2#d6", "poppy-0.1/4.2#53")
	clausetest.Refuses(t, "poppy-0.1/4.2#6", "poppy-0.1/4.2#14", "poppy-0.1/4.2#15", "poppy-0.1/4.2#16", "poppy-0.1/4.2#17", "poppy-0.1/4.2#18", "poppy-0.1/4.2#22", "poppy-0.1/4.2#23",
		"poppy-0.1/4.2#53", "poppy-0.1/4.2#d5", "poppy-0.1/4.2#d6", "poppy-0.1/4.2#d7", "poppy-0.1/4.2#d8", "poppy-0.1/4.1#15", "poppy-0.1/4.1#d10", "poppy-0.1/4.3#d6")
	each(t, func(t *testing.T, r *rig) {
		te, now := r.company.Issuer.TokenEndpoint(), r.now()
		other := fixture.NewAgent(t, "other.example")
		r.Web.Publish(other)
		for name, changes := range map[string][]fixture.Change{
			"no typ":       {fixture.Typ("")},
			"jwt":          {fixture.Typ("jwt")},
			"300 s":        {fixture.Times(now, now.Add(300*time.Second))},
			"just expired": {fixture.Times(now.Add(-60*time.Second), now.Add(-29*time.Second))},
			"skew":         {fixture.Times(now.Add(29*time.Second), now.Add(time.Minute))},
			"jti of 16":    {fixture.Claim("jti", "fedcba987654321"+name16(1))},
			"long User ID": {fixture.Claim("sub", strings.Repeat("u", 256))},
		} {
			t.Run(name, func(t *testing.T) {
				r.ok(t, r.start(t).set("assertion", r.agent.SessionAssertion(t, user, te, now, changes...)))
			})
		}
		for name, changes := range map[string][]fixture.Change{
			"PK-02 array of one":   {fixture.Claim("aud", []string{te})},
			"PK-02 array":          {fixture.Claim("aud", []string{te, "https://other.example/oauth/token"})},
			"PK-01 issuer":         {fixture.Claim("aud", r.company.Issuer.String())},
			"foreign aud":          {fixture.Claim("aud", "https://other.example/oauth/token")},
			"upper-case host":      {fixture.Claim("aud", strings.ToUpper(te))},
			"no aud":               {fixture.Claim("aud", nil)},
			"other iss":            {fixture.Claim("iss", other.ClientID)},
			"no sub":               {fixture.Claim("sub", nil)},
			"empty sub":            {fixture.Claim("sub", "")},
			"control in sub":       {fixture.Claim("sub", "usr\u0007")},
			"sub of 257":           {fixture.Claim("sub", strings.Repeat("u", 257))},
			"PK-13 301 s":          {fixture.Times(now, now.Add(301*time.Second))},
			"PK-13 no exp":         {fixture.Claim("exp", nil)},
			"PK-13 no iat":         {fixture.Claim("iat", nil)},
			"iat as text":          {fixture.Claim("iat", "1790900000")},
			"PK-13 iat to come":    {fixture.Times(now.Add(31*time.Second), now.Add(90*time.Second))},
			"PK-13 exp before iat": {fixture.Times(now, now.Add(-time.Second))},
			"expired":              {fixture.Times(now.Add(-91*time.Second), now.Add(-31*time.Second))},
			"no jti":               {fixture.Claim("jti", nil)},
			"jti of 15":            {fixture.Claim("jti", "0123456789abcde")},
			"other key":            {fixture.SignedBy(fixture.NewKey(t))},
			"key of the proof":     {fixture.SignedBy(r.key)},
			"browser assertion":    {fixture.Typ("poppy-browser+jwt")},
			"typ of a proof":       {fixture.Typ("dpop+jwt")},
			"unknown kid":          {fixture.KID("k2")},
		} {
			t.Run(name, func(t *testing.T) {
				r.refused(t, r.start(t).set("assertion", r.agent.SessionAssertion(t, user, te, now, changes...)), bad, "invalid_grant")
			})
		}
		for name, raw := range mangled(r.agent.SessionAssertion(t, user, te, now)) {
			t.Run(name, func(t *testing.T) { r.refused(t, r.start(t).set("assertion", raw), bad, "invalid_grant") })
		}
		t.Run("another agent's", func(t *testing.T) {
			r.refused(t, r.start(t).set("assertion", other.SessionAssertion(t, user, te, now)), bad, "invalid_grant")
		})
		t.Run("a client assertion in its place", func(t *testing.T) {
			r.refused(t, r.start(t).set("assertion", r.agent.ClientAssertion(t, te, now)), bad, "invalid_grant")
		})
		t.Run("one JWT as both", func(t *testing.T) {
			q := r.start(t)
			r.refused(t, q.set("assertion", q.form.Get("client_assertion")), bad, "invalid_grant")
		})
		t.Run("a proof in its place", func(t *testing.T) {
			r.refused(t, r.start(t).set("assertion", fixture.Proof(t, r.agent.Signer, http.MethodPost, te, "", now)), bad, "invalid_grant")
		})
	})
}

// The proof of a token request (Poppy 4.3).
func TestToken_Proof(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#61", "poppy-0.1/4.2#62", "poppy-0.1/4.3#26", "poppy-0.1/4.3#d44", "poppy-0.1/4.3#d8", "poppy-0.1/4.3#d7", "poppy-0.1/4.3#9", "poppy-0.1/4.3#11", "poppy-0.1/4.3#12", "poppy-0.1/4.3#13",
		"poppy-0.1/4.3#18", "poppy-0.1/4.3#20", "poppy-0.1/4.3#21")
	clausetest.Refuses(t, "poppy-0.1/4.2#10", "poppy-0.1/4.2#61", "poppy-0.1/4.2#62", "poppy-0.1/4.3#9", "poppy-0.1/4.3#10", "poppy-0.1/4.3#11", "poppy-0.1/4.3#12", "poppy-0.1/4.3#13", "poppy-0.1/4.3#18", "poppy-0.1/4.3#20",
		"poppy-0.1/4.3#21", "poppy-0.1/4.3#26", "poppy-0.1/4.3#d6", "poppy-0.1/4.3#d7", "poppy-0.1/4.3#d8", "poppy-0.1/4.3#d10", "poppy-0.1/4.3#d44")
	each(t, func(t *testing.T, r *rig) {
		te, now := r.company.Issuer.TokenEndpoint(), r.now()
		proof := func(changes ...fixture.Change) string {
			return fixture.Proof(t, r.key, http.MethodPost, te, "", now, changes...)
		}
		for name, raw := range map[string]string{
			"a minute old":         proof(fixture.Claim("iat", now.Add(-60*time.Second).Unix())),
			"ten seconds to come":  proof(fixture.Claim("iat", now.Add(10*time.Second).Unix())),
			"jti of 1":             proof(fixture.Claim("jti", "x")),
			"htu with query":       proof(fixture.Claim("htu", te+"?a=b#c")),
			"htu in another case":  proof(fixture.Claim("htu", strings.Replace(te, "https://c-", "HTTPS://C-", 1))),
			"htu with the port":    proof(fixture.Claim("htu", strings.Replace(te, ".test/", ".test:443/", 1))),
			"unasked nonce":        proof(fixture.Claim("nonce", "x")),
			"ath without a reason": proof(fixture.Claim("ath", "x")),
		} {
			t.Run(name, func(t *testing.T) {
				q := r.start(t)
				q.proofs = []string{raw}
				r.ok(t, q)
			})
		}
		wrong := map[string]string{
			"empty":                  "",
			"61 s old":               proof(fixture.Claim("iat", now.Add(-61*time.Second).Unix())),
			"11 s to come":           proof(fixture.Claim("iat", now.Add(11*time.Second).Unix())),
			"no iat":                 proof(fixture.Claim("iat", nil)),
			"no jti":                 proof(fixture.Claim("jti", nil)),
			"jti of 257":             proof(fixture.Claim("jti", strings.Repeat("x", 257))),
			"htm in lower case":      proof(fixture.Claim("htm", "post")),
			"other htm":              proof(fixture.Claim("htm", "GET")),
			"no htm":                 proof(fixture.Claim("htm", nil)),
			"no htu":                 proof(fixture.Claim("htu", nil)),
			"htu with a slash":       proof(fixture.Claim("htu", te+"/")),
			"htu path in upper case": proof(fixture.Claim("htu", strings.Replace(te, "/oauth/", "/OAuth/", 1))),
			"htu of http":            proof(fixture.Claim("htu", strings.Replace(te, "https:", "http:", 1))),
			"htu of another":         proof(fixture.Claim("htu", "https://other.example/oauth/token")),
			"typ JWT":                proof(fixture.Typ("JWT")),
			"no typ":                 proof(fixture.Typ("")),
			"no jwk":                 proof(func(j *fixture.JWT) { j.Header.EmbedKey = false }),
			"client assertion":       r.agent.ClientAssertion(t, te, now),
			"session assertion":      r.agent.SessionAssertion(t, user, te, now),
			"PK-17 dots":             strings.Repeat(".", 20_000),
		}
		for name, raw := range mangled(proof()) {
			if name != "white space" { // no header can hold it
				wrong[name] = raw
			}
		}
		for name, header := range privateHeaders() {
			wrong["DP-21 "+name] = base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + strings.SplitN(proof(), ".", 2)[1]
		}
		for name, raw := range wrong {
			t.Run(name, func(t *testing.T) {
				q := r.start(t)
				q.proofs = []string{raw}
				a := r.refused(t, q, bad, "invalid_dpop_proof")
				require.True(t, strings.HasPrefix(a.header.Get("WWW-Authenticate"), `DPoP error="invalid_dpop_proof"`), a.header)
			})
		}
		require.NotContains(t, r.Logged.String(), "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI")
	})
}

func privateHeaders() map[string]string {
	const ec = `"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"`
	return map[string]string{
		"EC":  `{"typ":"dpop+jwt","alg":"ES256","jwk":{` + ec + `,"d":"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"}}`,
		"oct": `{"typ":"dpop+jwt","alg":"HS256","jwk":{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ"}}`,
		"OKP": `{"typ":"dpop+jwt","alg":"EdDSA","jwk":{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}}`,
	}
}

// The client document and key set of Poppy 4.1, as far as they decide about a Session start.
func TestToken_AgentDocument(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#7", "poppy-0.1/4.1#8", "poppy-0.1/4.1#9", "poppy-0.1/4.1#10", "poppy-0.1/4.1#13", "poppy-0.1/4.1#d11", "poppy-0.1/4.1#d43", "poppy-0.1/4.1#12", "poppy-0.1/4.1#d9")
	clausetest.Refuses(t, "poppy-0.1/4.1#1", "poppy-0.1/4.1#2", "poppy-0.1/4.1#3", "poppy-0.1/4.1#6", "poppy-0.1/4.1#7", "poppy-0.1/4.1#8", "poppy-0.1/4.1#9", "poppy-0.1/4.1#10", "poppy-0.1/4.1#d9", "poppy-0.1/4.1#d11",
		"poppy-0.1/4.1#d43", "poppy-0.1/4.2#51")
	each(t, func(t *testing.T, r *rig) {
		json := func(body string) *relayv1.FetchResponse {
			return &relayv1.FetchResponse{Status: 200, ContentType: "application/json", Body: []byte(body)}
		}
		document := func(id, keys, more string) *relayv1.FetchResponse {
			return json(`{"client_id":"` + id + `","jwks_uri":"` + keys + `"` + more + `}`)
		}
		private := bytes.Replace(r.agent.KeySet(), []byte(`"kty":"EC"`), []byte(`"kty":"EC","d":"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"`), 1)
		n := 0
		try := func(t *testing.T, doc func(*fixture.Agent) *relayv1.FetchResponse, keys *relayv1.FetchResponse) *request {
			t.Helper()
			n++
			a := fixture.NewAgent(t, "agent"+string(rune('a'+n))+".example") // nothing is remembered of it
			r.Web.Publish(a)
			if doc != nil {
				r.Web.Put(a.ClientID, doc(a))
			}
			if keys != nil {
				r.Web.Put(a.KeysURL, keys)
			}
			return r.startAt(t, r.company, a, user)
		}
		t.Run("extensions, +json and port", func(t *testing.T) {
			r.ok(t, try(t, func(a *fixture.Agent) *relayv1.FetchResponse {
				d := document(a.ClientID, a.KeysURL, `,"extensions":{"operations":{"version":"1"}},"redirect_uris":["https://`+strings.Split(a.ClientID, "/")[2]+`:8443/cb"],"unknown":1`)
				d.ContentType = "application/cimd+json; charset=utf-8"
				return d
			}, nil))
		})
		for name, doc := range map[string]func(*fixture.Agent) *relayv1.FetchResponse{
			"404":      func(*fixture.Agent) *relayv1.FetchResponse { return &relayv1.FetchResponse{Status: 404} },
			"redirect": func(*fixture.Agent) *relayv1.FetchResponse { return &relayv1.FetchResponse{Status: 302} },
			"CI-08 html": func(a *fixture.Agent) *relayv1.FetchResponse {
				d := document(a.ClientID, a.KeysURL, "")
				d.ContentType = "text/html"
				return d
			},
			"not reached": func(*fixture.Agent) *relayv1.FetchResponse {
				return &relayv1.FetchResponse{Failure: "blocked", Detail: "the address is not public"}
			},
			"other client_id": func(a *fixture.Agent) *relayv1.FetchResponse { return document(a.ClientID+"x", a.KeysURL, "") },
			"keys elsewhere": func(a *fixture.Agent) *relayv1.FetchResponse {
				return document(a.ClientID, "https://keys.example/jwks.json", "")
			},
			"keys by http": func(a *fixture.Agent) *relayv1.FetchResponse {
				return document(a.ClientID, strings.Replace(a.KeysURL, "https", "http", 1), "")
			},
			"redirect elsewhere": func(a *fixture.Agent) *relayv1.FetchResponse {
				return document(a.ClientID, a.KeysURL, `,"redirect_uris":["https://evil.example/cb"]`)
			},
			"CI-15 no auth": func(a *fixture.Agent) *relayv1.FetchResponse {
				return document(a.ClientID, a.KeysURL, `,"token_endpoint_auth_method":"none"`)
			},
			"CI-15 secret": func(a *fixture.Agent) *relayv1.FetchResponse {
				return document(a.ClientID, a.KeysURL, `,"client_secret":"x"`)
			},
			"CI-15 inline keys": func(a *fixture.Agent) *relayv1.FetchResponse {
				return document(a.ClientID, a.KeysURL, `,"jwks":{"keys":[]}`)
			},
			"not JSON": func(*fixture.Agent) *relayv1.FetchResponse { return json("<html>") },
		} {
			t.Run(name, func(t *testing.T) { r.refused(t, try(t, doc, nil), unauthorized, "invalid_client") })
		}
		t.Run("PK-10 private key", func(t *testing.T) {
			a := r.refused(t, try(t, nil, json(string(private))), unauthorized, "invalid_client")
			require.Contains(t, a.text("error_description"), "private")
			require.NotContains(t, a.raw, "jpsQnnGQmL")
			require.NotContains(t, r.Logged.String(), "jpsQnnGQmL")
		})
		for _, id := range []string{
			"http://agent.example/agent.json", "https://agent.example", "https://agent.example/#x", "https://u:p@agent.example/agent.json",
			"https://agent.example/a/../agent.json", "urn:agent", "agent",
		} {
			t.Run(id, func(t *testing.T) { r.refused(t, r.start(t).set("client_id", id), unauthorized, "invalid_client") })
		}
		t.Run("our egress is down", func(t *testing.T) {
			r.Web.Down(true)
			q := try(t, nil, nil)
			a := r.refused(t, q, http.StatusServiceUnavailable, "temporarily_unavailable")
			require.NotEmpty(t, a.header.Get("Retry-After"))
			r.Web.Down(false)
			r.ok(t, q)
		})
	})
}

// A key that the agent has just published works at once; made-up kids cause no more than a fetch each 30 s.
func TestToken_KeyRotation(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#d9")
	clausetest.Refuses(t, "poppy-0.1/4.2#d9")
	each(t, func(t *testing.T, r *rig) {
		r.ok(t, r.start(t))
		require.Equal(t, 1, r.Web.Fetches(r.agent.KeysURL))
		r.agent.Signer, r.agent.KID = fixture.NewKey(t), "k2"
		r.Web.Publish(r.agent)
		r.ok(t, r.start(t))
		require.Equal(t, 2, r.Web.Fetches(r.agent.KeysURL))
		for range 3 {
			r.refused(t, r.start(t).set("client_assertion", r.agent.ClientAssertion(t, r.company.Issuer.TokenEndpoint(), r.now(), fixture.KID("made-up"))), unauthorized, "invalid_client")
		}
		require.Equal(t, 2, r.Web.Fetches(r.agent.KeysURL))
		r.Clock.Advance(31 * time.Second)
		// Only the Session assertion has the newest key.
		old := r.agent.ClientAssertion(t, r.company.Issuer.TokenEndpoint(), r.now())
		first := r.agent.Signer.PublicJWK("k2")
		r.agent.Signer, r.agent.KID = fixture.NewKey(t), "k3"
		r.Web.Put(r.agent.KeysURL, &relayv1.FetchResponse{Status: 200, ContentType: "application/json", Body: jose.PublicKeySet(first, r.agent.Signer.PublicJWK("k3"))})
		r.ok(t, r.start(t).set("client_assertion", old))
		require.Equal(t, 3, r.Web.Fetches(r.agent.KeysURL))
	})
}
