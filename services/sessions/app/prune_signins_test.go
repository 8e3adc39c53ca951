package app_test

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/services/sessions/app"
	"github.com/poppyfield/poppyfield/services/sessions/store"
	"github.com/poppyfield/poppyfield/services/sessions/store/entstore"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// Codes are seen to be reused for a day after they expired, and a sign-in that is over shows for 30.
func TestPrune_SignIns(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := fixture.NewPlatform(t, d)
		p.Serve(t)
		c := p.NewCompany(t)
		s := entstore.New(d, nil)
		a, err := app.New(app.Deps{Store: s, Companies: p.Directory, Now: p.Clock.Now, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		now := p.Clock.Now()
		for i := range 501 { // more than one batch
			n := strconv.Itoa(i)
			require.NoError(t, s.SaveCode(t.Context(), c.Scope, store.Code{
				Hash: "c" + n, ClientID: "c", RedirectURI: "r", Challenge: "c", Scope: "s", Account: "a", CreatedAt: now, ExpiresAt: now.Add(time.Minute),
			}))
		}
		require.NoError(t, s.SaveDevice(t.Context(), c.Scope, store.Device{
			Hash: "d", UserCodeHash: "u", ClientID: "c", Scope: "s", State: store.DevicePending, Interval: time.Second, CreatedAt: now, ExpiresAt: now.Add(time.Minute),
		}))
		signIn := func(id string, expires time.Time) {
			sn := store.Session{ID: "ses_" + id, ClientID: "c", UserID: "u", CreatedAt: now, LastUsedAt: now}
			token := store.Token{Hash: "t" + id, SessionID: sn.ID, CreatedAt: now, ExpiresAt: now.Add(time.Hour)}
			require.NoError(t, s.Issue(t.Context(), c.Scope, sn, true, token))
			token.Hash, token.SignedIn, token.GrantID = "s"+id, true, id
			require.NoError(t, s.SignIn(t.Context(), c.Scope, store.SignedIn{
				Grant: store.Grant{
					ID: id, ClientID: "c", UserID: "u", Account: "a", Scope: "s", SignIn: directory.Direct, CreatedAt: now, ExpiresAt: expires, LastUsedAt: now,
				},
				AccountToken: "at" + id, Token: token,
			}))
		}
		signIn("ended", time.Time{})
		signIn("expired", now.Add(24*time.Hour))
		signIn("live", time.Time{})
		_, err = s.EndGrants(t.Context(), c.Scope, store.Selection{ID: "ended"}, store.Ending{At: now, Reason: store.SignedOut})
		require.NoError(t, err)

		const day = 24 * time.Hour
		for _, step := range []struct {
			after                 time.Duration
			codes, ended, expired bool
		}{
			{0, true, true, true},
			{day + time.Minute, true, true, true},
			{day + time.Minute + time.Microsecond, false, true, true},
			{30 * day, false, true, true},
			{30*day + time.Microsecond, false, false, true},
			{31*day + time.Microsecond, false, false, false},
		} {
			p.Clock.Advance(now.Add(step.after).Sub(p.Clock.Now()))
			require.NoError(t, a.Prune(t.Context()))
			for _, hash := range []string{"c0", "c500"} {
				o, err := s.Opening(t.Context(), c.Scope, store.Asked{Code: hash})
				require.NoError(t, err)
				require.Equal(t, step.codes, o.Code != nil)
			}
			o, err := s.Opening(t.Context(), c.Scope, store.Asked{Device: "d"})
			require.NoError(t, err)
			require.Equal(t, step.codes, o.Device != nil)
			for id, kept := range map[string]bool{"ended": step.ended, "expired": step.expired, "live": true} {
				o, err = s.Opening(t.Context(), c.Scope, store.Asked{AccountToken: "at" + id})
				require.NoError(t, err)
				require.Equal(t, kept, o.Grant != nil, id)
			}
		}
	})
}
