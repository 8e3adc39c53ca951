package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// connected is a change that sets every part of a connection.
func connected(_ app.Company, c *app.Connection) error {
	*c = app.Connection{
		ID: c.ID, Method: app.OIDC, OIDC: app.Provider{Issuer: "https://id.example", ClientID: "c", Scopes: []string{"email"}, AccountClaim: "sub", LabelClaim: "email"},
		LoginURL:        "https://a.example/login",
		CredentialCheck: app.CredentialCheck{URL: "https://a.example/c", Fields: []discovery.MediatedField{{Name: "email", Label: "Email"}, {Name: "pin", Label: "PIN", Secret: true}}},
		SealedSecret:    []byte{1, 2}, SealedAccounts: []byte{3}, AccountTokenLifetime: time.Hour, WithoutEnd: true, RotateAccountTokens: true, EndSessions: true,
	}
	return nil
}

func TestUpdateConnection_ComesBackWhole(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope, other := r.create(t, "a"), r.create(t, "b")
		created := r.clock.Now()
		want, err := r.UpdateConnection(t.Context(), scope, connected)
		require.NoError(t, err)
		require.Equal(t, int64(1), want.Version)
		require.True(t, want.CreatedAt.Equal(created))
		s, err := r.Snapshot(t.Context(), scope)
		require.NoError(t, err)
		require.Equal(t, want, s.Connection)
		require.Equal(t, int64(2), s.Version)

		r.clock.Advance(time.Minute)
		got, err := r.UpdateConnection(t.Context(), scope, func(_ app.Company, c *app.Connection) error {
			require.Equal(t, want, *c)
			c.SealedSecret, c.SealedAccounts = nil, nil
			return nil
		})
		require.NoError(t, err)
		require.Empty(t, got.SealedSecret)
		require.Empty(t, got.SealedAccounts)
		require.Equal(t, int64(2), got.Version)
		require.Equal(t, created, got.CreatedAt)
		require.Equal(t, created.Add(time.Minute), got.UpdatedAt)
		require.Equal(t, int64(3), r.version(t, scope))

		s, err = r.Snapshot(t.Context(), other)
		require.NoError(t, err)
		require.Zero(t, s.Connection)
		require.Equal(t, int64(1), s.Version)
	})
}

func TestUpdateDesign_ComesBackWhole(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope, other := r.create(t, "a"), r.create(t, "b")
		d, err := r.Design(t.Context(), scope)
		require.NoError(t, err)
		require.Zero(t, d)
		want, err := r.UpdateDesign(t.Context(), scope, func(d *app.Design) error {
			*d = app.Design{
				AccentColor: "#aabbcc", Logo: app.Logo{Type: "image/png", Version: "v", Bytes: []byte{0, 1, 2}}, Welcome: map[string]string{"": "Hi", "de": "Hallo"},
				SupportURL: "https://a.example/s", PrivacyURL: "https://a.example/p", TermsURL: "https://a.example/t",
				ScopeTexts: map[string]map[string]string{"poppy:read": {"": "Read"}},
			}
			return nil
		})
		require.NoError(t, err)
		got, err := r.Design(t.Context(), scope)
		require.NoError(t, err)
		require.Equal(t, want, got)
		s, err := r.Snapshot(t.Context(), scope)
		require.NoError(t, err)
		want.Logo.Bytes = nil
		require.Equal(t, want, s.Design)
		require.Equal(t, int64(2), s.Version)
		got, err = r.UpdateDesign(t.Context(), scope, func(d *app.Design) error {
			require.Equal(t, []byte{0, 1, 2}, d.Logo.Bytes)
			d.Logo = app.Logo{}
			return nil
		})
		require.NoError(t, err)
		require.Empty(t, got.Logo)
		require.Equal(t, int64(2), got.Version)
		d, err = r.Design(t.Context(), other)
		require.NoError(t, err)
		require.Zero(t, d)
	})
}

func TestUpdateConnection_FailedChangeLeavesEverything(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope := r.create(t, "a")
		refused := problem.New(problem.Invalid, problem.InvalidRequest, "", "no")
		_, err := r.UpdateConnection(t.Context(), scope, func(c app.Company, conn *app.Connection) error {
			require.Equal(t, "a", c.Slug)
			conn.Method = app.OIDC
			return refused
		})
		require.ErrorIs(t, err, refused)
		_, err = r.UpdateDesign(t.Context(), scope, func(*app.Design) error { return refused })
		require.ErrorIs(t, err, refused)
		s, err := r.Snapshot(t.Context(), scope)
		require.NoError(t, err)
		require.Zero(t, s.Connection)
		require.Zero(t, s.Design)
		require.Equal(t, int64(1), s.Version)
	})
}

