package jose_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// signers returns one Signer for each algorithm.
func signers(t testing.TB) map[jose.Alg]*jose.Signer {
	t.Helper()
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	out := make(map[jose.Alg]*jose.Signer)
	for _, s := range []crypto.Signer{p256, p384, ed, rsaKey} {
		signer, err := jose.NewSigner(s)
		require.NoError(t, err)
		out[signer.Alg()] = signer
	}
	out[jose.PS256], err = out[jose.RS256].WithPSS()
	require.NoError(t, err)
	return out
}

func es256(t testing.TB) *jose.Signer {
	t.Helper()
	s, err := jose.GenerateSigner()
	require.NoError(t, err)
	return s
}

func sign(t testing.TB, s *jose.Signer, h jose.SignHeader, payload string) string {
	t.Helper()
	raw, err := s.Sign(h, []byte(payload))
	require.NoError(t, err)
	return raw
}

func parse(t testing.TB, raw string) *jose.JWS {
	t.Helper()
	jws, err := jose.ParseJWS(raw)
	require.NoError(t, err)
	return &jws
}

// unsigned makes a compact JWS with a header of the test's choice and no valid signature.
func unsigned(header string) string {
	return fmt.Sprintf("%s.%s.%s", b64(header), b64(`{}`), b64("signature"))
}

func keySet(t testing.TB, jwks ...[]byte) jose.KeySet {
	t.Helper()
	set, err := jose.ParseKeySet(jose.PublicKeySet(jwks...))
	require.NoError(t, err)
	return set
}
