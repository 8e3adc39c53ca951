package app

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// NewCompany is what an operator says of a Company to be.
type NewCompany struct {
	Organization, Slug, DisplayName, Kind, Issuer, Creator string
}

var notSlug = regexp.MustCompile(`[^a-z0-9]+`)

// CreateCompany makes a Company in state setting_up, with conversations offered.
func (a *App) CreateCompany(ctx context.Context, n NewCompany) (Company, error) {
	if n.Slug == "" {
		return Company{}, resource.Invalid("company.slug", "required")
	}
	if n.DisplayName == "" {
		n.DisplayName = notSlug.ReplaceAllString(n.Slug, " ")
	}
	raw := n.Issuer
	if raw == "" {
		raw = "https://" + n.Slug + "." + a.hostedDomain
	}
	issuer, err := discovery.ParseIssuer(raw)
	if err != nil {
		return Company{}, within("company", err)
	}
	now := a.now()
	c := Company{
		ID: ids.New(ids.Company), Organization: n.Organization, Slug: n.Slug, DisplayName: n.DisplayName, Kind: n.Kind, State: SettingUp,
		Issuer: issuer, Creator: n.Creator, Version: 1, CreatedAt: now, UpdatedAt: now, SettingsAt: now, LimitsAt: now,
		Settings: discovery.Settings{Conversations: discovery.Conversations{Enabled: true}},
	}
	if err := a.check(&c, Connection{}); err != nil {
		return Company{}, named(err)
	}
	if err := a.store.CreateCompany(ctx, c); err != nil {
		return Company{}, err
	}
	return c, nil
}

// within puts the paths of err's fields below prefix, where the caller's request has them.
func within(prefix string, err error) error {
	var p *problem.Error
	if !errors.As(err, &p) || len(p.Fields) == 0 {
		return err
	}
	c := *p
	c.Fields = make([]problem.Field, len(p.Fields))
	for i, f := range p.Fields {
		c.Fields[i] = problem.Field{Path: prefix + "." + f.Path, Detail: f.Detail}
	}
	return &c
}

// named says of a display name that can't be published what check says of the
// organization's name, which it stands in for.
func named(err error) error {
	var p *problem.Error
	if errors.As(err, &p) {
		for _, f := range p.Fields {
			if f.Path == "discovery_settings.organization_name" {
				return resource.Invalid("company.display_name", f.Detail)
			}
		}
	}
	return err
}

// Company returns the Company of scope.
func (a *App) Company(ctx context.Context, scope tenancy.Scope) (Company, error) {
	return a.store.Company(ctx, scope)
}

// ListCompanies returns up to n Companies, oldest first, after the given one.
func (a *App) ListCompanies(ctx context.Context, afterTime time.Time, afterID string, n int) ([]Company, error) {
	return a.store.ListCompanies(ctx, afterTime, afterID, n)
}

// CompanyChange is what may change of a Company; nil leaves a field.
type CompanyChange struct {
	DisplayName *string
	Issuer      *string
	ETag        string
}

// UpdateCompany changes the name, and the issuer as long as nothing was published under it.
func (a *App) UpdateCompany(ctx context.Context, scope tenancy.Scope, ch CompanyChange) (Company, error) {
	return a.update(ctx, scope, func(c *Company, conn Connection) error {
		if err := resource.CheckETag(ch.ETag, c.Version); err != nil {
			return err
		}
		if ch.DisplayName != nil {
			if *ch.DisplayName == "" {
				return resource.Invalid("company.display_name", "required")
			}
			c.DisplayName = *ch.DisplayName
			// It may be the organization's name in the documents.
			if err := a.check(c, conn); err != nil {
				return named(err)
			}
		}
		if ch.Issuer == nil {
			return nil
		}
		issuer, err := discovery.ParseIssuer(*ch.Issuer)
		if err != nil {
			return within("company", err)
		}
		if issuer == c.Issuer {
			return nil
		}
		// Agents know the Company by its issuer: User IDs, Sessions and tokens hang on it (Poppy 3.2).
		if c.PublishedAt != nil {
			return problem.New(problem.Conflict, problem.IssuerPublished, "poppy-0.1/3.2#1", "the issuer was published and can't change any more").WithField("company.issuer", "final since it was published")
		}
		c.Issuer = issuer
		return nil
	})
}

