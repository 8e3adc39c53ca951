package demo

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
)

const (
	kitchenTime  = 3 * time.Second
	kitchenAsked = 1000
)

// The kitchen finds answers that take longer than a webhook may wait. They are posted
// through the admin API with the Company's own key.
type kitchen struct {
	log  *slog.Logger
	time time.Duration // that an answer takes

	ctx  context.Context //nolint:containedctx // of what outlasts its request
	stop context.CancelFunc

	mu      sync.Mutex
	company string
	api     *adminClient
	asked   *recent[bool] // by webhook-id
	busy    sync.WaitGroup
}

func newKitchen(log *slog.Logger) *kitchen {
	ctx, stop := context.WithCancel(context.Background())
	return &kitchen{log: log, time: kitchenTime, ctx: ctx, stop: stop, asked: newRecent[bool](kitchenAsked)}
}

// open says where answers are posted.
func (k *kitchen) open(company string, api *adminClient) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.company, k.api = company, api
}

// take has a delivery answered later. False says that nothing can be posted yet.
func (k *kitchen) take(delivery, conversation string, a answer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.api == nil || k.ctx.Err() != nil {
		return false
	}
	if _, known := k.asked.get(delivery); known {
		return true
	}
	k.asked.put(delivery, true)
	at := fmt.Sprintf("/v1/%s/conversations/%s:respond", k.company, conversation)
	k.busy.Go(func() {
		if clock.Wait(k.ctx, k.time) != nil {
			return
		}
		// Named by what it answers, it is recorded once however often it is posted.
		body := map[string]any{"delivery": delivery, "messages": a.Messages, "request_id": uuidOf(delivery)}
		if err := k.api.call(k.ctx, http.MethodPost, at, nil, body, nil); err != nil {
			k.log.WarnContext(k.ctx, "an answer could not be posted", "delivery", delivery, "error", err)
		}
	})
	return true
}

// close drops what wasn't answered yet.
func (k *kitchen) close() {
	k.mu.Lock() // nothing is taken any more
	k.stop()
	k.mu.Unlock()
	k.busy.Wait()
}

// uuidOf is the same UUID for the same text, of version 8.
func uuidOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return uuid([16]byte(sum[:16]), 8)
}
