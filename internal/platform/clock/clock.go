// Package clock is the only place that reads the system's clock. Everything else
// takes a Clock, so that tests decide what time it is.
package clock

import (
	"context"
	"sync"
	"time"
)

// Clock returns the present time in UTC, at the microsecond that databases keep.
type Clock func() time.Time

// System reads the machine's clock.
func System() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// Manual is a clock for tests: it stands still until moved.
type Manual struct {
	mu  sync.Mutex
	now time.Time
}

// NewManual returns a clock that shows start.
func NewManual(start time.Time) *Manual {
	return &Manual{now: start.UTC().Truncate(time.Microsecond)}
}

// Now is the Clock.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Advance moves the clock on by d.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}

// Every calls fn each time d has passed, until ctx ends. It waits first, and for a
// call to return before it counts on.
func Every(ctx context.Context, d time.Duration, fn func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			fn(ctx)
		}
	}
}

// Wait returns after d, or with the context's error when that ends first.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
