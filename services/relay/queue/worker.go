package queue

import (
	"context"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

const recordTimeout = 10 * time.Second

// Queue routes and delivers for one process.
type Queue struct {
	cfg  Config
	deps Deps
	id   string // the owner of this process's leases

	toRoute chan struct{} // there may be events to route
	toClaim chan struct{} // there are hot lanes
	turned  chan tenancy.Scope

	attempts context.Context // ends when attempts under way are given up
	giveUp   context.CancelFunc
	stop     context.CancelFunc // ends the loops
	loops    sync.WaitGroup
	claiming chan struct{} // how many claims may be made at once
	idle     chan struct{} // closed when the last slot is free after a stop
	idleOnce sync.Once
	leave    []func()

	mu       sync.Mutex
	running  bool
	total    int
	lanes    map[Key]*lane
	inFlight map[string]time.Time // delivery -> since when
}

// New makes a queue that does nothing before Start.
func New(cfg Config, deps Deps) *Queue {
	return &Queue{
		cfg: cfg.withDefaults(), deps: deps, id: ids.New("dsp"),
		toRoute: make(chan struct{}, 1), toClaim: make(chan struct{}, 1), turned: make(chan tenancy.Scope, 256),
		claiming: make(chan struct{}, maxClaims), idle: make(chan struct{}), lanes: map[Key]*lane{}, inFlight: map[string]time.Time{},
	}
}

// Start begins to route and deliver. It goes on after ctx ends, until Stop.
func (q *Queue) Start(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := q.listen(); err != nil {
		return err
	}
	q.attempts, q.giveUp = context.WithCancel(ctx)
	ctx, q.stop = context.WithCancel(ctx)
	q.mu.Lock()
	q.running = true
	q.mu.Unlock()
	for _, loop := range []func(context.Context){q.routeLoop, q.claimLoop, q.turnedLoop} {
		q.loops.Go(func() { loop(ctx) })
	}
	for _, job := range []struct {
		every time.Duration
		work  func(context.Context)
	}{{q.cfg.Renew, q.renew}, {q.cfg.Unpark, q.unpark}, {q.cfg.Prune, q.prune}} {
		q.loops.Go(func() { clock.Every(ctx, job.every, job.work) })
	}
	return nil
}

func (q *Queue) listen() error {
	if q.deps.Bus == nil {
		return nil
	}
	for _, one := range []struct {
		pattern string
		rung    bus.Handler
	}{
		{bus.AllEvents, func(context.Context, string, []byte) { ring(q.toRoute) }},
		{bus.AllDeliveries, func(_ context.Context, subject string, _ []byte) { q.deliveriesChanged(subject) }},
	} {
		leave, err := q.deps.Bus.Subscribe(one.pattern, one.rung)
		if err != nil {
			return err
		}
		q.leave = append(q.leave, leave)
	}
	return nil
}

// deliveriesChanged hears that an endpoint is on again or elsewhere, or that something is sent again.
func (q *Queue) deliveriesChanged(subject string) {
	tokens := bus.Tokens(subject)
	if len(tokens) != 1 {
		return
	}
	scope, err := tenancy.For(tokens[0])
	if err != nil {
		return
	}
	select {
	case q.turned <- scope:
	default: // the sweep finds it
	}
}

// Stop claims no more, lets the attempts under way end until ctx is done, gives up what
// is left, and gives back every lease, so that another process goes on at once.
func (q *Queue) Stop(ctx context.Context) error {
	q.mu.Lock()
	was := q.running
	q.running = false
	idle := q.total == 0
	q.mu.Unlock()
	if !was {
		return nil
	}
	for _, leave := range q.leave {
		leave()
	}
	if idle {
		q.idleOnce.Do(func() { close(q.idle) })
	}
	var cut error
	select {
	case <-q.idle:
	case <-ctx.Done():
		cut = ctx.Err()
		q.giveUp()
		<-q.idle
	}
	q.giveUp()
	q.stop()
	q.loops.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := q.deps.Store.ReleaseAll(ctx, q.id, q.deps.Now()); err != nil {
		return err
	}
	return cut
}

// InFlight returns how many attempts are under way.
func (q *Queue) InFlight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

func (q *Queue) lease(now time.Time) Lease { return Lease{Owner: q.id, Until: now.Add(q.cfg.Lease)} }

// renew keeps the leases of attempts under way, all with one statement.
func (q *Queue) renew(ctx context.Context) {
	now := q.deps.Now()
	q.mu.Lock()
	held := make([]string, 0, len(q.inFlight))
	for id, since := range q.inFlight {
		if now.Sub(since) >= q.cfg.Renew/2 {
			held = append(held, id)
		}
	}
	q.mu.Unlock()
	if len(held) == 0 {
		return
	}
	if err := q.deps.Store.Renew(ctx, held, q.lease(now)); err != nil && ctx.Err() == nil {
		q.deps.Log.WarnContext(ctx, "leases of webhook deliveries not renewed", "deliveries", len(held), "error", err)
	}
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is about to look
	}
}
