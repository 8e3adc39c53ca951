package dispatch

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/conversations/app"
	"github.com/poppyfield/poppyfield/services/conversations/meter"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Config bounds the work of one process. Zero fields have the defaults named.
type Config struct {
	PerCompany int           // deliveries in flight for one Company; 64
	Total      int           // deliveries in flight in all; 256
	Lease      time.Duration // how long a process that died keeps a delivery; 5 s
	Renew      time.Duration // how often leases of deliveries in flight are renewed; 2 s
	Sweep      time.Duration // how often due deliveries are looked for; 500 ms
	Count      time.Duration // how often what is pending is counted; 10 s
	// Attempt bounds a call of the relay, and the wait for a stream's answer, where the
	// route says no time-out; 2 min.
	Attempt time.Duration
	// Schedule is the waits before each attempt; webhook.DefaultSchedule.
	Schedule []time.Duration
	// Jitter returns numbers from 0 up to 1 that spread the waits; math/rand.
	Jitter func() float64
}

const (
	disabledWait    = 30 * time.Second // until a backend that is off is asked for again
	unreachableWait = 2 * time.Second  // after the relay itself could not be reached
	heldWait        = time.Second      // until a backend is asked for again that is held back for no known time
	fullWait        = time.Second      // until streams that were full are asked again
	// slack is how much longer than an attempt a call of the relay may take.
	slack = 10 * time.Second
)

func (c Config) withDefaults() Config {
	orInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	orInt(&c.PerCompany, 64)
	orInt(&c.Total, 256)
	orTime(&c.Lease, 5*time.Second)
	orTime(&c.Renew, 2*time.Second)
	orTime(&c.Sweep, 500*time.Millisecond)
	orTime(&c.Count, 10*time.Second)
	orTime(&c.Attempt, 2*time.Minute)
	if len(c.Schedule) == 0 {
		c.Schedule = webhook.DefaultSchedule()
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64 // spreads load, protects nothing
	}
	return c
}

// Deps is what a dispatcher works with.
type Deps struct {
	Store  *store.Store
	Relay  relayv1.DeliveryServiceClient
	Now    clock.Clock
	Log    *slog.Logger
	Tracer trace.Tracer
	Meter  *meter.Meter
	// Usage counts attempts at each Company's backend.
	Usage *usage.Meter
	// Ring tells the other processes that a delivery of the Company is due. It must not block.
	Ring func(ctx context.Context, scope tenancy.Scope)
	// Delta shows a piece of a message that is being written as the answer to the message
	// with the sequence number after. It must not block.
	Delta func(ctx context.Context, scope tenancy.Scope, conversationID, messageID string, after int64, text string)
}

// Recorder records what came of an attempt.
type Recorder interface {
	Settle(ctx context.Context, claim store.Claim, owner string, got app.Attempt, next store.Lease) (*store.Claim, error)
	// Quarantine ends a leased delivery that can't be made.
	Quarantine(ctx context.Context, scope tenancy.Scope, d store.Damaged, owner string) error
}
