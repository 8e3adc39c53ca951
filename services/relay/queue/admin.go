package queue

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// MaxResent is how many events one call sends again.
const MaxResent = 1000

// Delivery is a delivery as its Company sees it.
type Delivery struct {
	ID, EndpointID     string
	EventID, EventType string
	Origin             string // "event", "resend" or "test"
	State              State
	Attempts           int
	NextAttemptAt      time.Time // zero unless it waits for a time
	InFlight           bool
	LastStatus         int
	LastReason         string
	CreatedAt          time.Time
	DoneAt             time.Time // zero while pending
	Body               []byte    // of Delivery alone; nil where the event is kept no longer
}

// Filter narrows a list; what is empty narrows nothing.
type Filter struct {
	State, EventType, EventID string
	resource.Span
}

// Range is what to send again.
type Range struct {
	resource.Span
	All          bool // also what the endpoint has got
	ValidateOnly bool
	Limit        int
}

// Resent is what was sent again, or would be. More says that there is more from Next on.
type Resent struct {
	Count int
	More  bool
	Next  time.Time
}

// Deliveries is the queue as the admin API sees it. What isn't there, or is another
// endpoint's, is NOT_FOUND.
type Deliveries interface {
	Delivery(ctx context.Context, scope tenancy.Scope, endpointID, id string) (Delivery, error)
	// Deliveries returns at most limit, the newest first.
	Deliveries(ctx context.Context, scope tenancy.Scope, endpointID string, f Filter, after resource.Place, limit int) ([]Delivery, error)
	// Resend makes a further delivery of the event, under the same webhook-id. One that is
	// pending is made due instead.
	Resend(ctx context.Context, scope tenancy.Scope, endpointID, id string, now time.Time) (Delivery, error)
	// ResendSpan makes deliveries of what the endpoint wants of a time, the oldest first.
	ResendSpan(ctx context.Context, scope tenancy.Scope, endpointID string, r Range, now time.Time) (Resent, error)
	// Cancel gives up a pending delivery.
	Cancel(ctx context.Context, scope tenancy.Scope, endpointID, id string, now time.Time) (Delivery, error)
}

// Look has the queue look for due deliveries of an endpoint now; another process finds them with its next sweep.
func (q *Queue) Look(key Key) { q.look(key) }
