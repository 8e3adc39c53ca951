package whole

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/test/fixture"
	"github.com/poppyfield/poppyfield/test/peer"
)

// Hosts of the outside world.
const (
	AgentHost   = "agent.outside.test"
	BackendHost = "backend.outside.test"
)

// Websites are domains that Companies may have.
func Websites() []string { return []string{"noodles.outside.test", "books.outside.test"} }

// OutsideHosts are all hosts of the outside world.
func OutsideHosts() []string { return append(Websites(), AgentHost, BackendHost) }

// An Outside serves the outside world over HTTPS.
type Outside struct {
	*peer.Host
	// Identity is the agent whose documents are published.
	Identity *fixture.Agent

	mu        sync.Mutex
	redirects map[string]string
	backends  map[string]*Backend
	requests  []*http.Request
}

// Requests are all that came, with bodies that are gone.
func (o *Outside) Requests() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.requests)
}

// StartOutside serves the outside world at an address, or where --dev-host leads when
// the address is empty.
func StartOutside(t testing.TB, address string) *Outside {
	t.Helper()
	o := &Outside{Identity: fixture.NewAgent(t, AgentHost), redirects: map[string]string{}, backends: map[string]*Backend{}}
	if address == "" {
		o.Host = peer.Start(t, o, OutsideHosts()...)
	} else {
		o.Host = peer.StartAt(t, address, o, OutsideHosts()...)
	}
	return o
}

// Redirect makes a website redirect its poppy.json.
func (o *Outside) Redirect(domain, target string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.redirects[domain] = target
}

// Backend makes a backend, which says nothing until told otherwise.
func (o *Outside) Backend(name string) *Backend {
	b := &Backend{URL: "https://" + BackendHost + "/" + name, wake: make(chan struct{})}
	b.Answer(func(Webhook) (int, string) { return http.StatusOK, `{"messages":[]}` })
	o.mu.Lock()
	defer o.mu.Unlock()
	o.backends["/"+name] = b
	return b
}

// ServeHTTP implements http.Handler.
func (o *Outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	o.mu.Lock()
	backend, target := o.backends[r.URL.Path], o.redirects[host]
	o.requests = append(o.requests, r.Clone(context.WithoutCancel(r.Context())))
	o.mu.Unlock()
	switch {
	case host == AgentHost && r.URL.Path == "/agent.json":
		answerJSON(w, http.StatusOK, o.Identity.Document())
	case host == AgentHost && r.URL.Path == "/jwks.json":
		answerJSON(w, http.StatusOK, o.Identity.KeySet())
	case host == BackendHost && backend != nil:
		backend.serve(w, r)
	case target != "" && r.URL.Path == "/.well-known/poppy.json":
		http.Redirect(w, r, target, http.StatusFound)
	default:
		http.NotFound(w, r)
	}
}

func answerJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=300")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who asked may be gone
}

// A Webhook is what a backend received.
type Webhook struct {
	At     time.Time
	Header http.Header
	Raw    []byte
	ID     string
	// Parts of the body that tests look at.
	Conversation string
	MessageID    string
	Text         string
}

// A Backend is a Company's conversation backend. It keeps everything it receives.
type Backend struct {
	URL string

	mu       sync.Mutex
	answer   func(Webhook) (status int, body string)
	write    func(w io.Writer, hook Webhook)
	received []Webhook
	wake     chan struct{} // closed at the next webhook
}

// Answer says how webhooks are answered from now on.
func (b *Backend) Answer(with func(Webhook) (status int, body string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer, b.write = with, nil
}

// AnswerAsStream has webhooks answered by a stream of server-sent events from now on,
// each Write of which is passed on at once.
func (b *Backend) AnswerAsStream(write func(w io.Writer, hook Webhook)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write = write
}

func (b *Backend) serve(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender is gone
	}
	var body struct {
		Data struct {
			Conversation struct{ ID string }
			Message      struct{ ID, Text string }
		}
	}
	hook := Webhook{At: time.Now(), Header: r.Header.Clone(), Raw: raw, ID: r.Header.Get(webhook.HeaderID)}
	if err := json.Unmarshal(raw, &body); err == nil {
		hook.Conversation, hook.MessageID, hook.Text = body.Data.Conversation.ID, body.Data.Message.ID, body.Data.Message.Text
	}
	b.mu.Lock()
	b.received = append(b.received, hook)
	answer, write := b.answer, b.write
	close(b.wake)
	b.wake = make(chan struct{})
	b.mu.Unlock()
	if write != nil {
		w.Header().Set("Content-Type", "text/event-stream")
		write(atOnce{w}, hook)
		return
	}
	status, text := answer(hook)
	answerJSON(w, status, []byte(text))
}

// atOnce keeps nothing back.
type atOnce struct{ http.ResponseWriter }

func (w atOnce) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	return n, errors.Join(err, http.NewResponseController(w.ResponseWriter).Flush())
}

// Received are all webhooks so far, repeats too.
func (b *Backend) Received() []Webhook {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.received)
}

// Await returns all webhooks as soon as they satisfy enough.
func (b *Backend) Await(t testing.TB, within time.Duration, what string, enough func([]Webhook) bool) []Webhook {
	t.Helper()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		b.mu.Lock()
		wake := b.wake
		b.mu.Unlock()
		if got := b.Received(); enough(got) {
			return got
		}
		select {
		case <-wake:
		case <-timeout.C:
			t.Fatalf("the backend did not get %s within %s, but %d webhooks", what, within, len(b.Received()))
		}
	}
}

// Verify checks a webhook's signature against a secret, as the Company does.
func (w Webhook) Verify(secret string) error {
	key, err := webhook.ParseSecret(secret)
	if err != nil {
		return err
	}
	return webhook.Verify(webhook.Headers{
		ID: w.ID, Timestamp: w.Header.Get(webhook.HeaderTimestamp), Signature: w.Header.Get(webhook.HeaderSignature),
	}, w.Raw, w.At, key)
}

// Says is a backend's answer of one message.
func Says(text string) string {
	raw, _ := json.Marshal(text)
	return fmt.Sprintf(`{"messages":[{"text":%s}]}`, raw)
}

// Echo answers every webhook with its text and a few words before it.
func Echo(w Webhook) (int, string) { return http.StatusOK, Says("you said: " + w.Text) }