// Publish checks everything that would be served and puts the Company on the air.
func (a *App) Publish(ctx context.Context, scope tenancy.Scope, validateOnly bool) (Company, error) {
	check := func(c *Company, conn Connection) error {
		if c.State == Disabled {
			return problem.New(problem.Conflict, problem.FailedPrecondition, "", "the company is disabled")
		}
		return a.check(c, conn)
	}
	if validateOnly {
		now, err := a.store.Snapshot(ctx, scope)
		if err != nil {
			return Company{}, err
		}
		if err := check(&now.Company, now.Connection); err != nil {
			return Company{}, err
		}
		return now.Company, nil
	}
	return a.update(ctx, scope, func(c *Company, conn Connection) error {
		if err := check(c, conn); err != nil {
			return err
		}
		c.State = Active
		if c.PublishedAt == nil {
			now := a.now()
			c.PublishedAt = &now
		}
		return nil
	})
}

// SetEnabled takes a Company off the air or puts it back to where it was.
func (a *App) SetEnabled(ctx context.Context, scope tenancy.Scope, on bool) (Company, error) {
	return a.update(ctx, scope, func(c *Company, _ Connection) error {
		switch {
		case !on:
			c.State = Disabled
		case c.State == Disabled && c.PublishedAt != nil:
			c.State = Active
		case c.State == Disabled:
			c.State = SettingUp
		}
		return nil
	})
}

// UpdateSettings replaces the discovery settings by what change makes of them, once they pass every check.
func (a *App) UpdateSettings(ctx context.Context, scope tenancy.Scope, etag string, validateOnly bool, change func(*discovery.Settings) error) (Company, error) {
	now, err := a.store.Snapshot(ctx, scope)
	if err != nil {
		return Company{}, err
	}
	apply := func(c *Company, conn Connection) error {
		if err := resource.CheckETag(etag, c.Version); err != nil {
			return err
		}
		before := c.Settings
		if err := change(&c.Settings); err != nil {
			return err
		}
		if err := checkScopesStay(before, c.Settings); err != nil {
			return err
		}
		if err := a.check(c, conn); err != nil {
			return err
		}
		// What a domain loses meanwhile is seen to when it is published.
		if err := discovery.CheckBrowserSession(c.Settings, c.Issuer, now.Domains); err != nil {
			return atSettings(err)
		}
		c.SettingsAt = a.now()
		return nil
	}
	if validateOnly {
		if err := apply(&now.Company, now.Connection); err != nil {
			return Company{}, err
		}
		return now.Company, nil
	}
	return a.update(ctx, scope, apply)
}

// UpdateLimits replaces the limits by what change makes of them, within the bounds.
func (a *App) UpdateLimits(ctx context.Context, scope tenancy.Scope, etag string, change func(*Limits) error) (Company, error) {
	return a.update(ctx, scope, func(c *Company, _ Connection) error {
		if err := resource.CheckETag(etag, c.Version); err != nil {
			return err
		}
		if err := change(&c.Limits); err != nil {
			return err
		}
		if err := a.bounds.Check(c.Limits); err != nil {
			return err
		}
		c.LimitsAt = a.now()
		return nil
	})
}

func (a *App) update(ctx context.Context, scope tenancy.Scope, change func(*Company, Connection) error) (Company, error) {
	c, err := a.store.UpdateCompany(ctx, scope, change)
	if err != nil {
		return Company{}, err
	}
	a.changed(ctx, c.ID)
	return c, nil
}

// Snapshot returns the Company of scope with all that it publishes.
func (a *App) Snapshot(ctx context.Context, scope tenancy.Scope) (Snapshot, error) {
	return a.store.Snapshot(ctx, scope)
}

// SnapshotsOnHost returns the Companies on the air whose issuer has the host name.
func (a *App) SnapshotsOnHost(ctx context.Context, hostname string) ([]Snapshot, error) {
	return a.store.SnapshotsOnHost(ctx, hostname)
}
