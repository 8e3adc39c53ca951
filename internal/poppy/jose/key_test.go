package jose_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

// The example key of RFC 7638 §3.1, whose thumbprint is given there.
const rfc7638Key = `{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQAB","alg":"RS256","kid":"2011-04-29"}`

// Keys of RFC 7517 Appendix A.1 and RFC 8037 Appendix A.2.
const (
	ecKey = `{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}`
	edKey = `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`
)

func TestKey_Thumbprint(t *testing.T) {
	for doc, want := range map[string]string{
		rfc7638Key: "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs",
		edKey:      "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k", // RFC 8037 Appendix A.3
		ecKey:      "cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s",
	} {
		key, err := jose.ParseKey([]byte(doc))
		require.NoError(t, err)
		require.Equal(t, want, key.Thumbprint())
	}
}

func TestParseKey_AlgorithmRestriction(t *testing.T) {
	key, err := jose.ParseKey([]byte(rfc7638Key))
	require.NoError(t, err)
	require.Equal(t, "2011-04-29", key.KID())
	require.True(t, key.Fits(jose.RS256))
	require.False(t, key.Fits(jose.PS256), "the key says alg RS256")
	require.False(t, key.Fits("HS256"))
	free, err := jose.ParseKey([]byte(strings.Replace(rfc7638Key, `"alg":"RS256",`, "", 1)))
	require.NoError(t, err)
	require.True(t, free.Fits(jose.PS256))
	require.ErrorIs(t, free.Verify(jose.ES256, nil, nil), jose.ErrKeyMismatch)
}

func TestDP21_PrivateKeysAreRefused(t *testing.T) {
	for _, member := range []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"} {
		for _, doc := range []string{ecKey, edKey, rfc7638Key, `{"kty":"future"}`} {
			_, err := jose.ParseKey([]byte(doc[:len(doc)-1] + `,"` + member + `":"AQAB"}`))
			require.ErrorIs(t, err, jose.ErrPrivateKey, member)
		}
	}
	_, err := jose.ParseKey([]byte(`{"kty":"oct"}`))
	require.ErrorIs(t, err, jose.ErrPrivateKey)
	_, err = jose.ParseJWS(unsigned(`{"alg":"ES256","jwk":` + ecKey[:len(ecKey)-1] + `,"d":"AA"}}`))
	require.ErrorIs(t, err, jose.ErrPrivateKey)
}

