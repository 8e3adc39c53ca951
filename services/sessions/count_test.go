package sessions_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

func TestCounts_OpenedAndRefused(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	r := newMeteredRig(t, dbtest.SQLite(t), sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	first := r.open(t, nil)
	r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.SessionId = first.GetSessionId() })
	for range 2 {
		_, err := r.tryOpen(t, r.company, func(q *sessionsv1.OpenSessionRequest) { q.SessionId = "ses_unknown" })
		require.Error(t, err)
	}
	r.Clock.Advance(time.Second)
	_, err := r.tryOpen(t, r.company, func(q *sessionsv1.OpenSessionRequest) { q.Proof.Proofs = []string{"x"} })
	require.Error(t, err)

	got := counted(t, reader)
	require.Equal(t, map[string]int64{
		"poppyfield.sessions.opened created": 1, "poppyfield.sessions.opened renewed": 1,
		"poppyfield.sessions.refused invalid_session": 2, "poppyfield.sessions.refused invalid_dpop_proof": 1,
	}, got)
}

func TestCounts_SignInsAndTheirEnds(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	r := newMeteredRig(t, dbtest.SQLite(t), sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	r.offer(nil)
	in := r.signIn(t, nil)
	_, err := r.refresh(t, in.GetRefreshToken())
	require.NoError(t, err)
	_, err = r.signInMediated(t, in.GetSessionId(), nil)
	require.NoError(t, err)
	d := r.startDevice(t)
	_, err = r.exchange(t, in.GetSessionId(), byDevice(d.GetDeviceCode()), nil)
	require.Error(t, err)
	require.NoError(t, r.decide(t, d.GetUserCode(), readOnly, mia))
	_, err = r.exchange(t, in.GetSessionId(), byDevice(d.GetDeviceCode()), nil)
	require.NoError(t, err)
	r.revoke(t, clientID, in.GetRefreshToken())
	_, err = r.pages.Disconnect(r.company.Ctx(t.Context()), &sessionsv1.DisconnectRequest{AccountId: mia})
	require.NoError(t, err)
	got := counted(t, reader)
	delete(got, "poppyfield.sessions.opened created")
	require.Equal(t, map[string]int64{
		"poppyfield.sessions.signed_in direct": 1, "poppyfield.sessions.signed_in device": 1, "poppyfield.sessions.signed_in mediated": 1,
		"poppyfield.sessions.signed_in account_token": 1, "poppyfield.sessions.refused authorization_pending": 1,
		"poppyfield.sessions.grants_ended signed_out": 1, "poppyfield.sessions.grants_ended disconnected": 2,
	}, got)
}

// counted are the sums by metric and attribute, of which each has one.
func counted(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	got := map[string]int64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			require.True(t, ok)
			for _, p := range sum.DataPoints {
				require.Equal(t, 1, p.Attributes.Len())
				kv, _ := p.Attributes.Get(0)
				got[m.Name+" "+kv.Value.AsString()] += p.Value
				require.Contains(t, []attribute.Key{"kind", "reason"}, kv.Key)
			}
		}
	}
	return got
}
