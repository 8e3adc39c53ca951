package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// edited is an agent's document with members set, or taken out where nil.
func edited(t testing.TB, a *fixture.Agent, set object) []byte {
	t.Helper()
	var doc object
	require.NoError(t, json.Unmarshal(a.Document(), &doc))
	for name, value := range set {
		doc[name] = value
		if value == nil {
			delete(doc, name)
		}
	}
	raw, err := json.Marshal(doc)
	require.NoError(t, err)
	return raw
}

// address is a URL without its scheme, as the world knows it.
func address(u string) string { return strings.TrimPrefix(u, "https://") }

func TestIdentity_AnAgentIsWhoItsDocumentSays(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.1#1", "poppy-0.1/4.1#2", "poppy-0.1/4.1#3", "poppy-0.1/4.1#4", "poppy-0.1/4.1#5", "poppy-0.1/4.1#6", "poppy-0.1/4.1#7", "poppy-0.1/4.1#8", "poppy-0.1/4.1#9",
			"poppy-0.1/4.1#10", "poppy-0.1/4.1#11", "poppy-0.1/4.1#13", "poppy-0.1/4.1#14", "poppy-0.1/4.1#15", "poppy-0.1/4.1#d11", "poppy-0.1/4.1#d43", "poppy-0.1/4.2#21", "poppy-0.1/4.2#22")
		co := in.company(t)
		for name, c := range map[string]struct {
			contentType string
			set         object
		}{
			"as in the example":           {"application/json", object{"logo_uri": "https://" + agentsHost + "/logo.png"}},
			"CI-08 parameters":            {"application/json; charset=utf-8", nil},
			"CI-08 a +json type":          {"application/cimd+json", nil},
			"no auth method":              {"application/json", object{"token_endpoint_auth_method": nil}},
			"no redirect_uris":            {"application/json", object{"redirect_uris": nil}},
			"another port in its own URL": {"application/json", object{"redirect_uris": []any{"https://" + agentsHost + ":8443/cb"}}},
		} {
			t.Run(name, func(t *testing.T) {
				a := in.agent(t)
				in.web.put(address(a.ClientID), document(c.contentType, edited(t, a, c.set)))
				s := co.open(t, a, "usr_1")
				got := co.admin(t, http.MethodGet, co.name+"/sessions/"+s.id, nil).is(t, http.StatusOK, "")
				require.Equal(t, a.ClientID, got.str("client_id"))
				require.Equal(t, "Example Agent", got.str("agent_name"))
				// Documents are kept; a second Session asks for none.
				s.again(t)
				require.Equal(t, 1, in.web.asks(address(a.ClientID)))
				require.Equal(t, 1, in.web.asks(address(a.KeysURL)))
			})
		}
	})
}

