package relay_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/migrate"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

// rotate makes a secret of a kind.
func (r *rig) rotate(t testing.TB, kind adminv1.SecretKind, overlap time.Duration) *adminv1.BackendSecret {
	t.Helper()
	got, err := r.backends.RotateBackendSecret(r.ctx(t), &adminv1.RotateBackendSecretRequest{Name: r.name(), Kind: kind, Overlap: durationpb.New(overlap)})
	require.NoError(t, err)
	return got
}

func (r *rig) hmac(t testing.TB, overlap time.Duration) string {
	t.Helper()
	return r.rotate(t, adminv1.SecretKind_SECRET_KIND_HMAC, overlap).GetSecret()
}

// publicKeys are the keys that the Company publishes.
func (r *rig) publicKeys(t testing.TB) []string {
	t.Helper()
	got, err := r.deliveries.ListPublicKeys(r.ctx(t), &relayv1.ListPublicKeysRequest{})
	require.NoError(t, err)
	var out []string
	for _, k := range got.GetKeys() {
		require.True(t, strings.HasPrefix(k.GetId(), "whs_"))
		out = append(out, k.GetPublicKey())
	}
	return out
}

// verifyHMAC checks a delivery by the reference library of Standard Webhooks.
func verifyHMAC(t testing.TB, d delivery, secret string) error {
	t.Helper()
	wh, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	return wh.Verify(d.body, d.header)
}

// verifyEd25519 checks the v1a signatures of a delivery by nothing but the standard library.
func verifyEd25519(t testing.TB, d delivery, public string) bool {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(public, "whpk_"))
	require.NoError(t, err)
	require.Len(t, key, ed25519.PublicKeySize)
	content := append([]byte(d.header.Get("Webhook-Id")+"."+d.header.Get("Webhook-Timestamp")+"."), d.body...)
	for _, s := range signatures(d, "v1a") {
		sig, err := base64.StdEncoding.DecodeString(s)
		require.NoError(t, err)
		if ed25519.Verify(key, content, sig) {
			return true
		}
	}
	return false
}

// signatures returns those of a version, without it.
func signatures(d delivery, version string) []string {
	var out []string
	for _, s := range strings.Split(d.header.Get("Webhook-Signature"), " ") {
		if rest, ok := strings.CutPrefix(s, version+","); ok {
			out = append(out, rest)
		}
	}
	return out
}

func TestSignature_VerifiesByOtherImplementations(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.point(t)
		secret := r.hmac(t, 0)
		require.Regexp(t, `^whsec_[A-Za-z0-9+/]{43}=$`, secret)
		require.Equal(t, answered, r.deliver(t, "evt_1", `{"type":"conversation.message"}`).GetOutcome())
		d := r.site.last(t)
		require.Equal(t, "POST /hook", d.path)
		require.Equal(t, "application/json", d.header.Get("Content-Type"))
		require.Equal(t, "evt_1", d.header.Get("Webhook-Id"))
		require.NoError(t, verifyHMAC(t, d, secret))
		keys := r.publicKeys(t)
		require.Len(t, keys, 1)
		require.True(t, verifyEd25519(t, d, keys[0]))

		// Anything else than what was sent is refused.
		wrong := d
		wrong.body = append([]byte(" "), d.body...)
		require.Error(t, verifyHMAC(t, wrong, secret))
		require.False(t, verifyEd25519(t, wrong, keys[0]))
		wrong = d
		wrong.header = d.header.Clone()
		wrong.header.Set("Webhook-Id", "evt_2")
		require.Error(t, verifyHMAC(t, wrong, secret))
		require.False(t, verifyEd25519(t, wrong, keys[0]))
	})
}

func TestSignature_NoWebhookGoesOutUnsigned(t *testing.T) {
	r := newRig(t)
	r.point(t) // no secret was ever made by hand
	r.deliver(t, "evt_1", `{}`)
	d := r.site.last(t)
	keys := r.publicKeys(t)
	require.Len(t, keys, 1)
	require.Len(t, signatures(d, "v1a"), 1)
	require.True(t, verifyEd25519(t, d, keys[0]))
	require.Empty(t, signatures(d, "v1"))
	r.point(t)
	require.Equal(t, keys, r.publicKeys(t), "a second update makes no further key")
}

func TestWH15_Signature_OverTheBytesAsSent(t *testing.T) {
	r := newRig(t)
	r.point(t)
	secret := r.hmac(t, 0)
	for _, body := range []string{
		`{"a":"\u00e9\/<>&","b":1.0,"c":12345678901234567890,"d":1e2}`, "{ \"a\" :\n\t1 }\n", `{"b":1,"a":2,"b2":"ü\u2028"}`, `{"z":null}`, ``,
	} {
		r.deliver(t, "evt_1", body)
		d := r.site.last(t)
		require.Equal(t, body, string(d.body))
		require.NoError(t, verifyHMAC(t, d, secret))
		require.True(t, verifyEd25519(t, d, r.publicKeys(t)[0]))
	}
}

