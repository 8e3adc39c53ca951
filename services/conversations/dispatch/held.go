package dispatch

import "time"

const (
	// heldFirst is how long a Company whose backend was held back once is left alone, heldMost how long after several times.
	heldFirst = 100 * time.Millisecond
	heldMost  = 5 * time.Second
	// heldStep is how long it takes at most to hear that a delivery is held back.
	heldStep = 100 * time.Millisecond
	// heldForgotten is how long after its end a pause is remembered where nothing is due.
	heldForgotten = 10 * time.Second
)

// hold is that a Company's backend may be given nothing at the moment. After a pause
// one delivery tries, and then, for as long as none is held back, twice as many every
// step: so a backend that stays away costs a delivery's claim per pause, and one that
// is back gets what waits soon, however long it takes for an answer.
type hold struct {
	pause time.Duration
	end   time.Time // of the pause: what was asked earlier says nothing new
	until time.Time // how long nothing goes but what is left
	tried int       // how many may try in this step; 0 in the pause
	left  int
}

// heldBack notes that an attempt begun at a time was held back, for a wait.
func (d *Dispatcher) heldBack(company string, begun time.Time, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.held[company]
	pause := heldFirst
	if h != nil {
		if begun.Before(h.end) {
			return // claimed before that was known
		}
		if h.tried <= 1 {
			pause = min(2*h.pause, heldMost)
		}
	}
	pause = min(pause, wait)
	end := d.deps.Now().Add(pause)
	d.held[company] = &hold{pause: pause, end: end, until: end}
	d.lookAfter(pause)
}

// admitted notes that an attempt begun at a time was not held back.
func (d *Dispatcher) admitted(company string, begun time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.held[company]; h != nil && !begun.Before(h.end) {
		delete(d.held, company)
		d.look()
	}
}

// passes reports whether one more delivery of a Company may go, and counts it; d is locked.
func (d *Dispatcher) passes(company string) bool {
	h := d.held[company]
	if h == nil {
		return true
	}
	if now := d.deps.Now(); !now.Before(h.until) {
		h.tried = max(1, 2*h.tried)
		if h.tried > d.cfg.PerCompany {
			delete(d.held, company)
			return true
		}
		h.left, h.until = h.tried, now.Add(heldStep)
		d.lookAfter(heldStep)
	}
	if h.left == 0 {
		return false
	}
	h.left--
	return true
}

// heldNow returns the Companies of which nothing may go; d is locked.
func (d *Dispatcher) heldNow(now time.Time) (companies []string) {
	for company, h := range d.held {
		switch {
		case now.Before(h.until):
			if h.left == 0 {
				companies = append(companies, company)
			}
		case now.Sub(h.until) > heldForgotten:
			delete(d.held, company)
		}
	}
	return companies
}

func (d *Dispatcher) lookAfter(wait time.Duration) { time.AfterFunc(wait, d.look) }
