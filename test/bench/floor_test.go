package bench_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver of `poppyfield dev`
)

// floor is what a turn can't do without: a connection, a key pair, a durable table.
type floor struct {
	w       world
	private *ecdsa.PrivateKey
	digest  [32]byte
	sig     []byte
	rows    *sql.DB
	url     string
}

// newFloor serves a static answer over TLS that costs the given signature checks and
// durable commits each time.
func newFloor(b *testing.B, size, verifications, commits int) *floor {
	b.Helper()
	f := &floor{digest: sha256.Sum256([]byte("signed"))}
	var err error
	f.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b, err)
	f.sig = f.sign(b)
	f.rows, err = sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "floor.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, f.rows.Close()) })
	_, err = f.rows.ExecContext(b.Context(), "CREATE TABLE row (id INTEGER PRIMARY KEY, body TEXT)")
	require.NoError(b, err)
	body := strings.Repeat("x", size)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range verifications {
			if !ecdsa.VerifyASN1(&f.private.PublicKey, f.digest[:], f.sig) {
				b.Error("the signature does not verify")
			}
		}
		for range commits {
			if _, err := f.rows.ExecContext(r.Context(), "INSERT INTO row (body) VALUES (?)", body); err != nil {
				b.Error(err)
			}
		}
		answer(body)(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	b.Cleanup(server.Close)
	f.url, f.w.client = server.URL, server.Client()
	return f
}

func (f *floor) sign(b *testing.B) []byte {
	b.Helper()
	sig, err := ecdsa.SignASN1(rand.Reader, f.private, f.digest[:])
	require.NoError(b, err)
	return sig
}

func (f *floor) send(b *testing.B, method, body string) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), method, f.url, strings.NewReader(body))
	require.NoError(b, err)
	_, err = f.w.send(request, http.StatusOK)
	require.NoError(b, err)
}

// BenchmarkFloorDocument is a static answer of a document's size.
func BenchmarkFloorDocument(b *testing.B) {
	f := newFloor(b, 600, 0, 0)
	for b.Loop() {
		f.send(b, http.MethodGet, "")
	}
}

// BenchmarkFloorSessionStart is three signatures made and verified (both assertions
// and the proof) and one commit.
func BenchmarkFloorSessionStart(b *testing.B) {
	f := newFloor(b, 300, 3, 1)
	form := strings.Repeat("x", 1500)
	for b.Loop() {
		for range 3 {
			_ = f.sign(b)
		}
		f.send(b, http.MethodPost, form)
	}
}

// BenchmarkFloorRelayTurn is the agent's POST and read with a proof each, the webhook,
// and two commits: the message with its delivery, and the answer.
func BenchmarkFloorRelayTurn(b *testing.B) {
	post, webhook, read := newFloor(b, 300, 1, 1), newFloor(b, 300, 0, 0), newFloor(b, 600, 1, 1)
	body := strings.Repeat("x", 500)
	for b.Loop() {
		_ = post.sign(b)
		post.send(b, http.MethodPost, body)
		webhook.send(b, http.MethodPost, body)
		_ = read.sign(b)
		read.send(b, http.MethodGet, "")
	}
}
