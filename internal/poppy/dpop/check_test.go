package dpop_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func TestCheckProof_Passes(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#9", "poppy-0.1/4.3#11", "poppy-0.1/4.3#12", "poppy-0.1/4.3#13", "poppy-0.1/4.3#14",
		"poppy-0.1/4.3#18", "poppy-0.1/4.3#19", "poppy-0.1/4.3#20", "poppy-0.1/4.3#21", "poppy-0.1/4.3#23", "poppy-0.1/4.3#d6")
	f := newFixture(t)
	p, err := f.check(f.proof(t, "", nil))
	require.NoError(t, err)
	require.Equal(t, f.signer.Thumbprint(), p.JKT())
	require.Equal(t, "V6vJGs2ixBAvGdaQgGaTzg", p.JTI())
	require.Equal(t, f.now, p.IssuedAt())
	require.Equal(t, f.now.Add(70*time.Second), p.ReplayUntil())
}

func TestCheckProof_BuildProofPasses(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#15", "poppy-0.1/4.3#16", "poppy-0.1/4.3#24")
	f := newFixture(t)
	f.req = dpop.Request{Method: "POST", URL: tokenEndpoint}
	f.policy = dpop.Policy{NonceRequired: true, Nonces: []string{"n1"}}
	raw, err := dpop.BuildProof(f.signer, dpop.ProofClaims{JTI: "1", Method: "POST", URL: tokenEndpoint, IssuedAt: f.now, Nonce: "n1"})
	require.NoError(t, err)
	f.requirePasses(t, raw)
}

func TestTokenHash_ExampleOfTheRFC(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#14")
	require.Equal(t, "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo", dpop.TokenHash("Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"))
}

func TestCheckProof_EveryAlgorithm(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#d10")
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	es384, err := jose.NewSigner(p384)
	require.NoError(t, err)
	eddsa, err := jose.NewSigner(ed)
	require.NoError(t, err)
	rs256, err := jose.NewSigner(rsaKey)
	require.NoError(t, err)
	ps256, err := rs256.WithPSS()
	require.NoError(t, err)
	for _, s := range []*jose.Signer{es384, eddsa, rs256, ps256} {
		f := newFixture(t)
		f.signer, f.req.KeyThumbprint = s, s.Thumbprint()
		f.requirePasses(t, f.proof(t, "", nil))
	}
}

func TestDP05_QueryAndFragmentDoNotCount(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#12", "poppy-0.1/4.3#d2")
	f := newFixture(t)
	for _, htu := range []string{eventsURL, eventsURL + "?cursor=evt_1&wait=5", eventsURL + "#top", eventsURL + "?a#b"} {
		f.requirePasses(t, f.proof(t, "htu", htu))
	}
	f.req.URL = eventsURL + "?cursor=evt_1&wait=5"
	f.requirePasses(t, f.proof(t, "htu", eventsURL))
}

func TestCheckProof_WrongURL(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#20", "poppy-0.1/4.3#12", "poppy-0.1/4.3#d2", "poppy-0.1/4.3#d44")
	f := newFixture(t)
	for _, htu := range []string{
		"http://api.example.com/poppy/conversations/cnv_1/events",
		"https://api.example.com:8443/poppy/conversations/cnv_1/events",
		"https://api.example.com./poppy/conversations/cnv_1/events",
		"https://api.example.org/poppy/conversations/cnv_1/events",
		"https://user@api.example.com/poppy/conversations/cnv_1/events",
		"https://api.example.com/poppy/conversations/cnv_1/events/",
		"https://api.example.com/poppy/conversations/cnv_1/Events",
		"https://api.example.com/poppy/conversations/cnv_1",
		"https://api.example.com/poppy%2Fconversations/cnv_1/events",
		"https://api.example.com//poppy/conversations/cnv_1/events",
		"https://api.example.com/", "https://api.example.com", "/poppy/conversations/cnv_1/events", "not a URL", "https://",
		" " + eventsURL, eventsURL + " ", eventsURL + "%",
	} {
		f.requireRefused(t, f.proof(t, "htu", htu), dpop.Match)
	}
}

func TestCheckProof_URLIsComparedInNormalForm(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#d2")
	f := newFixture(t)
	for _, htu := range []string{
		"HTTPS://API.Example.COM/poppy/conversations/cnv_1/events",
		"https://api.example.com:443/poppy/conversations/cnv_1/events",
		"https://api.example.com:/poppy/conversations/cnv_1/events",
		"https://api.example.com/poppy/x/../conversations/./cnv_1/events",
		"https://api.example.com/../poppy/%63onversations/cnv%5F1/events",
		"https://api.example.com/poppy/x/%2e%2E/conversations/cnv_1/events",
	} {
		f.requirePasses(t, f.proof(t, "htu", htu))
	}
}

func TestCheckProof_WrongMethod(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#20", "poppy-0.1/4.3#11", "poppy-0.1/4.3#d44")
	f := newFixture(t)
	for _, htm := range []string{"GET", "post", "Post", "POST ", "PUT"} {
		f.requireRefused(t, f.proof(t, "htm", htm), dpop.Match)
	}
}

