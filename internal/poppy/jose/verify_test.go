package jose_test

import (
	"encoding/base64"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

func TestKey_VerifyRefusesForgeries(t *testing.T) {
	for alg, s := range signers(t) {
		t.Run(string(alg), func(t *testing.T) {
			raw := sign(t, s, jose.SignHeader{EmbedKey: true}, `{"sub":"a"}`)
			key := parse(t, raw).Header.Key
			parts := strings.Split(raw, ".")
			sig, err := base64.RawURLEncoding.DecodeString(parts[2])
			require.NoError(t, err)
			sig[len(sig)/2] ^= 1
			for name, forged := range map[string]string{
				"payload altered":   parts[0] + "." + b64(`{"sub":"b"}`) + "." + parts[2],
				"empty signature":   parts[0] + "." + parts[1] + ".",
				"signature altered": parts[0] + "." + parts[1] + "." + b64(string(sig)),
				"signature cut":     parts[0] + "." + parts[1] + "." + b64(string(sig[:len(sig)-1])),
				"signature longer":  parts[0] + "." + parts[1] + "." + b64(string(sig)+"\x00"),
				"zeros":             parts[0] + "." + parts[1] + "." + b64(strings.Repeat("\x00", len(sig))),
			} {
				require.ErrorIs(t, key.VerifyJWS(parse(t, forged)), jose.ErrSignature, name)
			}
		})
	}
}

// A signature with r or s in fewer bytes than the field has must verify too.
func TestKey_VerifyShortIntegers(t *testing.T) {
	s := es256(t)
	short := 0
	for i := 0; short < 2 && i < 5000; i++ {
		jws := parse(t, sign(t, s, jose.SignHeader{EmbedKey: true}, fmt.Sprint(i)))
		require.NoError(t, jws.Header.Key.VerifyJWS(jws))
		if raw := jws.SignatureForTest(); raw[0] == 0 || raw[32] == 0 {
			short++
		}
	}
	require.Positive(t, short)
}

func TestKeySet_ASN1SignatureRefused(t *testing.T) {
	s := es256(t)
	raw := sign(t, s, jose.SignHeader{EmbedKey: true}, `{}`)
	jws := parse(t, raw)
	sig := jws.SignatureForTest()
	der := append([]byte{0x30, 0x44, 0x02, 0x20}, sig[:32]...)
	der = append(append(der, 0x02, 0x20), sig[32:]...)
	require.ErrorIs(t, jws.Header.Key.Verify(jose.ES256, jws.SigningInput(), der), jose.ErrSignature)
	order, _ := new(big.Int).SetString("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)
	over := append(order.FillBytes(make([]byte, 32)), sig[32:]...)
	require.ErrorIs(t, jws.Header.Key.Verify(jose.ES256, jws.SigningInput(), over), jose.ErrSignature)
}

func TestKeySet_KidSelectsTheKey(t *testing.T) {
	a, b := es256(t), es256(t)
	set := keySet(t, a.PublicJWK("a"), b.PublicJWK("b"))
	key, err := set.Verify(parse(t, sign(t, b, jose.SignHeader{KID: "b"}, `{}`)))
	require.NoError(t, err)
	require.Equal(t, b.Thumbprint(), key.Thumbprint())
	require.Equal(t, "b", key.KID())
}

func TestKeySet_KidOfAnotherKeyRefused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#d9")
	a, b := es256(t), es256(t)
	set := keySet(t, a.PublicJWK("a"), b.PublicJWK("b"), a.PublicJWK(""))
	_, err := set.Verify(parse(t, sign(t, a, jose.SignHeader{KID: "b"}, `{}`)))
	require.ErrorIs(t, err, jose.ErrSignature)
	_, err = set.Verify(parse(t, sign(t, a, jose.SignHeader{KID: "c"}, `{}`)))
	require.ErrorIs(t, err, jose.ErrUnknownKID)
	_, err = jose.KeySet{}.Verify(parse(t, sign(t, a, jose.SignHeader{KID: "a"}, `{}`)))
	require.ErrorIs(t, err, jose.ErrUnknownKID)
}

func TestKeySet_RepeatedKidTriesEach(t *testing.T) {
	all := signers(t)
	a, b := es256(t), es256(t)
	set := keySet(t, all[jose.EdDSA].PublicJWK("k"), a.PublicJWK("k"), b.PublicJWK("k"))
	key, err := set.Verify(parse(t, sign(t, b, jose.SignHeader{KID: "k"}, `{}`)))
	require.NoError(t, err)
	require.Equal(t, b.Thumbprint(), key.Thumbprint())
	_, err = set.Verify(parse(t, sign(t, all[jose.RS256], jose.SignHeader{KID: "k"}, `{}`)))
	require.ErrorIs(t, err, jose.ErrNoKey, "the kid is known, but no key of it fits")
}

func TestKeySet_WithoutKidTriesTenFittingKeys(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#d9")
	all := signers(t)
	var jwks [][]byte
	for i := range 9 {
		jwks = append(jwks, es256(t).PublicJWK(fmt.Sprint(i)), all[jose.RS256].PublicJWK(""))
	}
	last := es256(t)
	set := keySet(t, append(jwks, last.PublicJWK("last"))...)
	_, err := set.Verify(parse(t, sign(t, last, jose.SignHeader{}, `{}`)))
	require.NoError(t, err, "the tenth that fits")
	set = keySet(t, append(jwks, es256(t).PublicJWK(""), last.PublicJWK("last"))...)
	_, err = set.Verify(parse(t, sign(t, last, jose.SignHeader{}, `{}`)))
	require.ErrorIs(t, err, jose.ErrSignature, "the eleventh that fits")
	_, err = set.Verify(parse(t, sign(t, all[jose.EdDSA], jose.SignHeader{}, `{}`)))
	require.ErrorIs(t, err, jose.ErrNoKey)
}

func TestParseKeySet_LeavesOutWhatItCannotUse(t *testing.T) {
	s := es256(t)
	set := keySet(t,
		[]byte(`{"kty":"future","kid":"s"}`), []byte(`{"kty":"EC"}`), []byte(`{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}`),
		[]byte(strings.Replace(ecKey, `"kty"`, `"use":"enc","kid":"s","kty"`, 1)), []byte(`"no key"`), s.PublicJWK("s"))
	require.Equal(t, 1, set.Len())
	_, err := set.Verify(parse(t, sign(t, s, jose.SignHeader{KID: "s"}, `{}`)))
	require.NoError(t, err)
	require.Zero(t, keySet(t).Len())
}

func TestPK10_PrivateKeyRefusesTheWholeSet(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#10", "poppy-0.1/4.1#d9")
	good := es256(t).PublicJWK("a")
	for _, bad := range []string{ecKey[:len(ecKey)-1] + `,"d":"AA"}`, `{"kty":"oct","k":"c2VjcmV0"}`, `{"kty":"future","use":"enc","d":"AA"}`} {
		_, err := jose.ParseKeySet(jose.PublicKeySet(good, []byte(bad)))
		require.ErrorIs(t, err, jose.ErrPrivateKey)
	}
}

func TestParseKeySet_Refuses(t *testing.T) {
	for name, doc := range map[string]string{
		"not JSON": `{"keys":[`, "an array": `[]`, "no keys": `{}`, "keys not an array": `{"keys":{}}`,
		"repeated keys": `{"keys":[],"keys":[]}`, "html": `<html>`,
	} {
		_, err := jose.ParseKeySet([]byte(doc))
		require.ErrorIs(t, err, jose.ErrMalformedSet, name)
	}
	_, err := jose.ParseKeySet([]byte(`{"keys":[]}` + strings.Repeat(" ", jose.MaxKeySet)))
	require.ErrorIs(t, err, jose.ErrTooLarge)
	_, err = jose.ParseKeySet([]byte(`{"keys":[` + strings.Repeat(`{},`, 100) + `{}]}`))
	require.ErrorIs(t, err, jose.ErrTooLarge)
}

func FuzzParseKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[` + ecKey + `,` + edKey + `,` + rfc7638Key + `]}`))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AA"}]}`))
	f.Add([]byte(`{"keys":[]}`))
	raw := sign(f, es256(f), jose.SignHeader{}, `{}`)
	f.Fuzz(func(t *testing.T, doc []byte) {
		set, err := jose.ParseKeySet(doc)
		if err != nil {
			return
		}
		_, err = set.Verify(parse(t, raw))
		require.Error(t, err, "a key that nobody published verified")
	})
}
