package oauth_test

import (
	"encoding/base64"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func TestCheckClientAssertion_Passes(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#14", "poppy-0.1/4.2#21", "poppy-0.1/4.1#d8")
	a := newAgent(t)
	v, err := a.checkClient(a.sign(t, jose.SignHeader{KID: "k1"}, a.claims(clientID)))
	require.NoError(t, err)
	require.Equal(t, clientID, v.ClientID())
	require.Equal(t, jti, v.JTI())
	require.Equal(t, a.now.Add(time.Minute), v.ExpiresAt())
	require.Equal(t, a.now.Add(90*time.Second), v.ReplayUntil())
}

func TestCheckSessionAssertion_Passes(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#15", "poppy-0.1/4.2#6", "poppy-0.1/4.2#14", "poppy-0.1/4.2#15", "poppy-0.1/4.2#16",
		"poppy-0.1/4.2#17", "poppy-0.1/4.2#22", "poppy-0.1/4.2#23", "poppy-0.1/4.2#d5", "poppy-0.1/4.2#d8")
	a := newAgent(t)
	raw, err := oauth.BuildAssertion(a.signer, "k1", oauth.AssertionClaims{
		Issuer: clientID, Subject: userID, Audience: tokenEndpoint, JTI: jti, IssuedAt: a.now, ExpiresAt: a.now.Add(time.Minute),
	})
	require.NoError(t, err)
	v, err := a.checkSession(raw)
	require.NoError(t, err)
	require.Equal(t, clientID, v.ClientID())
	require.Equal(t, userID, v.UserID())
	require.Equal(t, jti, v.JTI())
	require.Equal(t, a.now.Add(time.Minute), v.ExpiresAt())
}

func TestPK01_AudienceOfTheClientAssertion(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#d4")
	clausetest.Refuses(t, "poppy-0.1/4.1#d4")
	a := newAgent(t)
	with := func(aud any) string {
		c := a.claims(clientID)
		c["aud"] = aud
		return a.sign(t, jose.SignHeader{KID: "k1"}, c)
	}
	for _, aud := range []any{tokenEndpoint, issuer, []string{tokenEndpoint}, []string{issuer, tokenEndpoint}} {
		_, err := a.checkClient(with(aud))
		require.NoError(t, err, aud)
	}
	for _, aud := range []any{
		issuer + "/", "https://AUTH.example.com/oauth/token", tokenEndpoint + "?", "https://other.example/oauth/token",
		"", nil, 7,
		map[string]any{},
		[]any{},
		[]any{tokenEndpoint, 7},
		[]any{tokenEndpoint, "https://other.example/oauth/token"},
	} {
		_, err := a.checkClient(with(aud))
		requireProblem(t, err, problem.InvalidClient, "poppy-0.1/4.1#d4")
	}
}

func TestPK01_IssuerIsNoAudienceOfTheSessionAssertion(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#16", "poppy-0.1/4.2#d5")
	a := newAgent(t)
	for _, aud := range []any{issuer, tokenEndpoint + "/", "", nil} {
		c := a.claims(userID)
		c["aud"] = aud
		_, err := a.checkSession(a.sign(t, jose.SignHeader{KID: "k1"}, c))
		requireProblem(t, err, problem.InvalidGrant, "poppy-0.1/4.2#d5")
	}
}

func TestPK02_AudienceArrays(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#16", "poppy-0.1/4.2#d5", "poppy-0.1/4.2#53", "poppy-0.1/4.1#d4")
	foreign := []any{tokenEndpoint, "https://other.example/oauth/token"}
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			k.requireRefused(t, k.assertion(t, "aud", foreign))
			if k.name == "session" {
				k.requireRefused(t, k.assertion(t, "aud", []any{tokenEndpoint}))
			}
		})
	}
}

