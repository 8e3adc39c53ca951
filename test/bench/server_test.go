package bench_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkDocument reads a domain's document over one kept connection.
func BenchmarkDocument(b *testing.B) {
	w := newWorld(b)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, w.document, nil)
	require.NoError(b, err)
	for b.Loop() {
		if _, err := w.send(request, http.StatusOK); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSessionStart includes the agent's three signatures, as its floor does.
func BenchmarkSessionStart(b *testing.B) {
	w := newWorld(b)
	for b.Loop() {
		request, err := w.startRequest(b.Context())
		if err == nil {
			_, err = w.send(request, http.StatusOK)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRelayTurn sends a message and waits until the backend's answer to it can be
// read: one turn, through the signed webhook.
func BenchmarkRelayTurn(b *testing.B) {
	w := newWorld(b)
	token := w.session(b)
	request, err := w.messageRequest(b.Context(), token, w.talk)
	require.NoError(b, err)
	text, err := w.send(request, http.StatusCreated)
	require.NoError(b, err)
	var conversation struct {
		ID string `json:"conversation_id"`
	}
	require.NoError(b, json.Unmarshal(text, &conversation))
	address := w.talk + "/" + conversation.ID
	cursor := w.untilIdle(b, token, address, "")
	for b.Loop() {
		request, err := w.messageRequest(b.Context(), token, address+"/messages")
		if err == nil {
			_, err = w.send(request, http.StatusAccepted)
		}
		if err != nil {
			b.Fatal(err)
		}
		cursor = w.untilIdle(b, token, address, cursor)
	}
}

func (w *world) session(b *testing.B) string {
	b.Helper()
	request, err := w.startRequest(b.Context())
	require.NoError(b, err)
	text, err := w.send(request, http.StatusOK)
	require.NoError(b, err)
	var session struct {
		AccessToken string `json:"access_token"`
	}
	require.NoError(b, json.Unmarshal(text, &session))
	return session.AccessToken
}

// untilIdle reads events after a cursor until the backend has answered and the
// conversation is idle, and returns the cursor then.
func (w *world) untilIdle(b *testing.B, token, address, cursor string) string {
	b.Helper()
	answered := false
	for {
		query := "?wait=30"
		if cursor != "" {
			query += "&cursor=" + url.QueryEscape(cursor)
		}
		request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, address+"/events"+query, nil)
		require.NoError(b, err)
		require.NoError(b, w.prove(request, token))
		text, err := w.send(request, http.StatusOK)
		require.NoError(b, err)
		var page struct {
			Cursor, Status string
			HasMore        bool `json:"has_more"`
		}
		require.NoError(b, json.Unmarshal(text, &page))
		cursor = page.Cursor
		answered = answered || strings.Contains(string(text), `"pong"`)
		if answered && page.Status == "idle" && !page.HasMore {
			return cursor
		}
	}
}
