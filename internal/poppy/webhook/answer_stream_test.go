package webhook_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// stream feeds whole in pieces of the given sizes, over and over; no sizes feed it at once.
func stream(whole string, sizes ...int) (answer webhook.Answer, shown []string, err error) {
	s := webhook.NewStreamAnswer(func(text string) { shown = append(shown, text) })
	for i := 0; len(whole) > 0; i++ {
		n := len(whole)
		if len(sizes) > 0 {
			n = min(n, sizes[i%len(sizes)])
		}
		if s.Write([]byte(whole[:n])) != nil {
			break
		}
		whole = whole[n:]
	}
	answer, err = s.Close()
	return answer, shown, err
}

func texts(a webhook.Answer) []string {
	var out []string
	for _, m := range a.Messages {
		out = append(out, m.Text())
	}
	return out
}

func piece(text string) string { return "event: text-delta\ndata: {\"text\":\"" + text + "\"}\n\n" }

func whole(text string) string { return "event: message\ndata: {\"text\":\"" + text + "\"}\n\n" }

func answer(members string) string { return "event: answer\ndata: {" + members + "}\n\n" }

const done = "event: done\ndata: {}\n\n"

func TestStreamAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		stream       string
		shown, texts []string
	}{
		"pieces, done":             {piece("I can ") + piece("do that.") + done, []string{"I can ", "do that."}, []string{"I can do that."}},
		"pieces, message":          {piece("I can ") + whole("I could."), []string{"I can "}, []string{"I could."}},
		"pieces, message, done":    {piece("I can ") + whole("I could.") + done, []string{"I can "}, []string{"I could."}},
		"pieces, answer":           {piece("I can ") + answer(`"messages":[{"text":"No."}]`), []string{"I can "}, []string{"No."}},
		"pieces, answer of no one": {piece("I can ") + answer(`"messages":[]`), []string{"I can "}, nil},
		"pieces, actions":          {piece("Bye.") + answer(`"hand_off":true`), []string{"Bye."}, []string{"Bye."}},
		"message":                  {whole("Hi"), nil, []string{"Hi"}},
		"messages":                 {whole("Hi") + whole("there") + answer(`"messages":[{"text":"you"}]`), nil, []string{"Hi", "there", "you"}},
		"pieces of the second":     {piece("Hi") + whole("Hi") + piece("the") + piece("re") + done, []string{"Hi"}, []string{"Hi", "there"}},
		"no name":                  {"data: {\"text\":\"Hi\"}\n\n", nil, []string{"Hi"}},
		"nothing, done":            {": hello\n\n" + done, nil, nil},
		"done without data":        {"event: done\ndata\n\n", nil, nil},
		"nothing, answer":          {answer(``), nil, nil},
		"other events":             {"event: ping\ndata: x\n\nretry: 5\nid: 7\n\n" + whole("Hi"), nil, []string{"Hi"}},
		"other members": {
			"event: text-delta\ndata: {\"text\":\"Hi\",\"message_id\":\"msg_1\",\"n\":1}\n\n" + done, []string{"Hi"}, []string{"Hi"},
		},
		"empty pieces":         {piece("") + whole("Hi") + piece(""), nil, []string{"Hi"}},
		"after done":           {whole("Hi") + done + whole("no") + "event: error\ndata: x\n\n" + strings.Repeat("x", webhook.MaxStream), nil, []string{"Hi"}},
		"lines of data":        {"event: message\ndata: {\"text\":\ndata: \"Hi\"}\n\n", nil, []string{"Hi"}},
		"carriage returns":     {strings.ReplaceAll(piece("Hé")+done, "\n", "\r"), []string{"Hé"}, []string{"Hé"}},
		"with mark, CRLF":      {"\xef\xbb\xbf" + strings.ReplaceAll(piece("Hi")+done, "\n", "\r\n"), []string{"Hi"}, []string{"Hi"}},
		"half of an id at end": {whole("Hi") + "id: 7\n", nil, []string{"Hi"}},
		"many words":           {strings.Repeat(piece("word "), 6000) + done, nil, []string{strings.Repeat("word ", 6000)}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sizes := range [][]int{nil, {1}, {5, 2}} {
				a, shown, err := stream(c.stream, sizes...)
				require.NoError(t, err)
				require.Equal(t, c.texts, texts(a))
				if name != "many words" {
					require.Equal(t, c.shown, shown)
				}
			}
		})
	}
}

func TestStreamAnswer_Actions(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#7", "poppy-0.1/7.10#13", "poppy-0.1/7.7#15")
	a, _, err := stream("event: message\ndata: {\"text\":\"Hi\",\"sender\":\"human\",\"data\":{\"a\":1.0},\"close\":true}\n\n" +
		answer(`"request_user":{"reason":"why"},"hand_off":{"reason":"upset"}`) + done)
	require.NoError(t, err)
	require.Equal(t, conversation.SenderHuman, a.Messages[0].Sender())
	requireBytes(t, `{"a":1.0}`, a.Messages[0].Data())
	require.Equal(t, &conversation.UserRequestedPayload{Reason: "why"}, a.UserRequested)
	require.True(t, a.HandOff)
	require.Equal(t, "upset", a.HandOffReason)
	require.False(t, a.Close) // is no member of a message
	require.False(t, a.Later)
}

