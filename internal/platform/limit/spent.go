package limit

import (
	"cmp"
	"slices"
	"time"
)

const (
	// Grain is the least of a key that is told: a sixtieth of what a quiet key may take at
	// once, or a single try where that is more.
	Grain = time.Second
	// MaxSpent is the most of a key that is told at once: what a quiet key may take at once.
	MaxSpent = time.Minute
	// maxDebt bounds how far others can put off when a key is as good as new: what all let
	// through too much is paid back, up to a few bursts.
	maxDebt = 5 * time.Minute
	// maxWaiting bounds, for each shard, the keys that wait to be told.
	maxWaiting = 1024
)

// Spent is what was taken from a key, as the time in which that comes back: limits may
// differ between processes for a moment, time is the same everywhere.
type Spent struct {
	Key  Hash
	Time time.Duration
}

// told is what a shard has to tell.
type told struct{ waiting []*entry }

func (t *told) take(e *entry, d time.Duration) {
	e.untold = min(e.untold+d, MaxSpent)
	if e.untold >= Grain && !e.waiting && len(t.waiting) < maxWaiting { // where there is no room, its next try asks again
		e.waiting = true
		t.waiting = append(t.waiting, e)
	}
}

// Spent returns what was taken here since it was last told, from at most most keys, the
// biggest first, and counts that as told. What a key took stays until it is Grain;
// keys that are too many wait for the next call. A Limiter that counts for itself
// has nothing to tell.
func (l *Limiter) Spent(most int) []Spent {
	var all []Spent
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		// A key that was forgotten was as good as quiet, and may be there anew.
		s.told.waiting = slices.DeleteFunc(s.told.waiting, func(e *entry) bool {
			el, ok := s.keys[e.key]
			return !ok || el.Value != e
		})
		for _, e := range s.told.waiting {
			all = append(all, Spent{e.key, e.untold})
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Spent) int { return cmp.Or(cmp.Compare(b.Time, a.Time), slices.Compare(a.Key[:], b.Key[:])) })
	all = all[:min(len(all), most)]
	said := make(map[Hash]time.Duration, len(all))
	for _, one := range all {
		said[one.Key] = one.Time
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		s.told.waiting = slices.DeleteFunc(s.told.waiting, func(e *entry) bool {
			d, ok := said[e.key]
			if !ok {
				return false
			}
			e.untold = max(e.untold-d, 0)
			e.waiting = e.untold >= Grain
			return !e.waiting
		})
		s.mu.Unlock()
	}
	return all
}

// Spend takes from the keys what others let through.
func (l *Limiter) Spend(spent []Spent, now time.Time) {
	for _, one := range spent {
		if one.Time <= 0 {
			continue
		}
		s := l.shard(one.Key)
		s.mu.Lock()
		e := s.entry(one.Key)
		due := e.due
		if due.Before(now) {
			due = now
		}
		if due = due.Add(min(one.Time, MaxSpent)); due.After(now.Add(maxDebt)) {
			due = now.Add(maxDebt)
		}
		if due.After(e.due) {
			e.due = due
		}
		s.mu.Unlock()
	}
}