func TestPK11_SignaturesThatProveNothing(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#d10", "poppy-0.1/4.1#14", "poppy-0.1/4.2#21", "poppy-0.1/4.2#22", "poppy-0.1/4.2#6", "poppy-0.1/4.2#53")
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			good := strings.Split(k.assertion(t, "jti", jti), ".")
			altered := strings.Split(k.assertion(t, "jti", jti+"x"), ".")
			other := newAgent(t)
			stranger := other.sign(t, jose.SignHeader{KID: "k1"}, k.claims(k.sub))
			none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"k1"}`))
			hmac := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"k1"}`))
			for name, raw := range map[string]string{
				"alg none, no signature": none + "." + good[1] + ".",
				"alg none":               none + "." + good[1] + "." + good[2],
				"HS256":                  hmac + "." + good[1] + "." + good[2],
				"payload altered":        good[0] + "." + altered[1] + "." + good[2],
				"empty signature":        good[0] + "." + good[1] + ".",
				"signature of another":   good[0] + "." + good[1] + "." + altered[2],
				"key of another":         stranger,
				"key in the header":      other.sign(t, jose.SignHeader{EmbedKey: true}, k.claims(k.sub)),
				"empty":                  "",
				"not a JWT":              "hello",
				"oversized":              strings.Repeat(".", 1<<20),
				"payload not an object":  mustSign(t, k.agent, `[]`),
				"payload repeats sub":    mustSign(t, k.agent, `{"sub":"a","sub":"b"}`),
				"payload with NUL":       mustSign(t, k.agent, `{"sub":"a\u0000"}`),
			} {
				t.Run(name, func(t *testing.T) { k.requireRefused(t, raw) })
			}
		})
	}
}

func mustSign(t *testing.T, a *agent, payload string) string {
	t.Helper()
	raw, err := a.signer.Sign(jose.SignHeader{KID: "k1"}, []byte(payload))
	require.NoError(t, err)
	return raw
}

func TestCheckAssertions_UnknownKidIsTold(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#d9")
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			_, err := k.check(k.sign(t, jose.SignHeader{KID: "k2"}, k.claims(k.sub)))
			require.ErrorIs(t, err, jose.ErrUnknownKID)
			require.True(t, problem.Is(err, k.reason))
			_, err = k.check(newAgent(t).sign(t, jose.SignHeader{KID: "k1"}, k.claims(k.sub)))
			require.NotErrorIs(t, err, jose.ErrUnknownKID)
		})
	}
}

func TestCheckAssertions_WithoutKid(t *testing.T) {
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			k.requirePasses(t, k.sign(t, jose.SignHeader{}, k.claims(k.sub)))
		})
	}
}

func TestPK13_Lifetimes(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#d8", "poppy-0.1/4.2#d8", "poppy-0.1/4.2#17", "poppy-0.1/4.2#18")
	clausetest.Refuses(t, "poppy-0.1/4.1#d8", "poppy-0.1/4.2#d8", "poppy-0.1/4.2#17", "poppy-0.1/4.2#18")
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			now := k.now.Unix()
			at := func(iat, exp int64) string {
				c := k.claims(k.sub)
				c["iat"], c["exp"] = iat, exp
				return k.sign(t, jose.SignHeader{KID: "k1"}, c)
			}
			for name, raw := range map[string]string{
				"longest lifetime":       at(now, now+300),
				"shortest lifetime":      at(now, now+1),
				"clock ahead by 30 s":    at(now+30, now+90),
				"expired within skew":    at(now-100, now-29),
				"nbf within skew":        k.assertion(t, "nbf", now+30),
				"nbf in the past":        k.assertion(t, "nbf", now-10),
				"fractions of a second":  k.assertion(t, "iat", float64(now)-0.5),
				"unknown claims present": k.assertion(t, "future", map[string]any{"a": 1}),
			} {
				t.Run(name, func(t *testing.T) { k.requirePasses(t, raw) })
			}
			for name, raw := range map[string]string{
				"lives a day":           at(now, now+86400),
				"lives ten years":       at(now, now+315360000),
				"lives 301 s":           at(now, now+301),
				"backdated, lives on":   at(now-301, now+60),
				"no exp":                k.assertion(t, "exp", nil),
				"no iat":                k.assertion(t, "iat", nil),
				"exp not a number":      k.assertion(t, "exp", "1790900060"),
				"iat not a number":      k.assertion(t, "iat", "1790900000"),
				"iat negative":          at(-1, now+60),
				"iat far in the future": at(now+600, now+660),
				"iat beyond skew":       at(now+31, now+60),
				"nbf in the future":     k.assertion(t, "nbf", now+600),
				"nbf beyond skew":       k.assertion(t, "nbf", now+31),
				"nbf not a number":      k.assertion(t, "nbf", "soon"),
				"exp before iat":        at(now, now-1),
				"exp equal to iat":      at(now, now),
				"expired":               at(now-90, now-30),
			} {
				t.Run(name, func(t *testing.T) { k.requireRefused(t, raw) })
			}
		})
	}
}

