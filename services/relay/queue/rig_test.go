package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/companyevent"
	"github.com/poppyfield/poppyfield/ent/endpoint"
	"github.com/poppyfield/poppyfield/ent/endpointdelivery"
	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/relay/queue"
	"github.com/poppyfield/poppyfield/services/relay/store/queuestore"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// told is one attempt as an endpoint saw it.
type told struct {
	endpoint string
	queue.Message
}

// world are the endpoints of a test: each answers as the test says, and notes what it was told.
type world struct {
	mu     sync.Mutex
	answer map[string]func(context.Context, queue.Message) (queue.Answer, error)
	got    []told
	now    map[string]int // attempts under way
	peak   map[string]int
}

func newWorld() *world {
	return &world{answer: map[string]func(context.Context, queue.Message) (queue.Answer, error){}, now: map[string]int{}, peak: map[string]int{}}
}

// Tell implements queue.Teller.
func (w *world) Tell(ctx context.Context, key queue.Key, m queue.Message) (queue.Answer, error) {
	w.mu.Lock()
	w.got = append(w.got, told{key.ID, m})
	answer := w.answer[key.ID]
	w.now[key.ID]++
	w.peak[key.ID] = max(w.peak[key.ID], w.now[key.ID])
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now[key.ID]--
	}()
	if answer == nil {
		return queue.Answer{Outcome: queue.Taken, Sent: true, Status: 200, Reason: "delivered"}, nil
	}
	return answer(ctx, m)
}

func (w *world) answers(id string, fn func(context.Context, queue.Message) (queue.Answer, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer[id] = fn
}

func (w *world) with(id string, a queue.Answer) {
	w.answers(id, func(context.Context, queue.Message) (queue.Answer, error) { return a, nil })
}

func (w *world) of(id string) []told {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []told
	for _, t := range w.got {
		if t.endpoint == id {
			out = append(out, t)
		}
	}
	return out
}

var refused = queue.Answer{Outcome: queue.Refused, Sent: true, Status: 500, Reason: "status 500"}

// rig is the queue on a real database; only the endpoints are scripted.
type rig struct {
	db     *db.DB
	clock  *clock.Manual
	world  *world
	scope  tenancy.Scope
	bus    *bus.Bus // nil: NATS is away
	events *outbox.Recorder
	store  *queuestore.Store
	kept   time.Duration
}

func each(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		fn(t, newRig(t, d))
	})
}

func newRig(t *testing.T, d *db.DB) *rig {
	t.Helper()
	r := &rig{db: d, clock: clock.NewManual(time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)), world: newWorld(), scope: dbtest.Company(t, d)}
	r.connect(t)
	return r
}

func (r *rig) connect(t *testing.T) {
	t.Helper()
	var err error
	r.events, err = outbox.New(r.db, r.bus, r.clock.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	r.store = queuestore.New(r.db, r.events, policyOf)
}

func policyOf(settings json.RawMessage) queue.Policy {
	p := queue.Policy{MaxInFlight: 16, Schedule: []time.Duration{0, 5 * time.Second, 5 * time.Minute}}
	var s struct {
		Max int `json:"max"`
	}
	if json.Unmarshal(settings, &s) == nil && s.Max > 0 {
		p.MaxInFlight = s.Max
	}
	return p
}

// impatient has everything looked for so often that tests needn't wait for it.
var impatient = queue.Config{Sweep: 20 * time.Millisecond, Renew: 20 * time.Millisecond, Unpark: 20 * time.Millisecond, Prune: 20 * time.Millisecond}

// start starts a process's worth of the queue.
func (r *rig) start(t *testing.T, changes ...func(*queue.Config)) *queue.Queue {
	t.Helper()
	cfg := impatient
	cfg.Jitter = func() float64 { return 0.5 }
	for _, c := range changes {
		c(&cfg)
	}
	q := queue.New(cfg, queue.Deps{
		Store: r.store, Teller: r.world, Bus: r.bus, Now: r.clock.Now, Log: slog.New(slog.DiscardHandler),
		Retention: func(context.Context, tenancy.Scope) (time.Duration, error) { return r.kept, nil },
	})
	require.NoError(t, q.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = q.Stop(ctx) // a test may leave an endpoint hanging
	})
	return q
}

