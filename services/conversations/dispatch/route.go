package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

// route is how a Company's backend is delivered to.
type route struct {
	// stream says that deliveries go to a stream that the backend opened.
	stream bool
	// off and dropLate are the relay's to judge, unless there is a stream.
	off, dropLate bool
	history       int
	maxInFlight   int             // 0: as many as the configuration lets
	schedule      []time.Duration // before each attempt; empty: the configuration's
	timeout       time.Duration   // 0: unknown
}

func routeOf(r *relayv1.GetRouteResponse) route {
	out := route{
		stream: r.GetStream(), off: r.GetOff(), dropLate: r.GetDropLate(), history: int(r.GetHistory()),
		maxInFlight: int(r.GetMaxInFlight()), timeout: r.GetTimeout().AsDuration(),
	}
	if waits := r.GetSchedule(); len(waits) > 0 {
		out.schedule = make([]time.Duration, 1, len(waits)+1) // the first attempt is at once
		for _, w := range waits {
			out.schedule = append(out.schedule, w.AsDuration())
		}
	}
	return out
}

const (
	// routeLife is how long a route is used without asking again. It is asked for in the
	// background from half of it on, so that who delivers all the time never waits.
	routeLife = time.Second
	// routeFailed is how long a relay that didn't say the route is left alone.
	routeFailed  = 500 * time.Millisecond
	routeTimeout = 2 * time.Second
	// routesKept is how many routes are kept before old ones are dropped.
	routesKept = 4096
)

// routes are the routes of Companies as the relay last said them.
type routes struct {
	relay relayv1.DeliveryServiceClient
	now   clock.Clock

	life    context.Context // of the questions under way
	asking  sync.WaitGroup
	mu      sync.Mutex
	known   map[string]*known
	stopped bool
}

type known struct {
	at    time.Time // when it was asked for; zero for not yet
	until time.Time // when it has to be asked for again
	route route
	err   error
	ask   *ask // under way; nil for none
}

type ask struct {
	done  chan struct{}
	route route
	err   error
}

func newRoutes(relay relayv1.DeliveryServiceClient, now clock.Clock) *routes {
	return &routes{relay: relay, now: now, known: map[string]*known{}}
}

// get returns a Company's route, at most routeLife old. While the relay can't say, it is the last one known.
func (r *routes) get(ctx context.Context, scope tenancy.Scope) (route, error) {
	r.mu.Lock()
	k := r.known[scope.CompanyID()]
	if k == nil {
		r.forget()
		k = &known{}
		r.known[scope.CompanyID()] = k
	}
	now := r.now()
	if !k.at.IsZero() && now.Before(k.until) {
		if k.ask == nil && k.err == nil && now.Sub(k.at) >= routeLife/2 {
			r.begin(scope, k)
		}
		defer r.mu.Unlock()
		return k.route, k.err
	}
	if k.ask == nil {
		r.begin(scope, k)
	}
	a := k.ask
	r.mu.Unlock()
	if a == nil {
		return route{}, context.Canceled
	}
	select {
	case <-a.done:
		return a.route, a.err
	case <-ctx.Done():
		return route{}, ctx.Err()
	}
}

// begin asks for a route; r is locked.
func (r *routes) begin(scope tenancy.Scope, k *known) {
	if r.stopped {
		return
	}
	a := &ask{done: make(chan struct{})}
	k.ask = a
	at := r.now()
	r.asking.Go(func() {
		defer close(a.done)
		ctx, cancel := context.WithTimeout(tenancy.Into(r.life, scope), routeTimeout)
		defer cancel()
		got, err := r.relay.GetRoute(ctx, &relayv1.GetRouteRequest{})
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case err == nil:
			a.route = routeOf(got)
		case !k.at.IsZero() && k.err == nil:
			a.route = k.route
		default:
			a.err = err
		}
		if k.ask != a {
			return // it changed meanwhile: only who asked before gets this answer
		}
		life := routeLife
		if err != nil {
			life = routeFailed
		}
		k.ask, k.at, k.until, k.route, k.err = nil, at, at.Add(life), a.route, a.err
	})
}

// drop has a Company's route asked for anew. What was known still stands in for it while the relay can't say.
func (r *routes) drop(company string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[company]; k != nil {
		k.until, k.ask = time.Time{}, nil
	}
}

// forget makes room for another route; r is locked.
func (r *routes) forget() {
	if len(r.known) < routesKept {
		return
	}
	before := r.now().Add(-time.Minute)
	for company, k := range r.known {
		if k.ask == nil && k.at.Before(before) {
			delete(r.known, company)
		}
	}
}

// stop waits for the questions under way, whose context has ended.
func (r *routes) stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.asking.Wait()
}
