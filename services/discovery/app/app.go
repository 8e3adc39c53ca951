package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/usage"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Kinds of a Company.
const (
	Live = "live"
	Test = "test" // for trying things out
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

// Snapshot is a Company with all that it publishes, as of one version.
type Snapshot struct {
	Company
	Connection Connection
	Design     Design             // without the logo's bytes
	Domains    []discovery.Domain // the verified ones, by name
}

// Store keeps Companies and what belongs to them. Not found is problem NOT_FOUND.
type Store interface {
	CreateCompany(ctx context.Context, c Company) error
	Company(ctx context.Context, scope tenancy.Scope) (Company, error)
	Snapshot(ctx context.Context, scope tenancy.Scope) (Snapshot, error)
	// SnapshotsOnHost returns the active Companies whose issuer has the host name, at most MaxOnHost.
	SnapshotsOnHost(ctx context.Context, hostname string) ([]Snapshot, error)
	ListCompanies(ctx context.Context, afterTime time.Time, afterID string, n int) ([]Company, error)
	// UpdateCompany loads, changes and saves in one unit; the version grows by one.
	UpdateCompany(ctx context.Context, scope tenancy.Scope, change func(*Company, Connection) error) (Company, error)

	// UpdateConnection loads, changes and saves in one unit, with the Company's version.
	UpdateConnection(ctx context.Context, scope tenancy.Scope, change func(Company, *Connection) error) (Connection, error)
	// Design returns the design with its logo.
	Design(ctx context.Context, scope tenancy.Scope) (Design, error)
	// UpdateDesign loads, changes and saves in one unit, with the Company's version.
	UpdateDesign(ctx context.Context, scope tenancy.Scope, change func(*Design) error) (Design, error)

	// CreateDomain saves d unless the Company has it already, or has MaxDomains. With validateOnly it only looks.
	CreateDomain(ctx context.Context, scope tenancy.Scope, d Domain, validateOnly bool) error
	Domain(ctx context.Context, scope tenancy.Scope, id string) (Domain, error)
	ListDomains(ctx context.Context, scope tenancy.Scope, after string, n int) ([]Domain, error)
	// UpdateDomain loads, changes and saves in one unit, with the Company's version
	// where the set of verified domains changes. A domain that another Company has
	// verified already is saved as taken.
	UpdateDomain(ctx context.Context, scope tenancy.Scope, id string, change func(*Domain) error) (Domain, error)
	DeleteDomain(ctx context.Context, scope tenancy.Scope, id string) error
	DueDomains(ctx context.Context, now time.Time, n int) ([]Due, error)

	// ListUsage returns at most n days with use, the latest first, from one day on and before another.
	ListUsage(ctx context.Context, scope tenancy.Scope, from, before string, n int) ([]usage.DayCounts, error)
	// Quotas returns the quotas, with what was used since a day.
	Quotas(ctx context.Context, scope tenancy.Scope, since string) (Quotas, error)
	// UpdateQuotas loads, changes and saves in one unit.
	UpdateQuotas(ctx context.Context, scope tenancy.Scope, since string, change func(*Quotas) error) (Quotas, error)
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
	Body        []byte
	Failure     string // a sentence; empty when there was an answer
}

// App is the use cases.
type App struct {
	store        Store
	egress       Egress
	keys         *keys.Ring
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
	// LookTime is how long one look at the Internet may take, since somebody is waiting for it; 0 means 10 s.
	LookTime time.Duration
}

// New makes the use cases; secrets are sealed with ring. changed is called after every
// committed change of a Company.
func New(cfg Config, store Store, egress Egress, ring *keys.Ring, now clock.Clock, changed func(ctx context.Context, companyID string)) *App {
	if cfg.LookTime == 0 {
		cfg.LookTime = 10 * time.Second
	}
	return &App{store: store, egress: egress, keys: ring, now: now, bounds: cfg.Bounds, hostedDomain: cfg.HostedDomain, lookTime: cfg.LookTime, changed: changed}
}

// Bounds returns the operator's bounds.
func (a *App) Bounds() Bounds { return a.bounds }
