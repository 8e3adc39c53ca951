package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

const (
	keptAnswers = 10000
	keptTalks   = 10000
)

// A Backend is the shop's own agent: it takes signed webhooks and answers them from
// the order book. The same webhook-id always gets the same answer.
type Backend struct {
	mail *mailbox
	shop *shop

	mu      sync.Mutex
	answers *recent[[]byte]
	talks   *recent[memory]
}

// newBackend makes a backend that refuses everything as long as its mailbox does.
func newBackend(mail *mailbox, shop *shop) *Backend {
	return &Backend{
		mail: mail, shop: shop,
		answers: newRecent[[]byte](keptAnswers),
		talks:   newRecent[memory](keptTalks),
	}
}

// delivery is the part of a webhook that the shop uses.
type delivery struct {
	Type string `json:"type"`
	Data struct {
		Conversation struct {
			ID string `json:"id"`
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
	answer, err := b.answer(id, body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_body")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// answer repeats what was said to this webhook-id before, or finds the answer. One at
// a time: two deliveries of one message must not be answered apart.
func (b *Backend) answer(id string, body []byte) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.answers.get(id); ok {
		return known, nil
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var d delivery
	if err := dec.Decode(&d); err != nil {
		return nil, fmt.Errorf("webhook body: %w", err)
	}
	answer := []byte(`{}`)
	m := d.Data.Message
	if d.Type == "conversation.message" && (m.Text != "" || len(m.Data) > 0) {
		q := question{
			text: m.Text, data: m.Data, human: m.Sender == "human",
			locale: d.Data.Context.Locale, zone: d.Data.Context.TimeZone,
			number: orderNumber(m.Text, m.Data),
			who:    asker{signedIn: d.Data.Session.SignedIn, account: d.Data.Session.Account, scopes: d.Data.Session.Scopes},
		}
		mem, _ := b.talks.get(d.Data.Conversation.ID)
		messages, mem := b.shop.reply(q, mem, b.mail.now())
		b.talks.put(d.Data.Conversation.ID, mem)
		raw, err := json.Marshal(map[string]any{"messages": messages})
		if err != nil {
			return nil, fmt.Errorf("encoding the answer: %w", err)
		}
		answer = raw
	}
	b.answers.put(id, answer)
	return answer, nil
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
