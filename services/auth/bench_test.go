package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/services/auth"
)

// BenchmarkSessionStart is a whole token request: HTTP, agent, three signatures,
// internal gRPC, replay memory and database. Compare it with BenchmarkSessionStartFloor.
func BenchmarkSessionStart(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchmarkStart(b, dbtest.SQLite(b)) })
	b.Run("postgres", func(b *testing.B) { benchmarkStart(b, dbtest.Postgres(b)) })
}

func benchmarkStart(b *testing.B, d *db.DB) {
	b.Helper()
	r := newRig(b, d, auth.Config{RequestsPerMinute: -1})
	r.ok(b, r.start(b)) // the agent's documents are known from here on
	requests := make([]*http.Request, b.N)
	for i := range requests { // signing is the agent's work
		q := r.start(b)
		requests[i] = httptest.NewRequestWithContext(b.Context(), http.MethodPost, q.url, strings.NewReader(q.form.Encode()))
		requests[i].Header.Set("Content-Type", q.contentType)
		requests[i].Header.Set("DPoP", q.proofs[0])
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, req := range requests {
		w := httptest.NewRecorder()
		r.web.ServeHTTP(w, req)
		if w.Code != http.StatusOK {
			b.Fatal(w.Body.String())
		}
	}
}

// BenchmarkSessionStartFloor is what no implementation can save: three ES256 verifications.
func BenchmarkSessionStartFloor(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b, err)
	digest := sha256.Sum256([]byte("a signing input"))
	sig, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		for range 3 {
			if !ecdsa.VerifyASN1(&key.PublicKey, digest[:], sig) {
				b.Fatal("signature does not verify")
			}
		}
	}
}