func TestWH13_Signature_FreshAtEveryAttempt(t *testing.T) {
	r := newRig(t)
	// The last attempt is now, for verifiers with the system's clock.
	r.clock.Advance(-20 * time.Minute)
	r.point(t)
	secret := r.hmac(t, 0)
	r.site.with(http.StatusInternalServerError, "")
	seen := map[string]bool{}
	for range 20 {
		require.Equal(t, retry, r.deliver(t, "evt_1", `{"n":1}`).GetOutcome())
		d := r.site.last(t)
		require.Equal(t, strconv.FormatInt(r.clock.Now().Unix(), 10), d.header.Get("Webhook-Timestamp"))
		require.Equal(t, "evt_1", d.header.Get("Webhook-Id"))
		require.False(t, seen[d.header.Get("Webhook-Signature")])
		seen[d.header.Get("Webhook-Signature")] = true
		r.clock.Advance(time.Minute)
	}
	first := r.site.deliveries()[0]
	require.Error(t, verifyHMAC(t, first, secret), "the first attempt's headers are too old by now")
	r.site.with(http.StatusOK, "")
	require.Equal(t, answered, r.deliver(t, "evt_1", `{"n":1}`).GetOutcome())
	d := r.site.last(t)
	require.Equal(t, first.body, d.body)
	require.NoError(t, verifyHMAC(t, d, secret))
}

func TestWH14_Signature_RotationOverlaps(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.clock.Advance(-time.Hour)
		r.point(t)
		first := r.hmac(t, 0)
		firstKey := r.publicKeys(t)[0]
		r.clock.Advance(time.Second)
		second := r.hmac(t, time.Hour-time.Second)
		r.rotate(t, adminv1.SecretKind_SECRET_KIND_ED25519, time.Hour-time.Second)
		keys := r.publicKeys(t)
		require.Len(t, keys, 2)
		require.Equal(t, firstKey, keys[0])

		// Receivers with either secret get through until the overlap ends.
		r.clock.Advance(time.Hour - 2*time.Second)
		r.deliver(t, "evt_1", `{}`)
		d := r.site.last(t)
		require.Len(t, signatures(d, "v1"), 2)
		require.Len(t, signatures(d, "v1a"), 2)
		require.NoError(t, verifyHMAC(t, d, first))
		require.NoError(t, verifyHMAC(t, d, second))
		require.True(t, verifyEd25519(t, d, keys[0]))
		require.True(t, verifyEd25519(t, d, keys[1]))

		r.clock.Advance(time.Second)
		r.deliver(t, "evt_2", `{}`)
		d = r.site.last(t)
		require.Len(t, signatures(d, "v1"), 1)
		require.Len(t, signatures(d, "v1a"), 1)
		require.Error(t, verifyHMAC(t, d, first))
		require.NoError(t, verifyHMAC(t, d, second))
		require.False(t, verifyEd25519(t, d, keys[0]))
		require.True(t, verifyEd25519(t, d, keys[1]))
		require.Equal(t, keys[1:], r.publicKeys(t))
	})
}

func TestWH14_Rotation_WithoutOverlapAndTooOften(t *testing.T) {
	r := newRig(t)
	r.point(t)
	first := r.hmac(t, 0)
	for range 4 {
		r.clock.Advance(time.Second)
		r.hmac(t, time.Hour)
	}
	r.deliver(t, "evt_1", `{}`)
	require.Len(t, signatures(r.site.last(t), "v1"), 5)
	require.NoError(t, verifyHMAC(t, r.site.last(t), first))
	_, err := r.backends.RotateBackendSecret(r.ctx(t), &adminv1.RotateBackendSecretRequest{Name: r.name(), Overlap: durationpb.New(time.Hour)})
	requireReason(t, err, "FAILED_PRECONDITION")
	// A secret that leaked is out at once.
	last := r.hmac(t, 0)
	r.deliver(t, "evt_1", `{}`)
	require.Len(t, signatures(r.site.last(t), "v1"), 1)
	require.Error(t, verifyHMAC(t, r.site.last(t), first))
	require.NoError(t, verifyHMAC(t, r.site.last(t), last))
}

