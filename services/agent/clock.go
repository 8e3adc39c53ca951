package agent

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

// Clock is the agent's time. Tests set it; the command uses the machine's.
type Clock interface {
	Now() time.Time
	// Wait returns after d, or with the context's error when that ends first.
	Wait(ctx context.Context, d time.Duration) error
}

// SystemClock is the machine's time.
type SystemClock struct{}

// Now reads the machine's clock.
func (SystemClock) Now() time.Time { return clock.System() }

// Wait waits for real.
func (SystemClock) Wait(ctx context.Context, d time.Duration) error { return clock.Wait(ctx, d) }
