package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/relay/app"
	"github.com/poppyfield/poppyfield/services/relay/store"
)

type rig struct {
	*store.Store
	clock *clock.Manual
	a, b  tenancy.Scope
}

func each(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := clock.NewManual(time.Date(2026, 11, 30, 9, 0, 0, 123456000, time.UTC))
		fn(t, &rig{store.New(d, nil, c.Now), c, dbtest.Company(t, d), dbtest.Company(t, d)})
	})
}

func (r *rig) endpoint(t testing.TB, scope tenancy.Scope) (app.Endpoint, []app.Secret) {
	t.Helper()
	b, secrets, err := r.Endpoint(t.Context(), scope, app.Backend, r.clock.Now())
	require.NoError(t, err)
	return b, secrets
}

// add saves a secret and returns it; earlier ones of its kind sign for overlap longer.
func (r *rig) add(t testing.TB, scope tenancy.Scope, kind string, overlap time.Duration) app.Secret {
	t.Helper()
	s := app.Secret{ID: ids.New(ids.WebhookSecret), Kind: kind, Sealed: []byte("sealed"), Prefix: "whsec_AbCd", CreatedAt: r.clock.Now()}
	require.NoError(t, r.AddSecret(t.Context(), scope, s, s.CreatedAt.Add(overlap)))
	return s
}

func idsOf(secrets []app.Secret) []string {
	var out []string
	for _, s := range secrets {
		out = append(out, s.ID)
	}
	return out
}

func url(u string) func(*app.Endpoint) error {
	return func(b *app.Endpoint) error { b.URL = u; return nil }
}

func TestEndpoint_OfACompanyThatHasNone(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		b, secrets := r.endpoint(t, r.a)
		require.Equal(t, app.NewBackend(), b)
		require.Empty(t, secrets)
	})
}

func TestUpdateEndpoint_MadeAtTheFirstChange(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		made, err := r.UpdateEndpoint(t.Context(), r.a, app.Backend, func(b *app.Endpoint) error {
			require.Equal(t, app.NewBackend(), *b)
			b.URL, b.AttemptTimeout, b.DeliverLate, b.Enabled, b.DisableReason = "https://a.example/hook", 1500*time.Millisecond, false, false, "endpoint gone"
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, int64(1), made.Version)
		got, _ := r.endpoint(t, r.a)
		require.Equal(t, made, got)
		require.Equal(t, app.Endpoint{
			Role: app.RoleAnswers, Kind: app.KindWebhook,
			ID: made.ID, URL: "https://a.example/hook", AttemptTimeout: 1500 * time.Millisecond, DisableReason: "endpoint gone",
			Version: 1, CreatedAt: r.clock.Now(), UpdatedAt: r.clock.Now(),
		}, got)
		r.clock.Advance(time.Second)
		made, err = r.UpdateEndpoint(t.Context(), r.a, app.Backend, url("https://b.example"))
		require.NoError(t, err)
		require.Equal(t, int64(2), made.Version)
		require.Equal(t, r.clock.Now(), made.UpdatedAt)
		require.Equal(t, got.ID, made.ID)
	})
}

func TestUpdateEndpoint_RefusedChangeLeavesEverything(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		no := problem.New(problem.Invalid, problem.InvalidRequest, "", "no")
		refuse := func(b *app.Endpoint) error { b.URL = "https://x.example"; return no }
		_, err := r.UpdateEndpoint(t.Context(), r.a, app.Backend, refuse)
		require.ErrorIs(t, err, no)
		b, _ := r.endpoint(t, r.a)
		require.Empty(t, b.ID)
		before, err := r.UpdateEndpoint(t.Context(), r.a, app.Backend, url("https://a.example"))
		require.NoError(t, err)
		_, err = r.UpdateEndpoint(t.Context(), r.a, app.Backend, refuse)
		require.ErrorIs(t, err, no)
		after, _ := r.endpoint(t, r.a)
		require.Equal(t, before, after)
	})
}

