package app_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/sessions/app"
	"github.com/poppyfield/poppyfield/services/sessions/store"
	"github.com/poppyfield/poppyfield/services/sessions/store/entstore"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestPrune(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := fixture.NewPlatform(t, d)
		p.Serve(t)
		c := p.NewCompany(t)
		a, err := app.New(app.Deps{Store: entstore.New(d, nil), Companies: p.Directory, Now: p.Clock.Now, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		s := entstore.New(d, nil)
		now := p.Clock.Now()
		issue := func(id string) {
			sn := store.Session{ID: id, ClientID: "c", UserID: "u", CreatedAt: now, LastUsedAt: now}
			require.NoError(t, s.Issue(t.Context(), c.Scope, sn, true, store.Token{Hash: "h" + id, SessionID: id, CreatedAt: now, ExpiresAt: now.Add(time.Hour)}))
		}
		issue("idle")
		issue("ended")
		for _, id := range []string{"idle", "ended"} {
			err := s.SaveBrowserCookie(t.Context(), c.Scope, store.BrowserCookie{Hash: "b" + id, SessionID: id, CreatedAt: now, ExpiresAt: now.Add(time.Hour)})
			require.NoError(t, err)
		}
		// One that lasts goes with its Session.
		issue("joined")
		require.NoError(t, s.SaveBrowserCookie(t.Context(), c.Scope, store.BrowserCookie{Hash: "bjoined", SessionID: "joined", CreatedAt: now, ExpiresAt: now.Add(100 * 24 * time.Hour)}))
		_, err = a.EndSession(t.Context(), c.Scope, "ended")
		require.NoError(t, err)
		cookies := func(idle, joined bool) {
			got, err := s.Visits(t.Context(), c.Scope, []string{"bidle", "bended", "bjoined"})
			require.NoError(t, err)
			var want []string
			if idle {
				want = append(want, "bended", "bidle")
			}
			if joined {
				want = append(want, "bjoined")
			}
			var have []string
			for _, v := range got {
				have = append(have, v.Cookie.Hash)
			}
			require.Equal(t, want, have)
		}
		kept := func(id string, session, token bool) {
			_, err := a.Session(t.Context(), c.Scope, id)
			require.Equal(t, session, err == nil, "%v", err)
			if !session {
				require.True(t, problem.Is(err, problem.NotFoundReason))
			}
			got, err := s.Credential(t.Context(), c.Scope, "h"+id)
			require.NoError(t, err)
			require.Equal(t, token, got.Token != nil)
		}
		const day = 24 * time.Hour
		for _, step := range []struct {
			after               time.Duration
			idle, ended, tokens bool
		}{
			{0, true, true, true},
			{day, true, true, true},
			{day + 2*time.Hour, true, true, false},
			{30*day + time.Hour, true, false, false},
			{37*day - time.Hour, true, false, false},
			{37*day + time.Hour, false, false, false},
		} {
			p.Clock.Advance(now.Add(step.after).Sub(p.Clock.Now()))
			require.NoError(t, a.Prune(t.Context()))
			kept("idle", step.idle, step.tokens)
			kept("ended", step.ended, step.tokens)
			cookies(step.tokens, step.idle)
		}
	})
}
