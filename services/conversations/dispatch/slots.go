package dispatch

import (
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

// Take implements app.Dispatcher.
func (d *Dispatcher) Take(scope tenancy.Scope) (app.Slot, bool) {
	s, ok := d.take(scope.CompanyID())
	if !ok {
		return nil, false
	}
	return s, true
}

func (d *Dispatcher) take(company string) (*slot, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running {
		return nil, false
	}
	if d.total >= d.cfg.Total || d.used[company] >= d.cfg.PerCompany {
		d.waiting[company] = struct{}{} // whoever frees a slot has the sweep look at once
		return nil, false
	}
	d.total++
	d.used[company]++
	return &slot{d, company}, true
}

// Lease implements app.Slot.
func (s *slot) Lease(now time.Time) store.Lease { return s.d.lease(now) }

func (d *Dispatcher) lease(now time.Time) store.Lease {
	return store.Lease{Owner: d.id, Until: now.Add(d.cfg.Lease)}
}

// Run implements app.Slot.
func (s *slot) Run(c store.Claim) {
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
	full := d.total >= d.cfg.Total
	d.total--
	if d.used[s.company]--; d.used[s.company] == 0 {
		delete(d.used, s.company)
	}
	_, wanted := d.waiting[s.company]
	wanted = wanted || full && len(d.waiting) > 0
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

// busy returns the Companies without a free slot, and whether any slot is free at all.
func (d *Dispatcher) busy() (companies []string, free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for company, n := range d.used {
		if n >= d.cfg.PerCompany {
			companies = append(companies, company)
		}
	}
	// Companies that still have to wait say so again when the sweep finds them.
	for company := range d.waiting {
		if d.used[company] < d.cfg.PerCompany {
			delete(d.waiting, company)
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
