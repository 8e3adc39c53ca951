package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// card is an agent's card that names a URL, in version 1.0.
func card(url string, streaming bool) string {
	return fmt.Sprintf(`{"supportedInterfaces":[{"url":%q,"protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{"streaming":%v}}`, url, streaming)
}

// rpc answers calls by their method; the last answer of a method stays.
func rpc(o **outside, cardJSON string, methods map[string][]string) http.HandlerFunc {
	asked := map[string]int{}
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			if cardJSON == "" {
				http.NotFound(w, r)
				return
			}
			says(w, "application/json", cardJSON)
			return
		}
		calls := (*o).calls()
		var call struct{ Method string }
		_ = json.Unmarshal(calls[len(calls)-1].body, &call)
		answers := methods[call.Method]
		if len(answers) == 0 {
			says(w, "application/json", `{"jsonrpc":"2.0","id":"1","error":{"code":-32601,"message":"no such method"}}`)
			return
		}
		at := min(asked[call.Method], len(answers)-1)
		asked[call.Method]++
		if answer, streamed := strings.CutPrefix(answers[at], "stream "); streamed {
			events(w, "data: "+answer+"\n\n")
			return
		}
		says(w, "application/json", answers[at])
	}
}

func newAgent(t *testing.T, cardJSON string, methods map[string][]string) *outside {
	t.Helper()
	var o *outside
	o = newOutside(t, rpc(&o, cardJSON, methods))
	return o
}

func result(r string) string { return `{"jsonrpc":"2.0","id":"1","result":` + r + `}` }

const (
	hi      = `{"message":{"role":"ROLE_AGENT","parts":[{"text":"Hi."}]}}`
	oldHi   = `{"kind":"message","role":"agent","parts":[{"kind":"text","text":"Hi."}]}`
	working = `{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}`
	doneNow = `{"id":"t","status":{"state":"TASK_STATE_COMPLETED","message":{"role":"ROLE_AGENT","parts":[{"text":"Done."}]}}}`
)

func methods(o *outside) []string {
	var out []string
	for _, c := range o.calls() {
		var call struct{ Method string }
		_ = json.Unmarshal(c.body, &call)
		out = append(out, strings.TrimSpace(c.header.Get("A2a-Version")+" "+call.Method))
	}
	return out
}

func TestSpeak_A2AFindsTheAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		card, path string
		methods    map[string][]string
		asked      []string
	}{
		"by its host":        {card(elsewhere+"/rpc", false), "", map[string][]string{"SendMessage": {result(hi)}}, []string{"", "1.0 SendMessage"}},
		"by its card":        {card(elsewhere+"/rpc", true), "/x/agent.json", map[string][]string{"SendStreamingMessage": {"stream " + result(hi)}}, []string{"", "1.0 SendStreamingMessage"}},
		"by its interface":   {card(elsewhere+"/rpc", false), "/rpc", map[string][]string{"SendMessage": {result(hi)}}, []string{"", "1.0 SendMessage"}},
		"without a card":     {"", "/rpc", map[string][]string{"message/stream": {"stream " + result(oldHi)}}, []string{"", "1.0 SendStreamingMessage", "1.0 SendMessage", "0.3 message/stream"}},
		"with another card":  {card(elsewhere+"/other", false), "/rpc", map[string][]string{"SendMessage": {result(hi)}}, []string{"", "1.0 SendStreamingMessage", "1.0 SendMessage"}},
		"with no sound card": {"{}", "/rpc", map[string][]string{"SendMessage": {result(hi)}}, []string{"", "1.0 SendStreamingMessage", "1.0 SendMessage"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newAgent(t, tc.card, tc.methods)
			s, _ := o.hear(t, question(KindA2A, tc.path))
			requireSaid(t, s, "Hi.")
			require.Equal(t, tc.asked, methods(o))
			for _, c := range o.calls() {
				require.Equal(t, "Bearer key", c.header.Get("Authorization"))
				require.Empty(t, c.header.Get(webhook.HeaderSignature))
			}
		})
	}
}

