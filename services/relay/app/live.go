package app

import (
	"crypto/tls"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

const (
	healthWindow = 5 * time.Minute
	// maxSamples is how many lengths of attempts the percentiles are made of.
	maxSamples = 256
	// liveFor is how long what is known of an endpoint outlives its last attempt.
	liveFor = 2 * healthWindow
	// saveEvery is how often a series of failures is written down while it grows.
	saveEvery = 5 * time.Second
	// maxLine bounds for how long somebody is sent away because the rate is used up.
	maxLine = time.Minute
)

// lives are what this process knows of endpoints by itself.
type lives struct {
	mu    sync.Mutex
	byID  map[string]*live
	swept time.Time
}

// live is what this process knows of one endpoint: how attempts go, and what is ready for the next.
type live struct {
	mu      sync.Mutex
	epoch   int64
	used    time.Time
	breaker breaker
	health  counts
	samples []sample // a ring
	next    int
	limiter *rate.Limiter
	line    time.Time // until when those who were sent away come back
	series  liveSeries

	ready   *prepared
	version int64 // of the row that ready is made of
}

type sample struct {
	at   time.Time
	took time.Duration
}

// liveSeries is the failures one after the other that this process saw.
type liveSeries struct {
	failures    int
	unsaved     int
	saved       time.Time
	since       time.Time
	lastSuccess time.Time
}

// prepared is an endpoint's credentials, ready to be sent.
type prepared struct {
	credentials Credentials
	certificate *tls.Certificate
}

func (l *lives) of(e Endpoint, now time.Time) *live {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = map[string]*live{}
	}
	if now.Sub(l.swept) > time.Minute {
		l.swept = now
		for id, one := range l.byID {
			if one.idle(now) {
				delete(l.byID, id)
			}
		}
	}
	one := l.byID[e.ID]
	if one == nil {
		one = &live{epoch: e.Epoch}
		l.byID[e.ID] = one
	}
	one.touch(e.Epoch, now)
	return one
}

func (l *lives) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, id)
}

func (l *live) idle(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.used) > liveFor
}

func (l *live) touch(epoch int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = now
	if epoch > l.epoch {
		l.epoch = epoch
		l.breaker = breaker{generation: l.breaker.generation + 1}
		l.health, l.samples, l.next, l.series = counts{}, nil, 0, liveSeries{}
	}
}

// admit gives a ticket for an attempt, or says why there is none and for how long.
func (l *live) admit(e Endpoint, now time.Time) (ticket, time.Duration, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, wait := l.breaker.admit(now)
	if wait > 0 {
		return ticket{}, wait, "endpoint keeps failing"
	}
	if wait := l.take(e, now); wait > 0 {
		l.breaker.abandon(t)
		return ticket{}, wait, "rate used up"
	}
	return t, 0, ""
}

// take takes a token, or says when to come back: each of those who come too early is
// told a moment of its own, so that they don't come all at once.
func (l *live) take(e Endpoint, now time.Time) time.Duration {
	if e.Policy.Rate <= 0 {
		l.limiter = nil
		return 0
	}
	limit, burst := rate.Limit(e.Policy.Rate), e.bucket()
	switch {
	case l.limiter == nil:
		l.limiter = rate.NewLimiter(limit, burst)
	case l.limiter.Limit() != limit || l.limiter.Burst() != burst:
		l.limiter.SetLimitAt(now, limit)
		l.limiter.SetBurstAt(now, burst)
	}
	if l.limiter.AllowN(now, 1) {
		return 0
	}
	seconds := (1 - l.limiter.TokensAt(now)) / e.Policy.Rate
	first := now.Add(time.Duration(seconds*float64(time.Second)) + 1) // rounded up
	at := l.line.Add(time.Duration(float64(time.Second) / e.Policy.Rate))
	if at.Before(first) {
		at = first
	}
	if at.Sub(now) > maxLine {
		return max(maxLine, first.Sub(now))
	}
	l.line = at
	return at.Sub(now)
}

func (l *live) abandon(t ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaker.abandon(t)
}