func TestDP20_SymmetricAndUnknownAlgorithmsRefused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#d10")
	f := newFixture(t)
	good := strings.Split(f.proof(t, "", nil), ".")
	head, err := base64.RawURLEncoding.DecodeString(good[0])
	require.NoError(t, err)
	for _, alg := range []string{"none", "NONE", "nOnE", "HS256", "hs256", "HS512", "ES256 ", "", "unknown"} {
		swapped := strings.Replace(string(head), `"ES256"`, `"`+alg+`"`, 1)
		input := base64.RawURLEncoding.EncodeToString([]byte(swapped)) + "." + good[1]
		// The public key, known to everybody, as an HMAC secret.
		mac := hmac.New(sha256.New, f.signer.PublicJWK(""))
		mac.Write([]byte(input))
		for _, sig := range []string{"", good[2], base64.RawURLEncoding.EncodeToString(mac.Sum(nil))} {
			f.requireRefused(t, input+"."+sig, dpop.Algorithm)
		}
	}
}

func TestDP21_PrivateKeyInHeaderRefused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#9", "poppy-0.1/4.3#d44")
	f := newFixture(t)
	parts := strings.Split(f.proof(t, "", nil), ".")
	for name, jwk := range map[string]string{
		"EC":  `{"kty":"EC","crv":"P-256","x":"","y":"","d":"c2VjcmV0LWNhbmFyeQ"}`,
		"RSA": `{"kty":"RSA","n":"AQAB","e":"AQAB","p":"c2VjcmV0LWNhbmFyeQ","q":"AQ"}`,
		"oct": `{"kty":"oct","k":"c2VjcmV0LWNhbmFyeQ"}`,
		"OKP": `{"kty":"OKP","crv":"Ed25519","x":"","d":"c2VjcmV0LWNhbmFyeQ"}`,
	} {
		t.Run(name, func(t *testing.T) {
			head := base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"dpop+jwt","alg":"ES256","jwk":` + jwk + `}`))
			_, err := f.check(head + "." + parts[1] + "." + parts[2])
			requireProblem(t, err, problem.InvalidDPoPProof, dpop.PublicKey)
			require.NotContains(t, err.Error(), "c2VjcmV0")
		})
	}
}

func TestCheckProof_WrongHeader(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#9", "poppy-0.1/4.3#d6")
	f := newFixture(t)
	for _, typ := range []string{"", "JWT", "jwt", "DPoP+JWT", "application/dpop+jwt", "poppy-browser+jwt", "at+jwt"} {
		f.requireRefused(t, f.sign(t, jose.SignHeader{Typ: typ, EmbedKey: true}, f.claims()), dpop.Typ)
	}
	f.requireRefused(t, f.sign(t, jose.SignHeader{Typ: "dpop+jwt", KID: "k"}, f.claims()), dpop.Typ)
}

func TestCheckProof_ForgedSignature(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#18")
	f, other := newFixture(t), newFixture(t)
	mine := strings.Split(f.proof(t, "", nil), ".")
	theirs := strings.Split(other.proof(t, "", nil), ".")
	altered := strings.Split(f.proof(t, "jti", "another"), ".")
	f.requireRefused(t, mine[0]+"."+mine[1]+".", dpop.Signature)
	f.requireRefused(t, mine[0]+"."+mine[1]+"."+theirs[2], dpop.Signature)
	f.requireRefused(t, mine[0]+"."+altered[1]+"."+mine[2], dpop.Signature)
	f.requireRefused(t, theirs[0]+"."+mine[1]+"."+mine[2], dpop.Signature)
}

func TestCheckProof_Malformed(t *testing.T) {
	f := newFixture(t)
	good := f.proof(t, "", nil)
	f.requireRefused(t, "", dpop.Present)
	for _, raw := range []string{".", "..", "a.b.c", good + ".", good + "," + good, good + " ", strings.Repeat("a", jose.MaxJWT+1)} {
		f.requireRefused(t, raw, dpop.WellFormed)
	}
	for _, payload := range []string{`[]`, `{`, `{"jti":"a","jti":"b"}`, `{"jti":"\u0000"}`, "{\"jti\":\"\xff\"}"} {
		raw, err := f.signer.Sign(header(), []byte(payload))
		require.NoError(t, err)
		f.requireRefused(t, raw, dpop.WellFormed)
	}
}

func TestCheckProof_MissingClaims(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#11", "poppy-0.1/4.3#12", "poppy-0.1/4.3#13")
	f := newFixture(t)
	for _, name := range []string{"jti", "htm", "htu", "iat"} {
		f.requireRefused(t, f.proof(t, name, nil), dpop.Claims)
		f.requireRefused(t, f.proof(t, name, ""), dpop.Claims)
		f.requireRefused(t, f.proof(t, name, []string{"x"}), dpop.Claims)
	}
	f.requireRefused(t, f.proof(t, "iat", "1790900000"), dpop.Claims)
	f.requireRefused(t, f.proof(t, "jti", 7), dpop.Claims)
}

func TestCheckProof_LengthOfJTI(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#d7")
	f := newFixture(t)
	for _, jti := range []string{"1", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", strings.Repeat("é", 256)} {
		p, err := f.check(f.proof(t, "jti", jti))
		require.NoError(t, err)
		require.Equal(t, jti, p.JTI())
		require.Equal(t, f.signer.Thumbprint(), p.JKT())
	}
	f.requireRefused(t, f.proof(t, "jti", strings.Repeat("a", 257)), dpop.JTI)
}

func TestCheckProof_WindowOfIat(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#d8", "poppy-0.1/4.3#21")
	clausetest.Refuses(t, "poppy-0.1/4.3#d8", "poppy-0.1/4.3#21")
	f := newFixture(t)
	for _, offset := range []int64{-60, -59, 0, 10} {
		f.requirePasses(t, f.proof(t, "iat", f.now.Unix()+offset))
	}
	for _, offset := range []int64{-86400, -61, 11, 3600} {
		f.requireRefused(t, f.proof(t, "iat", f.now.Unix()+offset), dpop.Window)
	}
	f.requirePasses(t, f.proof(t, "iat", float64(f.now.Unix())-0.5))
	f.policy = dpop.Policy{MaxAge: 5 * time.Second, MaxFuture: time.Second}
	f.requirePasses(t, f.proof(t, "iat", f.now.Unix()-5))
	f.requireRefused(t, f.proof(t, "iat", f.now.Unix()-6), dpop.Window)
	f.requireRefused(t, f.proof(t, "iat", f.now.Unix()+2), dpop.Window)
}

func TestCheckProof_TokenHash(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#23", "poppy-0.1/4.3#14", "poppy-0.1/4.3#d44")
	f := newFixture(t)
	f.requireRefused(t, f.proof(t, "ath", dpop.TokenHash("another token")), dpop.TokenMatch)
	f.requireRefused(t, f.proof(t, "ath", dpop.TokenHash(token)+"="), dpop.TokenMatch)
	f.requireRefused(t, f.proof(t, "ath", ""), dpop.TokenMatch)
	f.requireRefused(t, f.proof(t, "ath", nil), dpop.TokenMatch)
}

func TestCheckProof_KeyOfAnotherToken(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#19", "poppy-0.1/4.3#4", "poppy-0.1/4.3#d44")
	f, other := newFixture(t), newFixture(t)
	f.requireRefused(t, other.proof(t, "", nil), dpop.KeyMatch)
}

func TestDP25_Nonce(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#16", "poppy-0.1/4.3#24")
	clausetest.Refuses(t, "poppy-0.1/4.3#24")
	f := newFixture(t)
	f.requirePasses(t, f.proof(t, "nonce", "not asked for"))
	f.policy = dpop.Policy{NonceRequired: true, Nonces: []string{"current", "previous"}}
	for _, nonce := range []string{"current", "previous"} {
		f.requirePasses(t, f.proof(t, "nonce", nonce))
	}
	for _, nonce := range []any{nil, "", "old", "Current", 7} {
		_, err := f.check(f.proof(t, "nonce", nonce))
		requireProblem(t, err, problem.UseDPoPNonce, dpop.Nonce)
	}
	f.policy.Nonces = []string{""}
	_, err := f.check(f.proof(t, "nonce", ""))
	requireProblem(t, err, problem.UseDPoPNonce, dpop.Nonce)
}

// An agent whose clock is wrong still learns the nonce; one with a wrong htu does not.
func TestCheckProof_OrderOfChecks(t *testing.T) {
	f := newFixture(t)
	f.policy = dpop.Policy{NonceRequired: true, Nonces: []string{"n"}}
	_, err := f.check(f.proof(t, "iat", 1))
	requireProblem(t, err, problem.UseDPoPNonce, dpop.Nonce)
	f.requireRefused(t, f.proof(t, "htu", tokenEndpoint), dpop.Match)
}

func TestParseHeader_OneProof(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#3")
	clausetest.Refuses(t, "poppy-0.1/4.3#d26")
	_, present, err := dpop.ParseHeader(nil)
	require.NoError(t, err)
	require.False(t, present)
	raw, present, err := dpop.ParseHeader([]string{"a.b.c"})
	require.NoError(t, err)
	require.True(t, present)
	require.Equal(t, "a.b.c", raw)
	_, _, err = dpop.ParseHeader([]string{"a.b.c", "a.b.c"})
	requireProblem(t, err, problem.InvalidRequest, dpop.OneHeader)
}

func FuzzCheckProof(f *testing.F) {
	fix := newFixture(f)
	good := fix.proof(f, "", nil)
	f.Add(good)
	f.Add(fix.proof(f, "htu", "HTTPS://API.EXAMPLE.COM:443/%70oppy/./x/../"))
	f.Add(fix.proof(f, "iat", 1.5))
	f.Add("..")
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := fix.check(raw)
		if err == nil {
			require.Equal(t, fix.signer.Thumbprint(), p.JKT(), "a proof that the key never made")
			return
		}
		require.True(t, problem.Is(err, problem.InvalidDPoPProof))
		require.Zero(t, p)
	})
}
