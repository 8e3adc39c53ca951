package entstore_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/companyevent"
	"github.com/poppyfield/poppyfield/ent/endpoint"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/services/sessions/store"
	"github.com/poppyfield/poppyfield/services/sessions/store/entstore"
)

func TestEvents_OfASessionsLife(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scope := dbtest.Company(t, d)
		now := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
		require.NoError(t, d.Write(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error {
			return tx.Endpoint.Create().SetID("wep_1").SetRole(endpoint.RoleListens).Exec(ctx)
		}))
		rec, err := outbox.New(d, nil, clock.NewManual(now).Now, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		s := entstore.New(d, rec)
		ctx := t.Context()
		open := func(id string) {
			sn := store.Session{ID: id, ClientID: "https://agent.example/agent.json", AgentName: "Agent", UserID: "usr_1", CreatedAt: now, LastUsedAt: now}
			require.NoError(t, s.Issue(ctx, scope, sn, true, store.Token{Hash: "t_" + id, SessionID: id, CreatedAt: now, ExpiresAt: now.Add(time.Hour)}))
		}
		open("ses_1")
		in := store.SignedIn{
			Grant: store.Grant{
				ID: "grt_1", ClientID: "https://agent.example/agent.json", AgentName: "Agent", UserID: "usr_1", Account: "acc", Scope: "poppy:read",
				SignIn: directory.Direct, CreatedAt: now, LastUsedAt: now,
			},
			AccountToken: "at_1",
			Token:        store.Token{Hash: "t_2", SessionID: "ses_1", Scope: "poppy:read", SignedIn: true, GrantID: "grt_1", CreatedAt: now, ExpiresAt: now.Add(time.Hour)},
		}
		require.NoError(t, s.SignIn(ctx, scope, in))
		renewal := store.Renewal{
			Session: store.Session{ID: "ses_1", ClientID: in.Grant.ClientID, UserID: "usr_1", Account: "acc", GrantID: "grt_1", LastUsedAt: now},
			Token:   store.Token{Hash: "t_3", SessionID: "ses_1", SignedIn: true, GrantID: "grt_1", CreatedAt: now, ExpiresAt: now.Add(time.Hour)},
		}
		require.NoError(t, s.Renew(ctx, scope, renewal), "its sign-in goes on: not told")
		renewal.Create, renewal.Session.ID, renewal.Session.CreatedAt, renewal.Token.Hash, renewal.Token.SessionID = true, "ses_2", now, "t_4", "ses_2"
		require.NoError(t, s.Renew(ctx, scope, renewal))
		_, err = s.EndGrants(ctx, scope, store.Selection{ID: "grt_1"}, store.Ending{At: now, Reason: store.Disconnected})
		require.NoError(t, err)
		_, _, err = s.End(ctx, scope, "ses_1", now)
		require.NoError(t, err)
		_, _, err = s.End(ctx, scope, "ses_1", now)
		require.NoError(t, err, "a second end is not told")
		n, err := s.EndIdle(ctx, scope, now.Add(time.Second), now.Add(time.Hour), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)

		var got []string
		require.NoError(t, d.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
			rows, err := tx.CompanyEvent.Query().Order(companyevent.ByID()).All(ctx)
			for _, row := range rows {
				got = append(got, row.Type+" "+row.Subject)
			}
			return err
		}))
		require.Equal(t, []string{
			webhook.EventSessionStarted + " sessions/ses_1", webhook.EventSessionSignedIn + " sessions/ses_1",
			webhook.EventSessionStarted + " sessions/ses_2", webhook.EventSessionSignedIn + " sessions/ses_2",
			webhook.EventSessionSignedOut + " sessions/ses_1", webhook.EventSessionSignedOut + " sessions/ses_2",
			webhook.EventSessionEnded + " sessions/ses_1", webhook.EventSessionEnded + " sessions/ses_2",
		}, got)
	})
}
