// Package store keeps Companies and domains in the database.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/company"
	"github.com/poppyfield/poppyfield/ent/domain"
	"github.com/poppyfield/poppyfield/ent/predicate"
	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// Store implements app.Store.
type Store struct {
	db  *db.DB
	now clock.Clock
}

var _ app.Store = (*Store)(nil)

// New makes a store.
func New(d *db.DB, now clock.Clock) *Store { return &Store{db: d, now: now} }

// CreateCompany implements app.Store.
func (s *Store) CreateCompany(ctx context.Context, c app.Company) error {
	settings, err := json.Marshal(c.Settings)
	if err != nil {
		return err
	}
	limits, err := json.Marshal(c.Limits)
	if err != nil {
		return err
	}
	err = s.db.SystemWrite(ctx, db.ManageTenants, func(ctx context.Context, tx *ent.Tx) error {
		if err := s.claimIssuer(ctx, tx, c); err != nil {
			return err
		}
		taken, err := tx.Company.Query().Where(company.Slug(c.Slug)).Exist(ctx)
		if err != nil {
			return err
		}
		if taken {
			return exists("company.slug", "another company has this slug")
		}
		return tx.Company.Create().SetID(c.ID).SetOrganization(c.Organization).SetSlug(c.Slug).SetDisplayName(c.DisplayName).
			SetKind(company.Kind(c.Kind)).SetState(company.State(c.State)).
			SetIssuer(c.Issuer.String()).SetIssuerHost(c.Issuer.Hostname()).SetIssuerPath(c.Issuer.Path()).SetBrowserHost(discovery.BrowserHost(c.Settings)).
			SetSettings(settings).SetSettingsUpdatedAt(c.SettingsAt).SetLimits(limits).SetLimitsUpdatedAt(c.LimitsAt).
			SetCreator(c.Creator).SetCreatedAt(c.CreatedAt).SetUpdatedAt(c.UpdatedAt).Exec(ctx)
	})
	if ent.IsConstraintError(err) { // lost a race with another creation
		return exists("company.slug", "another company has this slug or issuer").WithCause(err)
	}
	return err
}

// claimIssuer fails unless c's issuer is free: one Company per host name and path,
// since the port of a request doesn't select. Claims wait for each other until their
// transaction ends; SQLite has one writer anyway.
func (s *Store) claimIssuer(ctx context.Context, tx *ent.Tx, c app.Company) error {
	if s.db.Postgres() {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('poppyfield issuer ' || $1, 0))", c.Issuer.Hostname()); err != nil {
			return err
		}
	}
	others := tx.Company.Query().Where(company.IssuerHost(c.Issuer.Hostname()), company.IDNEQ(c.ID))
	taken, err := others.Clone().Where(company.IssuerPath(c.Issuer.Path())).Exist(ctx)
	if err != nil {
		return err
	}
	if taken {
		return exists("company.issuer", "another company has this issuer")
	}
	n, err := others.Count(ctx)
	if err != nil {
		return err
	}
	if n >= app.MaxOnHost {
		return problem.New(problem.Conflict, problem.FailedPrecondition, "", "the host has %d companies, which is all it may have", n).
			WithField("company.issuer", "its host has no room for another company")
	}
	return nil
}

func exists(field, detail string) *problem.Error {
	return problem.New(problem.Conflict, problem.AlreadyExists, "", "%s", detail).WithField(field, detail)
}

// Company implements app.Store.
func (s *Store) Company(ctx context.Context, scope tenancy.Scope) (out app.Company, err error) {
	err = s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		row, err := tx.Company.Get(ctx, scope.CompanyID())
		if err != nil {
			return err
		}
		out, err = toCompany(row)
		return err
	})
	return out, notFound(err)
}

