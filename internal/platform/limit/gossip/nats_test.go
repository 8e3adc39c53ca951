package gossip_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/limit/gossip"
	"github.com/poppyfield/poppyfield/test/natstest"
)

func TestTell_OverNATS(t *testing.T) {
	server := natstest.Start(t)
	now := clock.NewManual(time.Unix(1_800_000_000, 0))
	var all []process
	for range 2 {
		b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL()})
		require.NoError(t, err)
		t.Cleanup(b.Close)
		require.Eventually(t, b.Connected, 10*time.Second, 10*time.Millisecond)
		g, err := gossip.New(b, secret, now.Now, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		l, err := g.Limiter("requests")
		require.NoError(t, err)
		require.NoError(t, b.Conn().Flush()) // the server knows of the subscription
		require.NoError(t, g.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, g.Stop(t.Context())) })
		all = append(all, process{g, l})
	}
	// So many that asking again and again doesn't use them up.
	const perMinute = 60_000
	for range perMinute {
		ok, _ := all[0].requests.Allow("k", perMinute, now.Now())
		require.True(t, ok)
	}
	require.Eventually(t, func() bool {
		ok, _ := all[1].requests.Allow("k", perMinute, now.Now())
		return !ok
	}, 10*time.Second, 10*time.Millisecond)
	ok, _ := all[1].requests.Allow("other", perMinute, now.Now())
	require.True(t, ok)

	// Without NATS both go on, each for itself.
	server.Kill(t)
	for _, p := range all {
		for range 60 {
			ok, _ := p.requests.Allow("alone", 60, now.Now())
			require.True(t, ok)
		}
		ok, _ := p.requests.Allow("alone", 60, now.Now())
		require.False(t, ok)
	}
}
