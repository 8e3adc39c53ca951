package usage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

const (
	// Every is how often counts are kept and totals read.
	Every = 3 * time.Second
	// keepTimeout bounds one round of that.
	keepTimeout = 10 * time.Second
	// maxWait bounds what is said of when to come back: a quota may be raised at any time.
	maxWait = time.Hour
)

// Meter counts. A nil Meter counts nothing and refuses nothing. It is safe for concurrent use.
type Meter struct {
	db  *db.DB
	now clock.Clock
	log *slog.Logger

	mu      sync.Mutex
	pending map[slot]int64   // not in the database
	books   map[string]*book // of the Companies that have a quota
	keeping sync.Mutex       // one round at a time

	stop context.CancelFunc
	done sync.WaitGroup
}

// slot is a row.
type slot struct {
	company string
	day     int64 // of UTC, since 1970
	kind    Kind
}

// book is what a Company may use in a month, and what is known of what it did.
type book struct {
	month  time.Time
	most   Amounts
	used   Amounts // as last read
	unread Amounts // counted here and not in used
}

const daySeconds = 24 * 60 * 60

func dayOf(t time.Time) int64 { return t.Unix() / daySeconds }

func dayTime(day int64) time.Time { return time.Unix(day*daySeconds, 0).UTC() }

// New makes a Meter; nothing is kept before Start.
func New(d *db.DB, now clock.Clock, log *slog.Logger) *Meter {
	return &Meter{db: d, now: now, log: log, pending: map[slot]int64{}, books: map[string]*book{}}
}

// Add counts n more.
func (m *Meter) Add(scope tenancy.Scope, kind Kind, n int) {
	if m == nil || n <= 0 || scope.IsZero() {
		return
	}
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending[slot{scope.CompanyID(), dayOf(now), kind}] += int64(n)
	if b := m.books[scope.CompanyID()]; b != nil {
		b.turn(now)
		b.unread[quotaOf[kind]] += int64(n)
	}
}

// turn begins a new month where that of the book is over.
func (b *book) turn(now time.Time) {
	if month, _ := Month(now); month.After(b.month) {
		b.month, b.used, b.unread = month, Amounts{}, Amounts{}
	}
}

// Allow reports whether the Company may use more of all the quotas, and otherwise in what
// time to ask again. It counts nothing.
func (m *Meter) Allow(scope tenancy.Scope, of ...Quota) (ok bool, retryAfter time.Duration) {
	if m == nil {
		return true, 0
	}
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.books[scope.CompanyID()]
	if b == nil {
		return true, 0
	}
	b.turn(now)
	for _, q := range of {
		if b.most[q] > 0 && b.used[q]+b.unread[q] >= b.most[q] {
			_, end := Month(now)
			return false, min(end.Sub(now), maxWait)
		}
	}
	return true, 0
}

// Start reads the quotas, and keeps counts every Every until Stop.
func (m *Meter) Start(ctx context.Context) error {
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.round(ctx)
	m.done.Go(func() { clock.Every(ctx, Every, m.round) })
	return nil
}

func (m *Meter) round(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if err := m.Keep(bounded); err != nil && ctx.Err() == nil {
		m.log.WarnContext(ctx, "usage not kept, or quotas not read; both are tried again", "error", err)
	}
}

// Stop ends what Start began and keeps what is left.
func (m *Meter) Stop(ctx context.Context) error {
	if m.stop != nil {
		m.stop()
	}
	m.done.Wait()
	return m.Keep(ctx)
}

// Keep adds what was counted to the database and reads the totals anew. What could
// not be added is kept for the next time; where nobody knows whether it was, it is
// added again.
func (m *Meter) Keep(ctx context.Context) error {
	m.keeping.Lock()
	defer m.keeping.Unlock()
	return errors.Join(m.flush(ctx), m.refresh(ctx))
}
