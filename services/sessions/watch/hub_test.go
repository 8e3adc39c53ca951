package watch_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
	"github.com/poppyfield/poppyfield/services/sessions/watch"
)

// table is the changes that are committed.
type table struct {
	mu    sync.Mutex
	rows  []store.Change
	err   error
	after time.Time
}

func (f *table) Changes(_ context.Context, after time.Time, limit int) ([]store.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = after
	return f.rows[:min(limit, len(f.rows))], f.err
}

func (f *table) commit(scope tenancy.Scope, sessions ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range sessions {
		f.rows = append(f.rows, store.Change{ID: ids.UUID(), CompanyID: scope.CompanyID(), SessionID: s})
	}
}

func (f *table) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func start(t *testing.T, f *table) (*watch.Hub, *clock.Manual) {
	t.Helper()
	now := clock.NewManual(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	h := watch.New(f, now.Now, slog.New(slog.DiscardHandler), time.Hour)
	h.Start(t.Context())
	t.Cleanup(h.Stop)
	return h, now
}

func look(t *testing.T, h *watch.Hub, w *watch.Watch) watch.News {
	t.Helper()
	h.Ring()
	<-w.Wake()
	return w.Take()
}

func scopeOf(t *testing.T, id string) tenancy.Scope {
	t.Helper()
	s, err := tenancy.For(id)
	require.NoError(t, err)
	return s
}

func TestHub_TellsAChangeOnceAndWhoeverItIsFor(t *testing.T) {
	f := &table{}
	one, two := scopeOf(t, ids.New(ids.Company)), scopeOf(t, ids.New(ids.Company))
	h, now := start(t, f)
	w, since, cancel := h.Open(one)
	defer cancel()
	require.Equal(t, now.Now(), since)
	f.commit(one, "ses_1")
	f.commit(two, "ses_2")
	news := look(t, h, w)
	require.Equal(t, watch.News{Sessions: []string{"ses_1"}, Checked: now.Now()}, news)
	require.Equal(t, now.Now().Add(-45*time.Second), f.after)
	// A unit of work that began before the last look and is committed after it has an earlier time and is new all the same.
	f.commit(one, "ses_3")
	require.Equal(t, []string{"ses_3"}, look(t, h, w).Sessions)
	require.Empty(t, look(t, h, w).Sessions)
	f.commit(one, "ses_4", "")
	news = look(t, h, w)
	require.True(t, news.All)
	require.Empty(t, news.Sessions)
}

func TestHub_ALookThatFailsChecksNothing(t *testing.T) {
	f := &table{}
	one := scopeOf(t, ids.New(ids.Company))
	h, _ := start(t, f)
	w, _, cancel := h.Open(one)
	defer cancel()
	look(t, h, w)
	f.fail(errors.New("the database is away"))
	f.commit(one, "ses_1")
	h.Ring()
	f.fail(nil)
	require.Equal(t, []string{"ses_1"}, look(t, h, w).Sessions)
}

func TestHub_MoreThanCanBeListedIsEverything(t *testing.T) {
	f := &table{}
	one, two := scopeOf(t, ids.New(ids.Company)), scopeOf(t, ids.New(ids.Company))
	h, _ := start(t, f)
	w, _, cancel := h.Open(one)
	defer cancel()
	for range 1001 {
		f.commit(one, ids.New(ids.Session))
	}
	require.True(t, look(t, h, w).All)
	require.False(t, look(t, h, w).All)
	for range 10000 {
		f.commit(two, ids.New(ids.Session))
	}
	require.True(t, look(t, h, w).All, "what is beyond the bound of a look may be anybody's")
}

func TestHub_StopsWithItsStreams(t *testing.T) {
	h, _ := start(t, &table{})
	h.Stop()
	<-h.Stopping()
	h.Stop()
}
