package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

func noon() time.Time { return time.Date(2026, 11, 2, 12, 2, 0, 0, time.UTC) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func testSecret(t *testing.T) webhook.Secret {
	t.Helper()
	s, err := webhook.NewSecret(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	return s
}

func testMailbox(t *testing.T) *mailbox {
	t.Helper()
	m := &mailbox{now: noon, log: quiet()}
	require.NoError(t, m.setSecret(testSecret(t).Reveal()))
	return m
}

func testBackend(t *testing.T) *Backend {
	t.Helper()
	return newBackend(testMailbox(t), newShop())
}

// signedOut and signedIn are the session of a webhook.
func signedOut() map[string]any {
	return map[string]any{"id": "ses_1", "signed_in": false, "account": nil, "scopes": []string{}}
}

func signedIn(account string, scopes ...string) map[string]any {
	return map[string]any{"id": "ses_1", "signed_in": true, "account": account, "scopes": scopes}
}

// message is a webhook body as the contract says, for one conversation.
func message(text, sender string, context map[string]any) []byte {
	return messageIn(signedOut(), text, sender, context)
}

func messageIn(session map[string]any, text, sender string, context map[string]any) []byte {
	raw, _ := json.Marshal(map[string]any{
		"type": "conversation.message", "timestamp": noon().Format(time.RFC3339),
		"data": map[string]any{
			"company":      "companies/cmp_1",
			"conversation": map[string]any{"id": "cnv_1", "status": "working", "responder": "agent", "direct": false, "parent": nil},
			"sequence":     1,
			"message":      map[string]any{"id": "msg_1", "sender": sender, "text": text, "data": map[string]any{}},
			"context":      context,
			"session":      session,
			"expected":     map[string]any{"reply": true, "reply_by": noon().Add(time.Minute).Format(time.RFC3339)},
		},
	})
	return raw
}

func signedRequest(t *testing.T, id string, at time.Time, body []byte) *http.Request {
	t.Helper()
	h, err := webhook.Sign(id, at, body, testSecret(t))
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/agent", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(webhook.HeaderID, h.ID)
	r.Header.Set(webhook.HeaderTimestamp, h.Timestamp)
	r.Header.Set(webhook.HeaderSignature, h.Signature)
	return r
}

func post(b http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	return w
}

// ask sends one message and returns the shop's first answer.
func ask(t *testing.T, b *Backend, id, text, sender string, context map[string]any) said {
	t.Helper()
	return askIn(t, b, signedOut(), id, text, sender, context)
}

func askIn(t *testing.T, b *Backend, session map[string]any, id, text, sender string, context map[string]any) said {
	t.Helper()
	w := post(b, signedRequest(t, id, noon(), messageIn(session, text, sender, context)))
	require.Equal(t, http.StatusOK, w.Code)
	answer, err := webhook.ParseAnswer(w.Code, w.Header().Get("Content-Type"), w.Body.Bytes())
	require.NoError(t, err, "the relay takes the answer")
	require.Len(t, answer.Messages, 1)
	var out struct {
		Messages []said `json:"messages"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
	return out.Messages[0]
}

func TestBackend_AnswersWhereTheOrderIs(t *testing.T) {
	got := askIn(t, testBackend(t), signedIn(mia, scopeRead), "msg_1", "Where is my order?", "human", nil)
	require.Contains(t, got.Text, "1042")
	require.Contains(t, got.Text, "on its way")
	require.Contains(t, got.Text, "Tonkotsu Ramen")
	require.Contains(t, got.Text, "Mika")
	require.Contains(t, got.Text, "13:15", "in the shop's zone")
	order, ok := got.Data["order"].(map[string]any)
	require.True(t, ok)
	require.Equal(t, "1042", order["number"])
	require.Equal(t, "on_its_way", order["status"])
	require.Equal(t, "2026-11-02T12:15:00Z", order["due_at"])
	require.InDelta(t, 3170, order["total_cents"], 0)
}

func TestBackend_WritesToWhoIsAsking(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.8#6", "poppy-0.1/7.8#7")
	b, session := testBackend(t), signedIn(mia, scopeRead)
	person := askIn(t, b, session, "msg_1", "Where is my order?", "human", nil)
	ai := askIn(t, b, session, "msg_2", "Where is my order?", "ai", nil)
	require.Equal(t, person.Data, ai.Data)
	for _, detail := range []string{"1042", "Tonkotsu Ramen", "Mika", "13:15"} {
		require.Contains(t, person.Text, detail)
	}
	require.Less(t, len(ai.Text), len(person.Text))
	require.NotContains(t, ai.Text, "Tonkotsu Ramen", "it stands in data")
	require.Contains(t, fmt.Sprint(ai.Data["order"]), "Tonkotsu Ramen")
}

// The shop's customers are answered alike wherever they ask.
func TestBackend_ADirectConversationIsAnsweredAsTheShopsOwnChannels(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.8#8")
	b, session := testBackend(t), signedIn(mia, scopeRead)
	answer := func(id string, direct bool) []byte {
		body := bytes.Replace(messageIn(session, "Where is my order?", "human", nil), []byte(`"direct":false`), fmt.Appendf(nil, `"direct":%t`, direct), 1)
		require.Contains(t, string(body), fmt.Sprintf(`"direct":%t`, direct))
		w := post(b, signedRequest(t, id, noon(), body))
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.Bytes()
	}
	require.JSONEq(t, string(answer("msg_1", false)), string(answer("msg_2", true)))
}

func TestBackend_RefusesWhatIsNotSigned(t *testing.T) {
	body := message("Where is my order?", "human", nil)
	for name, change := range map[string]func(*http.Request){
		"no headers":        func(r *http.Request) { r.Header.Del(webhook.HeaderSignature) },
		"no id":             func(r *http.Request) { r.Header.Del(webhook.HeaderID) },
		"another id":        func(r *http.Request) { r.Header.Set(webhook.HeaderID, "msg_2") },
		"another timestamp": func(r *http.Request) { r.Header.Set(webhook.HeaderTimestamp, "1793620921") },
		"another body":      func(r *http.Request) { r.Body = io.NopCloser(bytes.NewReader(append(body, ' '))) },
		"another version":   func(r *http.Request) { r.Header.Set(webhook.HeaderSignature, "v2,"+strings.Repeat("A", 43)+"=") },
	} {
		t.Run(name, func(t *testing.T) {
			r := signedRequest(t, "msg_1", noon(), body)
			change(r)
			w := post(testBackend(t), r)
			require.Equal(t, http.StatusUnauthorized, w.Code)
			require.JSONEq(t, `{"error":"invalid_signature"}`, w.Body.String())
		})
	}
}

func TestBackend_ToleratesFiveMinutes(t *testing.T) {
	body := message("hello", "human", nil)
	for offset, status := range map[time.Duration]int{
		-299 * time.Second: 200, 299 * time.Second: 200, -301 * time.Second: 401, 301 * time.Second: 401,
	} {
		w := post(testBackend(t), signedRequest(t, "msg_1", noon().Add(offset), body))
		require.Equal(t, status, w.Code, offset)
	}
}

func TestBackend_SameWebhookIDSameAnswer(t *testing.T) {
	b := testBackend(t)
	first := ask(t, b, "msg_1", "Where is order 1042?", "human", nil)
	ask(t, b, "msg_2", "And order 1043?", "human", nil)
	again := ask(t, b, "msg_1", "Where is order 1042?", "human", nil)
	require.Equal(t, first, again)
	third := ask(t, b, "msg_3", "When does it arrive?", "human", nil)
	require.Contains(t, third.Text, "1043", "a repeat does not change what the conversation is about")
}

func TestBackend_RefusesBadRequests(t *testing.T) {
	b := testBackend(t)
	r := signedRequest(t, "msg_1", noon(), []byte(`{"type":`))
	require.Equal(t, http.StatusBadRequest, post(b, r).Code)
	r = signedRequest(t, "msg_1", noon(), message("x", "human", nil))
	r.Header.Set("Content-Type", "text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, post(b, r).Code)
	r = signedRequest(t, "msg_1", noon(), bytes.Repeat([]byte(" "), maxWebhook+1))
	require.Equal(t, http.StatusRequestEntityTooLarge, post(b, r).Code)
	w := post(b, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/agent", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, http.MethodPost, w.Header().Get("Allow"))

	w = post(newBackend(&mailbox{now: noon, log: quiet()}, newShop()), signedRequest(t, "msg_1", noon(), message("x", "human", nil)))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Error(t, (&mailbox{}).setSecret("whsec_???"))
}

func TestBackend_NothingToSay(t *testing.T) {
	b := testBackend(t)
	w := post(b, signedRequest(t, "msg_1", noon(), message("", "agent", map[string]any{"user_available": false})))
	require.Equal(t, http.StatusOK, w.Code)
	require.JSONEq(t, `{}`, w.Body.String())
	w = post(b, signedRequest(t, "msg_2", noon(), []byte(`{"type":"something.else","data":{}}`)))
	require.JSONEq(t, `{}`, w.Body.String())
}

func TestBackend_Answers(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"What's on the menu?", "Tonkotsu Ramen €13.90"},
		{"Does the Tonkotsu Ramen contain gluten?", "Tonkotsu Ramen contains: wheat, egg, soy, sesame."},
		{"allergens in the mochi", "Mochi has none"},
		{"Is there anything vegan or gluten free?", "Without wheat: Rice Noodle Bowl, Miso Soup, Mochi"},
		{"When do you open?", "11:30 to 22:30"},
		{"status of #1043 please", "Order 1043 is in the wok"},
		{"Order 1041?", "handed over at"},
		{"Where is order 9999?", "can't find an order 9999"},
		{"Cancel my order", "Which order"},
		{"Please cancel order 1042", "can't be cancelled"},
		{"Please cancel order 1043", "call 030"},
		{"I'd like to order two ramen", "on our website"},
		{"Can I call you?", "030 555 0142"},
		{"Thank you!", "welcome"},
		{"hi", "Noodle Bar"},
		{"Tell me about this philosophy", "didn't get that"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			require.Contains(t, ask(t, testBackend(t), "msg_1", tc.text, "human", nil).Text, tc.want)
		})
	}
}

func TestBackend_RemembersTheConversation(t *testing.T) {
	b := testBackend(t)
	require.Contains(t, ask(t, b, "1", "I want to cancel", "human", nil).Text, "Which order")
	require.Contains(t, ask(t, b, "2", "1043", "human", nil).Text, "Order 1043 is being cooked")
	require.Contains(t, ask(t, b, "3", "Where is it now?", "human", nil).Text, "1043")
}

func TestBackend_UsesTheContext(t *testing.T) {
	german := map[string]any{"locale": "de-AT", "time_zone": "America/New_York"}
	got := ask(t, testBackend(t), "1", "Wo ist Bestellung 1042?", "human", german)
	require.Contains(t, got.Text, "unterwegs")
	require.Contains(t, got.Text, "07:15")
	short := ask(t, testBackend(t), "1", "Where is order 1042?", "agent", map[string]any{"time_zone": "Not/AZone"})
	require.Equal(t, "Order 1042 is on its way, due 13:15.", short.Text, "between two agents: short, details in data")
}

func TestOrderNumber(t *testing.T) {
	require.Equal(t, "1042", orderNumber("where is #1042?", nil))
	require.Equal(t, "1043", orderNumber("", map[string]any{"order_number": json.Number("1043")}))
	require.Equal(t, "1041", orderNumber("call me at 12 or 030-1", map[string]any{"order": "#1041"}))
	require.Empty(t, orderNumber("in 30 minutes, 1234567 times", nil))
}

func TestRecent_ForgetsTheOldest(t *testing.T) {
	r := newRecent[int](2)
	for i, key := range []string{"a", "b", "b", "c"} {
		r.put(key, i)
	}
	_, ok := r.get("a")
	require.False(t, ok)
	v, ok := r.get("b")
	require.True(t, ok)
	require.Equal(t, 2, v)
	require.Len(t, r.values, 2)
}

func FuzzBackendAnswer(f *testing.F) {
	f.Add(message("Where is my order?", "human", map[string]any{"locale": "de"}))
	f.Add([]byte(`{"type":"conversation.message","data":{"message":{"text":"cancel 1043","data":{"order":7}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		b := newBackend(&mailbox{now: noon, log: quiet()}, newShop())
		a, _, err := b.answer("msg_1", body)
		if err != nil {
			return
		}
		answer, err := json.Marshal(a)
		require.NoError(t, err)
		_, err = webhook.ParseAnswer(http.StatusOK, "application/json", answer)
		require.NoError(t, err)
	})
}