func TestCI15_DocumentsThatIdentifyNobody(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/4.1#4", "poppy-0.1/3.3#9", "poppy-0.1/4.1#1", "poppy-0.1/4.1#2", "poppy-0.1/4.1#5", "poppy-0.1/4.1#6", "poppy-0.1/4.1#7", "poppy-0.1/4.1#8", "poppy-0.1/4.1#9", "poppy-0.1/4.1#10", "poppy-0.1/4.1#11",
			"poppy-0.1/4.1#12", "poppy-0.1/4.1#d9", "poppy-0.1/4.1#d11", "poppy-0.1/4.1#d43", "poppy-0.1/4.2#51", "poppy-0.1/4.1#3")
		clausetest.Covers(t, "poppy-0.1/4.2#51", "poppy-0.1/4.1#d9")
		co := in.company(t)
		key := newECKey(t)
		private := key.jwk(true)
		private["kid"] = "k1"
		for name, c := range map[string]struct {
			set  object
			page func(*fixture.Agent) http.HandlerFunc
			keys http.HandlerFunc
		}{
			"another's client_id":      {set: object{"client_id": "https://" + agentsHost + "/other.json"}},
			"CI-10 other spelling":     {set: object{"client_id": "https://AGENTS.example/agent.json"}},
			"no client_id":             {set: object{"client_id": nil}},
			"no jwks_uri":              {set: object{"jwks_uri": nil}},
			"jwks_uri over http":       {set: object{"jwks_uri": "http://" + agentsHost + "/jwks.json"}},
			"jwks_uri elsewhere":       {set: object{"jwks_uri": "https://other.example/jwks.json"}},
			"jwks_uri with userinfo":   {set: object{"jwks_uri": "https://u:p@" + agentsHost + "/jwks.json"}},
			"CO-03 javascript":         {set: object{"redirect_uris": []any{"javascript:alert(1)//"}}},
			"CO-03 one bad of two":     {set: object{"redirect_uris": []any{"https://" + agentsHost + "/cb", "custom:/x"}}},
			"redirect elsewhere":       {set: object{"redirect_uris": []any{"https://evil.example/cb"}}},
			"redirect with fragment":   {set: object{"redirect_uris": []any{"https://" + agentsHost + "/cb#x"}}},
			"redirect_uris is no list": {set: object{"redirect_uris": "https://" + agentsHost + "/cb"}},
			"CI-15 secret":             {set: object{"client_secret": "s3cret"}},
			"CI-15 inline jwks":        {set: object{"jwks": object{"keys": []any{}}}},
			"CI-15 no authentication":  {set: object{"token_endpoint_auth_method": "none"}},
			"CI-15 basic":              {set: object{"token_endpoint_auth_method": "client_secret_basic"}},
			"extensions is no object":  {set: object{"extensions": []any{"operations"}}},
			"CI-08 HTML":               {page: func(a *fixture.Agent) http.HandlerFunc { return document("text/html", a.Document()) }},
			"CI-08 octets": {page: func(a *fixture.Agent) http.HandlerFunc {
				return document("application/octet-stream", a.Document())
			}},
			"404": {page: func(*fixture.Agent) http.HandlerFunc { return http.NotFound }},
			"201": {page: func(a *fixture.Agent) http.HandlerFunc {
				return func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write(a.Document())
				}
			}},
			"redirect": {page: func(a *fixture.Agent) http.HandlerFunc { return redirect(a.KeysURL) }},
			"no JSON":  {page: func(*fixture.Agent) http.HandlerFunc { return document("application/json", []byte("{")) }},
			"GW-08 a member twice": {page: func(a *fixture.Agent) http.HandlerFunc {
				return document("application/json", append([]byte(`{"client_id":"`+a.ClientID+`",`), a.Document()[1:]...))
			}},
			"CI-07 too large": {page: func(a *fixture.Agent) http.HandlerFunc {
				return document("application/json", append(a.Document(), strings.Repeat(" ", 65<<10)...))
			}},
			"PK-10 private key":    {keys: jwks(t, private)},
			"symmetric key":        {keys: jwks(t, object{"kty": "oct", "k": "c2VjcmV0", "kid": "k1"})},
			"no keys":              {keys: jwks(t)},
			"keys are HTML":        {keys: document("text/html", []byte("<html>"))},
			"keys redirect":        {keys: redirect("https://" + agentsHost + "/jwks.json")},
			"keys of another form": {keys: document("application/json", []byte(`[]`))},
		} {
			t.Run(name, func(t *testing.T) {
				a := in.agent(t)
				if c.set != nil {
					in.web.put(address(a.ClientID), document("application/json", edited(t, a, c.set)))
				}
				if c.page != nil {
					in.web.put(address(a.ClientID), c.page(a))
				}
				if c.keys != nil {
					in.web.put(address(a.KeysURL), c.keys)
				}
				got := co.token(t, co.form(t, a, "usr_1"), co.proof(t, fixture.NewKey(t))).is(t, http.StatusUnauthorized, "invalid_client")
				require.NotEmpty(t, got.str("error_description"))
				if name == "PK-10 private key" {
					require.Contains(t, got.str("error_description"), "private")
					require.NotContains(t, in.log.String(), private["d"])
				}
			})
		}
	})
}

// jwks is a page with a key set.
func jwks(t testing.TB, keys ...object) http.HandlerFunc {
	t.Helper()
	if keys == nil {
		keys = []object{}
	}
	raw, err := json.Marshal(object{"keys": keys})
	require.NoError(t, err)
	return document("application/jwk-set+json", raw)
}

// CI-01, CI-10: a client_id that is no plain https URL of a public host causes no connection.
func TestCI01_ClientIDsThatAreNeverFetched(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/4.1#1", "poppy-0.1/4.1#2")
		co := in.company(t)
		a := in.agent(t)
		for _, id := range []string{
			"http://" + address(a.ClientID), a.ClientID + "#x", strings.Replace(a.ClientID, "https://", "https://u:p@", 1), "https://" + agentsHost, "agent", "urn:agent:1", "",
			"https://" + agentsHost + "/a/../agent.json", "https://" + in.address + "/agent.json", "https://[::ffff:127.0.0.1]/agent.json", "https://[::1]/agent.json",
			"https://2130706433/agent.json", "https://0x7f.1/agent.json", "https://0177.0.0.1/agent.json", "https://localhost./agent.json", "https://127.1/agent.json",
			"https://169.254.169.254/agent.json", "https://[64:ff9b::7f00:1]/agent.json", "https://10.0.0.1/agent.json", "https://100.64.0.1/agent.json",
		} {
			b := *a
			b.ClientID = id
			co.token(t, co.form(t, &b, "usr_1"), co.proof(t, fixture.NewKey(t))).is(t, http.StatusUnauthorized, "invalid_client")
		}
		require.Zero(t, in.web.asks(address(a.ClientID)))
	})
}