// ListCompanies implements app.Store.
func (s *Store) ListCompanies(ctx context.Context, afterTime time.Time, afterID string, n int) ([]app.Company, error) {
	var where []predicate.Company
	if afterID != "" {
		where = append(where, company.Or(company.CreatedAtGT(afterTime), company.And(company.CreatedAtEQ(afterTime), company.IDGT(afterID))))
	}
	return s.companies(ctx, db.ManageTenants, n, where...)
}

func (s *Store) companies(ctx context.Context, why db.Reason, n int, where ...predicate.Company) (out []app.Company, err error) {
	err = s.db.SystemRead(ctx, why, func(ctx context.Context, tx *ent.Tx) error {
		rows, err := tx.Company.Query().Where(where...).Order(company.ByCreatedAt(), company.ByID()).Limit(n).All(ctx)
		if err != nil {
			return err
		}
		out = make([]app.Company, len(rows))
		for i, row := range rows {
			if out[i], err = toCompany(row); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// UpdateCompany implements app.Store.
func (s *Store) UpdateCompany(ctx context.Context, scope tenancy.Scope, change func(*app.Company, app.Connection) error) (app.Company, error) {
	out, err := s.updateCompany(ctx, scope, false, change)
	if errors.Is(err, errNewIssuer) {
		out, err = s.updateCompany(ctx, scope, true, change)
	}
	return out, err
}

// errNewIssuer says that a change concerns other Companies as well.
var errNewIssuer = errors.New("another issuer")

func (s *Store) updateCompany(ctx context.Context, scope tenancy.Scope, mayMove bool, change func(*app.Company, app.Connection) error) (out app.Company, err error) {
	unit := func(fn func(context.Context, *ent.Tx) error) error { return s.db.Write(ctx, scope, fn) }
	if mayMove {
		unit = func(fn func(context.Context, *ent.Tx) error) error {
			return s.db.SystemWrite(ctx, db.ManageTenants, fn)
		}
	}
	err = unit(func(ctx context.Context, tx *ent.Tx) error {
		row, c, err := s.lockCompany(ctx, tx, scope)
		if err != nil {
			return err
		}
		conn, err := connectionOf(ctx, tx, scope)
		if err != nil {
			return err
		}
		before := c.Issuer
		if err := change(&c, conn); err != nil {
			return err
		}
		if c.Issuer != before {
			if !mayMove {
				return errNewIssuer
			}
			if err := s.claimIssuer(ctx, tx, c); err != nil {
				return err
			}
		}
		settings, err := json.Marshal(c.Settings)
		if err != nil {
			return err
		}
		limits, err := json.Marshal(c.Limits)
		if err != nil {
			return err
		}
		row, err = row.Update().SetDisplayName(c.DisplayName).SetState(company.State(c.State)).
			SetIssuer(c.Issuer.String()).SetIssuerHost(c.Issuer.Hostname()).SetIssuerPath(c.Issuer.Path()).SetBrowserHost(discovery.BrowserHost(c.Settings)).
			SetNillablePublishedAt(c.PublishedAt).
			SetSettings(settings).SetSettingsUpdatedAt(c.SettingsAt).SetLimits(limits).SetLimitsUpdatedAt(c.LimitsAt).
			SetUpdatedAt(s.now()).AddVersion(1).Save(ctx)
		if err != nil {
			return err
		}
		out, err = toCompany(row)
		return err
	})
	if ent.IsConstraintError(err) {
		return app.Company{}, exists("company.issuer", "another company has this issuer").WithCause(err)
	}
	return out, notFound(err)
}

// lockCompany loads the Company for a change of it or of what belongs to it: changes of
// one Company come one after the other.
func (s *Store) lockCompany(ctx context.Context, tx *ent.Tx, scope tenancy.Scope) (*ent.Company, app.Company, error) {
	q := tx.Company.Query().Where(company.ID(scope.CompanyID()))
	if s.db.Postgres() {
		q = q.ForUpdate()
	}
	row, err := q.Only(ctx)
	if err != nil {
		return nil, app.Company{}, err
	}
	c, err := toCompany(row)
	return row, c, err
}

func toCompany(row *ent.Company) (app.Company, error) {
	issuer, err := discovery.ParseIssuer(row.Issuer)
	if err != nil {
		return app.Company{}, fmt.Errorf("stored issuer of %s: %w", row.ID, err)
	}
	c := app.Company{
		ID: row.ID, Organization: row.Organization, Slug: row.Slug, DisplayName: row.DisplayName, Kind: string(row.Kind), State: string(row.State),
		Issuer: issuer, PublishedAt: utc(row.PublishedAt), SettingsAt: row.SettingsUpdatedAt.UTC(), LimitsAt: row.LimitsUpdatedAt.UTC(),
		Version: row.Version, Creator: row.Creator, CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(),
	}
	if len(row.Settings) > 0 {
		if err := json.Unmarshal(row.Settings, &c.Settings); err != nil {
			return app.Company{}, fmt.Errorf("stored settings of %s: %w", row.ID, err)
		}
	}
	if len(row.Limits) > 0 {
		if err := json.Unmarshal(row.Limits, &c.Limits); err != nil {
			return app.Company{}, fmt.Errorf("stored limits of %s: %w", row.ID, err)
		}
	}
	return c, nil
}

// utc drops the time zone of the machine, which a driver may add.
func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

func notFound(err error) error {
	if ent.IsNotFound(err) {
		return problem.New(problem.NotFound, problem.NotFoundReason, "", "not found").WithCause(err)
	}
	return err
}

// CreateDomain implements app.Store.
func (s *Store) CreateDomain(ctx context.Context, scope tenancy.Scope, d app.Domain, validateOnly bool) error {
	unit := s.db.Write
	if validateOnly {
		unit = s.db.Read
	}
	err := unit(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		has, err := tx.Domain.Query().Where(domain.Domain(d.Domain.String())).Exist(ctx)
		if err != nil {
			return err
		}
		if has {
			return exists("domain.domain", "the company has this domain already")
		}
		n, err := tx.Domain.Query().Count(ctx)
		if err != nil {
			return err
		}
		if n >= app.MaxDomains {
			return problem.New(problem.Conflict, problem.FailedPrecondition, "", "a company has at most %d domains", app.MaxDomains)
		}
		if validateOnly {
			return nil
		}
		return tx.Domain.Create().SetID(d.ID).SetCompanyID(scope.CompanyID()).SetDomain(d.Domain.String()).SetChallenge(d.Challenge).
			SetNillableNextCheckAt(d.NextCheckAt).SetCreatedAt(d.CreatedAt).SetUpdatedAt(d.UpdatedAt).Exec(ctx)
	})
	if ent.IsConstraintError(err) {
		return exists("domain.domain", "the company has this domain already").WithCause(err)
	}
	return err
}

// Domain implements app.Store.
func (s *Store) Domain(ctx context.Context, scope tenancy.Scope, id string) (out app.Domain, err error) {
	err = s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		row, err := tx.Domain.Get(ctx, id)
		if err != nil {
			return err
		}
		out, err = toDomain(row)
		return err
	})
	return out, notFound(err)
}

// ListDomains implements app.Store.
func (s *Store) ListDomains(ctx context.Context, scope tenancy.Scope, after string, n int) (out []app.Domain, err error) {
	err = s.db.Read(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		rows, err := tx.Domain.Query().Where(domain.DomainGT(after)).Order(domain.ByDomain()).Limit(n).All(ctx)
		if err != nil {
			return err
		}
		out = make([]app.Domain, len(rows))
		for i, row := range rows {
			if out[i], err = toDomain(row); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// UpdateDomain implements app.Store.
func (s *Store) UpdateDomain(ctx context.Context, scope tenancy.Scope, id string, change func(*app.Domain) error) (app.Domain, error) {
	out, err := s.updateDomain(ctx, scope, id, change)
	if ent.IsConstraintError(err) {
		// Control was proven here, but the domain is another Company's until it gives it up.
		return s.updateDomain(ctx, scope, id, func(d *app.Domain) error {
			if err := change(d); err != nil {
				return err
			}
			d.State, d.ProofMethod, d.VerifiedAt = app.Taken, "", nil
			return nil
		})
	}
	return out, err
}

func (s *Store) updateDomain(ctx context.Context, scope tenancy.Scope, id string, change func(*app.Domain) error) (out app.Domain, err error) {
	err = s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		q := tx.Domain.Query().Where(domain.ID(id))
		if s.db.Postgres() {
			q = q.ForUpdate()
		}
		row, err := q.Only(ctx)
		if err != nil {
			return err
		}
		d, err := toDomain(row)
		if err != nil {
			return err
		}
		if err := change(&d); err != nil {
			return err
		}
		seen, err := json.Marshal(d.Observations)
		if err != nil {
			return err
		}
		u := row.Update().SetState(domain.State(d.State)).SetProofMethod(d.ProofMethod).SetObservations(seen).
			SetNillableVerifiedAt(d.VerifiedAt).SetNillableCheckedAt(d.CheckedAt).SetUpdatedAt(s.now()).AddVersion(1)
		if d.NextCheckAt == nil {
			u.ClearNextCheckAt()
		} else {
			u.SetNextCheckAt(*d.NextCheckAt)
		}
		before := row.State
		if row, err = u.Save(ctx); err != nil {
			return err
		}
		if before != row.State {
			if err := bump(ctx, tx, scope); err != nil {
				return err
			}
		}
		out, err = toDomain(row)
		return err
	})
	return out, notFound(err)
}

// bump makes the Company's documents be built anew.
func bump(ctx context.Context, tx *ent.Tx, scope tenancy.Scope) error {
	return tx.Company.UpdateOneID(scope.CompanyID()).AddVersion(1).Exec(ctx)
}

// DeleteDomain implements app.Store.
func (s *Store) DeleteDomain(ctx context.Context, scope tenancy.Scope, id string) error {
	return notFound(s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		if err := tx.Domain.DeleteOneID(id).Exec(ctx); err != nil {
			return err
		}
		return bump(ctx, tx, scope)
	}))
}

