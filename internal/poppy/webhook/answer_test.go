package webhook_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

func delivery(t testing.TB, members string) webhook.Delivery {
	t.Helper()
	m, err := conversation.ParseSend([]byte(`{"message":{"id":"msg_1","sender":"agent",` + members + `}}`))
	require.NoError(t, err)
	return webhook.Delivery{
		OccurredAt:   time.Date(2026, 10, 10, 12, 0, 0, 0, time.UTC),
		Company:      "companies/cmp_1",
		Conversation: webhook.DeliveryConversation{ID: "cnv_1", Status: conversation.Working, Responder: conversation.ResponderAgent},
		Sequence:     7,
		Message:      m.Payload(),
		Context:      m.Context(),
		Agent:        webhook.DeliveryAgent{ClientID: "https://agent.example/agent.json", Name: "Example <Agent>"},
		UserID:       "usr_1",
		Session:      webhook.DeliverySession{ID: "ses_1"},
		ReplyBy:      time.Date(2026, 10, 10, 12, 0, 25, 0, time.UTC),
	}
}

// requireBytes compares byte for byte: spelling and order are part of what is promised.
func requireBytes(t testing.TB, want string, got []byte) {
	t.Helper()
	require.Equal(t, want, string(got))
}

func TestBuildBody_Contract(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.4#17")
	raw, err := webhook.BuildBody(delivery(t, `"text":"Hé <b>","data":{"n":1.0},"context":{"locale":"de"}`))
	require.NoError(t, err)
	requireBytes(t, `{"type":"conversation.message","timestamp":"2026-10-10T12:00:00.000Z","data":{"company":"companies/cmp_1",`+
		`"conversation":{"id":"cnv_1","status":"working","responder":"agent","direct":false,"parent":null},"sequence":7,`+
		`"message":{"id":"msg_1","sender":"agent","text":"Hé <b>","data":{"n":1.0}},"context":{"locale":"de"},`+
		`"agent":{"client_id":"https://agent.example/agent.json","name":"Example <Agent>"},"user":{"id":"usr_1"},`+
		`"session":{"id":"ses_1","signed_in":false,"account":null,"scopes":[]},"handback":null,`+
		`"expected":{"reply":true,"reply_by":"2026-10-10T12:00:25.000Z"}}}`, raw)
	again, err := webhook.BuildBody(delivery(t, `"text":"Hé <b>","data":{"n":1.0},"context":{"locale":"de"}`))
	require.NoError(t, err)
	require.Equal(t, raw, again)
}

func TestBuildBody_SameShapeForLess(t *testing.T) {
	d := delivery(t, `"context":{"user_available":false}`)
	parent, account := "cnv_0", "acc_1"
	d.Context, d.ReplyBy = nil, time.Time{}
	d.Conversation.Direct, d.Conversation.Parent = true, &parent
	d.Session = webhook.DeliverySession{ID: "ses_1", SignedIn: true, Account: &account, Scopes: []string{"poppy:read"}}
	raw, err := webhook.BuildBody(d)
	require.NoError(t, err)
	var body struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	require.NoError(t, json.Unmarshal(raw, &body))
	requireBytes(t, `{"id":"msg_1","sender":"agent","text":"","data":{}}`, body.Data["message"])
	requireBytes(t, `{}`, body.Data["context"])
	requireBytes(t, `{"reply":false,"reply_by":null}`, body.Data["expected"])
	requireBytes(t, `{"id":"ses_1","signed_in":true,"account":"acc_1","scopes":["poppy:read"]}`, body.Data["session"])
	require.Contains(t, string(body.Data["conversation"]), `"parent":"cnv_0"`)
	requireBytes(t, `null`, body.Data["handback"])

	d.Message.Data = json.RawMessage(`{`)
	_, err = webhook.BuildBody(d)
	require.Equal(t, problem.Internal, problem.As(err).Kind)
}

func TestBuildBody_Handback(t *testing.T) {
	for note, want := range map[string]string{"": `"handback":{"note":""},`, "Refund <agreed>": `"handback":{"note":"Refund <agreed>"},`} {
		d := delivery(t, `"text":"Hi"`)
		d.Handback = &webhook.DeliveryHandback{Note: note}
		raw, err := webhook.BuildBody(d)
		require.NoError(t, err)
		require.Contains(t, string(raw), want)
	}
}

