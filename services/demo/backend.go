package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

const (
	piecePace   = 40 * time.Millisecond
	keptAnswers = 10000
	keptTalks   = 10000
)

// A Backend is the shop's own agent: it takes signed webhooks and answers them from
// the order book. The same webhook-id always gets the same answer.
type Backend struct {
	mail *mailbox
	shop *shop
	desk *kitchen
	pace time.Duration // between the pieces of a streamed answer

	mu      sync.Mutex
	answers *recent[answer]
	talks   *recent[memory]
}

// newBackend makes a backend that refuses everything as long as its mailbox does.
func newBackend(mail *mailbox, shop *shop) *Backend {
	return &Backend{
		mail: mail, shop: shop, desk: newKitchen(mail.log), pace: piecePace,
		answers: newRecent[answer](keptAnswers),
		talks:   newRecent[memory](keptTalks),
	}
}

// delivery is the part of a webhook that the shop uses.
type delivery struct {
	Type string `json:"type"`
	Data struct {
		Conversation struct {
			ID     string `json:"id"`
			Direct bool   `json:"direct"`
		} `json:"conversation"`
		Message struct {
			Sender string         `json:"sender"`
			Text   string         `json:"text"`
			Data   map[string]any `json:"data"`
		} `json:"message"`
		Context struct {
			Locale   string `json:"locale"`
			TimeZone string `json:"time_zone"`
		} `json:"context"`
		Session struct {
			SignedIn bool     `json:"signed_in"`
			Account  string   `json:"account"`
			Scopes   []string `json:"scopes"`
		} `json:"session"`
	} `json:"data"`
}

// ServeHTTP takes one webhook.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, body, ok := b.mail.receive(w, r)
	if !ok {
		return
	}
	a, conversation, err := b.answer(id, body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_body")
		return
	}
	switch {
	case a.way == later && b.desk.take(id, conversation, a):
		w.WriteHeader(http.StatusAccepted)
	case a.way == later: // the API isn't known yet
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "starting")
	case a.way == inPieces && strings.Contains(r.Header.Get("Accept"), "text/event-stream"):
		b.stream(w, r, a)
	default:
		raw, err := json.Marshal(a)
		if err != nil {
			refuse(w, http.StatusInternalServerError, "internal")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(raw)
	}
}

// stream sends the message word by word, and then as a whole, with its data.
func (b *Backend) stream(w http.ResponseWriter, r *http.Request, a answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for i, word := range strings.SplitAfter(a.Messages[0].Text, " ") {
		if i > 0 && clock.Wait(r.Context(), b.pace) != nil {
			return
		}
		if writeEvent(w, "text-delta", map[string]string{"text": word}) != nil || out.Flush() != nil {
			return // who breaks off gets it again
		}
	}
	if writeEvent(w, "answer", a) == nil {
		_ = writeEvent(w, "done", struct{}{})
	}
}

func writeEvent(w http.ResponseWriter, name string, data any) error {
	raw, err := json.Marshal(data)
	if err == nil {
		_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, raw)
	}
	return err
}

// answer repeats what was said to this webhook-id before, or finds the answer. One at
// a time: two deliveries of one message must not be answered apart.
func (b *Backend) answer(id string, body []byte) (a answer, conversation string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var d delivery
	if err := dec.Decode(&d); err != nil {
		return answer{}, "", fmt.Errorf("webhook body: %w", err)
	}
	conversation = d.Data.Conversation.ID
	if known, ok := b.answers.get(id); ok {
		return known, conversation, nil
	}
	m := d.Data.Message
	if d.Type == "conversation.message" && (m.Text != "" || len(m.Data) > 0) {
		q := question{
			text: m.Text, data: m.Data, human: m.Sender == "human", direct: d.Data.Conversation.Direct,
			locale: d.Data.Context.Locale, zone: d.Data.Context.TimeZone,
			number: orderNumber(m.Text, m.Data),
			who:    asker{signedIn: d.Data.Session.SignedIn, account: d.Data.Session.Account, scopes: d.Data.Session.Scopes},
		}
		mem, _ := b.talks.get(conversation)
		a, mem = b.shop.reply(q, mem, b.mail.now())
		b.talks.put(conversation, mem)
	}
	b.answers.put(id, a)
	return a, conversation, nil
}

// recent is a map that forgets its oldest entries beyond size.
type recent[V any] struct {
	size   int
	values map[string]V
	order  []string
}

func newRecent[V any](size int) *recent[V] {
	return &recent[V]{size: size, values: map[string]V{}}
}

func (r *recent[V]) get(key string) (V, bool) {
	v, ok := r.values[key]
	return v, ok
}

func (r *recent[V]) put(key string, v V) {
	if _, ok := r.values[key]; !ok {
		if len(r.order) >= r.size {
			delete(r.values, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, key)
	}
	r.values[key] = v
}