// DueDomains implements app.Store.
func (s *Store) DueDomains(ctx context.Context, now time.Time, n int) (out []app.Due, err error) {
	err = s.db.SystemRead(ctx, db.ClaimDeadlines, func(ctx context.Context, tx *ent.Tx) error {
		rows, err := tx.Domain.Query().Where(domain.NextCheckAtLTE(now)).Order(domain.ByNextCheckAt()).Limit(n).All(ctx)
		if err != nil {
			return err
		}
		for _, row := range rows {
			scope, err := tenancy.For(row.CompanyID)
			if err != nil {
				return err
			}
			out = append(out, app.Due{Scope: scope, DomainID: row.ID})
		}
		return nil
	})
	return out, err
}

func toDomain(row *ent.Domain) (app.Domain, error) {
	name, err := discovery.ParseDomain(row.Domain)
	if err != nil {
		return app.Domain{}, fmt.Errorf("stored domain %s: %w", row.ID, err)
	}
	d := app.Domain{
		ID: row.ID, Domain: name, State: string(row.State), Challenge: row.Challenge, ProofMethod: row.ProofMethod,
		VerifiedAt: utc(row.VerifiedAt), CheckedAt: utc(row.CheckedAt), NextCheckAt: utc(row.NextCheckAt),
		Version: row.Version, CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(),
	}
	if len(row.Observations) > 0 {
		if err := json.Unmarshal(row.Observations, &d.Observations); err != nil {
			return app.Domain{}, fmt.Errorf("stored observations of %s: %w", row.ID, err)
		}
	}
	return d, nil
}
