package app

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// after lets n attempts end with f.
func (b *breaker) after(t *testing.T, now time.Time, n int, f fault) {
	t.Helper()
	for range n {
		ticket, wait := b.admit(now)
		require.Zero(t, wait)
		b.settle(ticket, now, f, breakerMax)
	}
}

func TestBreaker_OpensAfterASeries(t *testing.T) {
	var b breaker
	b.after(t, noon, breakerSeries-1, deadFault)
	b.after(t, noon, 1, noFault)
	b.after(t, noon, breakerSeries-1, deadFault)
	b.after(t, noon, 1, refusedFault) // it was reached
	require.Equal(t, "closed", b.state(noon))
	b.after(t, noon, breakerSeries, deadFault)
	require.Equal(t, "open", b.state(noon))
	_, wait := b.admit(noon)
	require.Equal(t, breakerPause, wait)
	_, wait = b.admit(noon.Add(breakerPause - time.Millisecond))
	require.Equal(t, time.Millisecond, wait)
}

func TestBreaker_OpensAtHalfOfMany(t *testing.T) {
	var b breaker
	for range breakerSample/2 - 1 {
		b.after(t, noon, 1, noFault)
		b.after(t, noon, 1, deadFault)
	}
	b.after(t, noon, 1, noFault)
	require.Equal(t, "closed", b.state(noon))
	b.after(t, noon, 1, deadFault)
	require.Equal(t, "open", b.state(noon), "10 of 20")

	b = breaker{}
	for range breakerSample {
		b.after(t, noon, 2, noFault)
		b.after(t, noon, 1, deadFault)
	}
	require.Equal(t, "closed", b.state(noon), "a third")

	b = breaker{}
	now := noon
	for range 3 * breakerSample { // never 20 within 30 s
		b.after(t, now, 1, deadFault)
		b.after(t, now, 1, noFault)
		now = now.Add(4 * time.Second)
	}
	require.Equal(t, "closed", b.state(now))
}

func TestBreaker_HalfOpenLetsOneThrough(t *testing.T) {
	var b breaker
	b.after(t, noon, breakerSeries, deadFault)
	now := noon.Add(breakerPause)
	require.Equal(t, "half_open", b.state(now))
	trial, wait := b.admit(now)
	require.Zero(t, wait)
	for range 3 {
		_, wait = b.admit(now)
		require.Positive(t, wait, "one at a time")
	}
	b.abandon(trial)
	trial, wait = b.admit(now)
	require.Zero(t, wait, "given back")
	b.settle(trial, now, noFault, breakerMax)
	require.Equal(t, "closed", b.state(now))
	b.after(t, now, breakerSeries-1, deadFault)
	require.Equal(t, "closed", b.state(now), "what was before is forgotten")
}

// An answer may take minutes; that it has begun shows that somebody is there.
func TestBreaker_TrialEndsWhenTheAnswerBegins(t *testing.T) {
	var b breaker
	b.after(t, noon, breakerSeries, deadFault)
	now := noon.Add(breakerPause)
	trial, wait := b.admit(now)
	require.Zero(t, wait)
	b.reached(trial, now, breakerMax)
	require.Equal(t, "closed", b.state(now))
	other, wait := b.admit(now)
	require.Zero(t, wait)
	b.settle(trial, now, deadFault, breakerMax)
	require.Zero(t, b.series, "it has said what it had to say")
	for range breakerSeries {
		b.reached(other, now, breakerMax)
		b.settle(other, now, deadFault, breakerMax)
	}
	require.Equal(t, "open", b.state(now), "without a trial the end counts")
}

