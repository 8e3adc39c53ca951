package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	poppy "github.com/poppyfield/poppyfield/sdk/go"
)

func TestExample_ServesAndAnswersWhatWasJudgedAlone(t *testing.T) {
	now := time.Unix(1796203800, 0)
	secret, err := webhook.NewSecret([]byte("a secret of thirty-two bytes ..."))
	require.NoError(t, err)
	hooks, err := poppy.NewWebhooks(func() time.Time { return now }, secret.Reveal())
	require.NoError(t, err)
	judged := 0
	h := routes(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { judged++; next.ServeHTTP(w, r) })
	}, hooks)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/orders/7", nil))
	require.Equal(t, []int{http.StatusForbidden, 1}, []int{w.Code, judged}, "nobody's order is shown")

	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/products/7", nil))
	require.Equal(t, []any{http.StatusOK, 2, "{\"product\":\"7\"}\n"}, []any{w.Code, judged, w.Body.String()})

	post := func(body []byte, signature string) string {
		q := httptest.NewRequest(http.MethodPost, "/agent", strings.NewReader(string(body)))
		signed, err := webhook.Sign("dlv_1", now, body, secret)
		require.NoError(t, err)
		q.Header.Set(webhook.HeaderID, signed.ID)
		q.Header.Set(webhook.HeaderTimestamp, signed.Timestamp)
		q.Header.Set(webhook.HeaderSignature, signed.Signature+signature)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		return w.Body.String()
	}
	d := webhook.Delivery{OccurredAt: now, Company: "companies/cmp_1", Message: conversation.MessagePayload{ID: "msg_1", Text: "Where is it?"}}
	body, err := webhook.BuildBody(d)
	require.NoError(t, err)
	require.JSONEq(t, `{"authorization":{"error":"sign_in_required"}}`, post(body, ""))
	require.NotContains(t, post(body, "x"), "authorization")
	d.Session.SignedIn = true
	body, err = webhook.BuildBody(d)
	require.NoError(t, err)
	require.JSONEq(t, `{"messages":[{"text":"You asked: Where is it?"}]}`, post(body, ""))
	require.Equal(t, 2, judged)
	w = httptest.NewRecorder()
	routes(func(next http.Handler) http.Handler { return next }, nil).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/agent", nil))
	require.Equal(t, http.StatusNotFound, w.Code, "there is no backend without a secret")
}
