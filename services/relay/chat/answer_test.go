package chat_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/services/relay/chat"
)

// read reads a stream in pieces of n bytes.
func read(n int, lines ...string) (chat.Answer, []string, error) {
	var got []string
	s := chat.NewStream(func(p string) { got = append(got, p) })
	text := ""
	for _, l := range lines {
		text += "data: " + l + "\n\n"
	}
	for len(text) > 0 {
		cut := min(n, len(text))
		if err := s.Write([]byte(text[:cut])); err != nil {
			return chat.Answer{}, got, err
		}
		text = text[cut:]
	}
	a, err := s.Close()
	return a, got, err
}

func said(text string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, text)
}

const (
	done = "[DONE]"
	stop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
)

func TestStream_TextInPieces(t *testing.T) {
	for _, n := range []int{1, 7, 1000} {
		a, got, err := read(n,
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, said("It is"), said(" on its"), `{"choices":[{"index":1,"delta":{"content":"other"}}]}`,
			`{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"hm"}}]}`, said(" way. "), stop, `{"choices":[],"usage":{"total_tokens":9}}`, done, said("late"))
		require.NoError(t, err)
		require.Equal(t, []string{"It is", " on its", " way. "}, got)
		require.Equal(t, chat.Answer{Text: "It is on its way."}, a)
	}
}

func TestStream_EndsAndCuts(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		want  chat.Answer
		cut   bool
	}{
		"no DONE":            {lines: []string{said("a"), stop}, want: chat.Answer{Text: "a"}},
		"no reason":          {lines: []string{said("a"), done}, want: chat.Answer{Text: "a"}},
		"nothing said":       {lines: []string{stop, done}},
		"neither":            {lines: []string{said("a")}, cut: true},
		"nothing":            {cut: true},
		"length":             {lines: []string{said("a"), strings.Replace(stop, "stop", "length", 1)}, want: chat.Answer{Text: "a …", Cut: true}},
		"filter":             {lines: []string{said("a"), strings.Replace(stop, "stop", "content_filter", 1)}, want: chat.Answer{Text: "a …", Cut: true, Filtered: true}},
		"filter from start":  {lines: []string{strings.Replace(stop, "stop", "content_filter", 1)}, want: chat.Answer{Cut: true, Filtered: true}},
		"a refusal is words": {lines: []string{`{"choices":[{"index":0,"delta":{"refusal":"I can't."}}]}`, stop}, want: chat.Answer{Text: "I can't."}},
	} {
		a, _, err := read(1000, tc.lines...)
		if tc.cut {
			require.ErrorIs(t, err, chat.ErrCut, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, tc.want, a, name)
	}
}

func TestStream_Errors(t *testing.T) {
	for line, code := range map[string]string{
		`{"error":{"message":"secret words","type":"server_error","code":null}}`: "server_error",
		`{"error":{"message":"x","code":"rate_limit_exceeded"}}`:                 "rate_limit_exceeded",
		`{"error":{"code":503}}`:            "",
		`{"error":"overloaded"}`:            "",
		`{"error":{"code":"<b>words</b>"}}`: "",
	} {
		_, _, err := read(1000, said("a"), line, done)
		var reported *chat.Error
		require.ErrorAs(t, err, &reported, line)
		require.Equal(t, code, reported.Code)
		require.Equal(t, code, chat.ErrorCode([]byte(line)))
	}
	_, _, err := read(1000, "no json", done)
	require.Error(t, err)
	require.Empty(t, chat.ErrorCode([]byte("<html>")))
	s := chat.NewStream(nil)
	require.Error(t, s.Write([]byte("event: error\ndata: {}\n\n")))
	require.Error(t, s.Write([]byte("data: "+stop+"\n\n")), "an error is final")
	_, err = s.Close()
	require.Error(t, err)
}

func TestStream_TextIsBounded(t *testing.T) {
	for _, piece := range []string{strings.Repeat("é", 999), strings.Repeat("é", conversation.MaxText*2)} {
		lines := []string{}
		for range 40 {
			lines = append(lines, said(piece))
		}
		a, got, err := read(1<<20, append(lines, stop)...)
		require.NoError(t, err)
		require.True(t, a.Cut)
		require.Equal(t, conversation.MaxText, utf8.RuneCountInString(a.Text))
		require.Equal(t, a.Text, strings.Join(got, "")+" …")
		_, err = a.Reply(false)
		require.NoError(t, err)
	}
}

