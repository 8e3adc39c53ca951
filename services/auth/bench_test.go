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
	r.bench(b, func() *request { return r.start(b) })
}

// bench measures what is done about requests of ask; making them is the agent's work.
func (r *rig) bench(b *testing.B, ask func() *request) {
	b.Helper()
	requests := make([]*http.Request, b.N)
	for i := range requests {
		q := ask()
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

// BenchmarkCodeExchange is the end of a Direct Sign-In: HTTP, agent, two signatures,
// internal gRPC, replay memory, and a commit that uses the code up and signs in.
// Compare it with BenchmarkExchangeFloor.
func BenchmarkCodeExchange(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchmarkCode(b, dbtest.SQLite(b)) })
	b.Run("postgres", func(b *testing.B) { benchmarkCode(b, dbtest.Postgres(b)) })
}

func benchmarkCode(b *testing.B, d *db.DB) {
	b.Helper()
	r := newSignInRig(b, d)
	r.bench(b, func() *request {
		return r.exchange(b, r.approve(b, r.agent, both, "acc-1"), r.session(b))
	})
}

// BenchmarkRefresh gets a signed-in token of a Session by its Account Token. Compare it
// with BenchmarkExchangeFloor.
func BenchmarkRefresh(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchmarkRefresh(b, dbtest.SQLite(b)) })
	b.Run("postgres", func(b *testing.B) { benchmarkRefresh(b, dbtest.Postgres(b)) })
}

func benchmarkRefresh(b *testing.B, d *db.DB) {
	b.Helper()
	r := newSignInRig(b, d)
	id := r.session(b)
	token := r.signedIn(b, id, both, "acc-1").text("refresh_token")
	r.bench(b, func() *request { return r.refresh(b, token).set("session_id", id) })
}

// BenchmarkSessionStartFloor is what no implementation can save: three ES256 verifications.
func BenchmarkSessionStartFloor(b *testing.B) { benchmarkVerify(b, 3) }

// BenchmarkExchangeFloor is two: the client assertion and the proof.
func BenchmarkExchangeFloor(b *testing.B) { benchmarkVerify(b, 2) }

func benchmarkVerify(b *testing.B, signatures int) {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b, err)
	digest := sha256.Sum256([]byte("a signing input"))
	sig, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		for range signatures {
			if !ecdsa.VerifyASN1(&key.PublicKey, digest[:], sig) {
				b.Fatal("signature does not verify")
			}
		}
	}
}
