package gossip_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/platform/limit/gossip"
)

// wire is a bus that keeps what is published until the test has it delivered, to the publisher too, as NATS does.
type wire struct {
	handlers []bus.Handler
	queued   []sent
}

type sent struct {
	subject string
	data    []byte
}

func (w *wire) PublishLossy(_ context.Context, subject string, data []byte) {
	w.queued = append(w.queued, sent{subject, data})
}

func (w *wire) Subscribe(_ string, fn bus.Handler) (func(), error) {
	w.handlers = append(w.handlers, fn)
	at := len(w.handlers) - 1
	return func() { w.handlers[at] = func(context.Context, string, []byte) {} }, nil
}

func (w *wire) deliver(ctx context.Context) {
	for _, m := range w.queued {
		for _, h := range w.handlers {
			h(ctx, m.subject, m.data)
		}
	}
	w.queued = nil
}

const secret = "an installation's own"

type process struct {
	group    *gossip.Group
	requests *limit.Limiter
}

func (w *wire) process(t *testing.T, now clock.Clock) process {
	t.Helper()
	g, err := gossip.New(w, secret, now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	l, err := g.Limiter("requests")
	require.NoError(t, err)
	return process{g, l}
}

func processes(t *testing.T, n int) (*wire, []process, *clock.Manual) {
	t.Helper()
	w, now := &wire{}, clock.NewManual(time.Unix(1_800_000_000, 0))
	var all []process
	for range n {
		all = append(all, w.process(t, now.Now))
	}
	return w, all, now
}

// flood has every process asked as often as it lets through for the given time, and
// returns how many went through; between is called after each interval.
func flood(all []process, now *clock.Manual, perMinute int, d time.Duration, between func()) int {
	through := 0
	for end := now.Now().Add(d); now.Now().Before(end); now.Advance(gossip.Every) {
		for _, p := range all {
			for ok := true; ok; {
				if ok, _ = p.requests.Allow("k", perMinute, now.Now()); ok {
					through++
				}
			}
		}
		between()
	}
	return through
}

func tell(t *testing.T, w *wire, all []process) func() {
	return func() {
		for _, p := range all {
			p.group.Tell(t.Context())
		}
		w.deliver(t.Context())
	}
}

func TestTell_ManyProcessesLetThroughAsMuchAsOne(t *testing.T) {
	const perMinute, minutes = 600, 10
	for _, n := range []int{2, 3} {
		w, all, now := processes(t, n)
		got := flood(all, now, perMinute, minutes*time.Minute, tell(t, w, all))
		// A quiet minute's burst and the rate after it; each process may have let through a burst
		// before it heard of the others, and that is paid back.
		one := perMinute + perMinute*minutes
		require.LessOrEqual(t, got, one+n*perMinute/60+n, "%d processes", n)
		require.GreaterOrEqual(t, got, one-n*perMinute/60-n, "%d processes", n)
	}
}

func TestTell_TheOvershootIsWhatComesInOneInterval(t *testing.T) {
	w, all, now := processes(t, 3)
	through := 0
	ask := func(p process, times int) {
		for range times {
			if ok, _ := p.requests.Allow("k", 60, now.Now()); ok {
				through++
			}
		}
	}
	// 10 an interval at each process: the burst of 60 ends in the second interval.
	for range 20 {
		for _, p := range all {
			ask(p, 10)
		}
		tell(t, w, all)()
		now.Advance(gossip.Every)
	}
	require.GreaterOrEqual(t, through, 60)
	require.LessOrEqual(t, through, 60+30+2)
}

func TestTell_WhatIsLostIsLetThroughOnce(t *testing.T) {
	w, all, now := processes(t, 2)
	round := 0
	got := flood(all, now, 600, 10*time.Minute, func() {
		for _, p := range all {
			p.group.Tell(t.Context())
		}
		if round++; round%4 == 0 {
			w.queued = nil
		}
		w.deliver(t.Context())
	})
	require.Greater(t, got, 6600-20)
	require.Less(t, got, 2*6600*7/10, "a quarter lost is far from all")
}

func TestTell_WithoutABusEachCountsForItself(t *testing.T) {
	w, all, now := processes(t, 2)
	got := flood(all, now, 600, 5*time.Minute, func() {
		for _, p := range all {
			p.group.Tell(t.Context())
		}
		w.queued = nil
	})
	require.InDelta(t, 2*3600, got, 4, "never unlimited, and nobody is refused for what isn't heard")
	// When it is back, nothing of the past is told.
	now.Advance(10 * time.Minute)
	tell(t, w, all)()
	ok, _ := all[0].requests.Allow("k", 600, now.Now())
	require.True(t, ok)
}

func TestTell_DuplicatesAndOrderMakeNoDifference(t *testing.T) {
	w, all, now := processes(t, 2)
	for range 3 {
		for range 10 {
			ok, _ := all[0].requests.Allow("k", 60, now.Now())
			require.True(t, ok)
		}
		all[0].group.Tell(t.Context())
	}
	require.Len(t, w.queued, 3)
	slices.Reverse(w.queued)
	w.queued = append(w.queued, w.queued...)
	w.deliver(t.Context())
	left := 0
	for ok := true; ok; {
		if ok, _ = all[1].requests.Allow("k", 60, now.Now()); ok {
			left++
		}
	}
	require.Equal(t, 30, left)
}

func TestTell_OnesOwnMessagesAreNotHeard(t *testing.T) {
	w, all, now := processes(t, 1)
	for range 30 {
		ok, _ := all[0].requests.Allow("k", 60, now.Now())
		require.True(t, ok)
	}
	tell(t, w, all)()
	for range 30 {
		ok, _ := all[0].requests.Allow("k", 60, now.Now())
		require.True(t, ok)
	}
}

func TestTell_AProcessThatStartsAnewIsHeard(t *testing.T) {
	w, all, now := processes(t, 2)
	for range 2 {
		for range 20 {
			ok, _ := all[0].requests.Allow("k", 60, now.Now())
			require.True(t, ok)
		}
		tell(t, w, all)()
		require.NoError(t, all[0].group.Stop(t.Context()))
		all[0] = w.process(t, now.Now) // with nothing in its memory, and its first message is number 1 again
	}
	_, wait := all[1].requests.Allow("k", 60, now.Now())
	require.Zero(t, wait)
	left := 1
	for ok := true; ok; {
		if ok, _ = all[1].requests.Allow("k", 60, now.Now()); ok {
			left++
		}
	}
	require.Equal(t, 20, left)
}

func TestTell_OneMessageForEachLimiterAndItIsBounded(t *testing.T) {
	w, all, now := processes(t, 1)
	other, err := all[0].group.Limiter("starts")
	require.NoError(t, err)
	for i := range 5000 {
		key := string(rune(i))
		all[0].requests.Allow(key, 10, now.Now())
		other.Allow(key, 10, now.Now())
	}
	all[0].group.Tell(t.Context())
	require.Len(t, w.queued, 2)
	for _, m := range w.queued {
		require.LessOrEqual(t, len(m.data), 25+20*gossip.MaxKeys)
	}
	require.NotEqual(t, w.queued[0].subject, w.queued[1].subject)
}

func TestHear_NamesAreApart(t *testing.T) {
	w, all, now := processes(t, 2)
	starts, err := all[1].group.Limiter("starts")
	require.NoError(t, err)
	for range 60 {
		all[0].requests.Allow("k", 60, now.Now())
	}
	tell(t, w, all)()
	ok, _ := starts.Allow("k", 60, now.Now())
	require.True(t, ok)
	ok, _ = all[1].requests.Allow("k", 60, now.Now())
	require.False(t, ok)
	_, err = all[0].group.Limiter("of.all")
	require.Error(t, err)
}

func TestHear_RubbishIsRefused(t *testing.T) {
	w, all, now := processes(t, 2)
	for range 60 {
		all[0].requests.Allow("k", 60, now.Now())
	}
	all[0].group.Tell(t.Context())
	good := w.queued[0]
	for name, bad := range map[string][]byte{
		"empty":         nil,
		"cut off":       good.data[:len(good.data)-1],
		"longer":        append(slices.Clone(good.data), 0),
		"other version": append([]byte{9}, good.data[1:]...),
		"no number":     append(append(slices.Clone(good.data[:17]), make([]byte, 8)...), good.data[25:]...),
		"too much":      append(slices.Clone(good.data[:len(good.data)-4]), 0xff, 0xff, 0xff, 0xff),
		"nothing taken": append(slices.Clone(good.data[:len(good.data)-4]), 0, 0, 0, 0),
		"a key twice":   append(slices.Clone(good.data), good.data[25:]...),
	} {
		w.queued = []sent{{good.subject, bad}}
		w.deliver(t.Context())
		ok, _ := all[1].requests.Allow("k", 60, now.Now())
		require.True(t, ok, name)
		now.Advance(time.Minute)
	}
}
