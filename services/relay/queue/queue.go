package queue

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Key names an endpoint.
type Key struct {
	Scope tenancy.Scope
	ID    string
}

// Policy is what the queue needs to know of an endpoint.
type Policy struct {
	MaxInFlight int             // attempts under way at once, in one process
	Schedule    []time.Duration // the waits before each attempt, the first one's included
}

// Lease is a process's right to deliver until a point in time.
type Lease struct {
	Owner string
	Until time.Time
}

// Claim is a delivery that is leased to this process.
type Claim struct {
	Key
	DeliveryID string
	EventID    string // the webhook-id
	EventType  string
	Body       []byte // nil: the event is kept no longer
	Attempts   int    // that count against the schedule so far
	Schedule   []time.Duration
}

// State is how a delivery goes on after an attempt.
type State string

// The states.
const (
	Pending   State = "pending"
	Delivered State = "delivered"
	Failed    State = "failed" // the schedule is over
	Canceled  State = "canceled"
)

// Result is what an attempt means for its delivery.
type Result struct {
	State    State
	At       time.Time // of the next attempt, while pending
	Attempts int
	Status   int // HTTP status, 0 where there was none
	Reason   string
}

// ErrLost says that the delivery isn't the caller's any more: its lease ran out and
// another process took it, or it was canceled.
var ErrLost = errors.New("the lease of the delivery was lost")

// Parked is the due time of what waits for its endpoint to be turned on.
func Parked() time.Time { return time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC) }

// Store keeps events and deliveries.
type Store interface {
	// Unrouted returns Companies with events that have no deliveries yet, who waits
	// longest first, without those in except; more says that there may be others.
	Unrouted(ctx context.Context, except []tenancy.Scope, limit int) (scopes []tenancy.Scope, more bool, err error)
	// Route makes the deliveries of at most limit events of a Company, and returns of how
	// many and to whom.
	Route(ctx context.Context, scope tenancy.Scope, now time.Time, limit int) (events int, to []Key, err error)

	// Waiting returns the endpoints that have due deliveries.
	Waiting(ctx context.Context, now time.Time) ([]Key, error)
	// Claim leases at most limit due deliveries, and no more than the endpoint's policy
	// leaves with used ones under way. Those of an endpoint that is off are parked.
	Claim(ctx context.Context, key Key, now time.Time, lease Lease, limit, used int) ([]Claim, Policy, error)
	// Settle records an attempt of who has the lease, else it is ErrLost.
	Settle(ctx context.Context, c Claim, owner string, got Result, now time.Time) error
	Renew(ctx context.Context, deliveryIDs []string, lease Lease) error
	ReleaseAll(ctx context.Context, owner string, now time.Time) error

	// Stranded returns the Companies with parked deliveries of endpoints that are on.
	Stranded(ctx context.Context) ([]tenancy.Scope, error)
	// MakeDue makes due what is parked for endpoints of the Company that are on, and what
	// waits for those of them that don't fail; it returns these endpoints.
	MakeDue(ctx context.Context, scope tenancy.Scope, now time.Time) ([]Key, error)

	// NextCompany returns the first Company after the one with the given id that has events.
	NextCompany(ctx context.Context, after string) (scope tenancy.Scope, ok bool, err error)
	// Prune drops at most limit deliveries and events from before a time, and returns how many.
	Prune(ctx context.Context, scope tenancy.Scope, before time.Time, limit int) (int, error)
}

// Message is what an endpoint is told once.
type Message struct {
	EventID    string
	DeliveryID string
	Body       []byte
	Attempt    int // 1 for the first
}

// Outcome is how an attempt ended.
type Outcome uint8

// The outcomes.
const (
	Taken   Outcome = iota + 1 // the endpoint has it
	Refused                    // to be tried again
	Held                       // not sent: the breaker is open, or the rate is used up
	Off                        // the endpoint is turned off, maybe by this attempt
)

// Answer is what came of an attempt.
type Answer struct {
	Outcome    Outcome
	Sent       bool // something was sent; with Off it counts as an attempt
	Status     int
	Reason     string
	RetryAfter time.Duration
}

// Teller makes one attempt. An error is of ours: it doesn't count for the endpoint. An
// endpoint that isn't there is NOT_FOUND.
type Teller interface {
	Tell(ctx context.Context, key Key, m Message) (Answer, error)
}

// Config bounds the work of one process. Zero fields have the defaults named.
type Config struct {
	Total   int           // attempts under way in all; 1024
	Lease   time.Duration // how long a process that died keeps a delivery; 10 s
	Renew   time.Duration // how often leases of attempts under way are renewed; 3 s
	Sweep   time.Duration // how often is looked for what no doorbell told of; 1 s
	Unpark  time.Duration // how often endpoints are looked for that were turned on unheard; 10 s
	Prune   time.Duration // how often old events are dropped; 10 min
	Attempt time.Duration // bound of an attempt, which has time-outs of its own; 2 min
	Jitter  func() float64
}

func (c Config) withDefaults() Config {
	if c.Total <= 0 {
		c.Total = 1024
	}
	for _, d := range []struct {
		v        *time.Duration
		fallback time.Duration
	}{
		{&c.Lease, 10 * time.Second},
		{&c.Renew, 3 * time.Second},
		{&c.Sweep, time.Second},
		{&c.Unpark, 10 * time.Second},
		{&c.Prune, 10 * time.Minute},
		{&c.Attempt, 2 * time.Minute},
	} {
		if *d.v <= 0 {
			*d.v = d.fallback
		}
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64 // spreads load, protects nothing
	}
	return c
}

// Deps is what a queue works with. Bus may be nil: then everything is found by sweeps.
type Deps struct {
	Store  Store
	Teller Teller
	Bus    *bus.Bus
	// Retention is how long a Company's events are kept; nil: for ever.
	Retention func(ctx context.Context, scope tenancy.Scope) (time.Duration, error)
	Now       clock.Clock
	Log       *slog.Logger
}
