package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/app"
)

// Dispatcher delivers for one process.
type Dispatcher struct {
	cfg  Config
	deps Deps
	id   string // the owner of this process's leases
	wake chan struct{}

	routes  *routes
	streams *streams

	recorder Recorder
	attempts context.Context // ends when attempts in flight are given up
	giveUp   context.CancelFunc
	stop     context.CancelFunc // ends the loops
	loops    sync.WaitGroup
	idle     chan struct{} // closed when the last slot is free after a stop
	idleOnce sync.Once

	mu       sync.Mutex
	running  bool
	total    int
	used     map[string]int
	waiting  map[string]struct{}
	tight    bool                     // a Company was refused a slot because of all the others
	limits   map[string]int           // what each Company in used may have, as of its last slot
	absent   map[string]time.Time     // Companies whose streams aren't here, until when that is believed
	held     map[string]*hold         // Companies whose backend was held back
	inFlight map[string]time.Time     // delivery -> since when
	changed  map[string]tenancy.Scope // Companies whose backend is another one now
}

var _ app.Dispatcher = (*Dispatcher)(nil)

// New makes a dispatcher that takes nothing before Start.
func New(cfg Config, deps Deps) *Dispatcher {
	if deps.Ring == nil {
		deps.Ring = func(context.Context, tenancy.Scope) {}
	}
	if deps.Delta == nil {
		deps.Delta = func(context.Context, tenancy.Scope, string, string, int64, string) {}
	}
	return &Dispatcher{
		cfg: cfg.withDefaults(), deps: deps, id: ids.New("dsp"), wake: make(chan struct{}, 1), idle: make(chan struct{}),
		routes: newRoutes(deps.Relay, deps.Now), streams: &streams{open: map[string][]*Stream{}},
		used: map[string]int{}, waiting: map[string]struct{}{}, limits: map[string]int{}, absent: map[string]time.Time{}, held: map[string]*hold{},
		inFlight: map[string]time.Time{}, changed: map[string]tenancy.Scope{},
	}
}

// Start begins to claim and deliver. It goes on after ctx ends, until Stop.
func (d *Dispatcher) Start(ctx context.Context, r Recorder) {
	ctx = context.WithoutCancel(ctx)
	d.recorder = r
	d.attempts, d.giveUp = context.WithCancel(ctx)
	d.routes.life = d.attempts
	ctx, d.stop = context.WithCancel(ctx)
	d.mu.Lock()
	d.running = true
	d.mu.Unlock()
	d.loops.Add(3)
	go d.sweepLoop(ctx)
	go d.renewLoop(ctx)
	go d.countLoop(ctx)
}

// BeginDrain tells the backends that have a stream here to open one elsewhere. Stop does it too.
func (d *Dispatcher) BeginDrain() { d.streams.goodbye() }

// Stop claims no more, lets the attempts in flight end until ctx is done, gives up
// what is left, and gives back every lease, so that another process goes on at once.
func (d *Dispatcher) Stop(ctx context.Context) error {
	d.mu.Lock()
	was := d.running
	d.running = false
	idle := d.total == 0
	d.mu.Unlock()
	if !was {
		return nil
	}
	d.BeginDrain()
	if idle {
		d.idleOnce.Do(func() { close(d.idle) })
	}
	var cut error
	select {
	case <-d.idle:
	case <-ctx.Done():
		cut = ctx.Err()
		d.giveUp()
		<-d.idle
	}
	d.giveUp()
	d.stop()
	d.loops.Wait()
	d.routes.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := d.deps.Store.ReleaseAll(ctx, d.id, d.deps.Now()); err != nil {
		return err
	}
	return cut
}

// renewLoop keeps the leases of deliveries in flight, all with one statement.
func (d *Dispatcher) renewLoop(ctx context.Context) {
	defer d.loops.Done()
	clock.Every(ctx, d.cfg.Renew, d.renew)
}

func (d *Dispatcher) renew(ctx context.Context) {
	now := d.deps.Now()
	d.mu.Lock()
	held := make([]string, 0, len(d.inFlight))
	for id, since := range d.inFlight {
		if now.Sub(since) >= d.cfg.Renew/2 {
			held = append(held, id)
		}
	}
	d.mu.Unlock()
	if len(held) == 0 {
		return
	}
	if err := d.deps.Store.Renew(ctx, held, d.lease(now)); err != nil && ctx.Err() == nil {
		d.deps.Log.WarnContext(ctx, "leases of deliveries not renewed", "deliveries", len(held), "error", err)
	}
}