func TestPK01_ClientAssertions(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.1#d4", "poppy-0.1/4.1#d7", "poppy-0.1/4.1#d8", "poppy-0.1/4.2#13", "poppy-0.1/4.2#d6", "poppy-0.1/4.2#21", "poppy-0.1/4.1#14")
		co := in.company(t)
		a := in.agent(t)
		second := func(d time.Duration) float64 { return float64(now().Add(d).Unix()) }
		for name, change := range map[string]fixture.Change{
			"audience the token endpoint": fixture.Claim("aud", co.tokenEndpoint()),
			"PK-01 audience the issuer":   fixture.Claim("aud", co.issuer),
			"PK-02 array of ours":         fixture.Claim("aud", []string{co.tokenEndpoint(), co.issuer}),
			"no typ":                      fixture.Typ(""),
			"no kid":                      fixture.KID(""),
			"jti of 16":                   fixture.Claim("jti", fixture.RandomID()[:16]),
			"jti of 256":                  fixture.Claim("jti", strings.Repeat("j", 234)+fixture.RandomID()),
			"iat a little ahead":          fixture.Claim("iat", second(20*time.Second)),
			"five minutes":                fixture.Claim("exp", second(299*time.Second)),
		} {
			t.Run(name, func(t *testing.T) {
				form := co.form(t, a, "usr_1", with("client_assertion", a.ClientAssertion(t, co.tokenEndpoint(), now(), change)))
				co.token(t, form, co.proof(t, fixture.NewKey(t))).is(t, http.StatusOK, "")
			})
		}
	})
}