func TestStream_ToolCallsInPieces(t *testing.T) {
	call := func(index, id, name, arguments string) string {
		return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"tool_calls":[{%s"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}]}}]}`, index, id, name, arguments)
	}
	want := []chat.Call{{Name: "hand_off", Arguments: `{"reason":"x"}`}, {Name: "close_conversation", Arguments: "{}"}}
	a, _, err := read(1000, call(`"index":0,`, "c1", "hand_off", ""), call(`"index":0,`, "", "", `{"reason":`), call(`"index":1,`, "c2", "close_conversation", "{}"), call(`"index":0,`, "", "hand_off", `"x"}`), stop)
	require.NoError(t, err)
	require.Equal(t, want, a.Calls)
	a, _, err = read(1000, call("", "c1", "hand_off", `{"reason":"x"}`), call("", "c2", "close_conversation", "{}"), stop)
	require.NoError(t, err)
	require.Equal(t, want, a.Calls, "whole calls without an index")
	a, _, err = read(1000, call("", "", "", "lost"), call(`"index":99,`, "c", "hand_off", ""), call(`"index":-1,`, "c", "hand_off", ""), stop)
	require.NoError(t, err)
	require.Empty(t, a.Calls)
}

func TestParseAnswer(t *testing.T) {
	a, err := chat.ParseAnswer([]byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"Hello.","tool_calls":[{"id":"c","type":"function","function":{"name":"hand_off","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`))
	require.NoError(t, err)
	require.Equal(t, chat.Answer{Text: "Hello.", Calls: []chat.Call{{Name: "hand_off", Arguments: "{}"}}}, a)
	for _, bad := range []string{``, `[]`, `{}`, `{"choices":[]}`, `{"error":{"code":"x"}}`} {
		_, err := chat.ParseAnswer([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestReply_CallsBecomeActions(t *testing.T) {
	reply := func(signedIn bool, calls ...chat.Call) conversation.Reply {
		t.Helper()
		r, err := chat.Answer{Calls: calls}.Reply(signedIn)
		require.NoError(t, err)
		require.NoError(t, r.Check())
		return r
	}
	signIn := func(arguments string, signedIn bool) string {
		a := reply(signedIn, chat.Call{Name: chat.RequestSignIn, Arguments: arguments}).Authorization
		return a.Error + " " + a.Scope
	}
	require.Equal(t, "sign_in_required ", signIn(`{}`, false))
	require.Equal(t, "sign_in_required a b", signIn(`{"scopes":["a","b"]}`, false))
	require.Equal(t, "insufficient_scope a", signIn(`{"scopes":["a"]}`, true))
	require.Equal(t, "sign_in_required ", signIn(`{}`, true))
	require.Equal(t, "sign_in_required ", signIn(`{"scopes":["a","a\u0007"]}`, true), "no scopes rather than bad ones")
	require.Equal(t, "sign_in_required ", signIn(`not json`, false))

	r := reply(false, chat.Call{Name: chat.HandOff, Arguments: `{"reason":"Angry."}`})
	require.True(t, r.HandOff)
	require.Equal(t, "Angry.", r.HandOffReason)
	require.Empty(t, reply(false, chat.Call{Name: chat.HandOff, Arguments: `{"reason":"` + strings.Repeat("x", 600) + `"}`}).HandOffReason)
	require.Equal(t, "To confirm.", reply(false, chat.Call{Name: chat.RequestUser, Arguments: `{"reason":"To confirm."}`}).UserRequested.Reason)
	require.NotEmpty(t, reply(false, chat.Call{Name: chat.RequestUser, Arguments: `{}`}).UserRequested.Reason)
	require.True(t, reply(false, chat.Call{Name: chat.CloseConversation}).Close)
	require.True(t, reply(false, chat.Call{Name: "delete_everything"}).Empty())
	both := reply(false, chat.Call{Name: chat.CloseConversation}, chat.Call{Name: chat.HandOff})
	require.True(t, both.HandOff)
	require.False(t, both.Close, "what asks for something stays open")
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("data: " + said("a") + "\n\ndata: " + stop + "\n\ndata: [DONE]\n\n"))
	f.Add([]byte(`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"hand_off","arguments":"{"}}]}}]}` + "\n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got strings.Builder
		s := chat.NewStream(func(p string) { got.WriteString(p) })
		_ = s.Write(raw)
		a, err := s.Close()
		if err != nil {
			return
		}
		require.True(t, strings.HasPrefix(strings.TrimSpace(got.String()), strings.TrimSuffix(a.Text, " …")))
		if _, err := a.Reply(true); err != nil {
			require.NotErrorIs(t, err, chat.ErrCut)
		}
	})
}
