package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/discovery/app"
	"github.com/poppyfield/poppyfield/services/discovery/store"
)

type rig struct {
	*store.Store
	clock *clock.Manual
}

// each runs fn on a store of each kind of database.
func each(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := clock.NewManual(time.Date(2026, 11, 30, 9, 0, 0, 123456000, time.UTC))
		fn(t, &rig{store.New(d, c.Now), c})
	})
}

func issuer(t testing.TB, raw string) discovery.Issuer {
	t.Helper()
	i, err := discovery.ParseIssuer(raw)
	require.NoError(t, err)
	return i
}

// company is a Company that isn't stored yet.
func (r *rig) company(t testing.TB, slug, at string) app.Company {
	t.Helper()
	now := r.clock.Now()
	return app.Company{
		ID: ids.New(ids.Company), Organization: "org", Slug: slug, DisplayName: "Noodle Bar", Kind: "live", State: app.SettingUp, Issuer: issuer(t, at),
		Settings: discovery.Settings{Conversations: discovery.Conversations{Enabled: true}, CustomScopes: map[string]string{"orders": "See orders"}},
		Limits:   app.Limits{AnswerDeadline: 20 * time.Second}, SettingsAt: now, LimitsAt: now, Version: 1, Creator: "operatorKeys/k", CreatedAt: now, UpdatedAt: now,
	}
}

// create stores a Company with an issuer of its own.
func (r *rig) create(t testing.TB, slug string) tenancy.Scope {
	t.Helper()
	c := r.company(t, slug, "https://"+slug+".host.example")
	require.NoError(t, r.CreateCompany(t.Context(), c))
	return scopeOf(t, c)
}

func scopeOf(t testing.TB, c app.Company) tenancy.Scope {
	t.Helper()
	scope, err := tenancy.For(c.ID)
	require.NoError(t, err)
	return scope
}

// domain stores a pending domain and returns its id.
func (r *rig) domain(t testing.TB, scope tenancy.Scope, name string) string {
	t.Helper()
	d := r.newDomain(t, name)
	require.NoError(t, r.CreateDomain(t.Context(), scope, d, false))
	return d.ID
}

func (r *rig) newDomain(t testing.TB, name string) app.Domain {
	t.Helper()
	parsed, err := discovery.ParseDomain(name)
	require.NoError(t, err)
	now := r.clock.Now()
	return app.Domain{ID: ids.New(ids.Domain), Domain: parsed, State: app.Pending, Challenge: "challenge", NextCheckAt: &now, Version: 1, CreatedAt: now, UpdatedAt: now}
}

// verified is a change that says control was proven.
func (r *rig) verified(d *app.Domain) error {
	now := r.clock.Now()
	d.State, d.ProofMethod, d.VerifiedAt, d.CheckedAt, d.NextCheckAt = app.Verified, app.DNSTXT, &now, &now, nil
	d.Observations = []app.Observation{{Method: app.DNSTXT, OK: true, Expected: "e", Seen: "s", Detail: "d"}}
	return nil
}

func (r *rig) version(t testing.TB, scope tenancy.Scope) int64 {
	t.Helper()
	c, err := r.Company(t.Context(), scope)
	require.NoError(t, err)
	return c.Version
}

// domains returns the names of the verified domains.
func (r *rig) domains(t testing.TB, scope tenancy.Scope) []string {
	t.Helper()
	s, err := r.Snapshot(t.Context(), scope)
	require.NoError(t, err)
	var out []string
	for _, d := range s.Domains {
		out = append(out, d.String())
	}
	return out
}

func requireReason(t testing.TB, err error, reason problem.Reason, field string) {
	t.Helper()
	require.True(t, problem.Is(err, reason), "%v", err)
	if field != "" {
		require.Equal(t, field, problem.As(err).Fields[0].Path)
	}
}

func TestCreateCompany_ComesBackWhole(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c := r.company(t, "noodle-bar", "https://host.example:8443/t/noodle")
		require.NoError(t, r.CreateCompany(t.Context(), c))
		got, err := r.Company(t.Context(), scopeOf(t, c))
		require.NoError(t, err)
		require.Equal(t, c, got)
	})
}

