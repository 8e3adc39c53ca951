package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

const (
	maxWebhook  = 512 << 10
	keptAnswers = 10000
	keptTalks   = 10000
)

// A Backend is the shop's own agent: it takes signed webhooks and answers them from
// the order book. The same webhook-id always gets the same answer.
type Backend struct {
	shop   *shop
	now    func() time.Time
	log    *slog.Logger
	secret atomic.Pointer[webhook.Secret]

	mu      sync.Mutex
	answers *recent[[]byte]
	talks   *recent[memory]
}

// NewBackend makes a backend that refuses everything until SetSecret was called.
func NewBackend(now func() time.Time, log *slog.Logger) *Backend {
	return &Backend{
		shop: newShop(), now: now, log: log,
		answers: newRecent[[]byte](keptAnswers),
		talks:   newRecent[memory](keptTalks),
	}
}

// SetSecret sets the whsec_ secret that webhooks have to be signed with.
func (b *Backend) SetSecret(text string) error {
	secret, err := webhook.ParseSecret(text)
	if err != nil {
		return fmt.Errorf("webhook secret: %w", err)
	}
	b.secret.Store(&secret)
	return nil
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
	} `json:"data"`
}

// ServeHTTP takes one webhook.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed")
		return
	}
	secret := b.secret.Load()
	if secret == nil {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "starting")
		return
	}
	if mt, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mt != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "unsupported_media_type")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxWebhook))
	if err != nil {
		status := http.StatusBadRequest
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(w, status, "unreadable_body")
		return
	}
	headers := webhook.Headers{
		ID:        r.Header.Get(webhook.HeaderID),
		Timestamp: r.Header.Get(webhook.HeaderTimestamp),
		Signature: r.Header.Get(webhook.HeaderSignature),
	}
	// Nothing of the body is looked at before its signature is found to be good.
	if err := webhook.Verify(headers, body, b.now(), *secret); err != nil {
		b.log.WarnContext(r.Context(), "webhook refused", "webhook_id", headers.ID, "error", err)
		refuse(w, http.StatusUnauthorized, "invalid_signature")
		return
	}
	answer, err := b.answer(headers.ID, body)
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
		}
		mem, _ := b.talks.get(d.Data.Conversation.ID)
		messages, mem := b.shop.reply(q, mem, b.now())
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

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "{\"error\":%q}\n", code)
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
