package queue

import (
	"context"
	"time"
)

const (
	// assumed is what an endpoint may have under way before its policy was read.
	assumed = 16
	// maxClaims is how many endpoints are claimed for at once.
	maxClaims = 8
)

// lane is what this process knows of an endpoint that it delivers to.
type lane struct {
	used     int  // slots
	max      int  // by its policy, as of the last claim
	hot      bool // there may be due deliveries
	claiming bool
	// window bounds the claims of an endpoint that held something back: it grows with
	// each attempt that goes out, so that little is claimed in vain. 0 is no bound.
	window int
	until  time.Time // nothing is claimed before
}

// look has the claim loop look for due deliveries of an endpoint now.
func (q *Queue) look(keys ...Key) {
	if len(keys) == 0 {
		return
	}
	q.mu.Lock()
	for _, key := range keys {
		q.lane(key).hot = true
	}
	q.mu.Unlock()
	ring(q.toClaim)
}

func (q *Queue) lane(key Key) *lane {
	l := q.lanes[key]
	if l == nil {
		l = &lane{max: assumed}
		q.lanes[key] = l
	}
	return l
}

// reserve takes slots for a claim: as many as the endpoint may have more, but none may
// have more than is left free, so that there is room for whoever comes next. used is what it had.
func (q *Queue) reserve(key Key, now time.Time) (slots, used int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lane(key)
	used, l.hot = l.used, false
	if !q.running || now.Before(l.until) {
		l.hot = true
		return 0, used
	}
	most := l.max
	if l.window > 0 {
		most = min(most, l.window)
	}
	free := q.cfg.Total - q.total
	slots = min(most-used, (free-used)/2)
	if used == 0 && free > 0 {
		slots = max(slots, 1)
	}
	if slots = max(slots, 0); slots == 0 {
		l.hot = true // whoever frees a slot has it looked for again
	}
	l.used += slots
	q.total += slots
	return slots, used
}

// claimed notes what came of a claim, and gives back the slots that it found nothing for.
func (q *Queue) claimed(key Key, slots, used, n int, p Policy) {
	q.mu.Lock()
	l := q.lane(key)
	l.claiming = false
	most := slots
	if p.MaxInFlight > 0 {
		l.max = p.MaxInFlight
		most = min(most, p.MaxInFlight-used)
	}
	if n > 0 && n >= most {
		l.hot = true // there may be more
	}
	again := l.hot && slots > 0
	q.mu.Unlock()
	q.free(key, slots-n)
	if again {
		ring(q.toClaim)
	}
}

// free gives back slots of an endpoint.
func (q *Queue) free(key Key, slots int) {
	q.mu.Lock()
	l := q.lane(key)
	l.used -= slots
	q.total -= slots
	wanted := l.hot
	if l.used == 0 && !l.hot && !l.claiming { // nothing of it is due, what it held back included
		delete(q.lanes, key)
	}
	if q.total*2 >= q.cfg.Total { // others may have found too little room
		for _, other := range q.lanes {
			wanted = wanted || other.hot
		}
	}
	idle := !q.running && q.total == 0
	q.mu.Unlock()
	if wanted && slots > 0 {
		ring(q.toClaim)
	}
	if idle {
		q.idleOnce.Do(func() { close(q.idle) })
	}
}

// sent notes that an attempt went out.
func (q *Queue) sent(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lane(key); l.window > 0 {
		if l.window *= 2; l.window >= l.max {
			l.window = 0
		}
	}
}

// hold leaves an endpoint alone for a while.
func (q *Queue) hold(key Key, now time.Time, wait time.Duration) {
	q.mu.Lock()
	l := q.lane(key)
	l.window = 1
	if until := now.Add(wait); until.After(l.until) {
		l.until = until
	}
	l.hot = true
	q.mu.Unlock()
	time.AfterFunc(wait, func() { ring(q.toClaim) })
}

// claimable takes the hot lanes that have room and aren't being claimed for.
func (q *Queue) claimable(now time.Time) []Key {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []Key
	for key, l := range q.lanes {
		if l.hot && !l.claiming && !now.Before(l.until) && l.used < l.max && (l.window == 0 || l.used < l.window) {
			l.claiming = true
			out = append(out, key)
		}
	}
	return out
}

func (q *Queue) claimLoop(ctx context.Context) {
	tick := time.NewTicker(q.cfg.Sweep)
	defer tick.Stop()
	q.sweep(ctx)
	for {
		for _, key := range q.claimable(q.deps.Now()) {
			select {
			case q.claiming <- struct{}{}:
			case <-ctx.Done():
				return
			}
			q.loops.Go(func() {
				defer func() { <-q.claiming }()
				q.claim(ctx, key)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			q.sweep(ctx)
		case <-q.toClaim:
		}
	}
}

// sweep looks for what no doorbell told of: retries whose time has come, and what other processes left behind.
func (q *Queue) sweep(ctx context.Context) {
	keys, err := q.deps.Store.Waiting(ctx, q.deps.Now())
	if err != nil && ctx.Err() == nil {
		q.deps.Log.WarnContext(ctx, "due webhook deliveries not found", "error", err)
	}
	q.look(keys...)
}

func (q *Queue) claim(ctx context.Context, key Key) {
	now := q.deps.Now()
	slots, used := q.reserve(key, now)
	var claims []Claim
	var p Policy
	var err error
	if slots > 0 {
		claims, p, err = q.deps.Store.Claim(ctx, key, now, q.lease(now), slots, used)
	}
	if err != nil {
		claims = nil
		if ctx.Err() == nil {
			q.deps.Log.WarnContext(ctx, "due webhook deliveries not claimed", "company", key.Scope, "endpoint", key.ID, "error", err)
		}
	}
	for _, c := range claims {
		go func() {
			defer q.free(key, 1)
			q.deliver(c)
		}()
	}
	q.claimed(key, slots, used, len(claims), p)
}
