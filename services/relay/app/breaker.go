package app

import "time"

// When a breaker opens, and for how long.
const (
	breakerSeries  = 5 // failures one after the other
	breakerSample  = 20
	breakerShare   = 0.5 // of at least breakerSample attempts in breakerWindow
	breakerWindow  = 30 * time.Second
	breakerPause   = 10 * time.Second // the first time; it doubles
	breakerMax     = 5 * time.Minute
	breakerMaxBack = 15 * time.Second // of a backend: an agent is waiting
)

// fault says whose fault it is that an attempt failed.
type fault uint8

const (
	noFault      fault = iota
	refusedFault       // reached, and it didn't take this, or spoilt its answer: another attempt may go well
	deadFault          // not reached, overloaded or broken
)

// ticket is the permission for one attempt.
type ticket struct {
	generation uint64
	trial      bool
}

// breaker keeps a dead endpoint from being asked again and again. It has no lock of its own.
type breaker struct {
	open       bool
	until      time.Time     // while open: when an attempt may try again
	pause      time.Duration // while open
	trial      bool          // one attempt tries
	generation uint64        // grows with every opening and closing: what began before says nothing
	series     int
	recent     counts
}

// admit gives a ticket, or says how long to wait.
func (b *breaker) admit(now time.Time) (ticket, time.Duration) {
	switch {
	case !b.open:
		return ticket{generation: b.generation}, 0
	case now.Before(b.until):
		return ticket{}, b.until.Sub(now)
	case b.trial:
		return ticket{}, max(time.Second, b.pause/4)
	}
	b.trial = true
	return ticket{b.generation, true}, 0
}

// abandon gives a ticket back with which nothing was found out.
func (b *breaker) abandon(t ticket) {
	if t.trial && t.generation == b.generation {
		b.trial = false
	}
}

// reached takes that an answer has begun, however long the rest of it takes: it ends a
// trial, since somebody is there. Without a trial it waits for settle.
func (b *breaker) reached(t ticket, now time.Time, most time.Duration) {
	if t.trial {
		b.settle(t, now, noFault, most)
	}
}

// settle takes the result of an attempt. most bounds how long the breaker stays open at a time.
func (b *breaker) settle(t ticket, now time.Time, f fault, most time.Duration) {
	if t.generation != b.generation {
		return
	}
	dead := f == deadFault
	if b.open {
		b.trial = false
		if dead {
			b.pause = min(2*b.pause, most)
			b.until = now.Add(b.pause)
			b.generation++
			return
		}
		*b = breaker{generation: b.generation + 1}
		return
	}
	b.recent.add(now, dead)
	if !dead {
		b.series = 0
		return
	}
	b.series++
	good, bad := b.recent.within(now, breakerWindow)
	if b.series >= breakerSeries || good+bad >= breakerSample && float64(bad) >= breakerShare*float64(good+bad) {
		*b = breaker{open: true, pause: min(breakerPause, most), generation: b.generation + 1}
		b.until = now.Add(b.pause)
	}
}

// state is "closed", "open" or "half_open".
func (b *breaker) state(now time.Time) string {
	switch {
	case !b.open:
		return "closed"
	case now.Before(b.until):
		return "open"
	default:
		return "half_open"
	}
}

// counts are how many attempts went well and how many didn't, by the time of their end.
type counts struct {
	slots [countSlots]struct {
		number    int64
		good, bad int32
	}
}

const (
	slotTime   = 5 * time.Second
	countSlots = int64(healthWindow / slotTime)
)

func slotOf(at time.Time) int64 { return at.UnixNano() / int64(slotTime) }

func (c *counts) add(at time.Time, failed bool) {
	n := slotOf(at)
	s := &c.slots[n%countSlots]
	if s.number != n {
		s.number, s.good, s.bad = n, 0, 0
	}
	if failed {
		s.bad++
	} else {
		s.good++
	}
}

func (c *counts) within(now time.Time, d time.Duration) (good, bad int) {
	newest := slotOf(now)
	oldest := slotOf(now.Add(-d))
	for _, s := range c.slots {
		if s.number > oldest && s.number <= newest {
			good, bad = good+int(s.good), bad+int(s.bad)
		}
	}
	return good, bad
}