func TestCreateCompany_RefusesTakenNames(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		require.NoError(t, r.CreateCompany(t.Context(), r.company(t, "first", "https://host.example/t/first")))
		for name, c := range map[string]struct {
			company app.Company
			field   string
		}{
			"slug":                   {r.company(t, "first", "https://other.example"), "company.slug"},
			"issuer":                 {r.company(t, "second", "https://host.example/t/first"), "company.issuer"},
			"issuer on another port": {r.company(t, "second", "https://host.example:8443/t/first"), "company.issuer"},
		} {
			requireReason(t, r.CreateCompany(t.Context(), c.company), problem.AlreadyExists, c.field)
			_, err := r.Company(t.Context(), scopeOf(t, c.company))
			requireReason(t, err, problem.NotFoundReason, "")
			_ = name
		}
		require.NoError(t, r.CreateCompany(t.Context(), r.company(t, "second", "https://host.example/t/second")))
		require.NoError(t, r.CreateCompany(t.Context(), r.company(t, "third", "https://host.example")))
	})
}

func TestCreateCompany_OneWinnerOfARace(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		const racers = 8
		errs := make([]error, racers)
		var all sync.WaitGroup
		for i := range racers {
			// Ports differ, so that no index of the issuer's text can decide it.
			c := r.company(t, fmt.Sprintf("racer-%d", i), fmt.Sprintf("https://host.example:%d/t/same", 1000+i))
			all.Go(func() { errs[i] = r.CreateCompany(t.Context(), c) })
		}
		all.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			requireReason(t, err, problem.AlreadyExists, "company.issuer")
		}
		require.Equal(t, 1, won)
	})
}

func TestUpdateCompany_NoChangeIsLostInARace(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope := r.create(t, "busy")
		const racers = 8
		errs := make([]error, racers)
		var all sync.WaitGroup
		for i := range racers {
			all.Go(func() {
				_, errs[i] = r.UpdateCompany(t.Context(), scope, func(c *app.Company, _ app.Connection) error {
					c.Limits.RequestsPerMinute++
					return nil
				})
			})
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		c, err := r.Company(t.Context(), scope)
		require.NoError(t, err)
		require.Equal(t, racers, c.Limits.RequestsPerMinute)
		require.Equal(t, int64(1+racers), c.Version)
	})
}

func TestUpdateCompany_RefusedChangeLeavesEverything(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope := r.create(t, "calm")
		before, err := r.Company(t.Context(), scope)
		require.NoError(t, err)
		refused := problem.New(problem.Invalid, problem.InvalidRequest, "", "no")
		_, err = r.UpdateCompany(t.Context(), scope, func(c *app.Company, _ app.Connection) error {
			c.DisplayName = "changed"
			return refused
		})
		require.ErrorIs(t, err, refused)
		after, err := r.Company(t.Context(), scope)
		require.NoError(t, err)
		require.Equal(t, before, after)
	})
}

func TestUpdateCompany_IssuerMustBeFree(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.create(t, "taken")
		scope := r.create(t, "mover")
		move := func(at string) error {
			_, err := r.UpdateCompany(t.Context(), scope, func(c *app.Company, _ app.Connection) error {
				c.Issuer = issuer(t, at)
				return nil
			})
			return err
		}
		requireReason(t, move("https://taken.host.example"), problem.AlreadyExists, "company.issuer")
		requireReason(t, move("https://taken.host.example:8443"), problem.AlreadyExists, "company.issuer")
		require.NoError(t, move("https://free.example/t/mover"))
		// Another port of the Company's own place is free to it.
		require.NoError(t, move("https://free.example:8443/t/mover"))
		got, err := r.Company(t.Context(), scope)
		require.NoError(t, err)
		require.Equal(t, "https://free.example:8443/t/mover", got.Issuer.String())
		require.Equal(t, int64(3), got.Version)
	})
}

func TestSnapshotsOnHost_OnlyActiveOnes(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for _, slug := range []string{"a", "b", "c"} {
			c := r.company(t, slug, "https://host.example/t/"+slug)
			require.NoError(t, r.CreateCompany(t.Context(), c))
			if slug == "a" {
				continue
			}
			_, err := r.UpdateCompany(t.Context(), scopeOf(t, c), func(c *app.Company, _ app.Connection) error {
				c.State = map[string]string{"b": app.Active, "c": app.Disabled}[slug]
				return nil
			})
			require.NoError(t, err)
		}
		r.create(t, "elsewhere")
		on, err := r.SnapshotsOnHost(t.Context(), "host.example")
		require.NoError(t, err)
		require.Len(t, on, 1)
		require.Equal(t, "b", on[0].Slug)
		on, err = r.SnapshotsOnHost(t.Context(), "unknown.example")
		require.NoError(t, err)
		require.Empty(t, on)
	})
}