func TestPK11_ClientAssertionsThatProveNothing(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.2#51", "poppy-0.1/4.2#49", "poppy-0.1/4.2#48")
		clausetest.Refuses(t, "poppy-0.1/3.2#d10", "poppy-0.1/4.1#14", "poppy-0.1/4.1#d4", "poppy-0.1/4.1#d7", "poppy-0.1/4.1#d8", "poppy-0.1/4.1#d10", "poppy-0.1/4.2#7", "poppy-0.1/4.2#13", "poppy-0.1/4.2#21", "poppy-0.1/4.2#51", "poppy-0.1/4.2#d6", "poppy-0.1/4.2#d9")
		co := in.company(t)
		a := in.agent(t)
		key := fixture.NewKey(t)
		at := func(d time.Duration) int64 { return now().Add(d).Unix() }
		for name, change := range map[string]fixture.Change{
			"PK-02 foreign audience":     fixture.Claim("aud", "https://other.example/oauth/token"),
			"PK-02 foreign in the array": fixture.Claim("aud", []string{co.tokenEndpoint(), "https://other.example/oauth/token"}),
			"PK-02 empty array":          fixture.Claim("aud", []string{}),
			"no audience":                fixture.Claim("aud", nil),
			"PK-16 another issuer":       fixture.Claim("iss", "https://other.example/agent.json"),
			"PK-16 another subject":      fixture.Claim("sub", "usr_1"),
			"no jti":                     fixture.Claim("jti", nil),
			"jti of 15":                  fixture.Claim("jti", "123456789012345"),
			"jti of 257":                 fixture.Claim("jti", strings.Repeat("j", 257)),
			"PK-13 no exp":               fixture.Claim("exp", nil),
			"PK-13 no iat":               fixture.Claim("iat", nil),
			"PK-13 a day":                fixture.Claim("exp", at(24*time.Hour)),
			"PK-13 from the future":      func(j *fixture.JWT) { j.Claims["iat"], j.Claims["exp"] = at(10*time.Minute), at(11*time.Minute) },
			"PK-13 not yet":              fixture.Claim("nbf", at(10*time.Minute)),
			"PK-13 expired":              func(j *fixture.JWT) { j.Claims["iat"], j.Claims["exp"] = at(-3*time.Minute), at(-2*time.Minute) },
			"PK-13 ends before it began": fixture.Claim("exp", at(-10*time.Second)),
			"typ of a proof":             fixture.Typ("dpop+jwt"),
			"typ of a browser assertion": fixture.Typ("poppy-browser+jwt"),
			"PK-11 key of nobody":        fixture.SignedBy(fixture.NewKey(t)),
			"unknown kid":                fixture.KID("k2"),
			"times as strings":           fixture.Claim("exp", strconv.FormatInt(at(time.Minute), 10)),
		} {
			t.Run(name, func(t *testing.T) {
				form := co.form(t, a, "usr_1", with("client_assertion", a.ClientAssertion(t, co.tokenEndpoint(), now(), change)))
				got := co.token(t, form, co.proof(t, key)).is(t, http.StatusUnauthorized, "invalid_client")
				require.Equal(t, "no-store", got.header.Get("Cache-Control"))
				for member := range got.body {
					require.Contains(t, []string{"error", "error_description"}, member)
				}
			})
		}
		claims := func() object { return co.assertionClaims(a, a.ClientID) }
		good := a.ClientAssertion(t, co.tokenEndpoint(), now())
		parts := strings.Split(good, ".")
		for name, forged := range map[string]string{
			"PK-11 none":            forge(t, object{"alg": "none"}, claims(), unsigned),
			"PK-11 NONE":            forge(t, object{"alg": "NONE", "kid": a.KID}, claims(), unsigned),
			"PK-11 HS256":           forge(t, object{"alg": "HS256", "kid": a.KID}, claims(), hmacWith(a.Signer.PublicJWK(a.KID))),
			"PK-11 empty signature": parts[0] + "." + parts[1] + ".",
			"PK-11 other payload":   parts[0] + "." + strings.Split(a.ClientAssertion(t, co.tokenEndpoint(), now()), ".")[1] + "." + parts[2],
			"no JWT":                "abc",
			"PK-17 dots":            strings.Repeat(".", 40000),
		} {
			t.Run(name, func(t *testing.T) {
				got := co.token(t, co.form(t, a, "usr_1", with("client_assertion", forged)), co.proof(t, key)).is(t, http.StatusUnauthorized, "invalid_client")
				require.Less(t, got.took, 5*time.Second)
			})
		}
		for name, change := range map[string]func(url.Values){
			"none":                      without("client_assertion"),
			"no type":                   without("client_assertion_type"),
			"another type":              with("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:saml2-bearer"),
			"PK-16 another's client_id": with("client_id", in.agent(t).ClientID),
			"PK-16 no client_id":        without("client_id"),
		} {
			t.Run(name, func(t *testing.T) {
				co.token(t, co.form(t, a, "usr_1", change), co.proof(t, key)).is(t, http.StatusUnauthorized, "invalid_client")
			})
		}
		t.Run("used before", func(t *testing.T) {
			form := co.form(t, a, "usr_1")
			co.token(t, form, co.proof(t, key)).is(t, http.StatusOK, "")
			form.Set("assertion", a.SessionAssertion(t, "usr_1", co.tokenEndpoint(), now()))
			co.token(t, form, co.proof(t, key)).is(t, http.StatusUnauthorized, "invalid_client")
		})
	})
}

// Every algorithm that the metadata names works, for assertions and for proofs.
func TestIdentity_EveryAlgorithmOfTheMetadata(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.1#d10", "poppy-0.1/4.3#d10", "poppy-0.1/3.2#d10", "poppy-0.1/4.3#9", "poppy-0.1/4.3#18")
		clausetest.Refuses(t, "poppy-0.1/4.1#d10", "poppy-0.1/4.3#d10")
		co := in.company(t)
		signers := fixture.Signers(t)
		seen := map[string]bool{}
		for name, signer := range signers {
			seen[name] = true
			t.Run(name, func(t *testing.T) {
				a := in.unpublished(t)
				a.Signer = signer
				in.web.publish(a)
				co.token(t, co.form(t, a, "usr_1"), co.proof(t, signer)).is(t, http.StatusOK, "")
			})
		}
		for _, alg := range co.metadata(t).body["dpop_signing_alg_values_supported"].([]any) {
			require.True(t, seen[alg.(string)], "no test signs with %v", alg)
		}
		t.Run("RSA of 1024 bits", func(t *testing.T) {
			weak := newRSAKey(t, 1024)
			h := object{"typ": "dpop+jwt", "alg": "RS256", "jwk": weak.jwk()}
			co.token(t, co.form(t, in.agent(t), "usr_1"), forge(t, h, co.proofClaims(), weak.pkcs1)).is(t, http.StatusBadRequest, "invalid_dpop_proof")
			b := in.agent(t)
			jwk := weak.jwk()
			jwk["kid"] = b.KID
			in.web.put(address(b.KeysURL), jwks(t, jwk))
			form := co.form(t, b, "usr_1", with("client_assertion", forge(t, object{"alg": "RS256", "kid": b.KID}, co.assertionClaims(b, b.ClientID), weak.pkcs1)))
			co.token(t, form, co.proof(t, fixture.NewKey(t))).is(t, http.StatusUnauthorized, "invalid_client")
		})
	})
}