func TestSpeak_A2ACardIsRemembered(t *testing.T) {
	o := newAgent(t, card(elsewhere+"/rpc", false), map[string][]string{"SendMessage": {result(hi)}})
	for range 3 {
		s, _ := o.hear(t, question(KindA2A, "/"))
		requireSaid(t, s, "Hi.")
	}
	require.Len(t, o.calls(), 4)
	late := time.Now().Add(agentFresh)
	o.app.now = func() time.Time { return late }
	s, _ := o.hear(t, question(KindA2A, "/"))
	requireSaid(t, s, "Hi.")
	require.Len(t, o.calls(), 6)
}

// A card may be made for whoever shows the key: one Company's must never serve another.
func TestSpeak_A2ACardIsRememberedForItsEndpointAlone(t *testing.T) {
	var o *outside
	o = newOutside(t, func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		rpc(&o, card(elsewhere+"/"+key, false), map[string][]string{"SendMessage": {result(hi)}})(w, r)
	})
	of := func(id, key string, version int64) Question {
		q := question(KindA2A, "/")
		q.Endpoint.ID, q.Endpoint.Version = id, version
		q.Header.Set("Authorization", "Bearer "+key)
		return q
	}
	ask := func(q Question) []string {
		before := len(o.calls())
		s, _ := o.hear(t, q)
		requireSaid(t, s, "Hi.")
		var paths []string
		for _, c := range o.calls()[before:] {
			paths = append(paths, c.path)
		}
		return paths
	}
	const get = "GET /.well-known/agent-card.json"
	require.Equal(t, []string{get, "POST /one"}, ask(of("bck_1", "one", 1)))
	require.Equal(t, []string{get, "POST /two"}, ask(of("bck_2", "two", 1)))
	require.Equal(t, []string{"POST /one"}, ask(of("bck_1", "one", 1)))
	require.Equal(t, []string{"POST /two"}, ask(of("bck_2", "two", 1)))
	require.Equal(t, []string{get, "POST /three"}, ask(of("bck_1", "three", 2)), "another key")
}

func TestSpeak_A2AWhatWorkedIsRemembered(t *testing.T) {
	o := newAgent(t, "", map[string][]string{"message/send": {result(oldHi)}})
	for range 2 {
		s, _ := o.hear(t, question(KindA2A, "/rpc"))
		requireSaid(t, s, "Hi.")
	}
	require.Equal(t, []string{"", "1.0 SendStreamingMessage", "1.0 SendMessage", "0.3 message/stream", "0.3 message/send", "0.3 message/send"}, methods(o))
}

func TestSpeak_A2ACardMayNotSendTheKeyElsewhere(t *testing.T) {
	for _, url := range []string{"https://other.example/rpc", "http://backend.example/rpc", "https://backend.example.other/rpc", "https://backend.example:8443/rpc"} {
		o := newAgent(t, card(url, false), nil)
		s, _ := o.hear(t, question(KindA2A, "/"))
		requireBroken(t, s, webhook.FailureAnswer)
		require.Equal(t, "the agent card names another host: set the agent's own URL", s.Reason)
		require.Len(t, o.calls(), 1)
	}
}

func TestSpeak_A2ACardsThatAreNone(t *testing.T) {
	s, _ := newAgent(t, "", nil).hear(t, question(KindA2A, "/"))
	require.Equal(t, http.StatusNotFound, s.Response.Status)
	require.Equal(t, "the agent card is refused with status 404", s.Reason)
	s, _ = newAgent(t, "{}", nil).hear(t, question(KindA2A, "/"))
	requireBroken(t, s, webhook.FailureAnswer)
	require.Equal(t, "the agent card can't be used", s.Reason)
}

