package poppy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// maxWebhook is more than any webhook has.
const maxWebhook = 4 << 20

// ErrNotGenuine is what a webhook is refused with that none of the keys has signed, or
// too long ago.
var ErrNotGenuine = errors.New("poppy: the webhook is not genuine")

// Webhooks verifies signed webhooks (Standard Webhooks, v1 and v1a).
type Webhooks struct {
	verifiers []webhook.Verifier
	now       func() time.Time
}

// NewWebhooks takes whsec_… secrets and whpk_… public keys: one good signature of one of
// them is enough, so that a secret can be replaced while both are here. now is the
// machine's clock where it is nil.
func NewWebhooks(now func() time.Time, keys ...string) (*Webhooks, error) {
	if now == nil {
		now = clock.System
	}
	w := &Webhooks{now: now}
	for i, key := range keys {
		v, err := parseKey(key)
		if err != nil {
			return nil, fmt.Errorf("poppy: key %d: %w", i, err)
		}
		w.verifiers = append(w.verifiers, v)
	}
	if len(w.verifiers) == 0 {
		return nil, errors.New("poppy: webhooks can't be verified without a key")
	}
	return w, nil
}

func parseKey(key string) (webhook.Verifier, error) {
	if strings.HasPrefix(key, "whpk_") {
		return webhook.ParsePublicKey(key)
	}
	return webhook.ParseSecret(key)
}

// Verify checks that the body, byte for byte as it came, is genuine and not older, or
// newer, than five minutes.
func (w *Webhooks) Verify(h http.Header, body []byte) error {
	var values [3]string
	for i, name := range []string{webhook.HeaderID, webhook.HeaderTimestamp, webhook.HeaderSignature} {
		all := h.Values(name)
		if len(all) != 1 {
			return fmt.Errorf("%w: it has not one %s", ErrNotGenuine, name)
		}
		values[i] = all[0]
	}
	if err := webhook.Verify(webhook.Headers{ID: values[0], Timestamp: values[1], Signature: values[2]}, body, w.now(), w.verifiers...); err != nil {
		return fmt.Errorf("%w: %w", ErrNotGenuine, err)
	}
	return nil
}

// Receive reads, verifies and parses a webhook.
func (w *Webhooks) Receive(r *http.Request) (*Event, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxWebhook+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxWebhook {
		return nil, fmt.Errorf("%w: it is too large", ErrNotGenuine)
	}
	if err := w.Verify(r.Header, body); err != nil {
		return nil, err
	}
	return parseEvent(r.Header.Get(webhook.HeaderID), body)
}
