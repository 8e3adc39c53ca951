package limit_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/limit"
)

func take(t *testing.T, l *limit.Limiter, key string, perMinute, times int, now time.Time) {
	t.Helper()
	for range times {
		ok, _ := l.Allow(key, perMinute, now)
		require.True(t, ok)
	}
}

func TestSpent_TheBiggestFirstAndOnce(t *testing.T) {
	l := limit.NewShared(0, limit.Secret{1})
	take(t, l, "small", 60, 2, start())
	take(t, l, "big", 60, 5, start())
	take(t, l, "tiny", 600, 9, start()) // less than a Grain

	first := l.Spent(1)
	require.Len(t, first, 1)
	require.Equal(t, 5*time.Second, first[0].Time)
	second := l.Spent(10)
	require.Len(t, second, 1)
	require.Equal(t, 2*time.Second, second[0].Time)
	require.Empty(t, l.Spent(10))

	take(t, l, "tiny", 600, 1, start()) // what was left untold counts
	require.Equal(t, time.Second, l.Spent(10)[0].Time)
}

func TestSpent_IsNoMoreThanABurst(t *testing.T) {
	l, now := limit.NewShared(0, limit.Secret{1}), start()
	for range 300 {
		take(t, l, "k", 60, 1, now)
		now = now.Add(time.Second)
	}
	require.Equal(t, limit.MaxSpent, l.Spent(10)[0].Time)
}

func TestSpent_MemoryIsBounded(t *testing.T) {
	l := limit.NewShared(1_000_000, limit.Secret{1})
	for i := range 100_000 {
		take(t, l, strconv.Itoa(i), 10, 1, start())
	}
	n := len(l.Spent(1_000_000))
	require.Positive(t, n)
	require.LessOrEqual(t, n, 16*1024)
}

func TestSpent_AForgottenKeyIsToldOnceAtTheMost(t *testing.T) {
	l := limit.NewShared(16, limit.Secret{1})
	for i := range 400 {
		take(t, l, strconv.Itoa(i%40), 10, 1, start().Add(time.Duration(i)*time.Minute))
	}
	seen := map[limit.Hash]bool{}
	for _, s := range l.Spent(1000) {
		require.False(t, seen[s.Key])
		seen[s.Key] = true
	}
}

func TestSpent_NothingOfOneThatCountsForItself(t *testing.T) {
	l := limit.New(0)
	take(t, l, "k", 6, 6, start())
	require.Empty(t, l.Spent(10))
}

func TestSpend_TakesFromTheSameKeyOnly(t *testing.T) {
	one, two, stranger := limit.NewShared(0, limit.Secret{1}), limit.NewShared(0, limit.Secret{1}), limit.NewShared(0, limit.Secret{2})
	take(t, one, "k", 6, 6, start())
	spent := one.Spent(10)
	two.Spend(spent, start())
	ok, wait := two.Allow("k", 6, start())
	require.False(t, ok)
	require.Equal(t, 10*time.Second, wait)
	ok, _ = two.Allow("other", 6, start())
	require.True(t, ok)
	// Without the secret nobody knows which key it is.
	stranger.Spend(spent, start())
	ok, _ = stranger.Allow("k", 6, start())
	require.True(t, ok)
	// What was heard isn't told on.
	require.Len(t, two.Spent(10), 1) // "other"
}

func TestSpend_TooMuchIsPaidBack(t *testing.T) {
	// Three let a whole burst through at the same moment: together they are quiet for two minutes more.
	all := []*limit.Limiter{limit.NewShared(0, limit.Secret{1}), limit.NewShared(0, limit.Secret{1}), limit.NewShared(0, limit.Secret{1})}
	var told [][]limit.Spent
	for _, l := range all {
		take(t, l, "k", 60, 60, start())
		told = append(told, l.Spent(10))
	}
	for i, l := range all {
		for j, s := range told {
			if i != j {
				l.Spend(s, start())
			}
		}
		ok, wait := l.Allow("k", 60, start())
		require.False(t, ok)
		require.Equal(t, 2*time.Minute+time.Second, wait)
		// However much is told, a key is never put off for good.
		for range 100 {
			l.Spend(slices.Clone(told[0]), start())
		}
		_, wait = l.Allow("k", 60, start())
		require.LessOrEqual(t, wait, 5*time.Minute)
	}
}

func TestSpend_MemoryIsBounded(t *testing.T) {
	l := limit.NewShared(1600, limit.Secret{1})
	for i := range 10_000 {
		l.Spend([]limit.Spent{{Key: limit.Hash{byte(i), byte(i >> 8), byte(i >> 3)}, Time: time.Second}}, start())
	}
	require.LessOrEqual(t, l.Len(), 1600)
}
