package conversation_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

var (
	keyA = conversation.CursorKey{1, 2, 3}
	keyB = conversation.CursorKey{1, 2, 4}
)

func TestCU05_EventID_RoundTrip(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.2#16", "poppy-0.1/7.2#17", "poppy-0.1/7.5#16", "poppy-0.1/7.5#d19")
	rapid.Check(t, func(t *rapid.T) {
		var key conversation.CursorKey
		copy(key[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key"))
		id := rapid.StringMatching(`cnv_[A-Za-z0-9_-]{1,30}`).Draw(t, "conversation")
		seq := rapid.Int64Range(1, math.MaxInt64).Draw(t, "seq")
		cursor := conversation.EventID(key, id, seq)
		require.Len(t, cursor, len("evt_")+22)
		require.NoError(t, conversation.CheckID("id", cursor))
		require.Equal(t, cursor, conversation.EventID(key, id, seq))
		got, err := conversation.ParseCursor(key, id, cursor)
		require.NoError(t, err)
		require.Equal(t, seq, got)
		_, err = conversation.ParseCursor(key, id+"x", cursor)
		require.True(t, problem.Is(err, problem.InvalidCursor))
		key[0]++
		_, err = conversation.ParseCursor(key, id, cursor)
		require.True(t, problem.Is(err, problem.InvalidCursor))
	})
}

func TestCU05_ParseCursor_Malformed(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.13#11", "poppy-0.1/7.13#d19", "poppy-0.1/7.5#d19")
	good := conversation.EventID(keyA, "cnv_1", 7)
	// The last character holds two bits of the block: the other spellings of them are no cursors.
	last := good[len(good)-1]
	alphabet := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	respelled := good[:len(good)-1] + string(alphabet[strings.IndexByte(alphabet, last)|1])
	for _, raw := range []string{
		"", "evt_", "evt_1", good[4:], "EVT_" + good[4:], good + "=", good + "A", good[:len(good)-1], respelled, strings.ReplaceAll(good, "evt_", "evt-"),
		"evt_" + strings.Repeat("A", 22), "evt_" + strings.Repeat("!", 22), good + " ", " " + good, "7", strings.Repeat("evt_", 100),
		conversation.EventID(keyB, "cnv_1", 7), conversation.EventID(keyA, "cnv_2", 7), conversation.EventID(keyA, "cnv_1", 0), conversation.EventID(keyA, "cnv_1", -1),
	} {
		_, err := conversation.ParseCursor(keyA, "cnv_1", raw)
		require.True(t, problem.Is(err, problem.InvalidCursor), "%q", raw)
		require.Equal(t, problem.Invalid, problem.As(err).Kind)
	}
}

func TestCU03_CheckCursor(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.5#28")
	clausetest.Refuses(t, "poppy-0.1/7.5#29", "poppy-0.1/7.13#12", "poppy-0.1/7.13#d19")
	for _, seq := range []int64{4, 5, 9, 10} {
		require.NoError(t, conversation.CheckCursor(seq, 5, 10), seq)
	}
	for _, seq := range []int64{0, -1, 11, math.MaxInt64} {
		require.True(t, problem.Is(conversation.CheckCursor(seq, 5, 10), problem.InvalidCursor), seq)
	}
	for _, seq := range []int64{1, 3} {
		err := conversation.CheckCursor(seq, 5, 10)
		require.True(t, problem.Is(err, problem.CursorExpired), seq)
		require.Equal(t, problem.Gone, problem.As(err).Kind)
	}
	require.NoError(t, conversation.CheckCursor(1, 1, 1))
}

func TestLP03_ParseReadQuery_Wait(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.2#10", "poppy-0.1/7.5#2", "poppy-0.1/7.5#20", "poppy-0.1/7.5#21", "poppy-0.1/7.5#d18")
	clausetest.Refuses(t, "poppy-0.1/7.5#d18")
	for query, want := range map[string]conversation.ReadQuery{
		"":                                  {},
		"wait=0":                            {HasWait: true},
		"wait=1":                            {HasWait: true, Wait: time.Second},
		"wait=007":                          {HasWait: true, Wait: 7 * time.Second},
		"wait=30":                           {HasWait: true, Wait: 30 * time.Second},
		"wait=31":                           {HasWait: true, Wait: 30 * time.Second},
		"wait=9999999999999":                {HasWait: true, Wait: 30 * time.Second},
		"wait=18446744073709551617":         {HasWait: true, Wait: 30 * time.Second},
		"wait=" + strings.Repeat("9", 3000): {HasWait: true, Wait: 30 * time.Second},
		"cursor=evt_1&wait=10&other=x":      {HasWait: true, Wait: 10 * time.Second, Cursor: "evt_1"},
		"cursor=":                           {},
		"other=1&other=2":                   {},
	} {
		q, err := conversation.ParseReadQuery(query)
		require.NoError(t, err, query)
		require.Equal(t, want, q, query)
	}
	for _, query := range []string{
		"wait=-1", "wait=-0", "wait=%2B1", "wait=abc", "wait=1e9", "wait=1.5", "wait=", "wait", "wait=%201", "wait=1%20", "wait=0x1", "wait=١", "wait=1,2",
		"wait=1&wait=1", "wait=1&wait=2", "cursor=a&cursor=a", "wait=%zz", "a;b", "x=" + strings.Repeat("y", 5000),
	} {
		_, err := conversation.ParseReadQuery(query)
		requireInvalid(t, err, query)
		_, err = conversation.ParsePostQuery(query)
		requireInvalid(t, err, query)
	}
}

func TestParsePostQuery_CursorNeedsWait(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.3#13", "poppy-0.1/7.3#d18")
	q, err := conversation.ParsePostQuery("cursor=evt_1")
	require.NoError(t, err)
	require.Equal(t, conversation.ReadQuery{}, q)
	q, err = conversation.ParsePostQuery("cursor=evt_1&wait=0")
	require.NoError(t, err)
	require.Equal(t, conversation.ReadQuery{Cursor: "evt_1", HasWait: true}, q)
}

func TestParseReadQuery_TokenInURL(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.3#d26")
	for _, query := range []string{
		"access_token=x", "wait=1&access_token=", "Access_Token=x", "DPoP=x", "token=x", "client_assertion=x", "refresh_token=x", "assertion=x",
		"cursor=eyJhbGciOiJFUzI1NiJ9.e30.c2ln", "q=eyJhbGciOiJub25lIn0..",
	} {
		_, err := conversation.ParseReadQuery(query)
		require.Equal(t, "poppy-0.1/4.3#d26", string(invalidOf(t, err, query).Clause))
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add(conversation.EventID(keyA, "cnv_1", 1))
	f.Add(conversation.EventID(keyB, "cnv_1", 1))
	f.Add("evt_AAAAAAAAAAAAAAAAAAAAAA")
	f.Add("")
	f.Fuzz(func(t *testing.T, raw string) {
		seq, err := conversation.ParseCursor(keyA, "cnv_1", raw)
		if err != nil {
			require.True(t, problem.Is(err, problem.InvalidCursor))
			return
		}
		require.Equal(t, raw, conversation.EventID(keyA, "cnv_1", seq))
	})
}

func FuzzParseReadQuery(f *testing.F) {
	for _, s := range []string{"", "wait=10&cursor=evt_1", "wait=-1", "wait=1&wait=2", "access_token=x", "wait=99999999999999999999", "%zz"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := conversation.ParseReadQuery(raw)
		if err != nil {
			require.True(t, problem.Is(err, problem.InvalidRequest))
			return
		}
		require.GreaterOrEqual(t, q.Wait, time.Duration(0))
		require.LessOrEqual(t, q.Wait, conversation.MaxWait)
	})
}
