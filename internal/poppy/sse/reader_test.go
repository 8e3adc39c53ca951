package sse_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/poppyfield/poppyfield/internal/poppy/sse"
)

// read feeds whole in pieces of the given sizes, over and over; no sizes feed it at once.
func read(l sse.Limits, whole []byte, sizes ...int) ([]sse.Event, error) {
	r := sse.NewReader(l)
	var got []sse.Event
	keep := func(e sse.Event) error { got = append(got, e); return nil }
	for i := 0; len(whole) > 0; i++ {
		n := len(whole)
		if len(sizes) > 0 {
			n = min(n, sizes[i%len(sizes)])
		}
		if err := r.Feed(whole[:n], keep); err != nil {
			return got, err
		}
		whole = whole[n:]
	}
	return got, nil
}

func event(name, data, id string) sse.Event { return sse.Event{Name: name, Data: []byte(data), ID: id} }

func TestFeed_Framing(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   []sse.Event
	}{
		"LF":                    {"data: a\n\ndata: b\n\n", []sse.Event{event("message", "a", ""), event("message", "b", "")}},
		"CR":                    {"data: a\r\rdata: b\r\r", []sse.Event{event("message", "a", ""), event("message", "b", "")}},
		"CRLF":                  {"data: a\r\n\r\ndata: b\r\n\r\n", []sse.Event{event("message", "a", ""), event("message", "b", "")}},
		"mixed":                 {"data: a\r\ndata: b\n\rdata: c\r\r\n", []sse.Event{event("message", "a\nb", ""), event("message", "c", "")}},
		"byte order mark":       {"\xef\xbb\xbfdata: a\n\n", []sse.Event{event("message", "a", "")}},
		"only one mark":         {"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", nil},
		"no mark later":         {"\n\xef\xbb\xbfdata: a\n\n", nil},
		"names":                 {"event: x\ndata: a\n\ndata: b\n\n", []sse.Event{event("x", "a", ""), event("message", "b", "")}},
		"the last name":         {"event: x\nevent: y\nevent\ndata: a\n\n", []sse.Event{event("message", "a", "")}},
		"name without data":     {"event: x\n\ndata: a\n\n", []sse.Event{event("message", "a", "")}},
		"empty data":            {"data\n\ndata:\n\n", []sse.Event{event("message", "", ""), event("message", "", "")}},
		"empty lines of data":   {"data\ndata\n\n", []sse.Event{event("message", "\n", "")}},
		"one space":             {"data:  a\n\ndata:b\n\n", []sse.Event{event("message", " a", ""), event("message", "b", "")}},
		"colons":                {"data: {\"a\":1}\n\n", []sse.Event{event("message", `{"a":1}`, "")}},
		"comments":              {": hello\n:\ndata: a\n: x\ndata: b\n\n", []sse.Event{event("message", "a\nb", "")}},
		"unknown fields":        {"retry: 5\nData: x\n data: y\ndata: a\nfoo\n\n", []sse.Event{event("message", "a", "")}},
		"ids stay":              {"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", []sse.Event{event("message", "a", "1"), event("message", "b", "1"), event("message", "c", "")}},
		"id with NUL":           {"id: 1\nid: \x002\ndata: a\n\n", []sse.Event{event("message", "a", "1")}},
		"id without data":       {"id: 1\n\ndata: a\n\n", []sse.Event{event("message", "a", "1")}},
		"unfinished":            {"data: a\n\ndata: b\n", []sse.Event{event("message", "a", "")}},
		"unfinished line":       {"data: a", nil},
		"nothing":               {"", nil},
		"NEL and LS are no end": {"data: a\u0085b\u2028c\n\n", []sse.Event{event("message", "a\u0085b\u2028c", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sizes := range [][]int{nil, {1}, {2}, {3}, {1, 4}} {
				got, err := read(sse.Limits{}, []byte(c.stream), sizes...)
				require.NoError(t, err)
				require.Equal(t, c.want, got, "%v", sizes)
			}
		})
	}
}

