package bus_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/test/natstest"
)

const patience = 20 * time.Second

func embedded(t testing.TB) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{Embedded: &bus.Embedded{StoreDir: t.TempDir()}})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func external(t testing.TB, url string) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{URL: url, Name: t.Name()})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func subject(t testing.TB, conversation string) string {
	t.Helper()
	s, err := bus.ConversationSubject("cmp_1", conversation)
	require.NoError(t, err)
	return s
}

// flush waits until the server has everything that was sent to it before.
func flush(t testing.TB, b *bus.Bus) {
	t.Helper()
	require.NoError(t, b.Conn().FlushTimeout(patience))
}

func receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing was received")
		panic("unreachable")
	}
}

func TestPublish_ReachesSubscribersOfBothProcesses(t *testing.T) {
	s := natstest.Start(t)
	one, two := external(t, s.URL()), external(t, s.URL())
	got := make(chan string, 8)
	for name, b := range map[string]*bus.Bus{"one": one, "two": two} {
		_, err := b.Subscribe(bus.AllConversations, func(_ context.Context, subject string, data []byte) {
			got <- name + " " + subject + " " + string(data)
		})
		require.NoError(t, err)
		require.Eventually(t, b.Connected, patience, time.Millisecond)
		flush(t, b)
	}
	one.Publish(t.Context(), subject(t, "cnv_1"), []byte("7"))
	require.ElementsMatch(t, []string{"one pf.conversation.cmp_1.cnv_1 7", "two pf.conversation.cmp_1.cnv_1 7"}, []string{receive(t, got), receive(t, got)})
}

func TestPublish_CarriesTheTrace(t *testing.T) {
	old := otel.GetTextMapPropagator()
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() { otel.SetTextMapPropagator(old) })
	b := embedded(t)
	got := make(chan trace.TraceID, 1)
	_, err := b.Subscribe(bus.AllCompanies, func(ctx context.Context, _ string, _ []byte) {
		got <- trace.SpanContextFromContext(ctx).TraceID()
	})
	require.NoError(t, err)
	want := trace.TraceID{1, 2, 3}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: want, SpanID: trace.SpanID{4}}))
	s, err := bus.CompanySubject("cmp_1")
	require.NoError(t, err)
	b.Publish(ctx, s, nil)
	require.Equal(t, want, receive(t, got))
}

func TestSubscribe_OneSubscriptionForManyHandlers(t *testing.T) {
	b := embedded(t)
	before := b.Conn().NumSubscriptions()
	var calls atomic.Int32
	var leave []func()
	for range 100 {
		unsubscribe, err := b.Subscribe(bus.AllSessions, func(context.Context, string, []byte) { calls.Add(1) })
		require.NoError(t, err)
		leave = append(leave, unsubscribe)
	}
	require.Equal(t, before+1, b.Conn().NumSubscriptions())
	s, err := bus.SessionSubject("cmp_1", "ses_1")
	require.NoError(t, err)
	b.Publish(t.Context(), s, nil)
	require.Eventually(t, func() bool { return calls.Load() == 100 }, patience, time.Millisecond)
	require.Equal(t, uint64(1), b.Stats().Received)

	for _, f := range leave {
		f()
		f() // twice is once
	}
	require.Equal(t, before, b.Conn().NumSubscriptions())
}

func TestSubscribe_RefusesForeignPatterns(t *testing.T) {
	b := embedded(t)
	for _, pattern := range []string{"", ">", "pf.>", "pf.conversation.>", "$JS.API.>", "pf.conversation.*a.b", "pf..x", "pf.conversation. .b"} {
		_, err := b.Subscribe(pattern, func(context.Context, string, []byte) {})
		require.Error(t, err, pattern)
	}
}

func TestPublish_RefusesPatternsAndForeignSubjects(t *testing.T) {
	b := embedded(t)
	for _, s := range []string{"pf.conversation.*.cnv_1", "pf.>", "$JS.API.STREAM.DELETE.KV_x", "other.subject"} {
		b.Publish(t.Context(), s, nil)
	}
	require.Equal(t, bus.Stats{Dropped: 4}, b.Stats())
}

func TestConnect_BeforeTheServerIsThere(t *testing.T) {
	s := natstest.Start(t)
	s.Kill(t)
	b := external(t, s.URL())
	require.False(t, b.Connected())
	got := make(chan string, 1)
	_, err := b.Subscribe(bus.AllConversations, func(_ context.Context, subject string, _ []byte) { got <- subject })
	require.NoError(t, err)
	b.Publish(t.Context(), subject(t, "cnv_lost"), nil) // neither blocks nor comes later
	require.Equal(t, bus.Stats{Dropped: 1}, b.Stats())

	s.Restart(t)
	require.Eventually(t, b.Connected, patience, time.Millisecond)
	flush(t, b)
	b.Publish(t.Context(), subject(t, "cnv_found"), nil)
	require.Equal(t, "pf.conversation.cmp_1.cnv_found", receive(t, got))
}

