package app

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Logged is an attempt as the Company may see it.
type Logged struct {
	ID         string
	Scope      tenancy.Scope
	DeliveryID string
	EndpointID string
	At         time.Time
	Duration   time.Duration
	Status     int
	Outcome    string // "delivered", "retry" or "disabled"
	Reason     string
	Evidence   Evidence
}

// Evidence is what went over the wire, without what is secret, and where the time went.
type Evidence struct {
	Headers   map[string]string `json:"headers,omitempty"`
	Body      string            `json:"body,omitempty"` // the beginning of the answer, as text
	Address   string            `json:"address,omitempty"`
	DNS       time.Duration     `json:"dns,omitempty"`
	Connect   time.Duration     `json:"connect,omitempty"`
	TLS       time.Duration     `json:"tls,omitempty"`
	FirstByte time.Duration     `json:"first_byte,omitempty"`
}

func logged(scope tenancy.Scope, e Endpoint, t try, at time.Time, out Attempt, header http.Header, ready *prepared, res egress.Response) Logged {
	one := Logged{
		ID: ids.New(ids.Attempt), Scope: scope, DeliveryID: t.delivery, EndpointID: e.ID, At: at, Duration: out.Duration,
		Status: out.Status, Reason: out.Reason, Outcome: "delivered",
		Evidence: Evidence{
			Headers: redacted(header, e, ready), Body: asText(res.Body), Address: res.Address,
			DNS: res.Timing.DNS, Connect: res.Timing.Connect, TLS: res.Timing.TLS, FirstByte: res.Timing.FirstByte,
		},
	}
	switch out.Outcome {
	case Retry:
		one.Outcome = "retry"
	case Disabled:
		one.Outcome = "disabled"
	case Answered, Accepted, Unwanted, Held:
	}
	return one
}

// redacted returns the headers as sent, secret values replaced.
func redacted(h http.Header, e Endpoint, ready *prepared) map[string]string {
	out := make(map[string]string, len(h))
	for name, values := range h {
		if e.Kind != KindWebhook && strings.HasPrefix(name, "Webhook-") {
			continue // not sent to those who take no webhooks
		}
		out[name] = values[0]
		if _, secret := ready.credentials.Headers[name]; secret || name == "Authorization" {
			out[name] = Hidden
		}
	}
	return out
}

// asText returns body as text that databases take.
func asText(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), maxEvidence)]), "\uFFFD")
	return strings.ReplaceAll(text, "\x00", "\uFFFD")
}

const (
	logEvery = 250 * time.Millisecond
	logBatch = 200
	// maxLogged bounds what waits for the database, which may be away.
	maxLogged    = 4000
	flushTimeout = 10 * time.Second
)

// attemptLog writes attempts down behind the attempts' back: whoever delivers never
// waits for it. While the database is away it keeps a bounded number, and counts what is lost.
type attemptLog struct {
	save    func(ctx context.Context, batch []Logged) error
	told    *slog.Logger
	dropped atomic.Int64

	mu    sync.Mutex
	rows  []Logged
	wake  chan struct{}
	write sync.Mutex // one batch at a time, in order
}

func newAttemptLog(save func(context.Context, []Logged) error, told *slog.Logger) *attemptLog {
	return &attemptLog{save: save, told: told, wake: make(chan struct{}, 1)}
}

func (l *attemptLog) add(one Logged) {
	l.mu.Lock()
	full := len(l.rows) >= maxLogged
	if !full {
		l.rows = append(l.rows, one)
	}
	n := len(l.rows)
	l.mu.Unlock()
	if full {
		l.dropped.Add(1)
	}
	if n == logBatch {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// run writes until ctx ends, and then what is left.
func (l *attemptLog) run(ctx context.Context) {
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
			defer cancel()
			if err := l.flush(last); err != nil {
				l.mu.Lock()
				n := len(l.rows)
				l.rows = nil
				l.mu.Unlock()
				l.dropped.Add(int64(n))
				l.told.WarnContext(ctx, "log of attempts not written", "attempts", n, "error", err)
			}
			return
		case <-tick.C:
		case <-l.wake:
		}
		if err := l.flush(ctx); err != nil && ctx.Err() == nil {
			l.told.WarnContext(ctx, "log of attempts waits", "error", err)
		}
	}
}

// flush writes all that waits. What can't be written for now waits on.
func (l *attemptLog) flush(ctx context.Context) error {
	l.write.Lock()
	defer l.write.Unlock()
	for {
		l.mu.Lock()
		n := min(len(l.rows), logBatch)
		batch := l.rows[:n:n]
		l.mu.Unlock()
		if n == 0 {
			return nil
		}
		if err := l.save(ctx, batch); err != nil {
			return err
		}
		l.mu.Lock()
		if l.rows = l.rows[n:]; len(l.rows) == 0 {
			l.rows = nil
		}
		l.mu.Unlock()
	}
}

// saveLogged writes a batch. Where it can't be written for another reason than that the
// database is away, it is written Company by Company, so that one of them (it may have
// been deleted) doesn't cost the others theirs.
func (a *App) saveLogged(ctx context.Context, batch []Logged) error {
	err := a.store.SaveAttempts(ctx, batch)
	if err == nil || isAway(err) || ctx.Err() != nil {
		return err
	}
	byCompany := map[tenancy.Scope][]Logged{}
	for _, one := range batch {
		byCompany[one.Scope] = append(byCompany[one.Scope], one)
	}
	for scope, some := range byCompany {
		if err := a.store.SaveAttempts(ctx, some); err != nil {
			a.log.dropped.Add(int64(len(some)))
			a.told.WarnContext(ctx, "log of attempts not written", "company", scope.CompanyID(), "attempts", len(some), "error", err)
		}
	}
	return nil
}

// AttemptQuery says which attempts: of a delivery, or of an endpoint.
type AttemptQuery struct {
	DeliveryID string
	EndpointID string // Backend only together with OfBackend
	OfBackend  bool
	// BeforeTime and BeforeID are the last one of the page before; zero for the first page.
	BeforeTime time.Time
	BeforeID   string
	Limit      int
}

// Attempts returns attempts, the newest first, and the names of the endpoints that they were made at.
func (a *App) Attempts(ctx context.Context, scope tenancy.Scope, q AttemptQuery) ([]Logged, error) {
	// What this process has just done is expected to be there; that of others comes within logEvery.
	if err := a.log.flush(ctx); err != nil {
		return nil, err
	}
	if q.OfBackend {
		e, _, err := a.store.Endpoint(ctx, scope, Backend, a.now())
		if err != nil || e.ID == "" {
			return nil, err
		}
		q.EndpointID = e.ID
	}
	return a.store.Attempts(ctx, scope, q)
}

// listenerOf reports whether an id is that of an endpoint that listens.
func listenerOf(id string) bool { return strings.HasPrefix(id, ids.Endpoint+"_") }

// DeliveryName is the resource name of the delivery, below the Company's.
func (l Logged) DeliveryName() string {
	if listenerOf(l.EndpointID) {
		return "endpoints/" + l.EndpointID + "/deliveries/" + l.DeliveryID
	}
	return "backend/deliveries/" + l.DeliveryID
}
