package demo

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// relayed posts a message as the relay does, and reads the answer as it would.
func relayed(t *testing.T, b *Backend, id, text string, session map[string]any) (webhook.Answer, []string) {
	t.Helper()
	r := signedRequest(t, id, noon(), messageIn(session, text, "human", nil))
	r.Header.Set("Accept", "application/json, text/event-stream")
	w := post(b, r)
	var pieces []string
	if w.Header().Get("Content-Type") == "text/event-stream" {
		s := webhook.NewStreamAnswer(func(piece string) { pieces = append(pieces, piece) })
		require.NoError(t, s.Write(w.Body.Bytes()))
		require.True(t, s.Done())
		a, err := s.Close()
		require.NoError(t, err)
		return a, pieces
	}
	a, err := webhook.ParseAnswer(w.Code, w.Header().Get("Content-Type"), w.Body.Bytes())
	require.NoError(t, err)
	return a, nil
}

func TestBackend_EveryWayToAnswer(t *testing.T) {
	b := testBackend(t)
	b.pace = 0

	a, _ := relayed(t, b, "1", "Help!", signedOut())
	for _, phrase := range []string{"Where is my order?", "Tell me about the menu", "Check the kitchen", "I want to talk to a person", "Call me", "Goodbye"} {
		require.Contains(t, a.Messages[0].Text(), phrase)
	}

	a, pieces := relayed(t, b, "2", "Tell me about the menu", signedOut())
	require.Greater(t, len(pieces), 50)
	require.Equal(t, a.Messages[0].Text(), strings.Join(pieces, ""))
	require.Contains(t, a.Messages[0].Text(), "Tonkotsu")
	whole := ask(t, b, "2", "Tell me about the menu", "human", nil)
	require.Equal(t, a.Messages[0].Text(), whole.Text, "the same for who takes no stream")

	a, _ = relayed(t, b, "3", "Where is my order?", signedOut())
	require.Equal(t, "sign_in_required", a.Authorization.Error)
	a, _ = relayed(t, b, "4", "Where is my order?", signedIn(mia, scopeWrite))
	require.Equal(t, "insufficient_scope", a.Authorization.Error)
	require.Equal(t, scopeRead, a.Authorization.Scope)
	a, _ = relayed(t, b, "5", "What is my address?", signedIn(mia, scopeWrite))
	require.Equal(t, scopeAddresses, a.Authorization.Scope)
	a, _ = relayed(t, b, "6", "Where is my order?", signedIn(mia, scopeRead))
	require.Nil(t, a.Authorization)
	require.Contains(t, string(a.Messages[0].Data()), "1042")

	a, _ = relayed(t, b, "7", "I want to talk to a person", signedOut())
	require.True(t, a.HandOff)
	require.NotEmpty(t, a.HandOffReason)
	require.NotEmpty(t, a.Messages)
	a, _ = relayed(t, b, "8", "Call me", signedOut())
	require.NotNil(t, a.UserRequested)
	a, _ = relayed(t, b, "9", "Goodbye", signedOut())
	require.True(t, a.Close)
}

func TestBackend_DoesNotAskForWhoIsThere(t *testing.T) {
	q := question{text: "Call me", direct: true, human: true}
	a, _ := newShop().reply(q, memory{}, noon())
	require.Nil(t, a.RequestUser)
	require.NotEmpty(t, a.Messages)
}

func TestBackend_AnswersLaterByTheAPI(t *testing.T) {
	a := newFakeAdmin(t)
	a.key = "pfk_shop"
	b := testBackend(t)
	b.desk.time = 0
	body := message("Check the kitchen, please", "human", nil)
	w := post(b, signedRequest(t, "dlv_1", noon(), body))
	require.Equal(t, http.StatusServiceUnavailable, w.Code, "before the shop has its key")
	require.Equal(t, "1", w.Header().Get("Retry-After"))

	b.desk.open("companies/cmp_1", &adminClient{origin: a.server.URL, key: a.key, http: a.server.Client()})
	for range 2 {
		require.Equal(t, http.StatusAccepted, post(b, signedRequest(t, "dlv_1", noon(), body)).Code)
	}
	b.desk.busy.Wait()
	require.Len(t, a.posted, 1, "a repeat is not answered again")
	got := a.posted[0]
	require.Equal(t, "/v1/companies/cmp_1/conversations/cnv_1:respond", got["at"])
	require.Equal(t, "dlv_1", got["delivery"])
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, got["request_id"])
	require.NotEmpty(t, got["messages"])

	b.desk.time = time.Hour
	require.Equal(t, http.StatusAccepted, post(b, signedRequest(t, "dlv_2", noon(), body)).Code)
	b.desk.close()
	require.Len(t, a.posted, 1)
	require.Equal(t, http.StatusServiceUnavailable, post(b, signedRequest(t, "dlv_3", noon(), body)).Code)
}

func TestBackend_AStreamEndsWithItsReader(t *testing.T) {
	b := testBackend(t)
	b.pace = time.Hour
	ctx, stop := context.WithCancel(t.Context())
	r := signedRequest(t, "1", noon(), message("Tell me about the menu", "human", nil)).WithContext(ctx)
	r.Header.Set("Accept", "text/event-stream")
	stop()
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	require.NotContains(t, w.Body.String(), "event: done")
}
