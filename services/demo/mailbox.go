package demo

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

const maxWebhook = 512 << 10

// A mailbox lets signed webhooks in. It refuses everything until setSecret was called.
type mailbox struct {
	now    func() time.Time
	log    *slog.Logger
	secret atomic.Pointer[webhook.Secret]
}

// setSecret sets the whsec_ secret that webhooks have to be signed with.
func (m *mailbox) setSecret(text string) error {
	secret, err := webhook.ParseSecret(text)
	if err != nil {
		return fmt.Errorf("webhook secret: %w", err)
	}
	m.secret.Store(&secret)
	return nil
}

// receive returns the id and the body of one webhook, or answers it itself.
func (m *mailbox) receive(w http.ResponseWriter, r *http.Request) (id string, body []byte, ok bool) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed")
		return "", nil, false
	}
	secret := m.secret.Load()
	if secret == nil {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "starting")
		return "", nil, false
	}
	if mt, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mt != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "unsupported_media_type")
		return "", nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxWebhook))
	if err != nil {
		status := http.StatusBadRequest
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(w, status, "unreadable_body")
		return "", nil, false
	}
	headers := webhook.Headers{
		ID:        r.Header.Get(webhook.HeaderID),
		Timestamp: r.Header.Get(webhook.HeaderTimestamp),
		Signature: r.Header.Get(webhook.HeaderSignature),
	}
	// Nothing of the body is looked at before its signature is found to be good.
	if err := webhook.Verify(headers, body, m.now(), *secret); err != nil {
		m.log.WarnContext(r.Context(), "webhook refused", "webhook_id", headers.ID, "error", err)
		refuse(w, http.StatusUnauthorized, "invalid_signature")
		return "", nil, false
	}
	return headers.ID, body, true
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "{\"error\":%q}\n", code)
}