// listener makes an endpoint that listens to patterns; none are all.
func (r *rig) listener(t *testing.T, scope tenancy.Scope, patterns ...string) string {
	t.Helper()
	return r.listenerOf(t, scope, map[string]any{"event_types": patterns})
}

func (r *rig) listenerOf(t *testing.T, scope tenancy.Scope, settings map[string]any) string {
	t.Helper()
	id := ids.New("wep")
	raw, err := json.Marshal(settings)
	require.NoError(t, err)
	r.write(t, scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Endpoint.Create().SetID(id).SetRole(endpoint.RoleListens).SetURL("https://crm.example/hook").SetSettings(raw).SetCreatedAt(r.clock.Now()).Exec(ctx)
	})
	r.clock.Advance(2 * time.Second) // what is known of the listeners is too old now
	return id
}

func (r *rig) write(t *testing.T, scope tenancy.Scope, fn func(context.Context, *ent.Tx) error) {
	t.Helper()
	require.NoError(t, r.db.Write(t.Context(), scope, fn))
}

func (r *rig) enable(t *testing.T, id string, on bool) {
	t.Helper()
	r.write(t, r.scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Endpoint.Update().Where(endpoint.ID(id)).SetEnabled(on).Exec(ctx)
	})
}

// happen records n events of a type, each in a transaction of its own.
func (r *rig) happen(t *testing.T, scope tenancy.Scope, name string, n int) {
	t.Helper()
	for range n {
		r.write(t, scope, func(ctx context.Context, tx *ent.Tx) error {
			return r.events.Add(ctx, tx, scope, event(name, r.clock.Now()))
		})
	}
}

func event(name string, at time.Time) outbox.Event {
	e := outbox.Event{Type: name, Subject: "sessions/ses_1", At: at}
	facts := webhook.SessionFacts{Session: webhook.NewDeliverySession("ses_1", false, "", nil)}
	switch name {
	case webhook.EventSessionStarted:
		e.Data = webhook.SessionStartedData{SessionFacts: facts}
	case webhook.EventSessionEnded:
		e.Data = webhook.SessionEndedData{SessionFacts: facts, Reason: "company"}
	case webhook.EventClosed:
		e.Data = webhook.ClosedData{ConversationFacts: webhook.ConversationFacts{Session: facts.Session}, ClosedBy: "agent"}
	}
	return e
}

func (r *rig) rows(t *testing.T, scope tenancy.Scope) (events []*ent.CompanyEvent, deliveries []*ent.EndpointDelivery) {
	t.Helper()
	require.NoError(t, r.db.Read(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error {
		var err error
		if events, err = tx.CompanyEvent.Query().Order(companyevent.ByID()).All(ctx); err != nil {
			return err
		}
		deliveries, err = tx.EndpointDelivery.Query().Order(endpointdelivery.ByID()).All(ctx)
		return err
	}))
	return events, deliveries
}

// states counts an endpoint's deliveries by state.
func (r *rig) states(t *testing.T, id string) map[string]int {
	t.Helper()
	_, all := r.rows(t, r.scope)
	out := map[string]int{}
	for _, d := range all {
		if d.EndpointID == id {
			out[string(d.State)]++
		}
	}
	return out
}

func (r *rig) eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, 5*time.Millisecond, what)
}

func (r *rig) delivered(t *testing.T, id string, n int) {
	t.Helper()
	r.eventually(t, fmt.Sprintf("%d delivered to %s", n, id), func() bool { return r.states(t, id)["delivered"] == n })
}

func (r *rig) list(t *testing.T, id string, f queue.Filter) []queue.Delivery {
	t.Helper()
	got, err := r.store.Deliveries(t.Context(), r.scope, id, f, resource.Place{}, 1000)
	require.NoError(t, err)
	slices.Reverse(got)
	return got
}

func eventsOf(all []told) []string {
	out := make([]string, 0, len(all))
	for _, one := range all {
		out = append(out, one.EventID)
	}
	return out
}
