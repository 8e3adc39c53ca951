package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/devca"
	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// call is a request as a foreign server got it.
type call struct {
	path   string
	header http.Header
	body   []byte
}

// outside is a foreign server, and the App that speaks to it.
type outside struct {
	app *App
	mu  sync.Mutex
	got []call
}

const elsewhere = "https://backend.example"

// newOutside starts a server that answers as h does.
func newOutside(t *testing.T, h http.HandlerFunc) *outside {
	t.Helper()
	ca, err := devca.Load(t.TempDir(), time.Now)
	require.NoError(t, err)
	o := &outside{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		o.mu.Lock()
		o.got = append(o.got, call{path: r.Method + " " + r.URL.Path, header: r.Header, body: body})
		o.mu.Unlock()
		h(w, r)
	}))
	server.TLS = ca.ServerConfig(func(n string) bool { return n == "backend.example" })
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	server.TLS.Certificates = nil
	t.Cleanup(server.Close)
	hosts, err := egress.ParseDevHosts([]string{"backend.example=" + server.Listener.Addr().String()})
	require.NoError(t, err)
	roots, err := egress.LoadRootsPEM(ca.PEM())
	require.NoError(t, err)
	client, err := egress.New(egress.Config{UserAgent: "test", Now: time.Now, Roots: roots}, egress.NewGuard(egress.GuardConfig{DevHosts: hosts}))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	o.app = &App{out: client, now: time.Now}
	return o
}

func (o *outside) calls() []call {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]call(nil), o.got...)
}

// question asks "Hello." of a stranger.
func question(kind, path string) Question {
	return Question{
		Endpoint: Endpoint{Kind: kind, URL: elsewhere + path, Settings: Settings{Model: "m", Instructions: "Be kind."}}, ID: "dlv_1", ConversationID: "cnv_1",
		Header: http.Header{webhook.HeaderID: {"dlv_1"}, webhook.HeaderSignature: {"v1,x"}, "Authorization": {"Bearer key"}},
		Body: []byte(`{"type":"conversation.message","data":{"conversation":{"id":"cnv_1","direct":false},"message":{"id":"msg_1","sender":"agent","text":"Hello.","data":{}},` +
			`"context":{"locale":"en"},"session":{"id":"ses_1","signed_in":false,"account":null,"scopes":[]}}}`),
	}
}

// hear asks and returns what came, and the pieces before it.
func (o *outside) hear(t *testing.T, q Question) (Spoken, []string) {
	t.Helper()
	var got []string
	out := o.app.speak(t.Context(), q, func(s string) { got = append(got, s) })
	return out, got
}

func events(w http.ResponseWriter, lines ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, l := range lines {
		_, _ = io.WriteString(w, l)
		w.(http.Flusher).Flush()
	}
}

func says(w http.ResponseWriter, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	_, _ = io.WriteString(w, body)
}

func requireSaid(t *testing.T, s Spoken, texts ...string) {
	t.Helper()
	require.NoError(t, s.Err, "%s", s.Response.Body)
	var got []string
	for _, m := range s.Answer.Messages {
		got = append(got, m.Text())
	}
	require.Equal(t, texts, got)
}

func requireBroken(t *testing.T, s Spoken, failure webhook.Failure) {
	t.Helper()
	require.Error(t, s.Err)
	require.Equal(t, failure, failureOf(s.Err), "%v", s.Err)
	require.True(t, s.Answer.Empty(), "nothing of a failed attempt is kept")
	require.False(t, s.Answer.Later)
}

func TestSpeak_WebhookAnswersAsAStream(t *testing.T) {
	o := newOutside(t, func(w http.ResponseWriter, _ *http.Request) {
		events(w, ": hello\n\n", "event: text-delta\ndata: {\"text\":\"It is \"}\n\n", "event: text-delta\ndata: {\"text\":\"there.\"}\n\n",
			"event: answer\ndata: {\"hand_off\":{\"reason\":\"Angry.\"}}\n\n", "event: done\ndata: {}\n\n")
	})
	s, pieces := o.hear(t, question(KindWebhook, "/"))
	requireSaid(t, s, "It is there.")
	require.True(t, s.Answer.HandOff)
	header := o.calls()[0].header
	require.Equal(t, "application/json, text/event-stream", header.Get("Accept"))
	require.Equal(t, "v1,x", header.Get(webhook.HeaderSignature))
	require.Equal(t, "It is there.", strings.Join(pieces, ""))
	require.Equal(t, 200, s.Response.Status)
	require.Contains(t, string(s.Response.Body), "text-delta")
	require.NotEmpty(t, s.Response.Address)
	require.Positive(t, s.Response.Timing.Total)
}

