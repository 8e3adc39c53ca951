package bus

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func alone(t *testing.T) *Bus {
	t.Helper()
	b, err := Connect(t.Context(), Config{Embedded: &Embedded{StoreDir: t.TempDir()}})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func TestPublishLossy_DisplacesNoDoorbell(t *testing.T) {
	b := alone(t)
	b.stopSending() // as if the network stalled
	piece, err := DeltaSubject("cmp_1", "cnv_1")
	require.NoError(t, err)
	bell, err := ConversationSubject("cmp_1", "cnv_1")
	require.NoError(t, err)
	for range 3 * queueSize {
		b.PublishLossy(t.Context(), piece, []byte("x"))
	}
	require.EqualValues(t, 3*queueSize-lossySize, b.Stats().Dropped)
	for range queueSize {
		b.Publish(t.Context(), bell, nil)
	}
	require.EqualValues(t, 3*queueSize-lossySize, b.Stats().Dropped, "all doorbells have room")
}

// A process that can't keep up with pieces has missed nothing that it has to look for.
func TestSlowConsumer_OfPiecesHasNobodyLookAgain(t *testing.T) {
	b := alone(t)
	again := make(chan struct{}, 8)
	b.OnReconnect(func() { again <- struct{}{} })
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	slow := func(pattern string) {
		_, err := b.Subscribe(pattern, func(context.Context, string, []byte) { <-release })
		require.NoError(t, err)
		b.mu.Lock()
		defer b.mu.Unlock()
		require.NoError(t, b.topics[pattern].sub.SetPendingLimits(1, -1))
	}
	slow(AllDeltas)
	slow(AllConversations)
	dropped := func(pattern string) int {
		n, err := b.topics[pattern].sub.Dropped()
		require.NoError(t, err)
		return n
	}
	flood := func(pattern string, publish func()) {
		require.Eventually(t, func() bool {
			publish()
			return dropped(pattern) > 0
		}, 20*time.Second, time.Millisecond)
	}
	piece, err := DeltaSubject("cmp_1", "cnv_1")
	require.NoError(t, err)
	flood(AllDeltas, func() { b.PublishLossy(t.Context(), piece, nil) })
	bell, err := ConversationSubject("cmp_1", "cnv_1")
	require.NoError(t, err)
	flood(AllConversations, func() { b.Publish(t.Context(), bell, nil) })
	// NATS tells of the two in their order, on one goroutine.
	select {
	case <-again:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "lost doorbells have everybody look")
	}
	require.Empty(t, again, "lost pieces don't")
}