func TestListCompanies_PagesWithoutGaps(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for i := range 7 {
			r.create(t, fmt.Sprintf("c%d", i))
			if i%2 == 1 { // two of each time
				r.clock.Advance(time.Millisecond)
			}
		}
		var seen []string
		after, id := time.Time{}, ""
		for {
			page, err := r.ListCompanies(t.Context(), after, id, 2)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, c := range page {
				seen = append(seen, c.ID)
			}
			after, id = page[len(page)-1].CreatedAt, page[len(page)-1].ID
		}
		require.Len(t, seen, 7)
	})
}

func TestVerifiedDomain_MakesTheDocumentsNew(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope := r.create(t, "noodle")
		id := r.domain(t, scope, "noodle.example")
		require.Equal(t, int64(1), r.version(t, scope))
		require.Empty(t, r.domains(t, scope))

		got, err := r.UpdateDomain(t.Context(), scope, id, r.verified)
		require.NoError(t, err)
		require.Equal(t, app.Verified, got.State)
		require.Equal(t, int64(2), r.version(t, scope))
		require.Equal(t, []string{"noodle.example"}, r.domains(t, scope))

		// A look that changes no state leaves the documents as they are.
		_, err = r.UpdateDomain(t.Context(), scope, id, r.verified)
		require.NoError(t, err)
		require.Equal(t, int64(2), r.version(t, scope))

		require.NoError(t, r.DeleteDomain(t.Context(), scope, id))
		require.Equal(t, int64(3), r.version(t, scope))
		require.Empty(t, r.domains(t, scope))
	})
}

func TestDomain_ComesBackWhole(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope := r.create(t, "noodle")
		d := r.newDomain(t, "noodle.example")
		require.NoError(t, r.CreateDomain(t.Context(), scope, d, false))
		got, err := r.Domain(t.Context(), scope, d.ID)
		require.NoError(t, err)
		require.Equal(t, d, got)
		want, err := r.UpdateDomain(t.Context(), scope, d.ID, r.verified)
		require.NoError(t, err)
		got, err = r.Domain(t.Context(), scope, d.ID)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Nil(t, got.NextCheckAt)
		require.Equal(t, app.DNSTXT, got.Observations[0].Method)
	})
}

func TestCreateDomain_OnceACompany(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, b := r.create(t, "a"), r.create(t, "b")
		r.domain(t, a, "shop.example")
		requireReason(t, r.CreateDomain(t.Context(), a, r.newDomain(t, "shop.example"), false), problem.AlreadyExists, "domain.domain")
		requireReason(t, r.CreateDomain(t.Context(), a, r.newDomain(t, "shop.example"), true), problem.AlreadyExists, "domain.domain")
		// To try is free to everybody; to have it is not.
		r.domain(t, b, "shop.example")
		list, err := r.ListDomains(t.Context(), a, "", 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
	})
}

func TestCreateDomain_ValidateOnlySavesNothing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope := r.create(t, "a")
		require.NoError(t, r.CreateDomain(t.Context(), scope, r.newDomain(t, "shop.example"), true))
		list, err := r.ListDomains(t.Context(), scope, "", 10)
		require.NoError(t, err)
		require.Empty(t, list)
	})
}

func TestCreateDomain_BoundedNumber(t *testing.T) {
	r := &rig{clock: clock.NewManual(time.Now())}
	r.Store = store.New(dbtest.SQLite(t), r.clock.Now)
	a, b := r.create(t, "a"), r.create(t, "b")
	for i := range app.MaxDomains {
		r.domain(t, a, fmt.Sprintf("d%d.example", i))
	}
	requireReason(t, r.CreateDomain(t.Context(), a, r.newDomain(t, "one-more.example"), false), problem.FailedPrecondition, "")
	r.domain(t, b, "one-more.example")
}