func TestFeed_Limits(t *testing.T) {
	small := sse.Limits{Line: 20, Event: 15, Total: 60}
	for stream, want := range map[string]error{
		"data: " + strings.Repeat("x", 14) + "\n\n":              nil,
		"data: " + strings.Repeat("x", 15) + "\n\n":              sse.ErrLine,
		": " + strings.Repeat("x", 40):                           sse.ErrLine, // before its end
		"data: xxxxxxx\ndata: xxxxxx\n\n":                        nil,
		"data: xxxxxxx\ndata: xxxxxxxx\n\n":                      sse.ErrEvent,
		strings.Repeat("data\n", 12):                             nil,
		strings.Repeat(":\n", 30):                                nil,
		strings.Repeat(":\n", 30) + "\n":                         sse.ErrTotal,
		strings.Repeat("data: x\n\n", 6) + "data: x\n\n":         sse.ErrTotal,
		"data: ok\n\n" + strings.Repeat("x", 21) + "data: y\n\n": sse.ErrLine,
	} {
		for _, sizes := range [][]int{nil, {1}, {7}} {
			_, err := read(small, []byte(stream), sizes...)
			require.ErrorIs(t, err, want, "%q", stream)
		}
	}
	got, err := read(sse.Limits{}, []byte("data: "+strings.Repeat("x", 200<<10)+"\n\n"))
	require.NoError(t, err)
	require.Len(t, got[0].Data, 200<<10)
	_, err = read(sse.Limits{}, []byte("data: "+strings.Repeat("x", 300<<10)+"\n\n"))
	require.ErrorIs(t, err, sse.ErrLine)
}

func TestFeed_ErrorsAreFinal(t *testing.T) {
	stop := errors.New("enough")
	r := sse.NewReader(sse.Limits{})
	n := 0
	each := func(sse.Event) error { n++; return stop }
	require.ErrorIs(t, r.Feed([]byte("data: a\n\ndata: b\n\n"), each), stop)
	require.ErrorIs(t, r.Feed([]byte("data: c\n\n"), each), stop)
	require.ErrorIs(t, r.Feed(nil, each), stop)
	require.Equal(t, 1, n)
}

func TestUnfinished(t *testing.T) {
	for stream, want := range map[string]bool{
		"": false, "data: a\n\n": false, "data: a\r\n\r": false, ": x\n": false, "id: 1\n": false,
		"d": true, "data: a\n": true, "data\n": true, "event: x\n": true, "data: a\n\n:": true,
	} {
		r := sse.NewReader(sse.Limits{})
		require.NoError(t, r.Feed([]byte(stream), func(sse.Event) error { return nil }))
		require.Equal(t, want, r.Unfinished(), "%q", stream)
	}
}

func TestFeed_DataIsTheReceiversToKeep(t *testing.T) {
	got, err := read(sse.Limits{}, []byte("data: aaaa\n\ndata: bbbb\n\n"))
	require.NoError(t, err)
	require.Equal(t, "aaaa", string(got[0].Data))
}

// pieces draws bytes that are likely to be a stream.
func pieces() *rapid.Generator[[]byte] {
	part := rapid.OneOf(
		rapid.SampledFrom([]string{"\n", "\r", "\r\n", "data", "data: x", "event: y", "id: 1", ":", " ", "\xef\xbb\xbf", "retry: 5", "\x00", "\xff"}),
		rapid.String(),
	)
	return rapid.Map(rapid.SliceOf(part), func(s []string) []byte { return []byte(strings.Join(s, "")) })
}

func TestFeed_ChunkingDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := pieces().Draw(t, "stream")
		limits := sse.Limits{Line: rapid.IntRange(1, 40).Draw(t, "line"), Event: rapid.IntRange(1, 40).Draw(t, "event"), Total: rapid.IntRange(0, 60).Draw(t, "total")}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 5).Draw(t, "sizes")
		want, wantErr := read(limits, stream)
		got, err := read(limits, stream, sizes...)
		require.Equal(t, want, got)
		require.Equal(t, wantErr, err)
	})
}

func FuzzFeed(f *testing.F) {
	f.Add([]byte("event: x\r\ndata: a\r\n\r\n"), uint8(1))
	f.Add([]byte("\xef\xbb\xbfid: 1\rdata\r\r: c\n\n"), uint8(2))
	f.Add([]byte("data: a\ndata: b\n\nretry: 1\n\n"), uint8(3))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		want, err := read(sse.Limits{}, stream)
		require.NoError(t, err)
		got, err := read(sse.Limits{}, stream, int(size)+1)
		require.NoError(t, err)
		require.Equal(t, want, got)
		for _, e := range got {
			require.NotEmpty(t, e.Name)
			require.NotContains(t, e.Name+e.ID, "\n")
			require.NotContains(t, e.Name+e.ID, "\r")
			require.False(t, bytes.ContainsRune(e.Data, '\r'))
		}
	})
}
