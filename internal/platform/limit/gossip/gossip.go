package gossip

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
)

// Every is how often a process tells the others.
const Every = 100 * time.Millisecond

// Bus carries messages to all processes, or loses them.
type Bus interface {
	PublishLossy(ctx context.Context, subject string, data []byte)
	Subscribe(pattern string, fn bus.Handler) (unsubscribe func(), err error)
}

// Group is the shared Limiters of a process.
type Group struct {
	bus    Bus
	now    clock.Clock
	log    *slog.Logger
	secret string
	self   sender

	mu       sync.Mutex
	limiters map[string]*member // by subject
	odd      sync.Once          // the first message that can't be read is logged

	leave func()
	stop  context.CancelFunc
	done  sync.WaitGroup
}

type member struct {
	limiter *limit.Limiter
	number  uint64 // of the latest message
	heard   heard
}

// New makes a Group that hears the others from now on. The processes that count together have the same secret.
func New(b Bus, secret string, now clock.Clock, log *slog.Logger) (*Group, error) {
	g := &Group{bus: b, now: now, log: log, secret: secret, self: ids.Random16(), limiters: map[string]*member{}}
	var err error
	if g.leave, err = b.Subscribe(bus.AllTaken, g.hear); err != nil {
		return nil, err
	}
	return g, nil
}

// Limiter returns the Limiter of a name, the same one each time. Those of other processes with this name count with it.
func (g *Group) Limiter(name string) (*limit.Limiter, error) {
	subject, err := bus.TakenSubject(name)
	if err != nil {
		return nil, fmt.Errorf("limiter %q: %w", name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.limiters[subject]
	if m == nil {
		m = &member{limiter: limit.NewShared(0, sha256.Sum256([]byte("limiter "+name+"\x00"+g.secret))), heard: heard{of: map[sender]*said{}}}
		g.limiters[subject] = m
	}
	return m.limiter, nil
}

// Start tells the others every Every, until Stop.
func (g *Group) Start(ctx context.Context) error {
	ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	g.done.Go(func() { clock.Every(ctx, Every, g.Tell) })
	return nil
}

// Stop ends it. The Limiters go on, for themselves.
func (g *Group) Stop(context.Context) error {
	if g.stop != nil {
		g.stop()
	}
	g.done.Wait()
	g.leave()
	return nil
}

// Tell says what was taken since the last time. What the bus loses stays lost: told
// later, it would be taken from those who wait then.
func (g *Group) Tell(ctx context.Context) {
	type telling struct {
		subject string
		message message
	}
	var all []telling
	g.mu.Lock()
	for subject, m := range g.limiters {
		if spent := m.limiter.Spent(MaxKeys); len(spent) > 0 {
			m.number++
			all = append(all, telling{subject, message{g.self, m.number, spent}})
		}
	}
	g.mu.Unlock()
	for _, t := range all {
		g.bus.PublishLossy(ctx, t.subject, t.message.encode())
	}
}

func (g *Group) hear(ctx context.Context, subject string, data []byte) {
	m, err := parse(data)
	if err != nil {
		g.odd.Do(func() {
			g.log.WarnContext(ctx, "what other processes took can't be read", "subject", subject, "error", err)
		})
		return
	}
	if m.from == g.self {
		return
	}
	g.mu.Lock()
	to := g.limiters[subject]
	wanted := to != nil && to.heard.take(m.from, m.number)
	g.mu.Unlock()
	if wanted {
		to.limiter.Spend(m.spent, g.now())
	}
}
