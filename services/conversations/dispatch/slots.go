package dispatch

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/app"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// slot is one of the deliveries that may be in flight for a Company.
type slot struct {
	d       *Dispatcher
	company string
}

// Take implements app.Dispatcher. Where the backend has its streams in other
// processes, the slot is theirs: what is stored with it is due at once, for them.
func (d *Dispatcher) Take(scope tenancy.Scope) (app.Slot, bool) {
	d.mu.Lock()
	running := d.running
	d.mu.Unlock()
	if !running {
		return nil, false
	}
	r, err := d.routes.get(d.attempts, scope)
	if err != nil {
		return nil, false
	}
	if s, ok := d.take(scope.CompanyID(), r); ok {
		return s, true
	}
	if r.stream && !r.off {
		return elsewhere{d, scope}, true
	}
	return nil, false
}

// elsewhere is a slot of another process.
type elsewhere struct {
	d     *Dispatcher
	scope tenancy.Scope
}

// Lease implements app.Slot.
func (elsewhere) Lease(time.Time) store.Lease { return store.Lease{} }

// Run implements app.Slot.
func (e elsewhere) Run(store.Claim) { e.d.ring(e.scope) }

// Free implements app.Slot.
func (elsewhere) Free() {}

// ring has a delivery that is due claimed by whoever has a stream for it.
func (d *Dispatcher) ring(scope tenancy.Scope) {
	d.deps.Ring(context.WithoutCancel(d.attempts), scope)
	d.Due(scope)
}

// Due says that another process left a delivery of the Company to those with a stream. It returns at once.
func (d *Dispatcher) Due(scope tenancy.Scope) {
	if d.streams.room(scope.CompanyID()) == 0 {
		return
	}
	d.mu.Lock()
	delete(d.absent, scope.CompanyID())
	d.mu.Unlock()
	d.look()
}

// present says that a backend has a stream here: what waits for it is tried at once.
func (d *Dispatcher) present(scope tenancy.Scope) {
	d.mu.Lock()
	delete(d.absent, scope.CompanyID())
	delete(d.held, scope.CompanyID())
	d.changed[scope.CompanyID()] = scope
	d.mu.Unlock()
	d.look()
}

// absentFor is how long it is believed that a Company's deliveries aren't for this process.
const absentFor = 5 * time.Second

// mine reports whether this process may deliver for a Company at all.
func (d *Dispatcher) mine(company string, r route) bool {
	if !r.stream || !r.off && d.streams.room(company) > 0 {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.absent[company] = d.deps.Now().Add(absentFor)
	return false
}

func (d *Dispatcher) take(company string, r route) (*slot, bool) {
	most := d.cfg.PerCompany
	if r.maxInFlight > 0 {
		most = min(most, r.maxInFlight)
	}
	if r.stream {
		if most = min(most, d.streams.room(company)); most == 0 || r.off {
			return nil, false // a stream that opens has the sweep look
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running {
		return nil, false
	}
	// Nobody has more than what is left for the others, so that however many Companies
	// hang, the next one still finds slots.
	crowded := d.used[company] >= d.cfg.Total-d.total
	if d.used[company] > 0 {
		d.limits[company] = most
	}
	if crowded || d.used[company] >= most {
		d.tight = d.tight || crowded
		d.waiting[company] = struct{}{} // whoever frees a slot has the sweep look at once
		return nil, false
	}
	if !d.passes(company) {
		return nil, false // the sweep looks when the next one may go
	}
	d.total++
	d.used[company]++
	d.limits[company] = most
	return &slot{d, company}, true
}

// Lease implements app.Slot.
func (s *slot) Lease(now time.Time) store.Lease { return s.d.lease(now) }

func (d *Dispatcher) lease(now time.Time) store.Lease {
	return store.Lease{Owner: d.id, Until: now.Add(d.cfg.Lease)}
}

// Run implements app.Slot.
func (s *slot) Run(c store.Claim) {
	s.d.begin(c.Delivery.ID) // before the next sweep
	go func() {
		defer s.Free()
		for next := &c; next != nil; {
			next = s.d.deliver(*next)
		}
	}()
}

// Free implements app.Slot.
func (s *slot) Free() {
	d := s.d
	d.mu.Lock()
	d.total--
	if d.used[s.company]--; d.used[s.company] == 0 {
		delete(d.used, s.company)
		delete(d.limits, s.company)
	}
	_, wanted := d.waiting[s.company]
	wanted = wanted || d.tight
	d.tight = false
	idle := !d.running && d.total == 0
	d.mu.Unlock()
	if wanted {
		d.look()
	}
	if idle {
		d.idleOnce.Do(func() { close(d.idle) })
	}
}

// look has the sweep look for due deliveries now.
func (d *Dispatcher) look() {
	select {
	case d.wake <- struct{}{}:
	default: // it is about to
	}
}

// busy returns the Companies without a free slot here or whose backend is held back, and whether any slot is free at all.
func (d *Dispatcher) busy() (companies []string, free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	full := func(company string) bool {
		n := d.used[company]
		return n > 0 && (n >= d.limits[company] || n >= d.cfg.Total-d.total)
	}
	for company := range d.used {
		if full(company) {
			companies = append(companies, company)
		}
	}
	// Companies that still have to wait say so again when the sweep finds them.
	for company := range d.waiting {
		if !full(company) {
			delete(d.waiting, company)
		}
	}
	now := d.deps.Now()
	companies = append(companies, d.heldNow(now)...)
	for company, until := range d.absent {
		if now.Before(until) {
			companies = append(companies, company)
		} else {
			delete(d.absent, company)
		}
	}
	return companies, d.running && d.total < d.cfg.Total
}

// Load returns how many slots are in use, and whether more may be taken.
func (d *Dispatcher) Load() (inUse int, running bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total, d.running
}
