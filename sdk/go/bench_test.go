package poppy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A request is judged on all processors; each proof is good once, so that they are made before.
func BenchmarkVerify_Local(b *testing.B) {
	r := newRig(b, nil)
	r.known.learn(b.Context(), r.api, r.cfg, r.token)
	requests := make([]Request, b.N)
	for i := range requests {
		requests[i] = r.request(b, "GET", "/orders/7")
	}
	var next atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			d, ok := r.local(requests[next.Add(1)-1])
			if !ok || !d.Allowed {
				b.Error("a right request was not served here")
				return
			}
		}
	})
}

func BenchmarkFloorES256Verify(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b, err)
	digest := sha256.Sum256([]byte("a signing input"))
	sig, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	require.NoError(b, err)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !ecdsa.VerifyASN1(&key.PublicKey, digest[:], sig) {
				b.Error("the signature does not verify")
				return
			}
		}
	})
}
