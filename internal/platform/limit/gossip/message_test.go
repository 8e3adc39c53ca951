package gossip

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/limit"
)

func FuzzParse(f *testing.F) {
	f.Add(message{sender{1}, 1, []limit.Spent{{Key: limit.Hash{1}, Time: limit.Grain}}}.encode())
	f.Add(message{sender{1}, 7, []limit.Spent{{Key: limit.Hash{1}, Time: limit.MaxSpent}, {Key: limit.Hash{2}, Time: limit.Grain}}}.encode())
	f.Add([]byte{version})
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parse(raw)
		if err != nil {
			return
		}
		require.Equal(t, raw, m.encode())
		require.LessOrEqual(t, len(m.spent), MaxKeys)
		for _, s := range m.spent {
			require.Positive(t, s.Time)
			require.LessOrEqual(t, s.Time, limit.MaxSpent)
		}
	})
}

func TestHeard_EachMessageOnceWithinTheWindow(t *testing.T) {
	h := heard{of: map[sender]*said{}}
	from := sender{1}
	for _, n := range []uint64{5, 3, 4, 70, 8, 69} {
		require.True(t, h.take(from, n), n)
		require.False(t, h.take(from, n), n)
	}
	require.False(t, h.take(from, 6), "too far behind")
	require.True(t, h.take(from, 1<<40))
	require.False(t, h.take(from, 70))
	require.True(t, h.take(sender{2}, 70), "of another")
}

func TestHeard_SendersAreBounded(t *testing.T) {
	h := heard{of: map[sender]*said{}}
	for i := range 5 * maxSenders {
		require.True(t, h.take(sender{byte(i), byte(i >> 8), 1}, 1))
		h.take(sender{9, 9, 9}, uint64(i+1)) // whoever goes on talking is remembered
	}
	require.LessOrEqual(t, len(h.of), maxSenders)
	require.False(t, h.take(sender{9, 9, 9}, 5*maxSenders))
}
