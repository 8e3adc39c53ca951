package bus_test

import (
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
)

func newHub(t testing.TB, b *bus.Bus) *bus.Hub {
	t.Helper()
	hub, err := bus.NewHub(b, bus.AllConversations)
	require.NoError(t, err)
	t.Cleanup(hub.Close)
	return hub
}

func empty(t testing.TB, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
		require.FailNow(t, "woken without reason")
	default:
	}
}

func TestHub_WakesTheSubjectAlone(t *testing.T) {
	b := embedded(t)
	hub := newHub(t, b)
	mine, cancel := hub.Listen(subject(t, "cnv_1"))
	defer cancel()
	also, cancelAlso := hub.Listen(subject(t, "cnv_1"))
	defer cancelAlso()
	other, cancelOther := hub.Listen(subject(t, "cnv_2"))
	defer cancelOther()
	b.Publish(t.Context(), subject(t, "cnv_1"), nil)
	receive(t, mine)
	receive(t, also)
	empty(t, other)
}

func TestHub_SameConversationOfAnotherCompanyStaysAsleep(t *testing.T) {
	b := embedded(t)
	hub := newHub(t, b)
	theirs, err := bus.ConversationSubject("cmp_2", "cnv_1")
	require.NoError(t, err)
	ch, cancel := hub.Listen(theirs)
	defer cancel()
	mine, cancelMine := hub.Listen(subject(t, "cnv_1"))
	defer cancelMine()
	b.Publish(t.Context(), subject(t, "cnv_1"), nil)
	receive(t, mine)
	empty(t, ch)
}

func TestHub_CoalescesWakeUps(t *testing.T) {
	hub := newHub(t, embedded(t))
	s := subject(t, "cnv_1")
	ch, cancel := hub.Listen(s)
	defer cancel()
	for range 10 {
		hub.Wake(s)
	}
	receive(t, ch)
	empty(t, ch)
	hub.Wake(s)
	receive(t, ch)
}

func TestHub_CancelForgetsTheListener(t *testing.T) {
	hub := newHub(t, embedded(t))
	s := subject(t, "cnv_1")
	var cancels []func()
	var chans []<-chan struct{}
	for range 5 {
		ch, cancel := hub.Listen(s)
		chans, cancels = append(chans, ch), append(cancels, cancel)
	}
	cancels[2]()
	cancels[2]() // twice is once
	cancels[4]()
	require.Equal(t, 3, hub.Listeners())
	hub.Wake(s)
	for i, ch := range chans {
		if i == 2 || i == 4 {
			empty(t, ch)
			continue
		}
		receive(t, ch)
	}
	for _, cancel := range cancels {
		cancel()
	}
	require.Zero(t, hub.Listeners())
}

func TestHub_WakeAll(t *testing.T) {
	hub := newHub(t, embedded(t))
	one, cancelOne := hub.Listen(subject(t, "cnv_1"))
	defer cancelOne()
	two, cancelTwo := hub.Listen(subject(t, "cnv_2"))
	defer cancelTwo()
	hub.WakeAll()
	receive(t, one)
	receive(t, two)
}

func TestHub_TwentyThousandWaitersOnOneSubscription(t *testing.T) {
	const waiters = 20_000
	b := embedded(t)
	before := b.Conn().NumSubscriptions()
	hub := newHub(t, b)
	heap := heapInUse()
	chans := make([]<-chan struct{}, waiters)
	cancels := make([]func(), waiters)
	for i := range waiters {
		chans[i], cancels[i] = hub.Listen(subject(t, "cnv_"+strconv.Itoa(i)))
	}
	perWaiter := (heapInUse() - heap) / waiters
	require.Less(t, perWaiter, int64(1024), "bytes a waiter")
	require.Equal(t, before+1, b.Conn().NumSubscriptions())
	require.Equal(t, waiters, hub.Listeners())

	var wait sync.WaitGroup
	for _, ch := range chans {
		wait.Add(1)
		go func() { defer wait.Done(); <-ch }()
	}
	for i := range waiters {
		s := subject(t, "cnv_"+strconv.Itoa(i))
		dropped := b.Stats().Dropped
		b.Publish(t.Context(), s, nil)
		if b.Stats().Dropped > dropped { // the test rings faster than the queue empties
			hub.Wake(s)
		}
	}
	wait.Wait()
	for _, cancel := range cancels {
		cancel()
	}
	require.Zero(t, hub.Listeners())
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestHub_ListenersComeAndGoWhileItRings(t *testing.T) {
	hub := newHub(t, embedded(t))
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				hub.Wake(subject(t, "cnv_1"))
				hub.WakeAll()
			}
		}
	})
	var listeners sync.WaitGroup
	for range 8 {
		listeners.Go(func() {
			for range 200 {
				ch, cancel := hub.Listen(subject(t, "cnv_1"))
				<-ch
				cancel()
			}
		})
	}
	listeners.Wait()
	close(stop)
	wait.Wait()
	require.Zero(t, hub.Listeners())
}

func BenchmarkHub_Wake(b *testing.B) {
	hub := newHub(b, embedded(b))
	for i := range 20_000 {
		_, cancel := hub.Listen(subject(b, "cnv_"+strconv.Itoa(i)))
		b.Cleanup(cancel)
	}
	s := subject(b, "cnv_77")
	for b.Loop() {
		hub.Wake(s)
	}
}

func BenchmarkPublish(b *testing.B) {
	bs := embedded(b)
	s := subject(b, "cnv_77")
	for b.Loop() {
		bs.Publish(b.Context(), s, nil)
	}
}