func TestUpdateEndpoint_FirstChangesAtOnceMakeOneRow(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		const racers = 6
		errs := make([]error, racers)
		var all sync.WaitGroup
		for i := range racers {
			all.Go(func() {
				_, errs[i] = r.UpdateEndpoint(t.Context(), r.a, app.Backend, func(b *app.Endpoint) error {
					b.AttemptTimeout += time.Second
					return nil
				})
			})
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		b, _ := r.endpoint(t, r.a)
		require.Equal(t, racers*time.Second, b.AttemptTimeout, "no change is lost")
		require.Equal(t, int64(racers), b.Version)
	})
}

func TestWH14_AddSecret_OverlapsWithEarlierOnes(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		first := r.add(t, r.a, app.HMAC, 0)
		key := r.add(t, r.a, app.Ed25519, 0)
		_, secrets := r.endpoint(t, r.a)
		require.ElementsMatch(t, []string{first.ID, key.ID}, idsOf(secrets))
		require.Nil(t, secrets[0].ExpiresAt)

		r.clock.Advance(time.Minute)
		second := r.add(t, r.a, app.HMAC, time.Hour)
		_, secrets = r.endpoint(t, r.a)
		require.ElementsMatch(t, []string{first.ID, key.ID, second.ID}, idsOf(secrets))
		require.Equal(t, second.ID, secrets[2].ID, "oldest first")

		// A third with a longer overlap doesn't lengthen the first one's.
		r.clock.Advance(time.Minute)
		third := r.add(t, r.a, app.HMAC, 2*time.Hour)
		r.clock.Advance(59*time.Minute - time.Microsecond)
		_, secrets = r.endpoint(t, r.a)
		require.Contains(t, idsOf(secrets), first.ID)
		r.clock.Advance(time.Microsecond)
		_, secrets = r.endpoint(t, r.a)
		require.ElementsMatch(t, []string{key.ID, second.ID, third.ID}, idsOf(secrets))

		// Without overlap the earlier ones end at once.
		last := r.add(t, r.a, app.HMAC, 0)
		_, secrets = r.endpoint(t, r.a)
		require.ElementsMatch(t, []string{key.ID, last.ID}, idsOf(secrets), "keys of the other kind go on")
	})
}

func TestAddSecret_DropsThoseThatHaveEnded(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.add(t, r.a, app.HMAC, 0)
		other := r.add(t, r.b, app.HMAC, 0)
		r.add(t, r.a, app.HMAC, time.Minute)
		r.clock.Advance(time.Hour)
		last := r.add(t, r.a, app.HMAC, time.Minute)
		// Asked for a time at which all of them signed.
		_, secrets, err := r.Endpoint(t.Context(), r.a, app.Backend, r.clock.Now().Add(-2*time.Hour))
		require.NoError(t, err)
		require.Len(t, secrets, 2)
		require.Contains(t, idsOf(secrets), last.ID)
		_, secrets = r.endpoint(t, r.b)
		require.Equal(t, []string{other.ID}, idsOf(secrets))
	})
}

func TestMT06_EndpointsAreTheirCompanysAlone(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		_, err := r.UpdateEndpoint(t.Context(), r.a, app.Backend, url("https://a.example"))
		require.NoError(t, err)
		first := r.add(t, r.a, app.HMAC, 0)
		b, secrets := r.endpoint(t, r.b)
		require.Equal(t, app.NewBackend(), b)
		require.Empty(t, secrets)
		_, err = r.UpdateEndpoint(t.Context(), r.b, app.Backend, url("https://b.example"))
		require.NoError(t, err)
		r.add(t, r.b, app.HMAC, 0)
		b, secrets = r.endpoint(t, r.a)
		require.Equal(t, "https://a.example", b.URL)
		require.Equal(t, []string{first.ID}, idsOf(secrets))
		require.Nil(t, secrets[0].ExpiresAt)
	})
}