func TestSpeak_WebhookStreamThatBreaksIsAFailedAttempt(t *testing.T) {
	const begun = "event: text-delta\ndata: {\"text\":\"It is\"}\n\n"
	for name, tc := range map[string]struct {
		failure webhook.Failure
		h       http.HandlerFunc
	}{
		"cut":            {webhook.FailureRead, func(w http.ResponseWriter, _ *http.Request) { events(w, begun); panic(http.ErrAbortHandler) }},
		"ended too soon": {webhook.FailureAnswer, func(w http.ResponseWriter, _ *http.Request) { events(w, begun) }},
		"says so":        {webhook.FailureAnswer, func(w http.ResponseWriter, _ *http.Request) { events(w, begun, "event: error\ndata: {}\n\n") }},
		"garbage":        {webhook.FailureAnswer, func(w http.ResponseWriter, _ *http.Request) { events(w, begun, "data: garbage\n\n") }},
		"endless": {webhook.FailureAnswer, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				events(w, begun, strings.Repeat(":\n", 4<<10))
			}
		}},
		"hangs": {webhook.FailureTimeout, func(w http.ResponseWriter, r *http.Request) { events(w, begun); <-r.Context().Done() }},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutside(t, tc.h)
			q := question(KindWebhook, "/")
			q.Endpoint.AttemptTimeout = 5 * time.Second
			if name == "hangs" {
				q.Endpoint.AttemptTimeout = 300 * time.Millisecond
			}
			s, pieces := o.hear(t, q)
			requireBroken(t, s, tc.failure)
			require.Equal(t, "It is", pieces[0], "shown at once, and never a message")
		})
	}
}

func TestSpeak_WebhookWithoutPiecesIsNotAskedToStream(t *testing.T) {
	o := newOutside(t, func(w http.ResponseWriter, _ *http.Request) {
		says(w, "application/json", `{"messages":[{"text":"Hi."}]}`)
	})
	requireSaid(t, o.app.speak(t.Context(), question(KindWebhook, "/"), nil), "Hi.")
	require.Equal(t, "application/json", o.calls()[0].header.Get("Accept"))
}

func TestSpeak_AckTimeout(t *testing.T) {
	for _, kind := range []string{KindWebhook, KindOpenAIChat} {
		o := newOutside(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		q := question(kind, "/")
		q.Endpoint.AckTimeout = 50 * time.Millisecond
		s, _ := o.hear(t, q)
		requireBroken(t, s, webhook.FailureTimeout)
		require.Equal(t, "the server took too long to begin its answer", egress.DetailOf(s.Err))
	}
}

func TestSpeak_GivingUpEndsEverything(t *testing.T) {
	for _, kind := range []string{KindWebhook, KindOpenAIChat, KindA2A} {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		o := newOutside(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				http.NotFound(w, r)
				return
			}
			events(w, "")
			cancel()
			<-r.Context().Done()
			close(gone)
		})
		s := o.app.speak(ctx, question(kind, "/rpc"), func(string) {})
		require.Error(t, s.Err)
		<-gone
	}
}

const ended = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"

func chunk(text string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
}

func TestSpeak_ChatRequest(t *testing.T) {
	o := newOutside(t, func(w http.ResponseWriter, _ *http.Request) { events(w, chunk("Hi."), ended) })
	q := question(KindOpenAIChat, "/v1/chat/completions")
	q.History = []Turn{{Role: "user", Sender: "agent", Text: "Before."}, {Role: "company", Sender: "human", Text: "Yes?"}, {Role: "user", Sender: "agent", Text: "Hello."}}
	s, pieces := o.hear(t, q)
	requireSaid(t, s, "Hi.")
	require.Equal(t, []string{"Hi."}, pieces)
	got := o.calls()[0]
	require.Equal(t, "POST /v1/chat/completions", got.path)
	require.Equal(t, "Bearer key", got.header.Get("Authorization"))
	require.Empty(t, got.header.Get(webhook.HeaderSignature), "that is for takers of webhooks")
	var body struct {
		Model    string
		Stream   bool
		Messages []struct{ Role, Content string }
	}
	require.NoError(t, json.Unmarshal(got.body, &body))
	require.True(t, body.Stream)
	require.Equal(t, "m", body.Model)
	require.Len(t, body.Messages, 5)
	require.Contains(t, body.Messages[0].Content, "Be kind.")
	require.NotContains(t, body.Messages[0].Content, "locale", "the agent's context is no word of ours")
	require.Equal(t, "user", body.Messages[1].Role)
	require.Contains(t, body.Messages[1].Content, `{"locale":"en"}`)
	require.Equal(t, struct{ Role, Content string }{"assistant", "Yes?"}, body.Messages[3])
}

