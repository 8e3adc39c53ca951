package stream_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/whole"
)

// A delta is a piece of a message.
type delta struct {
	MessageID string `json:"message_id"`
	Text      string
}

func (r *record) all() []item {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.items)
}

func (r *record) ended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ends)
}

func lastID(items []item) string {
	for _, i := range slices.Backward(items) {
		if i.ID != "" {
			return i.ID
		}
	}
	return ""
}

// check looks at everything that a reader saw: one stream that was cut, and one that ended by itself.
func check(t *testing.T, r *record, recorded []json.RawMessage) {
	t.Helper()
	require.Len(t, r.heads, 2, r.name)
	require.Len(t, r.ends, 2, r.name)
	require.NotEmpty(t, r.ends[0].Cut, r.name)
	require.Empty(t, r.ends[1].Cut, r.name)
	for _, h := range r.heads {
		require.Equal(t, 200, h.Status, r.name)
		require.Contains(t, h.Header["content-type"], "text/event-stream", r.name)
		require.Contains(t, h.Header["cache-control"], "no-cache", r.name)
		require.Contains(t, h.Header["cache-control"], "no-transform", r.name)
		require.NotContains(t, h.Header, "content-encoding", r.name)
		require.Contains(t, h.Header["server"], "nginx", r.name)
	}
	events := checkEvents(t, r, recorded)
	pieces := checkPieces(t, r)
	longest, comments := checkGaps(t, r)
	t.Logf("%s: %d events, %d pieces, %d comments, at most %s without a word", r.name, events, pieces, comments, longest)
}

// checkEvents wants exactly what is recorded, in order: nothing is missing, and nothing comes twice.
func checkEvents(t *testing.T, r *record, recorded []json.RawMessage) (events int) {
	t.Helper()
	var ids, wanted []string
	rounds := map[int]int{}
	for _, i := range r.items {
		if i.ID != "" {
			ids = append(ids, i.ID)
			rounds[i.round]++
		}
	}
	for _, raw := range recorded {
		wanted = append(wanted, decode[whole.Event](string(raw)).ID)
	}
	require.Equal(t, wanted, ids, r.name)
	require.NotZero(t, rounds[1]*rounds[2], "%s: events before the cut and after it", r.name)
	for _, i := range r.items {
		if n := slices.Index(wanted, i.ID); n >= 0 {
			require.Empty(t, i.Event, r.name)
			require.JSONEq(t, string(recorded[n]), i.Data, r.name)
		}
	}
	return len(ids)
}

// checkPieces wants pieces before their message only, and what they were to become: but
// for the message within which the stream was cut, which comes without further ones.
func checkPieces(t *testing.T, r *record) (pieces int) {
	t.Helper()
	shown := map[string]string{}
	var cut, complete int
	for _, i := range r.items {
		if i.Event != "" {
			require.Equal(t, "text-delta", i.Event, r.name)
			require.Empty(t, i.ID, r.name)
			d := decode[delta](i.Data)
			require.NotEmpty(t, d.MessageID, r.name)
			shown[d.MessageID] += d.Text
			pieces++
			continue
		}
		message := decode[whole.Event](i.Data).Message
		text, ok := shown[message.ID]
		switch {
		case !ok:
			continue
		case i.round == 2 && text != message.Text:
			require.True(t, strings.HasPrefix(message.Text, text), "%s: %q of %q", r.name, text, message.Text)
			cut++
		default:
			require.Equal(t, message.Text, text, r.name)
			complete++
		}
		delete(shown, message.ID)
	}
	require.Empty(t, shown, "%s: pieces after their message, or without one", r.name)
	require.Equal(t, [2]int{2, 1}, [2]int{complete, cut}, r.name)
	return pieces
}

// checkGaps wants a word within the time that a proxy waits for.
func checkGaps(t *testing.T, r *record) (longest time.Duration, comments int) {
	t.Helper()
	for round := range r.heads {
		at := r.heads[round].at
		for _, i := range r.items {
			if i.round != round+1 {
				continue
			}
			if i.Comment {
				comments++
			}
			longest, at = max(longest, i.at.Sub(at)), i.at
		}
		longest = max(longest, r.ends[round].at.Sub(at))
	}
	require.LessOrEqual(t, longest, quiet, r.name)
	return longest.Round(time.Millisecond), comments
}
