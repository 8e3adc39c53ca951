package outbox

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/endpoint"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

const (
	// maxAge is how long a change of an endpoint may go unseen while the bus is away.
	maxAge = time.Second
	// refreshEvery leaves time for the reading itself, so that requests never find it too old.
	refreshEvery = 600 * time.Millisecond
)

// patterns are what one endpoint listens to; empty for all.
type patterns []string

func wanted(all []patterns, name string) bool {
	return slices.ContainsFunc(all, func(p patterns) bool { return webhook.MatchesEvent(p, name) })
}

// listeners are what endpoints of all Companies listen to. A Company that has none is in no map.
type listeners struct {
	now clock.Clock

	mu    sync.RWMutex
	all   map[string][]patterns
	at    time.Time          // of all
	newer map[string]reading // of single Companies, read after all or forgotten since
	epoch uint64             // grows with forget
}

type reading struct {
	patterns []patterns
	at       time.Time // zero: has to be read again
	epoch    uint64    // what was being read before it isn't kept
}

func newListeners(now clock.Clock) *listeners {
	return &listeners{now: now, newer: map[string]reading{}}
}

// of returns what the Company's endpoints listen to, and whether that is young enough.
func (l *listeners) of(company string) ([]patterns, bool) {
	now := l.now()
	l.mu.RLock()
	defer l.mu.RUnlock()
	if one, ok := l.newer[company]; ok {
		return one.patterns, !one.at.IsZero() && now.Sub(one.at) < maxAge
	}
	return l.all[company], !l.at.IsZero() && now.Sub(l.at) < maxAge
}

func (l *listeners) forget(company string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	l.newer[company] = reading{epoch: l.epoch}
}

func (l *listeners) begin() (epoch uint64, at time.Time) {
	at = l.now()
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.epoch, at
}

func (l *listeners) keep(company string, got []patterns, epoch uint64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newer[company].epoch <= epoch {
		l.newer[company] = reading{got, at, epoch}
	}
}

func (l *listeners) keepAll(got map[string][]patterns, epoch uint64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.at = got, at
	maps.DeleteFunc(l.newer, func(_ string, one reading) bool { return one.epoch <= epoch && one.at.Before(at) })
}

// settings is what of an endpoint's settings matters here.
type settings struct {
	EventTypes []string `json:"event_types"`
}

// ListensTo is what an endpoint with the given settings listens to, as patterns of
// webhook.MatchesEvent. Settings that make no sense are no reason to lose events, nor to
// fail what they tell of.
func ListensTo(raw json.RawMessage) []string {
	var s settings
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return s.EventTypes
}

// load reads the Company's listeners in a unit of work that is under way.
func (r *Recorder) load(ctx context.Context, tx *ent.Tx, scope tenancy.Scope) ([]patterns, error) {
	epoch, at := r.listeners.begin()
	rows, err := tx.Endpoint.Query().Where(endpoint.RoleEQ(endpoint.RoleListens)).Select(endpoint.FieldSettings).All(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]patterns, 0, len(rows))
	for _, row := range rows {
		out = append(out, ListensTo(row.Settings))
	}
	r.listeners.keep(scope.CompanyID(), out, epoch, at)
	return out, nil
}

// refresh reads the listeners of all Companies.
func (r *Recorder) refresh(ctx context.Context) error {
	epoch, at := r.listeners.begin()
	out := map[string][]patterns{}
	err := r.db.SystemRead(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		rows, err := tx.Endpoint.Query().Where(endpoint.RoleEQ(endpoint.RoleListens)).Select(endpoint.FieldCompanyID, endpoint.FieldSettings).All(ctx)
		if err != nil {
			return err
		}
		clear(out)
		for _, row := range rows {
			out[row.CompanyID] = append(out[row.CompanyID], ListensTo(row.Settings))
		}
		return nil
	})
	if err == nil {
		r.listeners.keepAll(out, epoch, at)
	}
	return err
}
