package backends_test

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

const (
	answered = relayv1.DeliverOutcome_DELIVER_OUTCOME_ANSWERED
	again    = relayv1.DeliverOutcome_DELIVER_OUTCOME_RETRY
	story    = "Your order left our warehouse this morning, and the carrier expects to bring it to you tomorrow before noon."
)

func said(r *relayv1.DeliverResponse) []string {
	var out []string
	for _, m := range r.GetMessages() {
		out = append(out, strings.TrimSpace(m.GetText()+" "+string(m.GetData())))
	}
	return out
}

func TestChat_AForeignModelAnswers(t *testing.T) {
	s := startServers(t)
	c := newCompany(t, s)
	model := func() *adminv1.Backend {
		return &adminv1.Backend{
			Url: "https://model" + domain + "/v1/chat/completions", Kind: adminv1.BackendKind_BACKEND_KIND_OPENAI_CHAT,
			ApiKey: key, Model: "gpt-4o", Instructions: "Be kind.",
		}
	}
	c.points(t, model())

	t.Run("text comes in pieces and ends as one message", func(t *testing.T) {
		pieces, got := c.hears(t, message{text: "Where is my order?"})
		require.Equal(t, answered, got.GetOutcome(), got.GetReason())
		require.Equal(t, []string{story}, said(got))
		require.Equal(t, story, strings.Join(pieces, ""))
		require.Greater(t, len(pieces), 2)
	})
	t.Run("what breaks off is tried again", func(t *testing.T) {
		for _, text := range []string{"Cut me off", "Hang up"} {
			_, got := c.hears(t, message{text: text})
			require.Equal(t, again, got.GetOutcome())
			require.Equal(t, "answer not readable", got.GetReason())
			require.Empty(t, got.GetMessages())
		}
	})
	for _, tc := range []struct {
		message
		text   string
		action func(*relayv1.DeliverResponse) bool
	}{
		{message{text: "Say half"}, "It is on its …", nil},
		{message{text: "Say nothing"}, "", nil},
		{message{text: "Foreign tool"}, "Let me look.", nil},
		{message{text: "No tools"}, "Without tools, then.", nil},
		{message{text: "Who am I?"}, "I cannot know.", nil},
		{message{text: "Who am I?", signedIn: true}, "You are signed in.", nil},
		{message{text: "This one:", data: `{"order":"1042"}`}, "Order 1042 it is.", nil},
		{message{text: "Remember?", history: []*relayv1.Turn{{Role: "user", Sender: "agent", Text: "A"}, {Role: "company", Sender: "agent", Text: "B"}}}, "I remember.", nil},
		{message{text: "Show me my invoices"}, "Please sign in first.", func(r *relayv1.DeliverResponse) bool {
			return r.GetAuthorizationError() == "sign_in_required" && r.GetAuthorizationScope() == "poppy:read"
		}},
		{message{text: "Show me my invoices", signedIn: true}, "Please sign in first.", func(r *relayv1.DeliverResponse) bool {
			return r.GetAuthorizationError() == "insufficient_scope" && r.GetAuthorizationScope() == "poppy:read"
		}},
		{message{text: "A person, please"}, "I am getting someone.", func(r *relayv1.DeliverResponse) bool {
			return r.GetHandOff() && r.GetHandOffReason() == "The user asks for a person."
		}},
		{message{text: "Is it really me?"}, "I would like to hear it from the customer.", func(r *relayv1.DeliverResponse) bool { return r.GetRequestUser() == "To confirm the refund." }},
		{message{text: "That is all"}, "Goodbye.", (*relayv1.DeliverResponse).GetClose},
		{message{text: "Tool alone"}, "", (*relayv1.DeliverResponse).GetHandOff},
	} {
		t.Run(tc.message.text, func(t *testing.T) {
			_, got := c.hears(t, tc.message)
			require.Equal(t, answered, got.GetOutcome(), got.GetReason())
			require.Equal(t, tc.text, strings.Join(said(got), "|"))
			if tc.action != nil {
				require.True(t, tc.action(got), "%v", got)
				return
			}
			require.False(t, got.GetHandOff() || got.GetClose() || got.GetRequestUser() != "" || got.GetAuthorizationError() != "", "%v", got)
		})
	}
	t.Run("refusals say what is wrong", func(t *testing.T) {
		_, got := c.hears(t, message{text: "Slow down"})
		require.Equal(t, again, got.GetOutcome())
		require.Equal(t, "throttled with status 429", got.GetReason())
		require.Equal(t, 7*time.Second, got.GetRetryAfter().AsDuration())
		_, got = c.hears(t, message{text: "Break"})
		require.Equal(t, "status 500", got.GetReason())
		wrong := model()
		wrong.ApiKey = "another"
		c.points(t, wrong)
		_, got = c.hears(t, message{text: "Where is my order?"})
		require.Equal(t, again, got.GetOutcome())
		require.Equal(t, "the API key is refused with status 401", got.GetReason())
		require.EqualValues(t, 401, got.GetStatus())
	})
}