func TestListBackendSecrets_ShowsNoSecret(t *testing.T) {
	r := newRig(t)
	r.point(t)
	secret := r.hmac(t, 0)
	got, err := r.backends.ListBackendSecrets(r.ctx(t), &adminv1.ListBackendSecretsRequest{Parent: r.name()})
	require.NoError(t, err)
	require.Len(t, got.GetSecrets(), 2)
	for _, s := range got.GetSecrets() {
		require.Empty(t, s.GetSecret())
		require.NotContains(t, s.String(), secret[len("whsec_")+5:])
		require.True(t, strings.HasPrefix(s.GetName(), r.name()+"/secrets/whs_"))
		require.Nil(t, s.GetExpireTime())
		if s.GetKind() == adminv1.SecretKind_SECRET_KIND_HMAC {
			require.Equal(t, secret[:len("whsec_")+4], s.GetPrefix())
			require.Empty(t, s.GetPublicKey())
		} else {
			require.Contains(t, r.publicKeys(t), s.GetPublicKey())
		}
	}
}

// everything returns each value in each row of each table.
func everything(t testing.TB, d *db.DB) [][]byte {
	t.Helper()
	var out [][]byte
	err := d.SystemRead(t.Context(), db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		for _, table := range migrate.Tables {
			values, err := valuesOf(ctx, tx, table.Name)
			if err != nil {
				return err
			}
			out = append(out, values...)
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

func valuesOf(ctx context.Context, tx *ent.Tx, table string) ([][]byte, error) {
	rows, err := tx.QueryContext(ctx, `SELECT * FROM "`+table+`"`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for rows.Next() {
		values := make([]sql.RawBytes, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		for _, v := range values {
			out = append(out, bytes.Clone(v))
		}
	}
	return out, rows.Err()
}

func TestSecrets_SealedAtRest(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.point(t)
		secret := r.hmac(t, 0)
		text := strings.TrimPrefix(secret, "whsec_")
		raw, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		values := everything(t, r.db)
		found := false
		for _, v := range values {
			found = found || bytes.Equal(v, []byte("https://backend.example/hook"))
			require.NotContains(t, string(v), string(raw))
			require.NotContains(t, string(v), string(raw[:16]))
			require.NotContains(t, string(v), text[:20])
		}
		require.True(t, found, "the rows were read")
	})
}

func TestMT06_Signature_OfItsCompanyAlone(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.point(t)
		mine := r.hmac(t, 0)
		other := &rig{}
		*other = *r
		other.scope = dbtest.Company(t, r.db)
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_NOT_SET, other.backend(t).GetState())
		require.Empty(t, other.publicKeys(t))
		require.Equal(t, disabled, other.deliver(t, "evt_1", `{}`).GetOutcome())

		other.point(t)
		theirs := other.hmac(t, 0)
		other.deliver(t, "evt_1", `{}`)
		require.NoError(t, verifyHMAC(t, r.site.last(t), theirs))
		require.Error(t, verifyHMAC(t, r.site.last(t), mine))
		require.NotEqual(t, r.publicKeys(t), other.publicKeys(t))
		r.deliver(t, "evt_1", `{}`)
		require.NoError(t, verifyHMAC(t, r.site.last(t), mine))

		// 410 to one of them is nothing to the other, though the URL is the same.
		r.site.with(http.StatusGone, "")
		require.Equal(t, disabled, r.deliver(t, "evt_2", `{}`).GetOutcome())
		require.Equal(t, adminv1.BackendState_BACKEND_STATE_ENABLED, other.backend(t).GetState())
	})
}

// A sealed secret that was copied into another Company's row doesn't open there.
func TestMT06_Secrets_BoundToTheirCompany(t *testing.T) {
	r := newRig(t)
	r.point(t)
	r.hmac(t, 0)
	other := &rig{}
	*other = *r
	other.scope = dbtest.Company(t, r.db)
	other.point(t)
	err := r.db.SystemWrite(t.Context(), db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		rows, err := tx.WebhookSecret.Query().All(ctx)
		if err != nil {
			return err
		}
		var mine *ent.WebhookSecret
		for _, row := range rows {
			if row.CompanyID == r.scope.CompanyID() && row.Kind == "hmac" {
				mine = row
			}
		}
		return tx.WebhookSecret.Create().SetID("whs_copied").SetCompanyID(other.scope.CompanyID()).SetKind(mine.Kind).SetSealed(mine.Sealed).SetCreatedAt(mine.CreatedAt).Exec(ctx)
	})
	require.NoError(t, err)
	stream, err := r.deliveries.Deliver(tenancy.Into(t.Context(), other.scope), &relayv1.DeliverRequest{DeliveryId: "evt_1", Body: []byte(`{}`)})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Error(t, err)
	require.Empty(t, r.site.deliveries())
}