func TestPK16_IssuerAndSubjectOfTheClientAssertion(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#14")
	a := newAgent(t)
	for _, c := range []struct {
		name, iss, sub, client string
	}{
		{"sub is not iss", clientID, userID, clientID},
		{"iss is not client_id", "https://other.example/agent.json", clientID, clientID},
		{"another client_id", clientID, clientID, "https://other.example/agent.json"},
		{"other spelling", "https://Agent.example/agent.json", "https://Agent.example/agent.json", clientID},
		{"empty", "", "", clientID},
	} {
		t.Run(c.name, func(t *testing.T) {
			claims := a.claims(c.sub)
			claims["iss"] = c.iss
			raw := a.sign(t, jose.SignHeader{KID: "k1"}, claims)
			_, err := oauth.CheckClientAssertion(raw, a.keys, c.client, []string{tokenEndpoint}, a.now)
			requireProblem(t, err, problem.InvalidClient, "RFC7523/3")
		})
	}
}

func TestCheckSessionAssertion_IssuerIsTheAuthenticatedClient(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#14", "poppy-0.1/4.2#23")
	a := newAgent(t)
	for _, iss := range []any{"https://other.example/agent.json", "", nil, 7} {
		c := a.claims(userID)
		c["iss"] = iss
		_, err := a.checkSession(a.sign(t, jose.SignHeader{KID: "k1"}, c))
		requireProblem(t, err, problem.InvalidGrant, "poppy-0.1/4.2#23")
	}
}

func TestCheckSessionAssertion_UserID(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#15")
	clausetest.Refuses(t, "poppy-0.1/4.2#15")
	a := newAgent(t)
	for _, sub := range []string{"a", "usr_Q7c1vK", "Zoë 7", strings.Repeat("é", 256), "\U0001F33C"} {
		v, err := a.checkSession(a.sign(t, jose.SignHeader{KID: "k1"}, a.claims(sub)))
		require.NoError(t, err)
		require.Equal(t, sub, v.UserID())
	}
	for _, sub := range []any{"", nil, 7, strings.Repeat("a", 257), "a\nb", "a\u007fb", "a\u202eb", "a\u200bb", "\ufffd"} {
		c := a.claims("")
		c["sub"] = sub
		_, err := a.checkSession(a.sign(t, jose.SignHeader{KID: "k1"}, c))
		requireProblem(t, err, problem.InvalidGrant, oauth.UserIDClaim)
	}
	requireProblem(t, oauth.CheckUserID("a\x00b"), problem.InvalidGrant, oauth.UserIDClaim)
	requireProblem(t, oauth.CheckUserID("a\xff"), problem.InvalidGrant, oauth.UserIDClaim)
}

