package dpop_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

// proofForBench is a proof as a conversation request has it: with ath and a nonce.
func proofForBench(tb testing.TB) (string, dpop.Request, time.Time, dpop.Policy) {
	tb.Helper()
	signer, err := jose.GenerateSigner()
	require.NoError(tb, err)
	req := dpop.Request{
		Method:        "POST",
		URL:           "https://api.example.com/poppy/conversations/cnv_8f3Kd2/messages",
		TokenHash:     dpop.TokenHash("st_3x4mpl3"),
		KeyThumbprint: signer.Thumbprint(),
	}
	const nonce = "0S6_WzA2MjK8c1Vd7Ge5Ht3Iu9Jy4Lx6Mn0Pb2Qr8So"
	now := time.Unix(1790900000, 0)
	raw, err := dpop.BuildProof(signer, dpop.ProofClaims{
		JTI: "V6vJGs2ixBAvGdaQgGaTzg", Method: req.Method, URL: req.URL,
		IssuedAt: now, TokenHash: req.TokenHash, Nonce: nonce,
	})
	require.NoError(tb, err)
	return raw, req, now, dpop.Policy{NonceRequired: true, Nonces: []string{"9T7_XaB3Nk4Uv2Lp8Qs1Rd6Yf0Gh5Jm7Zc3Wb9Ea4Xo", nonce}}
}

func BenchmarkCheckProof_ES256(b *testing.B) {
	raw, req, now, policy := proofForBench(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := dpop.CheckProof(raw, req, now, policy); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBareES256Verify is the part of a check that no implementation can save.
func BenchmarkBareES256Verify(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b, err)
	digest := sha256.Sum256([]byte("a signing input"))
	sig, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if !ecdsa.VerifyASN1(&key.PublicKey, digest[:], sig) {
			b.Fatal("signature does not verify")
		}
	}
}

// The allocations of a check are part of its contract: it runs for every request.
func TestCheckProof_AllocatesLittle(t *testing.T) {
	raw, req, now, policy := proofForBench(t)
	allocs := testing.AllocsPerRun(200, func() {
		if _, err := dpop.CheckProof(raw, req, now, policy); err != nil {
			t.Fatal(err)
		}
	})
	require.LessOrEqual(t, allocs, 20.0)
}