func TestSpeak_A2APollsATaskThatGoesOn(t *testing.T) {
	for name, tc := range map[string]map[string][]string{
		"whole":  {"SendMessage": {result(working)}, "GetTask": {result(`{"id":"t","status":{"state":"TASK_STATE_WORKING"}}`), result(doneNow)}},
		"stream": {"SendStreamingMessage": {"stream " + result(working)}, "GetTask": {result(doneNow)}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newAgent(t, card(elsewhere+"/rpc", name == "stream"), tc)
			s, _ := o.hear(t, question(KindA2A, "/"))
			requireSaid(t, s, "Done.")
			calls := o.calls()
			require.Contains(t, string(calls[len(calls)-1].body), `"params":{"id":"t"}`)
		})
	}
	o := newAgent(t, card(elsewhere+"/rpc", false), map[string][]string{"SendMessage": {result(working)}, "GetTask": {result(`{"id":"t","status":{"state":"TASK_STATE_WORKING"}}`)}})
	q := question(KindA2A, "/")
	q.Endpoint.AttemptTimeout = 600 * time.Millisecond
	s, _ := o.hear(t, q)
	requireBroken(t, s, webhook.FailureTimeout)
}

func TestSpeak_A2AAnswers(t *testing.T) {
	task := func(state, words string) string {
		return result(fmt.Sprintf(`{"task":{"id":"t","status":{"state":"TASK_STATE_%s","message":{"role":"ROLE_AGENT","parts":[{"text":%q}]}}}}`, state, words))
	}
	for name, tc := range map[string]struct {
		answer  string
		texts   []string
		failure webhook.Failure
		reason  string
		signIn  bool
	}{
		"input required":    {answer: task("INPUT_REQUIRED", "Which?"), texts: []string{"Which?"}},
		"sign-in":           {answer: task("AUTH_REQUIRED", "Sign in."), texts: []string{"Sign in."}, signIn: true},
		"rejected":          {answer: task("REJECTED", "No."), texts: []string{"No."}, reason: "the agent's task was rejected"},
		"rejected, no word": {answer: task("REJECTED", ""), failure: webhook.FailureAnswer, reason: "the agent's task was rejected"},
		"canceled":          {answer: task("CANCELED", "Stopped."), texts: []string{"Stopped."}, reason: "the agent's task was canceled"},
		"failed":            {answer: task("FAILED", "stack trace"), failure: webhook.FailureAnswer, reason: "the agent's task failed"},
		"error":             {answer: `{"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"stack trace"}}`, failure: webhook.FailureAnswer, reason: "the agent reports error -32603"},
		"garbage":           {answer: `<html>`, failure: webhook.FailureAnswer},
		"nothing said":      {answer: result(`{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newAgent(t, card(elsewhere+"/rpc", false), map[string][]string{"SendMessage": {tc.answer}}).hear(t, question(KindA2A, "/"))
			require.Equal(t, tc.reason, s.Reason)
			if tc.failure != 0 {
				requireBroken(t, s, tc.failure)
				require.NotContains(t, s.Err.Error(), "stack trace")
				return
			}
			requireSaid(t, s, tc.texts...)
			require.Equal(t, tc.signIn, s.Answer.Authorization != nil)
		})
	}
}

func TestSpeak_A2AIsToldWhoTalks(t *testing.T) {
	o := newAgent(t, card(elsewhere+"/rpc", false), map[string][]string{"SendMessage": {result(hi)}})
	_, _ = o.hear(t, question(KindA2A, "/"))
	var got struct {
		Params struct {
			Message struct {
				MessageID, ContextID string
				Metadata             map[string]map[string]any
			}
		}
	}
	require.NoError(t, json.Unmarshal(o.calls()[1].body, &got))
	require.Equal(t, "dlv_1", got.Params.Message.MessageID)
	require.Equal(t, "cnv_1", got.Params.Message.ContextID)
	about := got.Params.Message.Metadata["poppyfield"]
	require.Equal(t, map[string]any{"locale": "en"}, about["context"])
	require.Equal(t, "agent", about["sender"])
	require.NotContains(t, about, "message")
}