func TestParseAnswer_Messages(t *testing.T) {
	a, err := webhook.ParseAnswer(200, "application/json; charset=utf-8", []byte(`{"messages":[
		{"text":"Hé","data":{"a":1.0},"role":"user","later":1},{"sender":"human","text":"Hi"},{"text":null,"data":{},"sender":null}],"actions":[]}`))
	require.NoError(t, err)
	require.False(t, a.Later)
	require.Len(t, a.Messages, 3)
	require.Equal(t, conversation.MessagePayload{
		ID: "msg_c", Role: conversation.RoleCompany, Sender: conversation.SenderAgent, Text: "Hé", Data: json.RawMessage(`{"a":1.0}`),
	}, a.Messages[0].Payload("msg_c"))
	require.Equal(t, conversation.SenderHuman, a.Messages[1].Sender())
	require.Equal(t, conversation.SenderAgent, a.Messages[2].Sender())
}

func TestParseAnswer_NothingToSay(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#d45")
	for _, body := range []string{``, " \n", `{}`, `{"messages":[]}`, `{"messages":null}`, `{"later":1}`} {
		a, err := webhook.ParseAnswer(200, "application/json", []byte(body))
		require.NoError(t, err, body)
		require.Equal(t, webhook.Answer{}, a)
	}
	a, err := webhook.ParseAnswer(204, "", nil)
	require.NoError(t, err)
	require.Equal(t, webhook.Answer{}, a)
}

func TestParseAnswer_Actions(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#7", "poppy-0.1/7.10#13", "poppy-0.1/7.11#2", "poppy-0.1/7.11#d37", "poppy-0.1/7.12#5")
	for body, want := range map[string]conversation.Reply{
		`{"authorization":{"error":"sign_in_required","scope":null}}`: {Authorization: &conversation.AuthorizationPayload{Error: "sign_in_required"}},
		`{"authorization":{"error":"insufficient_scope","scope":"a b","more":1}}`: {
			Authorization: &conversation.AuthorizationPayload{Error: "insufficient_scope", Scope: "a b"},
		},
		`{"request_user":{"reason":"why","more":1}}`:                 {UserRequested: &conversation.UserRequestedPayload{Reason: "why"}},
		`{"hand_off":true}`:                                          {HandOff: true},
		`{"hand_off":{}}`:                                            {HandOff: true},
		`{"hand_off":{"reason":null}}`:                               {HandOff: true},
		`{"hand_off":{"reason":"upset"}}`:                            {HandOff: true, HandOffReason: "upset"},
		`{"close":true}`:                                             {Close: true},
		`{"close":true,"hand_off":false,"authorization":null}`:       {Close: true},
		`{"close":false,"hand_off":false,"later":{}}`:                {},
		`{"close":null,"hand_off":null,"request_user":null}`:         {},
		`{"messages":[],"request_user":{"reason":"w"},"x":"\u0041"}`: {UserRequested: &conversation.UserRequestedPayload{Reason: "w"}},
	} {
		a, err := webhook.ParseAnswer(200, "application/json", []byte(body))
		require.NoError(t, err, body)
		require.Equal(t, webhook.Answer{Reply: want}, a, body)
	}
	a, err := webhook.ParseAnswer(200, "application/json", []byte(`{"close":true,"messages":[{"text":"Bye."}]}`))
	require.NoError(t, err)
	require.True(t, a.Close)
	require.Len(t, a.Messages, 1)
}

func TestParseAnswer_BadActions(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.10#13", "poppy-0.1/7.11#5", "poppy-0.1/7.11#d37")
	long := strings.Repeat("x", conversation.MaxReason+1)
	for body, path := range map[string]string{
		`{"authorization":"sign_in_required"}`:                        "authorization",
		`{"authorization":true}`:                                      "authorization",
		`{"authorization":{}}`:                                        "authorization.error",
		`{"authorization":{"error":1}}`:                               "authorization.error",
		`{"authorization":{"error":"invalid_token"}}`:                 "authorization.error",
		`{"authorization":{"error":"insufficient_scope"}}`:            "authorization.scope",
		`{"authorization":{"error":"sign_in_required","scope":[]}}`:   "authorization.scope",
		`{"request_user":true}`:                                       "request_user",
		`{"request_user":"why"}`:                                      "request_user",
		`{"request_user":{}}`:                                         "request_user.reason",
		`{"request_user":{"reason":" "}}`:                             "request_user.reason",
		`{"request_user":{"reason":5}}`:                               "request_user.reason",
		`{"request_user":{"reason":"` + long + `"}}`:                  "request_user.reason",
		`{"hand_off":"upset"}`:                                        "hand_off",
		`{"hand_off":1}`:                                              "hand_off",
		`{"hand_off":[]}`:                                             "hand_off",
		`{"hand_off":{"reason":true}}`:                                "hand_off.reason",
		`{"hand_off":{"reason":"` + long + `"}}`:                      "hand_off.reason",
		`{"close":"true"}`:                                            "close",
		`{"close":1}`:                                                 "close",
		`{"close":{}}`:                                                "close",
		`{"close":true,"hand_off":true}`:                              "close",
		`{"close":true,"request_user":{"reason":"x"}}`:                "close",
		`{"close":true,"authorization":{"error":"sign_in_required"}}`: "close",
		`{"messages":{},"close":true}`:                                "messages",
	} {
		a, err := webhook.ParseAnswer(200, "application/json", []byte(body))
		require.True(t, problem.Is(err, webhook.InvalidAnswer), "%s: %v", body, err)
		require.Equal(t, path, problem.As(err).Fields[0].Path, body)
		require.Equal(t, webhook.Answer{}, a)
	}
}