// Decision 9: which of the published keys counts.
func TestIdentity_KeysByTheirKid(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.2#d9", "poppy-0.1/4.1#15")
		clausetest.Refuses(t, "poppy-0.1/4.2#d9", "poppy-0.1/4.2#22")
		co := in.company(t)
		a := in.agent(t)
		co.open(t, a, "usr_1")
		old := a.Signer
		// The agent rotates its key: the new kid makes us look once more.
		a.Signer, a.KID = fixture.NewKey(t), "k2"
		in.web.publish(a)
		co.open(t, a, "usr_1")
		require.Equal(t, 2, in.web.asks(address(a.KeysURL)))
		// The old key is gone with it, and another unknown kid does not make us look again at once.
		gone := fixture.Agent{ClientID: a.ClientID, KeysURL: a.KeysURL, KID: "k1", Signer: old}
		for range 3 {
			co.token(t, co.form(t, &gone, "usr_1"), co.proof(t, fixture.NewKey(t))).is(t, http.StatusUnauthorized, "invalid_client")
		}
		require.Equal(t, 2, in.web.asks(address(a.KeysURL)))
		// Without kid every fitting key counts, but no more than ten are tried.
		many := in.agent(t)
		keys := make([][]byte, 0, 12)
		signers := make([]*jose.Signer, 12)
		for i := range signers {
			signers[i] = fixture.NewKey(t)
			keys = append(keys, signers[i].PublicJWK("k"+strconv.Itoa(i)))
		}
		in.web.put(address(many.KeysURL), document("application/json", jose.PublicKeySet(keys...)))
		many.KID = ""
		for i, status := range map[int]int{0: http.StatusOK, 9: http.StatusOK, 11: http.StatusUnauthorized} {
			many.Signer = signers[i]
			require.Equal(t, status, co.token(t, co.form(t, many, "usr_1"), co.proof(t, fixture.NewKey(t))).status, i)
		}
	})
}

// CI-14, MT-06: what a Company decides about an agent holds there, at once, and nowhere else.
func TestCI14_AdmissionIsEachCompanysOwn(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.1#17", "poppy-0.1/4.1#18", "poppy-0.1/4.1#19", "poppy-0.1/4.1#20", "poppy-0.1/4.2#50", "poppy-0.1/4.2#51", "poppy-0.1/4#5")
		clausetest.Refuses(t, "poppy-0.1/4.1#17", "poppy-0.1/4.1#18", "poppy-0.1/4.1#19", "poppy-0.1/4.1#20", "poppy-0.1/4.2#50", "poppy-0.1/4.2#51", "poppy-0.1/4#5")
		one, other := in.company(t), in.company(t)
		a, b := in.agent(t), in.agent(t)
		start := func(co *company, a *fixture.Agent) answer {
			return co.token(t, co.form(t, a, "usr_1"), co.proof(t, fixture.NewKey(t)))
		}
		s, elsewhere := one.open(t, a, "usr_1"), other.open(t, a, "usr_1")
		id := s.talk(t, "Hello")

		rule := one.rule(t, a.ClientID, "BLOCK")
		s.read(t, id, "").is(t, http.StatusUnauthorized, "invalid_token").challenged(t, "invalid_token")
		s.post(t, conversationsPath, text("Hello")).is(t, http.StatusUnauthorized, "invalid_token")
		start(one, a).is(t, http.StatusUnauthorized, "invalid_client")
		start(one, b).is(t, http.StatusOK, "")
		elsewhere.talk(t, "Hello")
		start(other, a).is(t, http.StatusOK, "")
		one.admin(t, http.MethodDelete, rule, nil).is(t, http.StatusOK, "")
		s.read(t, id, "").is(t, http.StatusOK, "")

		for mode, effect := range map[string]string{"ALLOWLIST": "ALLOW", "REGISTRATION_REQUIRED": "REGISTER"} {
			one.patch(t, "admission", object{"mode": "ADMISSION_MODE_" + mode})
			start(one, b).is(t, http.StatusUnauthorized, "invalid_client")
			s.read(t, id, "").is(t, http.StatusUnauthorized, "invalid_token")
			rule := one.rule(t, a.ClientID, effect)
			s.read(t, id, "").is(t, http.StatusOK, "")
			start(one, a).is(t, http.StatusOK, "")
			start(other, b).is(t, http.StatusOK, "")
			one.admin(t, http.MethodDelete, rule, nil).is(t, http.StatusOK, "")
		}
	})
}