// TestChat_TheOfficialClientHearsTheSame gives OpenAI's own client the same streams.
func TestChat_TheOfficialClientHearsTheSame(t *testing.T) {
	s := startServers(t)
	c := newCompany(t, s)
	c.points(t, &adminv1.Backend{Url: "https://model" + domain + "/v1/chat/completions", Kind: adminv1.BackendKind_BACKEND_KIND_OPENAI_CHAT, ApiKey: key, Model: "gpt-4o"})
	questions := []string{"Where is my order?", "Say nothing", "Show me my invoices", "A person, please", "Is it really me?", "That is all", "Tool alone", "No tools"}
	node, err := exec.LookPath("node")
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), node, append([]string{"second-opinion.mjs", strconv.Itoa(s.ports["plain"])}, questions...)...).Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, len(questions))
	for i, q := range questions {
		var theirs struct {
			Text  string
			Tools []string
		}
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &theirs))
		_, got := c.hears(t, message{text: q})
		require.Equal(t, theirs.Text, strings.Join(said(got), ""), q)
		require.Equal(t, theirs.Tools, tools(got), q)
	}
}

func tools(r *relayv1.DeliverResponse) []string {
	out := []string{}
	for name, there := range map[string]bool{"request_sign_in": r.GetAuthorizationError() != "", "hand_off": r.GetHandOff(), "request_user": r.GetRequestUser() != "", "close_conversation": r.GetClose()} {
		if there {
			out = append(out, name)
		}
	}
	return out
}

// TestA2A_ForeignAgentsAnswer asks agents of the protocol's official SDK: of version 1.0
// found at its host, of 0.3 by its card, and one that doesn't stream by its interface.
func TestA2A_ForeignAgentsAnswer(t *testing.T) {
	s := startServers(t)
	for name, url := range map[string]string{
		"1.0":                 "https://agent" + domain,
		"0.3":                 "https://older" + domain + "/.well-known/agent-card.json",
		"1.0 without streams": "https://whole" + domain + "/a2a",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCompany(t, s)
			c.points(t, &adminv1.Backend{Url: url, Kind: adminv1.BackendKind_BACKEND_KIND_A2A, ApiKey: key})
			asks := func(text string) *relayv1.DeliverResponse {
				_, got := c.hears(t, message{text: text, signedIn: true})
				return got
			}
			require.Equal(t, []string{`Here you are. {"order":"1042"}`}, said(asks("Answer at once")))
			const long = "Your order is with the carrier, and it should be at your door tomorrow before noon."
			pieces, got := c.hears(t, message{text: "Take your time"})
			require.Equal(t, answered, got.GetOutcome(), got.GetReason())
			require.Equal(t, []string{long, `{"carrier":"Example Parcel","number":"EP 77"}`}, said(got))
			require.Equal(t, long, strings.Join(pieces, ""))
			if name != "1.0 without streams" {
				require.Greater(t, len(pieces), 1)
			}
			require.Equal(t, []string{"Which order do you mean?"}, said(asks("Ask back")))
			require.Equal(t, "sign_in_required", asks("Mind my account").GetAuthorizationError())
			require.Equal(t, []string{"I only talk about orders."}, said(asks("Refuse")))
			require.Equal(t, []string{"dlv_1 in cnv_1: acc_7"}, said(asks("Who is there?")))
			_, got = c.hears(t, message{data: `{"order":"1042"}`})
			require.Equal(t, []string{`Got {"order":"1042"}`}, said(got))
			for _, text := range []string{"Fail with words", "Fail without words", "Break"} {
				got := asks(text)
				require.Equal(t, again, got.GetOutcome())
				require.Equal(t, "the agent's task failed", got.GetReason())
				require.Empty(t, got.GetMessages(), "its errors are not for Users")
			}
			c.points(t, &adminv1.Backend{Url: url, Kind: adminv1.BackendKind_BACKEND_KIND_A2A, ApiKey: "another"})
			require.Equal(t, "the API key is refused with status 401", asks("Answer at once").GetReason())
		})
	}
}
