package main

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// Names outside the installation, which it reaches over TLS as dev hosts.
const (
	agentsHost  = "agents.example"
	backendHost = "backend.example"
)

// world is every website that the installation can reach: agents' documents,
// Companies' own domains and their backends, by host and path.
type world struct {
	mu    sync.Mutex
	pages map[string]http.HandlerFunc
	asked map[string]int
}

func newWorld() *world { return &world{pages: map[string]http.HandlerFunc{}, asked: map[string]int{}} }

// ServeHTTP implements http.Handler.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	at := r.Host + r.URL.Path
	w.mu.Lock()
	page := w.pages[at]
	w.asked[at]++
	w.mu.Unlock()
	if page == nil {
		http.NotFound(rw, r)
		return
	}
	page(rw, r)
}

// put makes at, a host and path, answer with page.
func (w *world) put(at string, page http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[at] = page
}

// asks returns how often at was requested.
func (w *world) asks(at string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[at]
}

// document is a page of JSON.
func document(contentType string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body)
	}
}

// publish puts an agent's documents on its host.
func (w *world) publish(a *fixture.Agent) {
	w.put(a.ClientID[len("https://"):], document("application/json", a.Document()))
	w.put(a.KeysURL[len("https://"):], document("application/json", a.KeySet()))
}

// agent makes a Personal Agent whose documents are published.
func (in *installation) agent(t testing.TB) *fixture.Agent {
	t.Helper()
	a := in.unpublished(t)
	in.web.publish(a)
	return a
}

// unpublished makes a Personal Agent that the test publishes itself.
func (in *installation) unpublished(t testing.TB) *fixture.Agent {
	t.Helper()
	return fixture.NewAgent(t, agentsHost+"/"+fixture.RandomID())
}

// delivery is a webhook as the backend got it.
type delivery struct {
	header   http.Header
	raw      []byte
	body     webhookBody
	at       time.Time
	sequence int // of the request at this backend, from 1
}

// webhookBody is what a backend reads of a webhook.
type webhookBody struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"`
	Data      struct {
		Company      string `json:"company"`
		Conversation struct {
			ID, Status, Responder string
			Direct                bool
			Parent                *string
		} `json:"conversation"`
		Sequence int64 `json:"sequence"`
		Message  struct {
			ID, Sender, Text string
			Data             map[string]any
		} `json:"message"`
		Context map[string]any `json:"context"`
		Agent   struct {
			ClientID string `json:"client_id"`
			Name     string `json:"name"`
		} `json:"agent"`
		User    struct{ ID string } `json:"user"`
		Session struct {
			ID       string   `json:"id"`
			SignedIn bool     `json:"signed_in"`
			Account  *string  `json:"account"`
			Scopes   []string `json:"scopes"`
		} `json:"session"`
		Expected struct {
			Reply   bool    `json:"reply"`
			ReplyBy *string `json:"reply_by"`
		} `json:"expected"`
	} `json:"data"`
}

// reply is a backend's answer to a webhook.
type reply struct {
	status int // 0 is 200
	header map[string]string
	body   string // JSON, unless header says something else
}

// says answers with one message.
func says(text string) reply {
	raw, _ := json.Marshal(map[string]any{"messages": []any{map[string]any{"text": text}}}) // strings encode
	return reply{body: string(raw)}
}

// backend is a Company's own agent, at a URL of its own. It answers as its script
// says; without one it repeats what it was told when an answer is expected.
type backend struct {
	url   string
	calls chan delivery

	mu     sync.Mutex
	count  int
	script func(delivery) reply
}

func (in *installation) backend() *backend {
	b := &backend{calls: make(chan delivery, 4096)}
	at := backendHost + "/" + fixture.RandomID()
	b.url = "https://" + at
	in.web.put(at, b.serve)
	return b
}

// answer sets the script.
func (b *backend) answer(script func(delivery) reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.script = script
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b.mu.Lock()
	b.count++
	d := delivery{header: r.Header.Clone(), raw: raw, at: time.Now(), sequence: b.count}
	script := b.script
	b.mu.Unlock()
	if err := json.Unmarshal(raw, &d.body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.calls <- d
	out := reply{}
	if d.body.Data.Expected.Reply {
		out = says("You said: " + d.body.Data.Message.Text)
	}
	if script != nil {
		out = script(d)
	}
	w.Header().Set("Content-Type", "application/json")
	for name, value := range out.header {
		w.Header().Set(name, value)
	}
	if out.status == 0 {
		out.status = http.StatusOK
	}
	w.WriteHeader(out.status)
	_, _ = io.WriteString(w, out.body)
}

// next waits for the next webhook.
func (b *backend) next(t testing.TB) delivery {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case d := <-b.calls:
		return d
	case <-timeout.C:
		require.FailNow(t, "no webhook came in time")
		return delivery{}
	}
}

// total is how many webhooks came so far.
func (b *backend) total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// verify checks a webhook's signatures.
func (d delivery) verify(t testing.TB, keys ...webhook.Verifier) {
	t.Helper()
	require.NoError(t, webhook.Verify(webhook.Headers{
		ID: d.header.Get(webhook.HeaderID), Timestamp: d.header.Get(webhook.HeaderTimestamp), Signature: d.header.Get(webhook.HeaderSignature),
	}, d.raw, time.Now(), keys...))
}