func TestSpeak_ChatAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		h       http.HandlerFunc
		texts   []string
		failure webhook.Failure
		status  int
		reason  string
	}{
		"whole": {h: func(w http.ResponseWriter, _ *http.Request) {
			says(w, "application/json", `{"choices":[{"message":{"content":"Hi."}}]}`)
		}, texts: []string{"Hi."}},
		"nothing":    {h: func(w http.ResponseWriter, _ *http.Request) { events(w, ended) }},
		"cut":        {h: func(w http.ResponseWriter, _ *http.Request) { events(w, chunk("Hi"), chunk(" th")) }, failure: webhook.FailureRead},
		"broken off": {h: func(w http.ResponseWriter, _ *http.Request) { events(w, chunk("Hi")); panic(http.ErrAbortHandler) }, failure: webhook.FailureRead},
		"garbage":    {h: func(w http.ResponseWriter, _ *http.Request) { says(w, "text/html", "<html>") }, failure: webhook.FailureAnswer},
		"error in the stream": {
			h: func(w http.ResponseWriter, _ *http.Request) {
				events(w, chunk("Hi"), "data: {\"error\":{\"message\":\"secret\",\"code\":\"overloaded\"}}\n\n")
			},
			failure: webhook.FailureAnswer, reason: "the model's server reports an error: overloaded",
		},
		"error with status 200": {
			h: func(w http.ResponseWriter, _ *http.Request) {
				says(w, "application/json", `{"error":{"message":"secret"}}`)
			},
			failure: webhook.FailureAnswer, reason: "the model's server reports an error",
		},
		"filtered": {
			h: func(w http.ResponseWriter, _ *http.Request) {
				events(w, strings.Replace(ended, "stop", "content_filter", 1))
			},
			reason: "delivered; the model's content filter stopped it",
		},
		"no quota": {
			h: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, `{"error":{"code":"insufficient_quota"}}`)
			},
			status: 429, reason: "the quota at the model's server is used up: status 429",
		},
		"gone": {h: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }, status: 410},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newOutside(t, tc.h).hear(t, question(KindOpenAIChat, "/"))
			require.Equal(t, tc.reason, s.Reason)
			switch {
			case tc.failure != 0:
				requireBroken(t, s, tc.failure)
				require.NotContains(t, s.Err.Error(), "secret")
			case tc.status != 0:
				require.NoError(t, s.Err)
				require.Equal(t, tc.status, s.Response.Status)
			default:
				requireSaid(t, s, tc.texts...)
			}
		})
	}
}

func TestSpeak_ChatWithoutToolsOnceOnly(t *testing.T) {
	o := newOutside(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	s, _ := o.hear(t, question(KindOpenAIChat, "/"))
	require.Equal(t, http.StatusBadRequest, s.Response.Status)
	calls := o.calls()
	require.Len(t, calls, 2)
	require.Contains(t, string(calls[0].body), `"tools"`)
	require.NotContains(t, string(calls[1].body), `"tools"`)
}

func TestSpeak_OnlyContextIsNothingToAsk(t *testing.T) {
	for _, kind := range []string{KindOpenAIChat, KindA2A} {
		o := newOutside(t, func(http.ResponseWriter, *http.Request) {})
		q := question(kind, "/")
		q.Body = []byte(strings.Replace(string(q.Body), "Hello.", "", 1))
		s, _ := o.hear(t, q)
		requireSaid(t, s)
		require.Equal(t, http.StatusNoContent, s.Response.Status)
		require.Empty(t, o.calls())
	}
}

func TestSpeak_ABodyThatIsNoneIsOurFault(t *testing.T) {
	q := question(KindOpenAIChat, "/")
	q.Body = []byte("x")
	s, _ := newOutside(t, func(http.ResponseWriter, *http.Request) {}).hear(t, q)
	require.True(t, problem.Is(s.Err, problem.ServerError))
}