func TestReconnect_SubscriptionsGoOnAndListenersAreWoken(t *testing.T) {
	s := natstest.Start(t)
	b := external(t, s.URL())
	require.Eventually(t, b.Connected, patience, time.Millisecond)
	hub, err := bus.NewHub(b, bus.AllConversations)
	require.NoError(t, err)
	t.Cleanup(hub.Close)
	flush(t, b)
	var chans []<-chan struct{}
	for i := range 1200 { // more than are woken in one step
		ch, cancel := hub.Listen(subject(t, "cnv_"+strconv.Itoa(i)))
		t.Cleanup(cancel)
		chans = append(chans, ch)
	}
	for range 3 {
		s.Kill(t)
		require.Eventually(t, func() bool { return !b.Connected() }, patience, time.Millisecond)
		before := time.Now()
		b.Publish(t.Context(), subject(t, "cnv_1"), nil)
		require.Less(t, time.Since(before), time.Second)
		s.Restart(t)
		for _, ch := range chans {
			receive(t, ch)
		}
		require.Equal(t, 1, b.Conn().NumSubscriptions())
	}
	require.Equal(t, uint64(3), b.Stats().Dropped)
	flush(t, b)
	b.Publish(t.Context(), subject(t, "cnv_5"), nil)
	receive(t, chans[5])
}

func TestDrain_SendsWhatIsQueued(t *testing.T) {
	s := natstest.Start(t)
	sender, receiver := external(t, s.URL()), external(t, s.URL())
	var got atomic.Int32
	_, err := receiver.Subscribe(bus.AllConversations, func(context.Context, string, []byte) { got.Add(1) })
	require.NoError(t, err)
	for _, b := range []*bus.Bus{sender, receiver} {
		require.Eventually(t, b.Connected, patience, time.Millisecond)
		flush(t, b)
	}
	for range 1000 {
		sender.Publish(t.Context(), subject(t, "cnv_1"), nil)
	}
	require.NoError(t, sender.Drain(t.Context()))
	require.Eventually(t, func() bool { return got.Load() == 1000 }, patience, time.Millisecond)
	_, err = sender.Subscribe(bus.AllConversations, func(context.Context, string, []byte) {})
	require.Error(t, err)
	sender.Publish(t.Context(), subject(t, "cnv_1"), nil)
	require.Equal(t, uint64(1), sender.Stats().Dropped)
}

func TestConnect_RefusesBadConfig(t *testing.T) {
	for name, cfg := range map[string]bus.Config{
		"nothing":       {},
		"both":          {URL: "nats://127.0.0.1:4222", Embedded: &bus.Embedded{StoreDir: "x"}},
		"no store":      {Embedded: &bus.Embedded{}},
		"half a client": {URL: "nats://127.0.0.1:4222", CertFile: "x"},
		"no CA file":    {URL: "nats://127.0.0.1:4222", CAFile: "/does/not/exist"},
	} {
		_, err := bus.Connect(t.Context(), cfg)
		require.Error(t, err, name)
	}
}

func TestClose_LeavesNoGoroutines(t *testing.T) {
	s := natstest.Start(t)
	before := runtime.NumGoroutine()
	for range 5 {
		b, err := bus.Connect(t.Context(), bus.Config{URL: s.URL()})
		require.NoError(t, err)
		hub, err := bus.NewHub(b, bus.AllConversations)
		require.NoError(t, err)
		_, cancel := hub.Listen(subject(t, "cnv_1"))
		cancel()
		hub.Close()
		b.Close()
		b.Close() // twice is once
	}
	e, err := bus.Connect(t.Context(), bus.Config{Embedded: &bus.Embedded{StoreDir: t.TempDir()}})
	require.NoError(t, err)
	require.NoError(t, e.Drain(t.Context()))
	// Eventually runs its condition on one more.
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, patience, 10*time.Millisecond)
}

func TestMeasure_DroppedDoorbells(t *testing.T) {
	b := embedded(t)
	reader := sdkmetric.NewManualReader()
	require.NoError(t, b.Measure(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	b.Close()
	for range 3 {
		b.Publish(t.Context(), subject(t, "cnv_1"), nil)
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	m := all.ScopeMetrics[0].Metrics[0]
	require.Equal(t, "poppyfield.bus.doorbells.dropped", m.Name)
	sum, ok := m.Data.(metricdata.Sum[int64])
	require.True(t, ok)
	require.Equal(t, int64(3), sum.DataPoints[0].Value)
}