// Half of a text is never taken for the whole.
func TestCV08_StreamAnswer_Broken(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.6#11")
	for name, s := range map[string]string{
		"nothing":                    "",
		"comments alone":             ": hello\n\n: hello\n\n",
		"pieces alone":               piece("I can "),
		"pieces and half an event":   piece("I can ") + "event: done\ndata: {}\n",
		"a message and half":         whole("Hi") + "event: message\ndata: {\"te",
		"a message and a whole line": whole("Hi") + "event: message\n",
		"a message and pieces":       whole("Hi") + piece("the"),
		"an answer and pieces":       answer(``) + piece("the"),
		"an error":                   "event: error\ndata: out of tokens\n\n",
		"an error after a message":   whole("Hi") + "event: error\ndata\n\n" + done,
		"an error without data":      piece("Hi") + "event: error\n\n",
		"a bad piece":                "event: text-delta\ndata: Hi\n\n" + done,
		"a piece without text":       "event: text-delta\ndata: {\"message_id\":\"x\"}\n\n" + done,
		"a piece of a number":        "event: text-delta\ndata: {\"text\":5}\n\n" + done,
		"a piece of null":            "event: text-delta\ndata: {\"text\":null}\n\n" + done,
		"half a surrogate pair":      piece(`\ud83d`) + piece(`\ude00`) + done,
		"NUL":                        piece(`\u0000`) + done,
		"no UTF-8":                   piece("\xff") + done,
		"a bad message":              "event: message\ndata: [DONE]\n\n",
		"an empty message":           "event: message\ndata: {}\n\n",
		"a list":                     "event: answer\ndata: []\n\n",
		"a bad action":               answer(`"close":"yes"`),
		"close and handoff":          answer(`"close":true,"hand_off":true`),
		"two answers":                answer(``) + answer(``),
		"too many messages":          strings.Repeat(whole("x"), webhook.MaxAnswerMessages+1),
		"too many in all":            strings.Repeat(whole("x"), webhook.MaxAnswerMessages) + piece("x") + done,
		"too long a text":            strings.Repeat(piece(strings.Repeat("é", 1000)), 33) + done,
		"too large an event":         whole(strings.Repeat("x", webhook.MaxAnswer)),
		"too many lines of data":     "data: {\n" + strings.Repeat("data:"+strings.Repeat(" ", 1000)+"\n", 300) + "data: }\n\n",
		"too long a stream":          strings.Repeat(": "+strings.Repeat("x", 1000)+"\n", webhook.MaxStream/1000) + done,
	} {
		t.Run(name, func(t *testing.T) {
			for _, sizes := range [][]int{nil, {64}, {3, 1000}} {
				a, _, err := stream(s, sizes...)
				require.True(t, problem.Is(err, webhook.InvalidAnswer), "%v", err)
				require.NotEqual(t, problem.Internal, problem.As(err).Kind)
				require.Equal(t, webhook.Answer{}, a)
			}
		})
	}
}

func TestStreamAnswer_Ends(t *testing.T) {
	s := webhook.NewStreamAnswer(nil)
	require.False(t, s.Done())
	require.NoError(t, s.Write([]byte(piece("Hi"))))
	require.False(t, s.Done())
	require.NoError(t, s.Write([]byte(done)))
	require.True(t, s.Done())
	require.NoError(t, s.Write([]byte("event: error\ndata: x\n\n")))
	for range 2 {
		a, err := s.Close()
		require.NoError(t, err)
		require.Equal(t, []string{"Hi"}, texts(a))
	}

	s = webhook.NewStreamAnswer(nil)
	require.Error(t, s.Write([]byte("event: error\ndata: x\n\n")))
	require.Error(t, s.Write([]byte(done)))
	require.False(t, s.Done())
	_, err := s.Close()
	require.Error(t, err)
}

func TestStreamAnswer_ChunkingDoesNotMatter(t *testing.T) {
	part := rapid.OneOf(rapid.SampledFrom([]string{
		piece("Hi "), piece("é"), whole("Hi"), whole("é"), answer(`"hand_off":true`), answer(`"messages":[{"text":"x"}]`), answer(`"close":true`),
		done, ": x\n", "event: error\ndata\n\n", "event: ping\ndata: x\n\n", "\r", "\r\n", "data", "event: message\n", "\xff",
	}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "stream"), "")
		a, shown, err := stream(s)
		b, shownB, errB := stream(s, rapid.SliceOfN(rapid.IntRange(1, 20), 1, 5).Draw(t, "sizes")...)
		require.Equal(t, a, b)
		require.Equal(t, shown, shownB)
		require.Equal(t, err, errB)
	})
}

func FuzzStreamAnswer(f *testing.F) {
	f.Add(piece("Hi")+done, uint8(1))
	f.Add(piece("Hi")+whole("Hi")+answer(`"close":true`), uint8(3))
	f.Add("data: {\"text\":\"x\"}\r\r", uint8(0))
	f.Fuzz(func(t *testing.T, s string, size uint8) {
		a, shown, err := stream(s)
		b, shownB, errB := stream(s, int(size)+1)
		require.Equal(t, a, b)
		require.Equal(t, shown, shownB)
		require.Equal(t, err, errB)
		if err != nil {
			require.True(t, problem.Is(err, webhook.InvalidAnswer))
			require.Equal(t, webhook.Answer{}, a)
			return
		}
		require.NoError(t, a.Check())
		require.LessOrEqual(t, len(a.Messages), webhook.MaxAnswerMessages)
		for _, m := range a.Messages {
			require.True(t, m.Text() != "" || m.Data() != nil)
		}
	})
}