func TestJudge_WhoseFaultItIs(t *testing.T) {
	a := &App{now: func() time.Time { return noon }}
	bad := badAnswer(errors.New("x"))
	for name, c := range map[string]struct {
		status int
		err    error
		want   fault
	}{
		"answered":                  {200, nil, noFault},
		"broken contract":           {200, bad, refusedFault},
		"stream broken off":         {200, &egress.Error{Kind: egress.Protocol}, refusedFault},
		"stream stopped":            {200, &egress.Error{Kind: egress.Timeout}, refusedFault},
		"body that is ours":         {0, bad, refusedFault},
		"not found":                 {404, nil, refusedFault},
		"gone":                      {410, nil, refusedFault},
		"throttled":                 {429, nil, deadFault},
		"too slow for it":           {408, nil, deadFault},
		"broken":                    {500, nil, deadFault},
		"no answer":                 {0, &egress.Error{Kind: egress.Timeout}, deadFault},
		"no connection":             {0, &egress.Error{Kind: egress.Connect}, deadFault},
		"broken before its headers": {0, &egress.Error{Kind: egress.Protocol}, deadFault},
	} {
		t.Run(name, func(t *testing.T) {
			_, f := a.judge(Endpoint{Role: RoleAnswers}, Spoken{Response: egress.Response{Status: c.status}, Err: c.err})
			require.Equal(t, c.want, f)
		})
	}
}

func TestBreaker_PauseDoublesUpToItsBound(t *testing.T) {
	for most, want := range map[time.Duration][]int{
		breakerMax:     {10, 20, 40, 80, 160, 300, 300},
		breakerMaxBack: {10, 15, 15},
	} {
		var b breaker
		now := noon
		for range breakerSeries {
			ticket, _ := b.admit(now)
			b.settle(ticket, now, deadFault, most)
		}
		for _, seconds := range want {
			_, wait := b.admit(now)
			require.InDelta(t, seconds, wait.Seconds(), 0)
			now = now.Add(wait)
			trial, wait := b.admit(now)
			require.Zero(t, wait)
			b.settle(trial, now, deadFault, most)
		}
	}
}

func TestBreaker_AttemptsFromBeforeSayNothing(t *testing.T) {
	var b breaker
	slow, _ := b.admit(noon)
	b.after(t, noon, breakerSeries, deadFault)
	b.settle(slow, noon, noFault, breakerMax)
	require.Equal(t, "open", b.state(noon), "it began when the breaker was closed")
	now := noon.Add(breakerPause)
	trial, _ := b.admit(now)
	b.settle(slow, now, deadFault, breakerMax)
	b.settle(trial, now, noFault, breakerMax)
	require.Equal(t, "closed", b.state(now))
	b.settle(trial, now, deadFault, breakerMax)
	require.Zero(t, b.series)
}

func TestRate_ExactOverTime(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		burst int
	}{{1, 1}, {10, 1}, {33.3, 5}, {250, 0}, {0.2, 1}} {
		l := &live{}
		e := Endpoint{ID: "wep_1", Settings: Settings{Policy: Policy{Rate: c.rate, Burst: c.burst}}}
		const seconds = 200
		sent, step := 0, 10*time.Millisecond
		for at := time.Duration(0); at < seconds*time.Second; at += step {
			for range 4 { // more come than may go
				if _, wait, _ := l.admit(e, noon.Add(at)); wait == 0 {
					sent++
				}
			}
		}
		most := c.rate*seconds + float64(e.bucket())
		require.LessOrEqual(t, float64(sent), most)
		require.GreaterOrEqual(t, float64(sent), 0.99*c.rate*seconds)
	}
}

func TestRate_WhoIsSentAwayComesBackInTurn(t *testing.T) {
	l := &live{}
	e := Endpoint{ID: "wep_1", Settings: Settings{Policy: Policy{Rate: 10, Burst: 1}}}
	_, wait, _ := l.admit(e, noon)
	require.Zero(t, wait)
	var turns []time.Duration
	for range 50 {
		_, wait, why := l.admit(e, noon)
		require.Equal(t, "rate used up", why)
		turns = append(turns, wait)
	}
	for i, turn := range turns {
		require.InDelta(t, float64(i+1)*0.1, turn.Seconds(), 0.001)
		_, wait, _ := l.admit(e, noon.Add(turn))
		require.Zero(t, wait, "whoever comes at their time goes at once")
	}
	for range 10_000 {
		_, wait, _ = l.admit(e, noon.Add(6*time.Second))
		require.LessOrEqual(t, wait, maxLine)
	}
}