func TestCheckAssertions_LengthOfJTI(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#d7", "poppy-0.1/4.2#d7")
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			k.requirePasses(t, k.assertion(t, "jti", strings.Repeat("a", 16)))
			k.requirePasses(t, k.assertion(t, "jti", strings.Repeat("é", 256)))
			for _, bad := range []any{strings.Repeat("a", 15), strings.Repeat("a", 257), "", nil, 1234567890123456} {
				k.requireRefused(t, k.assertion(t, "jti", bad))
			}
		})
	}
}

func TestCheckAssertions_TypesOfTokens(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#d6")
	clausetest.Refuses(t, "poppy-0.1/4.2#d6", "poppy-0.1/4.2#53", "poppy-0.1/4.3#d6")
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			for _, typ := range []string{"", "JWT", "jwt"} {
				k.requirePasses(t, k.sign(t, jose.SignHeader{KID: "k1", Typ: typ}, k.claims(k.sub)))
			}
			for _, typ := range []string{"dpop+jwt", "poppy-browser+jwt", "at+jwt", "JWT ", "application/jwt"} {
				k.requireRefused(t, k.sign(t, jose.SignHeader{KID: "k1", Typ: typ}, k.claims(k.sub)))
			}
			proof, err := dpop.BuildProof(k.signer, dpop.ProofClaims{JTI: jti, Method: "POST", URL: tokenEndpoint, IssuedAt: k.now})
			require.NoError(t, err)
			k.requireRefused(t, proof)
		})
	}
}

func TestCheckAssertions_NeverInEachOthersPlace(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#d6")
	a := newAgent(t)
	_, err := a.checkSession(a.sign(t, jose.SignHeader{KID: "k1"}, a.claims(clientID)))
	requireProblem(t, err, problem.InvalidGrant, "poppy-0.1/4.2#d6")
	_, err = a.checkClient(a.sign(t, jose.SignHeader{KID: "k1"}, a.claims(userID)))
	requireProblem(t, err, problem.InvalidClient, "RFC7523/3")
}

func TestCheckDistinctAssertions_OneJWTForBoth(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#d6")
	clausetest.Refuses(t, "poppy-0.1/4.2#d6")
	a := newAgent(t)
	client := a.sign(t, jose.SignHeader{KID: "k1"}, a.claims(clientID))
	require.NoError(t, oauth.CheckDistinctAssertions(client, a.sign(t, jose.SignHeader{KID: "k1"}, a.claims(userID))))
	requireProblem(t, oauth.CheckDistinctAssertions(client, client), problem.InvalidGrant, "poppy-0.1/4.2#d6")

	// The other signature of the same JWT: s replaced by the order of the curve minus s.
	cut := strings.LastIndexByte(client, '.') + 1
	sig, err := base64.RawURLEncoding.DecodeString(client[cut:])
	require.NoError(t, err)
	order, _ := new(big.Int).SetString("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)
	order.Sub(order, new(big.Int).SetBytes(sig[32:])).FillBytes(sig[32:])
	twin := client[:cut] + base64.RawURLEncoding.EncodeToString(sig)
	_, err = a.checkClient(twin)
	require.NoError(t, err, "the premise of the check")
	requireProblem(t, oauth.CheckDistinctAssertions(client, twin), problem.InvalidGrant, "poppy-0.1/4.2#d6")
}

func FuzzCheckAssertions(f *testing.F) {
	a := newAgent(f)
	f.Add(a.sign(f, jose.SignHeader{KID: "k1", Typ: "JWT"}, a.claims(clientID)))
	f.Add(a.sign(f, jose.SignHeader{}, a.claims(userID)))
	f.Add("..")
	f.Fuzz(func(t *testing.T, raw string) {
		if _, err := a.checkClient(raw); err != nil {
			require.True(t, problem.Is(err, problem.InvalidClient))
		}
		if _, err := a.checkSession(raw); err != nil {
			require.True(t, problem.Is(err, problem.InvalidGrant))
		}
	})
}
