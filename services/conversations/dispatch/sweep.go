package dispatch

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

func (d *Dispatcher) sweepLoop(ctx context.Context) {
	defer d.loops.Done()
	tick := time.NewTicker(d.cfg.Sweep)
	defer tick.Stop()
	for {
		d.makeDue(ctx)
		if err := d.sweep(ctx); err != nil && ctx.Err() == nil {
			d.deps.Log.WarnContext(ctx, "due deliveries not claimed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-d.wake:
		}
	}
}

const sweepBatch = 256

// sweep claims due deliveries for as long as there are slots: retries whose time has
// come, what found no slot at first, and what other processes left behind.
func (d *Dispatcher) sweep(ctx context.Context) error {
	var skipped []string // Companies whose route can't be had now
	for {
		except, free := d.busy()
		if !free {
			return nil
		}
		due, err := d.deps.Store.DueDeliveries(ctx, d.deps.Now(), sweepBatch, append(except, skipped...))
		if err != nil {
			return err
		}
		var companies []string // in the order of who waits longest
		byCompany := map[string][]store.Due{}
		for _, one := range due {
			company := one.Scope.CompanyID()
			if _, ok := byCompany[company]; !ok {
				companies = append(companies, company)
			}
			byCompany[company] = append(byCompany[company], one)
		}
		moved := 0
		for _, company := range companies {
			scope := byCompany[company][0].Scope
			r, err := d.routes.get(ctx, scope)
			if err != nil {
				skipped = append(skipped, company)
				moved++
				continue
			}
			if !d.mine(company, r) {
				moved++ // the next look leaves them out
				continue
			}
			n, err := d.claim(ctx, byCompany[company], r)
			if err != nil {
				return err
			}
			moved += n
		}
		if len(due) < sweepBatch || moved == 0 {
			return nil
		}
	}
}

// claim takes as many of one Company's due deliveries as there are slots, and returns how many it dealt with.
func (d *Dispatcher) claim(ctx context.Context, due []store.Due, r route) (int, error) {
	scope := due[0].Scope
	due, err := d.notHere(ctx, due)
	if err != nil {
		return 0, err
	}
	var slots []*slot
	var deliveries []string
	for _, one := range due {
		s, ok := d.take(scope.CompanyID(), r)
		if !ok {
			break
		}
		slots, deliveries = append(slots, s), append(deliveries, one.ID)
	}
	if len(slots) == 0 {
		return 0, nil
	}
	var claims []store.Claim
	var damaged []store.Damaged
	err = d.deps.Store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		now := d.deps.Now()
		var err error
		claims, damaged, err = tx.TakeDue(ctx, scope, deliveries, now, d.lease(now))
		return err
	})
	if err != nil {
		claims, damaged = nil, nil
	}
	for i, s := range slots {
		if i < len(claims) {
			s.Run(claims[i])
		} else {
			s.Free()
		}
	}
	for _, one := range damaged {
		d.putAside(ctx, scope, one)
	}
	return len(claims) + len(damaged), err
}

// notHere leaves out the deliveries that are in flight in this process, and renews their
// leases, which lapsed while the database or this process was slow: their answers are
// awaited still, and a second attempt beside the first would lose them.
func (d *Dispatcher) notHere(ctx context.Context, due []store.Due) ([]store.Due, error) {
	var here []string
	d.mu.Lock()
	rest := make([]store.Due, 0, len(due))
	for _, one := range due {
		if _, ok := d.inFlight[one.ID]; ok {
			here = append(here, one.ID)
		} else {
			rest = append(rest, one)
		}
	}
	d.mu.Unlock()
	if len(here) == 0 {
		return rest, nil
	}
	return rest, d.deps.Store.Renew(ctx, here, d.lease(d.deps.Now()))
}

func (d *Dispatcher) putAside(ctx context.Context, scope tenancy.Scope, one store.Damaged) {
	d.deps.Log.ErrorContext(ctx, "delivery with damaged rows is put aside", "company", scope, "delivery", one.ID, "error", one.Err)
	if err := d.recorder.Quarantine(ctx, scope, one, d.id); err != nil && ctx.Err() == nil {
		// Its lease ends, and the next sweep tries again.
		d.deps.Log.ErrorContext(ctx, "damaged delivery not put aside", "company", scope, "delivery", one.ID, "error", err)
	}
}

// BackendChanged says that a Company's backend is on again or elsewhere: what waits for
// it is tried at once. It returns at once.
func (d *Dispatcher) BackendChanged(scope tenancy.Scope) {
	d.routes.drop(scope.CompanyID())
	d.present(scope)
}

func (d *Dispatcher) makeDue(ctx context.Context) {
	d.mu.Lock()
	changed := d.changed
	d.changed = map[string]tenancy.Scope{}
	d.mu.Unlock()
	for _, scope := range changed {
		if err := d.deps.Store.MakeDue(ctx, scope, d.deps.Now()); err != nil && ctx.Err() == nil {
			// They are still due at their own times.
			d.deps.Log.WarnContext(ctx, "waiting deliveries not made due", "company", scope, "error", err)
		}
	}
}

// countLoop notes how much is pending, for whoever asks.
func (d *Dispatcher) countLoop(ctx context.Context) {
	defer d.loops.Done()
	tick := time.NewTicker(d.cfg.Count)
	defer tick.Stop()
	for {
		now := d.deps.Now()
		n, since, err := d.deps.Store.Backlog(ctx, now)
		switch {
		case err != nil && ctx.Err() == nil:
			d.deps.Log.WarnContext(ctx, "pending deliveries not counted", "error", err)
		case err == nil && since.IsZero():
			d.deps.Meter.Backlog(n, 0)
		case err == nil:
			d.deps.Meter.Backlog(n, now.Sub(since))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