func TestRate_ChangesAtOnce(t *testing.T) {
	l := &live{}
	slow := Endpoint{ID: "wep_1", Settings: Settings{Policy: Policy{Rate: 0.01, Burst: 1}}}
	_, wait, _ := l.admit(slow, noon)
	require.Zero(t, wait)
	_, wait, _ = l.admit(slow, noon)
	require.Greater(t, wait, 30*time.Second)
	fast := slow
	fast.Policy.Rate = 100
	_, wait, _ = l.admit(fast, noon.Add(10*time.Millisecond))
	require.LessOrEqual(t, wait, 10*time.Millisecond)
	fast.Policy.Rate = 0
	for range 100 {
		_, wait, _ = l.admit(fast, noon)
		require.Zero(t, wait, "no limit")
	}
}

// A rate that is used up must not use up the trial of a breaker that is half open.
func TestAdmit_RateGivesTheTrialBack(t *testing.T) {
	l := &live{}
	e := Endpoint{ID: "wep_1", Settings: Settings{Policy: Policy{Rate: 0.1, Burst: breakerSeries}}}
	for range breakerSeries {
		pass, wait, _ := l.admit(e, noon)
		require.Zero(t, wait)
		l.settle(e, pass, noon, deadFault, time.Millisecond)
	}
	_, wait, why := l.admit(e, noon)
	require.Equal(t, breakerPause, wait)
	require.Equal(t, "endpoint keeps failing", why)
	e.Policy.Burst, e.Policy.Rate = 1, 0.001
	now := noon.Add(breakerPause)
	l.take(e, now)
	_, wait, why = l.admit(e, now)
	require.Positive(t, wait)
	require.Equal(t, "rate used up", why)
	e.Policy.Rate = 0
	_, wait, _ = l.admit(e, now)
	require.Zero(t, wait)
}

func TestHealth_CountsFiveMinutes(t *testing.T) {
	now := noon
	a := &App{now: func() time.Time { return now }}
	e := Endpoint{ID: "wep_1"}
	require.Equal(t, Health{SuccessRate: 1, Breaker: "closed"}, a.Health(Endpoint{}))
	l := a.lives.of(e, now)
	for i := range 100 {
		f := noFault
		if i%4 == 0 {
			f = refusedFault
		}
		pass, _, _ := l.admit(e, now)
		l.settle(e, pass, now, f, time.Duration(i+1)*time.Millisecond)
	}
	h := a.Health(e)
	require.Equal(t, 100, h.Attempts)
	require.InDelta(t, 0.75, h.SuccessRate, 0.001)
	require.Equal(t, 50*time.Millisecond, h.P50)
	require.Equal(t, 95*time.Millisecond, h.P95)
	now = now.Add(healthWindow)
	h = a.Health(e)
	require.Zero(t, h.Attempts)
	require.InDelta(t, 1, h.SuccessRate, 0)
	require.Zero(t, h.P95)
	for range 3 * maxSamples {
		l.settle(e, ticket{}, now, noFault, time.Second)
	}
	require.Len(t, l.samples, maxSamples)
}

func TestLives_ForgetWhatIsNotUsed(t *testing.T) {
	var l lives
	for i := range 10 {
		l.of(Endpoint{ID: string(rune('a' + i))}, noon)
	}
	later := noon.Add(liveFor + 2*time.Minute)
	one := l.of(Endpoint{ID: "z"}, later)
	require.Len(t, l.byID, 1)
	pass, _, _ := one.admit(Endpoint{ID: "z"}, later)
	for range breakerSeries {
		one.settle(Endpoint{ID: "z"}, pass, later, deadFault, 0)
	}
	require.True(t, one.breaker.open)
	l.of(Endpoint{ID: "z", Settings: Settings{Epoch: 1}}, later)
	require.False(t, one.breaker.open, "a new epoch starts afresh")
}