func TestUpdateCompany_KnowsTheConnection(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope := r.create(t, "a")
		want, err := r.UpdateConnection(t.Context(), scope, connected)
		require.NoError(t, err)
		_, err = r.UpdateCompany(t.Context(), scope, func(c *app.Company, conn app.Connection) error {
			require.Equal(t, want, conn)
			c.Issuer = issuer(t, "https://moved.example") // the unit then crosses Companies
			return nil
		})
		require.NoError(t, err)
	})
}

// Both parts are made at once by several processes, and none of the changes gets lost.
func TestUpdate_FirstChangesAtTheSameTime(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope := r.create(t, "a")
		const racers = 8
		errs := make([]error, 2*racers)
		var all sync.WaitGroup
		for i := range racers {
			all.Go(func() {
				_, errs[2*i] = r.UpdateConnection(t.Context(), scope, func(_ app.Company, c *app.Connection) error {
					c.OIDC.Scopes = append(c.OIDC.Scopes, fmt.Sprint(i))
					return nil
				})
			})
			all.Go(func() {
				_, errs[2*i+1] = r.UpdateDesign(t.Context(), scope, func(d *app.Design) error {
					d.AccentColor += "x"
					return nil
				})
			})
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		s, err := r.Snapshot(t.Context(), scope)
		require.NoError(t, err)
		require.Len(t, s.Connection.OIDC.Scopes, racers)
		require.Len(t, s.Design.AccentColor, racers)
		require.Equal(t, int64(1+2*racers), s.Version)
	})
}

// A snapshot is of one version: nothing of it is older or newer than the rest.
func TestSnapshot_OfOneVersion(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope := r.create(t, "a")
		_, err := r.UpdateCompany(t.Context(), scope, func(c *app.Company, _ app.Connection) error { c.State = app.Active; return nil })
		require.NoError(t, err)
		stop := make(chan struct{})
		var writers sync.WaitGroup
		fail := make(chan error, 1)
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				// The connection names the Company's next version.
				_, err := r.UpdateConnection(t.Context(), scope, func(c app.Company, conn *app.Connection) error {
					conn.LoginURL = fmt.Sprint(c.Version + 1)
					return nil
				})
				if err != nil {
					fail <- err
					return
				}
			}
		})
		read := 0
		for range 200 {
			s, err := r.Snapshot(t.Context(), scope)
			if problem.Is(err, problem.TemporarilyUnavailable) {
				continue
			}
			require.NoError(t, err)
			on, err := r.SnapshotsOnHost(t.Context(), "a.host.example")
			if err == nil {
				require.Len(t, on, 1)
				for _, s := range append(on, s) {
					if s.Connection.LoginURL != "" {
						require.Equal(t, fmt.Sprint(s.Version), s.Connection.LoginURL)
						read++
					}
				}
			}
		}
		close(stop)
		writers.Wait()
		select {
		case err := <-fail:
			require.NoError(t, err)
		default:
		}
		require.Greater(t, read, 10)
	})
}

func TestSnapshotsOnHost_PartsGoToTheirCompanies(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for i := range 5 {
			c := r.company(t, fmt.Sprintf("c%d", i), fmt.Sprintf("https://host.example/t/c%d", i))
			c.State = app.Active
			require.NoError(t, r.CreateCompany(t.Context(), c))
			scope := scopeOf(t, c)
			id := r.domain(t, scope, c.Slug+".example")
			_, err := r.UpdateDomain(t.Context(), scope, id, r.verified)
			require.NoError(t, err)
			if i == 4 {
				continue // has neither
			}
			_, err = r.UpdateConnection(t.Context(), scope, func(c app.Company, conn *app.Connection) error { conn.LoginURL = c.Slug; return nil })
			require.NoError(t, err)
			_, err = r.UpdateDesign(t.Context(), scope, func(d *app.Design) error { d.TermsURL = c.Slug; return nil })
			require.NoError(t, err)
		}
		on, err := r.SnapshotsOnHost(t.Context(), "host.example")
		require.NoError(t, err)
		require.Len(t, on, 5)
		for i, s := range on {
			want := fmt.Sprintf("c%d", i)
			require.Equal(t, want+".example", s.Domains[0].String())
			if i == 4 {
				want = ""
			}
			require.Equal(t, want, s.Connection.LoginURL)
			require.Equal(t, want, s.Design.TermsURL)
		}
	})
}
