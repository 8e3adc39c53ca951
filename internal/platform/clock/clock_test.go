package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

func TestManual_StandsStillUntilMoved(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.FixedZone("x", 3600))
	m := clock.NewManual(start)
	require.Equal(t, start.UTC().Truncate(time.Microsecond), m.Now())
	m.Advance(time.Minute)
	require.Equal(t, start.UTC().Truncate(time.Microsecond).Add(time.Minute), m.Now())
}

func TestEvery_CallsUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		n := 0
		clock.Every(ctx, 10*time.Second, func(context.Context) { n++ })
		require.Equal(t, 3, n)
	})
}