// reached takes that the answer of an attempt has begun.
func (l *live) reached(e Endpoint, t ticket, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaker.reached(t, now, e.longestBreak())
}

// longestBreak is for how long the breaker may stay open at a time.
func (e Endpoint) longestBreak() time.Duration {
	if e.Role == RoleAnswers {
		return breakerMaxBack
	}
	return breakerMax
}

// settle takes the result of an attempt that took so long.
func (l *live) settle(e Endpoint, t ticket, now time.Time, f fault, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaker.settle(t, now, f, e.longestBreak())
	l.health.add(now, f != noFault)
	one := sample{now, took}
	if len(l.samples) < maxSamples {
		l.samples = append(l.samples, one)
	} else {
		l.samples[l.next] = one
		l.next = (l.next + 1) % maxSamples
	}
}

// failed counts a failure of the series, and returns how many are to be written down now: 0 for not yet.
func (l *live) failed(now time.Time, due func(since time.Time) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.series
	s.failures++
	s.unsaved++
	if s.since.IsZero() {
		s.since = now
	}
	if !s.saved.IsZero() && now.Sub(s.saved) < saveEvery && !due(s.since) {
		return 0
	}
	n := s.unsaved
	s.unsaved, s.saved = 0, now
	return n
}

// unsaved takes back that failures were written down.
func (l *live) unsaved(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.series.unsaved += n
	l.series.saved = time.Time{}
}

// succeeded ends the series and reports whether there was one.
func (l *live) succeeded(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	failing := l.series.failures > 0
	l.series = liveSeries{lastSuccess: now}
	return failing
}

// Health is how attempts at an endpoint go.
type Health struct {
	SuccessRate   float64
	Attempts      int
	Breaker       string
	BreakerUntil  time.Time
	Failures      int
	FailingSince  *time.Time
	LastSuccessAt *time.Time
	P50, P95      time.Duration
	Pending       int // of a listener
	OldestPending *time.Time
}

// Health returns how attempts at e go.
func (a *App) Health(e Endpoint) Health {
	now := a.now()
	out := Health{SuccessRate: 1, Breaker: "closed", Failures: e.Failures, FailingSince: e.FailingSince, LastSuccessAt: e.LastSuccessAt}
	if e.ID == "" {
		return out
	}
	l := a.lives.of(e, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	good, bad := l.health.within(now, healthWindow)
	if out.Attempts = good + bad; out.Attempts > 0 {
		out.SuccessRate = float64(good) / float64(out.Attempts)
	}
	if out.Breaker = l.breaker.state(now); out.Breaker != "closed" {
		out.BreakerUntil = l.breaker.until
	}
	s := l.series
	if out.FailingSince != nil {
		out.Failures += s.unsaved
	} else if s.failures > 0 {
		out.Failures, out.FailingSince = s.failures, &s.since
	}
	if at := s.lastSuccess; !at.IsZero() && (out.LastSuccessAt == nil || at.After(*out.LastSuccessAt)) {
		out.LastSuccessAt = &at
	}
	out.P50, out.P95 = l.percentiles(now)
	return out
}

func (l *live) percentiles(now time.Time) (p50, p95 time.Duration) {
	took := make([]time.Duration, 0, len(l.samples))
	for _, s := range l.samples {
		if now.Sub(s.at) < healthWindow {
			took = append(took, s.took)
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return took[(len(took)-1)/2], took[(len(took)-1)*95/100]
}

// prepare returns the endpoint's credentials, opened once for each version of it.
func (a *App) prepare(scope tenancy.Scope, e Endpoint, l *live) (*prepared, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready != nil && l.version == e.Version {
		return l.ready, nil
	}
	c, err := a.open(scope, e)
	if err != nil {
		return nil, err
	}
	out := &prepared{credentials: c}
	if e.Policy.Certificate != "" {
		pair, err := tls.X509KeyPair([]byte(e.Policy.Certificate), []byte(c.ClientKey))
		if err != nil {
			return nil, err
		}
		out.certificate = &pair
	}
	l.ready, l.version = out, e.Version
	return out, nil
}
