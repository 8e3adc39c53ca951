package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

const (
	// touchEvery is how exact a Session's last use is kept.
	touchEvery   = time.Minute
	touchQueue   = 1024
	touchTimeout = 5 * time.Second
)

type touch struct {
	scope     tenancy.Scope
	sessionID string
	at        time.Time
}

// toucher writes last uses behind the requests. What doesn't fit into its queue is
// dropped: the Session's next request offers it again.
type toucher struct {
	tokens store.Tokens
	log    *slog.Logger
	queue  chan touch
	stop   chan struct{}
	done   sync.WaitGroup
}

func newToucher(tokens store.Tokens, log *slog.Logger) *toucher {
	return &toucher{tokens: tokens, log: log, queue: make(chan touch, touchQueue), stop: make(chan struct{})}
}

func (t *toucher) offer(u touch) {
	select {
	case t.queue <- u:
	default:
	}
}

func (t *toucher) start(ctx context.Context) {
	t.done.Go(func() {
		for {
			select {
			case u := <-t.queue:
				t.write(ctx, u)
			case <-t.stop:
				t.rest(ctx)
				return
			}
		}
	})
}

// rest writes what is queued, so that a restart loses no use.
func (t *toucher) rest(ctx context.Context) {
	for {
		select {
		case u := <-t.queue:
			t.write(ctx, u)
		default:
			return
		}
	}
}

func (t *toucher) write(ctx context.Context, u touch) {
	ctx, cancel := context.WithTimeout(ctx, touchTimeout)
	defer cancel()
	if err := t.tokens.Touch(ctx, u.scope, u.sessionID, u.at); err != nil {
		t.log.WarnContext(ctx, "last use not noted", "session", u.sessionID, "error", err)
	}
}
