package conversation_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/sse"
)

// parseStream reads what was appended, as a browser would.
func parseStream(t testing.TB, raw []byte) []sse.Event {
	t.Helper()
	var got []sse.Event
	require.NoError(t, sse.NewReader(sse.Limits{Line: 1 << 20, Event: 1 << 20}).Feed(raw, func(e sse.Event) error {
		got = append(got, e)
		return nil
	}))
	return got
}

func TestAppendEvent(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.6#4", "poppy-0.1/7.6#5", "poppy-0.1/7.6#6")
	for _, p := range []conversation.Payload{
		companyMessage(t, "Hé <b>\r\n\ndata: x\u2028", `{"a":"\n"}`).Payload("msg_1"), became(conversation.Queued, agent),
		conversation.AuthorizationPayload{Error: "sign_in_required"},
		*userRequest(t), opened, over,
	} {
		e := conversation.Event{ID: "evt_1", CreatedAt: noon, Payload: p}
		want, err := conversation.EncodeEvent(e)
		require.NoError(t, err)
		raw, err := conversation.AppendEvent([]byte("x"), e)
		require.NoError(t, err)
		requireBytes(t, "xid: evt_1\ndata: "+string(want)+"\n\n", raw)
		require.Equal(t, []sse.Event{{Name: "message", Data: want, ID: "evt_1"}}, parseStream(t, raw[1:]))
	}
	raw, err := conversation.AppendEvent([]byte("x"), conversation.Event{ID: "evt_1"})
	require.Error(t, err)
	requireBytes(t, "x", raw)
}

func TestCV08_AppendDelta(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.6#9", "poppy-0.1/7.6#10")
	raw := conversation.AppendDelta(nil, "msg_r2Kq", "I can <do> that.\r\n\n")
	requireBytes(t, "event: text-delta\ndata: {\"message_id\":\"msg_r2Kq\",\"text\":\"I can <do> that.\\r\\n\\n\"}\n\n", raw)
	require.Equal(t, "text-delta", parseStream(t, raw)[0].Name)
}

// Only what is recorded moves the position of a reader who reconnects.
func TestSS01_Stream_IDs(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.6#4", "poppy-0.1/7.6#9", "poppy-0.1/7.6#11")
	stream := conversation.AppendComment(nil)
	for _, text := range []string{"I can ", "do that."} {
		stream = conversation.AppendDelta(stream, "msg_1", text)
	}
	stream = conversation.AppendComment(stream)
	require.NotContains(t, string(stream), "id:")
	stream, err := conversation.AppendEvent(stream, conversation.Event{ID: "evt_7", CreatedAt: noon, Payload: companyMessage(t, "I can do that.", "").Payload("msg_1")})
	require.NoError(t, err)
	stream = conversation.AppendDelta(conversation.AppendComment(stream), "msg_2", "More")

	var names, ids []string
	for _, e := range parseStream(t, stream) {
		names, ids = append(names, e.Name), append(ids, e.ID)
	}
	require.Equal(t, []string{"text-delta", "text-delta", "message", "text-delta"}, names)
	require.Equal(t, []string{"", "", "evt_7", "evt_7"}, ids)
}

func FuzzStream(f *testing.F) {
	f.Add("msg_1", "a\r\n\nid: evt_9\n\n: x")
	f.Add("msg_1", "\u2028\u0085\x00\xff")
	f.Add("a\nid: 1", "")
	f.Fuzz(func(t *testing.T, id, text string) {
		stream := conversation.AppendDelta(nil, id, text)
		stream, err := conversation.AppendEvent(stream, conversation.Event{ID: "evt_1", CreatedAt: noon, Payload: conversation.MessagePayload{
			ID: id, Role: conversation.RoleCompany, Sender: conversation.SenderAgent, Text: text,
		}})
		require.NoError(t, err)
		got := parseStream(t, conversation.AppendComment(stream))
		require.Len(t, got, 2)
		require.Equal(t, "text-delta", got[0].Name)
		require.Empty(t, got[0].ID)
		require.Equal(t, "evt_1", got[1].ID)
		require.True(t, utf8.Valid(got[0].Data))
		var delta struct{ Text string }
		require.NoError(t, json.Unmarshal(got[0].Data, &delta))
		require.Equal(t, strings.ToValidUTF8(text, "\uFFFD"), delta.Text)
		require.True(t, json.Valid(got[1].Data))
	})
}

func TestWithLastEventID(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.6#8", "poppy-0.1/7.6#d42")
	clausetest.Refuses(t, "poppy-0.1/7.6#d42")
	q := conversation.ReadQuery{Cursor: "evt_1", Wait: time.Second, HasWait: true}
	for _, c := range []struct {
		values []string
		want   string
	}{{nil, "evt_1"}, {[]string{""}, "evt_1"}, {[]string{"evt_2"}, "evt_2"}, {[]string{"no cursor"}, "no cursor"}} {
		got, err := q.WithLastEventID(c.values)
		require.NoError(t, err)
		require.Equal(t, conversation.ReadQuery{Cursor: c.want, Wait: time.Second, HasWait: true}, got)
	}
	for _, values := range [][]string{{"evt_1", "evt_1"}, {"", "evt_2"}, {"", ""}} {
		_, err := q.WithLastEventID(values)
		require.Equal(t, "Last-Event-ID", invalidOf(t, err, values).Fields[0].Path)
	}
	// Whatever it holds, it is judged as a cursor is.
	for _, bad := range []string{"no cursor", conversation.EventID(conversation.CursorKey{2}, "cnv_1", 1), strings.Repeat("x", 10_000)} {
		got, err := q.WithLastEventID([]string{bad})
		require.NoError(t, err)
		_, err = conversation.ParseCursor(conversation.CursorKey{1}, "cnv_1", got.Cursor)
		require.Error(t, err)
	}
}

func TestAcceptsStream(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.6#2", "poppy-0.1/7.6#3")
	for _, accept := range [][]string{
		{"text/event-stream"},
		{"Text/Event-Stream"},
		{"application/json, text/event-stream;q=0.9"},
		{"application/json", " text/event-stream "},
		{"text/event-stream; q=0.001"},
		{"text/event-stream;charset=utf-8"},
		{`text/x; a="b,c\"", text/event-stream`},
		{",, text/event-stream"},
		{"text/event-stream;q=0, text/event-stream"},
		{"???, text/event-stream;q=1.0"},
	} {
		require.True(t, conversation.AcceptsStream(accept), accept)
	}
	for _, accept := range [][]string{
		nil,
		{""},
		{"*/*"},
		{"text/*"},
		{"application/json"},
		{"text/event-stream;q=0"},
		{"text/event-stream;q=0.000"},
		{"text/event-streams"},
		{`x/y; a="text/event-stream, text/event-stream"`},
		{"text/event-stream;q=x"},
		{"text/event-stream;q="},
		{"text/event-stream;q=NaN"},
		{"text/event-stream;q=-1"},
		{"text / event-stream"},
		{"text/event-stream text/html"},
	} {
		require.False(t, conversation.AcceptsStream(accept), accept)
	}
}
