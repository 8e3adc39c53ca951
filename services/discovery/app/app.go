package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// States of a Company.
const (
	SettingUp = "setting_up"
	Active    = "active"
	Disabled  = "disabled"
)

// Company is a tenant as stored.
type Company struct {
	ID           string
	Organization string
	Slug         string
	DisplayName  string
	Kind         string
	State        string
	Issuer       discovery.Issuer
	PublishedAt  *time.Time
	Settings     discovery.Settings
	SettingsAt   time.Time
	Limits       Limits
	LimitsAt     time.Time
	Version      int64
	Creator      string
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// MaxOnHost is how many Companies may have issuers on one host name, told apart by their paths.
const MaxOnHost = 1000

// MaxDomains is how many domains a Company may have: the longest ones still fit into the metadata.
const MaxDomains = 200

// States of a Domain.
const (
	Pending  = "pending"
	Verified = "verified"
	Taken    = "taken"
)

// Methods of proof.
const (
	DNSTXT   = "dns_txt"
	Redirect = "redirect"
)

// Domain is a host name of a Company.
type Domain struct {
	ID           string
	Domain       discovery.Domain
	State        string
	Challenge    string
	ProofMethod  string
	Observations []Observation
	VerifiedAt   *time.Time
	CheckedAt    *time.Time
	NextCheckAt  *time.Time
	Version      int64
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// Observation is what one method of proof showed.
type Observation struct {
	Method   string `json:"method"`
	OK       bool   `json:"ok"`
	Expected string `json:"expected"`
	Seen     string `json:"seen"`
	Detail   string `json:"detail"`
}

// Due names a domain whose next check is due.
type Due struct {
	Scope    tenancy.Scope
	DomainID string
}

// Store keeps Companies and domains. Not found is problem NOT_FOUND.
type Store interface {
	CreateCompany(ctx context.Context, c Company) error
	Company(ctx context.Context, scope tenancy.Scope) (Company, error)
	// CompaniesOnHost returns the active ones whose issuer has the host name, at most MaxOnHost.
	CompaniesOnHost(ctx context.Context, hostname string) ([]Company, error)
	ListCompanies(ctx context.Context, afterTime time.Time, afterID string, n int) ([]Company, error)
	// UpdateCompany loads, changes and saves in one unit; the version grows by one.
	UpdateCompany(ctx context.Context, scope tenancy.Scope, change func(*Company) error) (Company, error)

	// CreateDomain saves d unless the Company has it already, or has MaxDomains. With validateOnly it only looks.
	CreateDomain(ctx context.Context, scope tenancy.Scope, d Domain, validateOnly bool) error
	Domain(ctx context.Context, scope tenancy.Scope, id string) (Domain, error)
	ListDomains(ctx context.Context, scope tenancy.Scope, after string, n int) ([]Domain, error)
	VerifiedDomains(ctx context.Context, scope tenancy.Scope) ([]discovery.Domain, error)
	// UpdateDomain loads, changes and saves in one unit, with the Company's version
	// where the set of verified domains changes. A domain that another Company has
	// verified already is saved as taken.
	UpdateDomain(ctx context.Context, scope tenancy.Scope, id string, change func(*Domain) error) (Domain, error)
	DeleteDomain(ctx context.Context, scope tenancy.Scope, id string) error
	DueDomains(ctx context.Context, now time.Time, n int) ([]Due, error)
}

// Egress looks at the Internet.
type Egress interface {
	// Get fetches url without following redirects. failure is set when there was no whole answer.
	Get(ctx context.Context, url string) (Page, error)
	TXT(ctx context.Context, name string) (values []string, failure string, err error)
}

// Page is what a URL answered.
type Page struct {
	Status      int
	ContentType string
	Location    string
	Failure     string // a sentence; empty when there was an answer
}

// App is the use cases.
type App struct {
	store        Store
	egress       Egress
	now          clock.Clock
	bounds       Bounds
	hostedDomain string
	lookTime     time.Duration
	changed      func(ctx context.Context, companyID string)
}

// Config of the use cases.
type Config struct {
	// HostedDomain, with an optional port, is where issuers are made when a Company names none: https://{slug}.{HostedDomain}.
	HostedDomain string
	Bounds       Bounds
	// LookTime is how long one look at a domain may take, since somebody is waiting for it; 0 means 10 s.
	LookTime time.Duration
}

// New makes the use cases. changed is called after every committed change of a Company.
func New(cfg Config, store Store, egress Egress, now clock.Clock, changed func(ctx context.Context, companyID string)) *App {
	if cfg.LookTime == 0 {
		cfg.LookTime = 10 * time.Second
	}
	return &App{store: store, egress: egress, now: now, bounds: cfg.Bounds, hostedDomain: cfg.HostedDomain, lookTime: cfg.LookTime, changed: changed}
}

// Bounds returns the operator's bounds.
func (a *App) Bounds() Bounds { return a.bounds }
