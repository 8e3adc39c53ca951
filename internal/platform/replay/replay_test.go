package replay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/natstest"
)

const patience = 20 * time.Second

func connect(t testing.TB, cfg bus.Config) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	require.Eventually(t, b.Connected, patience, time.Millisecond)
	return b
}

func embedded(t testing.TB) *bus.Bus {
	t.Helper()
	return connect(t, bus.Config{Embedded: &bus.Embedded{StoreDir: t.TempDir()}})
}

// later is a clock that runs, well past the birth of every memory of the test.
func later() time.Time { return clock.System().Add(time.Minute) }

func open(t testing.TB, b *bus.Bus, change ...func(*replay.Config)) *replay.Memory {
	t.Helper()
	cfg := replay.Config{Now: later, Timeout: 5 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	m, err := replay.Open(t.Context(), b.JetStream(), cfg)
	require.NoError(t, err)
	return m
}

func claim(t testing.TB, m *replay.Memory, value string) error {
	t.Helper()
	return m.Claim(t.Context(), "cmp_1", replay.KindDPoP, "thumbprint", value, later(), later().Add(time.Minute))
}

func TestClaim_SecondIsSeen(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#22", "poppy-0.1/4.2#20", "poppy-0.1/5#26")
	m := open(t, embedded(t))
	require.NoError(t, claim(t, m, "jti"))
	require.ErrorIs(t, claim(t, m, "jti"), replay.ErrSeen)
	require.NoError(t, claim(t, m, "other jti"))
}

func TestClaim_ForeignCharactersAreKeysToo(t *testing.T) {
	m := open(t, embedded(t))
	for _, v := range []string{"", "*", ">", "a.b", "\x00", "\xff\xfe", "jti with spaces", strings.Repeat("x", 300)} {
		require.NoError(t, claim(t, m, v), "%q", v)
		require.ErrorIs(t, claim(t, m, v), replay.ErrSeen, "%q", v)
	}
}

func TestMT06_ClaimsOfAnotherCompanyKindOrOwnerAreIndependent(t *testing.T) {
	m := open(t, embedded(t))
	now := later()
	for _, parts := range [][4]string{
		{"cmp_1", replay.KindDPoP, "owner", "jti"},
		{"cmp_2", replay.KindDPoP, "owner", "jti"},
		{"cmp_1", replay.KindClientAssertion, "owner", "jti"},
		{"cmp_1", replay.KindSessionAssertion, "owner", "jti"},
		{"cmp_1", replay.KindDPoP, "other", "jti"},
		// The same characters, divided otherwise.
		{"cmp_1", replay.KindDPoP, "ownerj", "ti"},
		{"cmp_1", replay.KindDPoP, "owne", "rjti"},
		{"cmp_1d", "pop", "owner", "jti"},
	} {
		require.NoError(t, m.Claim(t.Context(), parts[0], parts[1], parts[2], parts[3], now, now.Add(time.Minute)), "%v", parts)
	}
}

func TestClaim_OneOfFiftyWins(t *testing.T) {
	s := natstest.Start(t)
	memories := []*replay.Memory{open(t, connect(t, bus.Config{URL: s.URL()})), open(t, connect(t, bus.Config{URL: s.URL()}))}
	var won, seen atomic.Int32
	var wait sync.WaitGroup
	for i := range 50 {
		wait.Go(func() {
			switch err := claim(t, memories[i%2], "jti"); {
			case err == nil:
				won.Add(1)
			case errors.Is(err, replay.ErrSeen):
				seen.Add(1)
			}
		})
	}
	wait.Wait()
	require.Equal(t, int32(1), won.Load())
	require.Equal(t, int32(49), seen.Load())
}

func TestClaim_SurvivesARestartOfTheEmbeddedServer(t *testing.T) {
	dir := t.TempDir()
	b := connect(t, bus.Config{Embedded: &bus.Embedded{StoreDir: dir}})
	m := open(t, b)
	issued, until := later(), later().Add(5*time.Minute)
	require.NoError(t, m.Claim(t.Context(), "cmp_1", replay.KindDPoP, "o", "jti", issued, until))
	require.NoError(t, b.Drain(t.Context()))

	again := open(t, connect(t, bus.Config{Embedded: &bus.Embedded{StoreDir: dir}}))
	require.ErrorIs(t, again.Claim(t.Context(), "cmp_1", replay.KindDPoP, "o", "jti", issued, until), replay.ErrSeen)
	require.NoError(t, again.Claim(t.Context(), "cmp_1", replay.KindDPoP, "o", "new", issued, until))
}

func TestClaim_SurvivesAKilledServer(t *testing.T) {
	s := natstest.Start(t)
	b := connect(t, bus.Config{URL: s.URL()})
	m := open(t, b)
	issued, until := later(), later().Add(5*time.Minute)
	for i := range 100 {
		require.NoError(t, m.Claim(t.Context(), "cmp_1", replay.KindDPoP, "o", fmt.Sprint(i), issued, until))
	}
	s.Kill(t)
	s.Restart(t)
	require.Eventually(t, func() bool { return m.Ready(t.Context()) == nil }, patience, 10*time.Millisecond)
	for i := range 100 {
		require.ErrorIs(t, m.Claim(t.Context(), "cmp_1", replay.KindDPoP, "o", fmt.Sprint(i), issued, until), replay.ErrSeen)
	}
}

func TestClaim_WithoutAServerIsUnavailableAtOnce(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#d7", "poppy-0.1/4.2#d7")
	s := natstest.Start(t)
	b := connect(t, bus.Config{URL: s.URL()})
	m := open(t, b, func(c *replay.Config) { c.Timeout = 0 })
	require.NoError(t, claim(t, m, "before"))
	s.Kill(t)
	before := time.Now()
	require.ErrorIs(t, claim(t, m, "during"), replay.ErrUnavailable)
	require.ErrorIs(t, m.Ready(t.Context()), replay.ErrUnavailable)
	require.Less(t, time.Since(before), 2*time.Second)
	require.Eventually(t, func() bool { return !b.Connected() }, patience, time.Millisecond)
	before = time.Now()
	require.ErrorIs(t, claim(t, m, "during"), replay.ErrUnavailable)
	require.Less(t, time.Since(before), 100*time.Millisecond)

	s.Restart(t)
	require.Eventually(t, func() bool { return claim(t, m, "after") == nil }, patience, 10*time.Millisecond)
}

func TestOpen_WhileTheServerIsAway(t *testing.T) {
	s := natstest.Start(t)
	s.Kill(t)
	b, err := bus.Connect(t.Context(), bus.Config{URL: s.URL()})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	m := open(t, b)
	require.ErrorIs(t, claim(t, m, "jti"), replay.ErrUnavailable)
	s.Restart(t)
	require.Eventually(t, func() bool { return m.Ready(t.Context()) == nil }, patience, 10*time.Millisecond)
	require.NoError(t, claim(t, m, "jti"))
}

func TestClaim_RefusesWhatIsOver(t *testing.T) {
	c := clock.NewManual(later())
	m := open(t, embedded(t), func(cfg *replay.Config) { cfg.Now = c.Now })
	now := c.Now()
	require.ErrorIs(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", now, now), replay.ErrExpired)
	require.ErrorIs(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", now, now.Add(-time.Second)), replay.ErrExpired)
	require.NoError(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", now, now.Add(time.Microsecond)))
	require.ErrorIs(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", now, now.Add(time.Microsecond)), replay.ErrSeen)
}

func TestClaim_IsForgottenAfterItsTime(t *testing.T) {
	b := embedded(t)
	m := open(t, b)
	now := later()
	require.NoError(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", now, now.Add(time.Millisecond)))
	kv, err := b.JetStream().KeyValue(t.Context(), "poppyfield_replay")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		st, err := kv.Status(t.Context())
		return err == nil && st.Values() == 1 // the birth marker
	}, 2*patience, 50*time.Millisecond)
}

// born returns the second in which the memory on b began.
func born(t testing.TB, b *bus.Bus) time.Time {
	t.Helper()
	kv, err := b.JetStream().KeyValue(t.Context(), "poppyfield_replay")
	require.NoError(t, err)
	e, err := kv.Get(t.Context(), "birth")
	require.NoError(t, err)
	return e.Created().Truncate(time.Second)
}

func TestClaim_IssuedBeforeTheMemoryBegan(t *testing.T) {
	b := embedded(t)
	m := open(t, b)
	birth, until := born(t, b), later().Add(time.Minute)
	for _, issued := range []time.Time{birth.Add(-time.Hour), birth.Add(-time.Second), birth, birth.Add(999 * time.Millisecond), {}} {
		require.ErrorIs(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", issued, until), replay.ErrBeforeMemory, "%v", issued)
	}
	require.NoError(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", birth.Add(time.Second), until))
}

func TestClaim_IssuedAheadOfTheMemory(t *testing.T) {
	b := embedded(t)
	ahead := func(c *replay.Config) { c.Ahead = 30 * time.Second }
	m := open(t, b, ahead)
	birth, until := born(t, b), later().Add(time.Minute)
	// Somebody whose clock is ahead may have used it just before the memory began.
	require.ErrorIs(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", birth.Add(30*time.Second), until), replay.ErrBeforeMemory)
	require.NoError(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", birth.Add(32*time.Second), until))

	fresh := embedded(t)
	m = open(t, fresh, ahead, func(c *replay.Config) { c.Fresh = true })
	require.NoError(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", born(t, fresh).Add(time.Second), until))
	// Whoever comes later reads it from the bucket.
	m = open(t, fresh, ahead)
	require.NoError(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v2", born(t, fresh).Add(time.Second), until))
}

func TestReady_OnceTheSecondOfBirthIsOver(t *testing.T) {
	b := embedded(t)
	c := clock.NewManual(later())
	m := open(t, b, func(cfg *replay.Config) { cfg.Now = c.Now })
	require.NoError(t, m.Ready(t.Context()))
	young := clock.NewManual(born(t, b).Add(500 * time.Millisecond))
	m = open(t, b, func(cfg *replay.Config) { cfg.Now = young.Now })
	require.ErrorIs(t, m.Ready(t.Context()), replay.ErrBeforeMemory)
	young.Advance(time.Second)
	require.NoError(t, m.Ready(t.Context()))
}

func TestClaim_AfterTheServerLostItsMemory(t *testing.T) {
	s := natstest.Start(t)
	now := clock.NewManual(later())
	m := open(t, connect(t, bus.Config{URL: s.URL()}), func(c *replay.Config) { c.Memory, c.Now = true, now.Now })
	// A time that lies before the second birth and after the first one.
	used := clock.System().Add(2 * time.Second)
	require.NoError(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", used, now.Now().Add(time.Minute)))
	require.Eventually(t, func() bool { return clock.System().After(used) }, patience, 10*time.Millisecond)
	s.Kill(t)
	s.Restart(t)
	var err error
	require.Eventually(t, func() bool { // closed at every moment, whatever the connection is doing
		err = m.Claim(t.Context(), "cmp_1", "k", "o", "v", used, now.Now().Add(time.Minute))
		return !errors.Is(err, replay.ErrUnavailable)
	}, patience, time.Millisecond)
	require.ErrorIs(t, err, replay.ErrBeforeMemory)
	require.NoError(t, m.Claim(t.Context(), "cmp_1", "k", "o", "v", now.Now(), now.Now().Add(time.Minute)))
}

func TestClaim_AfterTheBucketWasDeleted(t *testing.T) {
	b := embedded(t)
	c := clock.NewManual(later())
	m := open(t, b, func(cfg *replay.Config) { cfg.Now, cfg.Fresh = c.Now, true })
	other := open(t, b, func(cfg *replay.Config) { cfg.Now = c.Now })
	for i := range 3 {
		require.NoError(t, claim(t, m, fmt.Sprint(i)))
	}
	require.NoError(t, claim(t, other, "x"))
	require.NoError(t, b.JetStream().DeleteKeyValue(t.Context(), "poppyfield_replay"))
	require.ErrorIs(t, claim(t, m, "0"), replay.ErrUnavailable)
	// The next look makes a bucket. It has forgotten something now, however fresh the first one was.
	require.ErrorIs(t, m.Claim(t.Context(), "cmp_1", replay.KindDPoP, "thumbprint", "0", clock.System().Add(-time.Second), later()), replay.ErrBeforeMemory)
	kv, err := b.JetStream().KeyValue(t.Context(), "poppyfield_replay")
	require.NoError(t, err)
	e, err := kv.Get(t.Context(), "birth")
	require.NoError(t, err)
	require.Equal(t, "lost", string(e.Value()))
	// The other process finds out by the revision of its own claim.
	require.ErrorIs(t, claim(t, other, "0"), replay.ErrUnavailable)
	require.ErrorIs(t, other.Claim(t.Context(), "cmp_1", replay.KindDPoP, "thumbprint", "1", clock.System().Add(-time.Second), later()), replay.ErrBeforeMemory)
}

func TestClaim_OfACallerThatHasGone(t *testing.T) {
	m := open(t, embedded(t))
	require.NoError(t, claim(t, m, "first"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, m.Claim(ctx, "cmp_1", "k", "o", "v", later(), later().Add(time.Minute)), replay.ErrUnavailable)
	require.NoError(t, claim(t, m, "second"))
}

func TestOpen_StoresOnDiskUnlessTold(t *testing.T) {
	b := embedded(t)
	open(t, b)
	open(t, b, func(c *replay.Config) { c.Bucket, c.Memory = "mem", true })
	for bucket, want := range map[string]jetstream.StorageType{"poppyfield_replay": jetstream.FileStorage, "mem": jetstream.MemoryStorage} {
		stream, err := b.JetStream().Stream(t.Context(), "KV_"+bucket)
		require.NoError(t, err)
		require.Equal(t, want, stream.CachedInfo().Config.Storage)
	}
}

func TestOpen_RefusesBadConfig(t *testing.T) {
	b := embedded(t)
	_, err := replay.Open(t.Context(), b.JetStream(), replay.Config{})
	require.Error(t, err)
	_, err = replay.Open(t.Context(), b.JetStream(), replay.Config{Now: later, Bucket: "not a name"})
	require.Error(t, err)
}

func BenchmarkClaim(b *testing.B) {
	for name, memory := range map[string]bool{"file": false, "memory": true} {
		b.Run(name, func(b *testing.B) {
			m := open(b, embedded(b), func(c *replay.Config) { c.Memory = memory })
			n := 0
			for b.Loop() {
				n++
				if err := claim(b, m, fmt.Sprint(n)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			m := open(b, embedded(b), func(c *replay.Config) { c.Memory = memory })
			var n atomic.Int64
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := claim(b, m, fmt.Sprint(n.Add(1))); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