func TestMT09_VerifiedByOneCompanyOnly(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3#d1")
	each(t, func(t *testing.T, r *rig) {
		a, b := r.create(t, "a"), r.create(t, "b")
		first, second := r.domain(t, a, "shop.example"), r.domain(t, b, "shop.example")
		_, err := r.UpdateDomain(t.Context(), a, first, r.verified)
		require.NoError(t, err)

		got, err := r.UpdateDomain(t.Context(), b, second, r.verified)
		require.NoError(t, err)
		require.Equal(t, app.Taken, got.State)
		require.Empty(t, got.ProofMethod)
		require.Nil(t, got.VerifiedAt)
		require.NotEmpty(t, got.Observations, "what was seen stays readable")
		require.Empty(t, r.domains(t, b))
		require.Equal(t, []string{"shop.example"}, r.domains(t, a))

		// Given up by the first, it goes to the second at its next proof.
		require.NoError(t, r.DeleteDomain(t.Context(), a, first))
		got, err = r.UpdateDomain(t.Context(), b, second, r.verified)
		require.NoError(t, err)
		require.Equal(t, app.Verified, got.State)
	})
}

func TestMT09_OneWinnerOfARaceOfProofs(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		const racers = 6
		states := make([]string, racers)
		errs := make([]error, racers)
		var all sync.WaitGroup
		for i := range racers {
			scope := r.create(t, fmt.Sprintf("racer-%d", i))
			id := r.domain(t, scope, "prize.example")
			all.Go(func() {
				d, err := r.UpdateDomain(t.Context(), scope, id, r.verified)
				states[i], errs[i] = d.State, err
			})
		}
		all.Wait()
		won := 0
		for i := range racers {
			require.NoError(t, errs[i])
			if states[i] == app.Verified {
				won++
			} else {
				require.Equal(t, app.Taken, states[i])
			}
		}
		require.Equal(t, 1, won)
	})
}

func TestMT03_DomainOfAnotherCompanyIsNotThere(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, b := r.create(t, "a"), r.create(t, "b")
		id := r.domain(t, a, "shop.example")
		_, err := r.Domain(t.Context(), b, id)
		requireReason(t, err, problem.NotFoundReason, "")
		_, err = r.UpdateDomain(t.Context(), b, id, r.verified)
		requireReason(t, err, problem.NotFoundReason, "")
		requireReason(t, r.DeleteDomain(t.Context(), b, id), problem.NotFoundReason, "")
		require.Equal(t, int64(1), r.version(t, b), "a failed deletion changes nothing")
		got, err := r.Domain(t.Context(), a, id)
		require.NoError(t, err)
		require.Equal(t, app.Pending, got.State)
		list, err := r.ListDomains(t.Context(), b, "", 10)
		require.NoError(t, err)
		require.Empty(t, list)
	})
}

func TestListDomains_ByNameAfterName(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		scope := r.create(t, "a")
		for _, name := range []string{"c.example", "a-b.example", "ab.example", "b.example"} {
			r.domain(t, scope, name)
		}
		seen := map[string]bool{}
		after := ""
		for {
			page, err := r.ListDomains(t.Context(), scope, after, 1)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			after = page[0].Domain.String()
			require.False(t, seen[after])
			seen[after] = true
		}
		require.Len(t, seen, 4)
	})
}

func TestDueDomains_OldestFirstOfAllCompanies(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, b := r.create(t, "a"), r.create(t, "b")
		first := r.domain(t, a, "first.example")
		r.clock.Advance(time.Second)
		second := r.domain(t, b, "second.example")
		done := r.domain(t, a, "done.example")
		_, err := r.UpdateDomain(t.Context(), a, done, r.verified)
		require.NoError(t, err)
		r.clock.Advance(time.Second)
		later := r.domain(t, a, "later.example")
		now := r.clock.Now().Add(-time.Millisecond)

		due, err := r.DueDomains(t.Context(), now, 10)
		require.NoError(t, err)
		require.Equal(t, []app.Due{{Scope: a, DomainID: first}, {Scope: b, DomainID: second}}, due)
		due, err = r.DueDomains(t.Context(), now, 1)
		require.NoError(t, err)
		require.Len(t, due, 1)
		due, err = r.DueDomains(t.Context(), r.clock.Now(), 10)
		require.NoError(t, err)
		require.Len(t, due, 3)
		require.Equal(t, later, due[2].DomainID)
	})
}