func TestParseKey_Refuses(t *testing.T) {
	replace := func(doc, old, with string) string {
		require.Contains(t, doc, old)
		return strings.Replace(doc, old, with, 1)
	}
	rsaOf := func(bits int, e string) string {
		n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
		return `{"kty":"RSA","n":"` + base64.RawURLEncoding.EncodeToString(n.SetBit(n, 0, 1).Bytes()) + `","e":"` + e + `"}`
	}
	for _, c := range []struct {
		name, doc string
		want      error
	}{
		{"not JSON", `{`, jose.ErrMalformedKey},
		{"not an object", `"x"`, jose.ErrMalformedKey},
		{"repeated member", `{"kty":"EC","kty":"RSA"}`, jose.ErrMalformedKey},
		{"no kty", `{}`, jose.ErrMalformedKey},
		{"unknown kty", `{"kty":"AKP","alg":"ES256"}`, jose.ErrUnsupportedKey},
		{"kid not a string", replace(ecKey, `"kty"`, `"kid":1,"kty"`), jose.ErrMalformedKey},
		{"for encryption", replace(ecKey, `"kty"`, `"use":"enc","kty"`), jose.ErrUnsupportedKey},
		{"may not verify", replace(ecKey, `"kty"`, `"key_ops":["sign"],"kty"`), jose.ErrUnsupportedKey},
		{"unknown alg", replace(ecKey, `"kty"`, `"alg":"ECDH-ES","kty"`), jose.ErrUnsupportedKey},
		{"alg of another type", replace(ecKey, `"kty"`, `"alg":"RS256","kty"`), jose.ErrMalformedKey},
		{"alg of another curve", replace(ecKey, `"kty"`, `"alg":"ES384","kty"`), jose.ErrMalformedKey},
		{"curve P-521", replace(ecKey, "P-256", "P-521"), jose.ErrUnsupportedKey},
		{"curve secp256k1", replace(ecKey, "P-256", "secp256k1"), jose.ErrUnsupportedKey},
		{"no curve", replace(ecKey, `"crv"`, `"cvr"`), jose.ErrMalformedKey},
		{"no y", replace(ecKey, `"y"`, `"Y"`), jose.ErrMalformedKey},
		{"short coordinate", replace(ecKey, "MKBC", ""), jose.ErrMalformedKey},
		{"long coordinate", replace(ecKey, "MKBC", "AAAAMKBC"), jose.ErrMalformedKey},
		{"padded coordinate", replace(ecKey, "7D4", "7D4="), jose.ErrMalformedKey},
		{"stray bits", replace(ecKey, "7D4", "7D5"), jose.ErrMalformedKey},
		{"point off the curve", replace(ecKey, "4Etl", "5Etl"), jose.ErrWeakKey},
		{"point of zeros", `{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("A", 43) + `","y":"` + strings.Repeat("A", 43) + `"}`, jose.ErrWeakKey},
		{"X25519", replace(edKey, "Ed25519", "X25519"), jose.ErrUnsupportedKey},
		{"Ed448", replace(edKey, "Ed25519", "Ed448"), jose.ErrUnsupportedKey},
		{"no OKP curve", replace(edKey, `"crv"`, `"cvr"`), jose.ErrMalformedKey},
		{"short Ed25519", replace(edKey, "11qY", ""), jose.ErrMalformedKey},
		{"RSA without e", replace(rfc7638Key, `"e"`, `"E"`), jose.ErrMalformedKey},
		{"RSA with leading zeros", replace(rfc7638Key, `"n":"0vx7`, `"n":"AAAA0vx7`), jose.ErrMalformedKey},
		{"RSA exponent with leading zeros", replace(rfc7638Key, "AQAB", "AAEAAQ"), jose.ErrMalformedKey},
		{"RSA of 1024 bits", rsaOf(1024, "AQAB"), jose.ErrWeakKey},
		{"RSA of 2047 bits", rsaOf(2047, "AQAB"), jose.ErrWeakKey},
		{"RSA of 8193 bits", rsaOf(8193, "AQAB"), jose.ErrWeakKey},
		{"RSA with e 1", rsaOf(2048, "AQ"), jose.ErrWeakKey},
		{"RSA with even e", rsaOf(2048, "BA"), jose.ErrWeakKey},
		{"RSA with huge e", rsaOf(2048, "AQAAAAE"), jose.ErrWeakKey},
		{"RSA with e of 32 bits", rsaOf(2048, "gAAAAQ"), jose.ErrWeakKey},
		{"too large", strings.Repeat(" ", jose.MaxJWT) + ecKey, jose.ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := jose.ParseKey([]byte(c.doc))
			require.ErrorIs(t, err, c.want)
		})
	}
	for _, bits := range []int{2048, 8192} {
		_, err := jose.ParseKey([]byte(rsaOf(bits, "AQAB")))
		require.NoError(t, err)
	}
}

// Under the identity as key, one signature verifies for every message.
func TestParseKey_LowOrderEd25519Refused(t *testing.T) {
	identity := make([]byte, ed25519.PublicKeySize)
	identity[0] = 1
	forged := append(append([]byte(nil), identity...), make([]byte, 32)...)
	require.True(t, ed25519.Verify(identity, []byte("any message"), forged), "the premise of the check")
	for _, encoded := range []string{
		"0100000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000080",
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0000000000000000000000000000000000000000000000000000000000000080",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
		"f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		key, err := hex.DecodeString(encoded)
		require.NoError(t, err)
		_, err = jose.ParseKey([]byte(`{"kty":"OKP","crv":"Ed25519","x":"` + base64.RawURLEncoding.EncodeToString(key) + `"}`))
		require.ErrorIs(t, err, jose.ErrWeakKey, encoded)
	}
}

func TestNewSigner_RefusesOtherKeys(t *testing.T) {
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	require.NoError(t, err)
	_, err = jose.NewSigner(p521)
	require.ErrorIs(t, err, jose.ErrSigner)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	_, err = jose.NewSigner(small)
	require.ErrorIs(t, err, jose.ErrSigner)
	_, err = es256(t).WithPSS()
	require.ErrorIs(t, err, jose.ErrKeyMismatch)
}

func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{ecKey, edKey, rfc7638Key, `{"kty":"oct","k":"AA"}`, `{"kty":"EC","crv":"P-384","x":"","y":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		key, err := jose.ParseKey(raw)
		if err != nil {
			return
		}
		require.Len(t, key.Thumbprint(), 43)
		for _, alg := range jose.Algs() {
			require.Error(t, key.Verify(jose.Alg(alg), []byte("input"), make([]byte, 64)))
		}
	})
}
