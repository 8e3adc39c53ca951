package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

const company = "cmp_01234567890123456789012345"

func alone(t *testing.T) (*Dispatcher, *clock.Manual) {
	t.Helper()
	now := clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	d := New(Config{}, Deps{Now: now.Now})
	d.running = true
	return d, now
}

// takes returns how many of 100 deliveries may go at this moment, and frees their slots again.
func (d *Dispatcher) takes(t *testing.T) int {
	t.Helper()
	var slots []*slot
	for range 100 {
		if s, ok := d.take(company, route{}); ok {
			slots = append(slots, s)
		}
	}
	busy, free := d.busy()
	require.True(t, free)
	require.Contains(t, busy, company)
	for _, s := range slots {
		s.Free()
	}
	return len(slots)
}

func TestHeld_OneTriesAfterEachPauseAndPausesGrow(t *testing.T) {
	d, now := alone(t)
	d.heldBack(company, now.Now(), time.Minute)
	require.Zero(t, d.takes(t))
	for _, pause := range []float64{.1, .2, .4, .8, 1.6, 3.2, 5, 5} {
		now.Advance(time.Duration(pause*float64(time.Second)) - 1)
		require.Zero(t, d.takes(t))
		now.Advance(1)
		require.Equal(t, 1, d.takes(t))
		d.heldBack(company, now.Now(), time.Minute)
	}
	// What the backend itself says is no longer waited out than it says.
	now.Advance(time.Hour)
	require.Equal(t, 1, d.takes(t))
	d.heldBack(company, now.Now(), time.Second)
	now.Advance(time.Second)
	require.Equal(t, 1, d.takes(t))
}

func TestHeld_AnswerOfWhoTriedOpensIt(t *testing.T) {
	d, now := alone(t)
	early := now.Now()
	d.heldBack(company, early, time.Minute)
	d.heldBack(company, early, time.Minute) // claimed together with the first
	now.Advance(heldFirst)
	require.Equal(t, 1, d.takes(t), "they count once")
	d.admitted(company, early)
	require.Zero(t, d.takes(t), "an answer to what was asked before says nothing")
	d.admitted(company, now.Now())
	require.Equal(t, 64, d.takes(t))
}

// A model takes a while to answer: others don't wait for that.
func TestHeld_TwiceAsManyEveryStepWhileNoneIsHeldBack(t *testing.T) {
	d, now := alone(t)
	d.heldBack(company, now.Now(), time.Minute)
	now.Advance(heldFirst)
	for n := 1; n <= 64; n *= 2 {
		require.Equal(t, n, d.takes(t))
		now.Advance(heldStep)
	}
	require.Equal(t, 64, d.takes(t))
	require.Empty(t, d.held)
}

func TestHeld_ABackendThatChangedIsTriedAtOnce(t *testing.T) {
	d, now := alone(t)
	scope, err := tenancy.For(company)
	require.NoError(t, err)
	d.heldBack(company, now.Now(), time.Minute)
	d.BackendChanged(scope)
	require.Equal(t, 64, d.takes(t))
}

func TestHeld_IsForgotten(t *testing.T) {
	d, now := alone(t)
	d.heldBack(company, now.Now(), time.Minute)
	now.Advance(time.Minute)
	busy, _ := d.busy()
	require.Empty(t, busy)
	require.Empty(t, d.held)
}

func TestAsk_AFullStreamIsNotAskedAgainAtOnce(t *testing.T) {
	d, now := alone(t)
	scope, err := tenancy.For(company)
	require.NoError(t, err)
	claim := store.Claim{Scope: scope}
	require.Equal(t, now.Now(), d.noStream(claim).At, "another process may have one")
	open := func(most int) *Stream {
		s := &Stream{scope: scope, max: most, events: make(chan Event, most), slow: make(chan struct{}), open: map[string]*question{}, answered: map[string]struct{}{}}
		require.True(t, d.streams.add(s))
		return s
	}
	open(1)
	require.NotNil(t, d.streams.ask(company, Event{Delivery: "dlv_1"}, nil))
	require.Nil(t, d.streams.ask(company, Event{Delivery: "dlv_2"}, nil))
	require.Equal(t, now.Now().Add(time.Second), d.noStream(claim).At)

	// One that doesn't take its events is passed over.
	slow, good := open(8), open(9)
	for range 8 {
		slow.events <- Event{}
	}
	good.open["dlv_0"] = &question{}
	good.open["dlv_00"] = &question{}
	require.Same(t, good, d.streams.ask(company, Event{Delivery: "dlv_3"}, nil).stream)
	require.True(t, slow.leaving)
}