func TestParseAnswer_Later(t *testing.T) {
	a, err := webhook.ParseAnswer(202, "text/html", []byte(`<html>`))
	require.NoError(t, err)
	require.Equal(t, webhook.Answer{Later: true}, a)
}

func TestCV05_CO04_ParseAnswer_Refused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.4#1", "poppy-0.1/7.7#15")
	for _, body := range []string{
		`[]`, `"Hi"`, `Hi`, `{"messages":{}}`, `{"messages":"Hi"}`, `{"messages":["Hi"]}`, `{"messages":[{}]}`, `{"messages":[{"text":""}]}`,
		`{"messages":[{"text":5}]}`, `{"messages":[{"text":"x","sender":"company"}]}`, `{"messages":[{"text":"x","sender":1}]}`,
		`{"messages":[{"text":"x","data":[]}]}`, `{"messages":[{"text":"a\u0000b"}]}`, `{"messages":[{"text":"x"},{"text":"\ud800"}]}`,
		`{"messages":[],"messages":[{"text":"x"}]}`, `{"messages":[{"text":"x","text":"y"}]}`, `{"messages":[{"data":{"n":1e999}}]}`,
		`{"messages":[` + strings.Repeat(`{"text":"x"},`, webhook.MaxAnswerMessages) + `{"text":"x"}]}`,
		`{"messages":[{"text":"` + strings.Repeat("x", conversation.MaxText+1) + `"}]}`,
	} {
		_, err := webhook.ParseAnswer(200, "application/json", []byte(body))
		require.True(t, problem.Is(err, webhook.InvalidAnswer), "%.80s: %v", body, err)
	}
	for _, c := range []struct {
		status      int
		contentType string
	}{{200, "text/html"}, {200, ""}, {200, "application/x-www-form-urlencoded"}, {301, "application/json"}, {400, "application/json"}, {500, "application/json"}, {0, ""}} {
		_, err := webhook.ParseAnswer(c.status, c.contentType, []byte(`{"messages":[{"text":"x"}]}`))
		require.True(t, problem.Is(err, webhook.InvalidAnswer), "%+v", c)
	}
	_, err := webhook.ParseAnswer(200, "application/json", make([]byte, webhook.MaxAnswer+1))
	require.Equal(t, problem.TooLarge, problem.As(err).Kind)
	_, err = webhook.ParseAnswer(200, "application/json", []byte(`{"messages":[{"text":"ok"},{"text":""}]}`))
	require.Equal(t, "messages[1]", problem.As(err).Fields[0].Path)
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(200, "application/json", []byte(`{"messages":[{"text":"x","data":{"a":[1]},"sender":"human"}]}`))
	f.Add(200, "application/json", []byte(`{}`))
	f.Add(200, "application/json", []byte(`{"messages":[{}],"messages":[]}`))
	f.Add(200, "application/json", []byte(`{"authorization":{"error":"insufficient_scope","scope":"a b"},"request_user":{"reason":"x"},"hand_off":{"reason":"y"},"close":false}`))
	f.Add(200, "application/json", []byte(`{"hand_off":true,"close":true}`))
	f.Add(202, "", []byte{})
	f.Add(410, "text/html", []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte) {
		a, err := webhook.ParseAnswer(status, contentType, body)
		if err != nil {
			require.True(t, problem.Is(err, webhook.InvalidAnswer))
			require.NotEqual(t, problem.Internal, problem.As(err).Kind)
			return
		}
		require.LessOrEqual(t, len(a.Messages), webhook.MaxAnswerMessages)
		for _, m := range a.Messages {
			require.True(t, m.Text() != "" || m.Data() != nil)
			_, err := conversation.EncodePayload(m.Payload("msg_1"))
			require.NoError(t, err)
		}
		require.NoError(t, a.Check())
		require.True(t, a.HandOff || a.HandOffReason == "")
	})
}
