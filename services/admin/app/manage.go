package app

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Manager makes, shows and revokes the keys of a Company.
type Manager struct {
	store   Store
	now     clock.Clock
	company []string // permissions that a Company's key can hold
	all     []string
	revoked func(ctx context.Context, scope tenancy.Scope, id string)
}

// NewManager makes a Manager. company and operator are the permissions there are;
// revoked is called after a key stopped to work.
func NewManager(store Store, now clock.Clock, company, operator []string, revoked func(ctx context.Context, scope tenancy.Scope, id string)) *Manager {
	all := slices.Concat(company, operator)
	slices.Sort(all)
	return &Manager{store: store, now: now, company: company, all: slices.Compact(all), revoked: revoked}
}

// NewKey is what a caller asks for.
type NewKey struct {
	DisplayName string
	Scopes      []string
	ExpiresAt   *time.Time
}

// Create makes a key and returns its value, which is shown this once. Scopes that
// creator doesn't hold can't be given.
func (m *Manager) Create(ctx context.Context, scope tenancy.Scope, creator *Key, in NewKey) (*Key, string, error) {
	if len(in.Scopes) == 0 {
		return nil, "", resource.Invalid("api_key.scopes", `names no permission; "*" is all of the company's`)
	}
	for i, s := range in.Scopes {
		field := "api_key.scopes[" + strconv.Itoa(i) + "]"
		if !m.known(s) {
			return nil, "", resource.Invalid(field, `is no permission; "*", these, or a prefix such as "conversations.*": `+strings.Join(m.company, ", "))
		}
		if creator == nil || !creator.Grants(s) {
			return nil, "", problem.New(problem.Forbidden, problem.PermissionDenied, "", "a key can't give what it doesn't hold: %s", s).WithField(field, "the calling key doesn't hold it")
		}
	}
	now := m.now()
	if in.ExpiresAt != nil && !in.ExpiresAt.After(now) {
		return nil, "", resource.Invalid("api_key.expire_time", "is not in the future")
	}
	secret := NewSecret()
	k := &Key{
		ID: ids.New(ids.APIKey), CompanyID: scope.CompanyID(), DisplayName: in.DisplayName, Scopes: slices.Clone(in.Scopes),
		Hash: HashSecret(secret), Prefix: PrefixOf(secret), ExpiresAt: in.ExpiresAt, CreatedAt: now, Creator: creator.Name(),
	}
	if err := m.store.Create(ctx, scope, k); err != nil {
		return nil, "", err
	}
	return k, secret, nil
}

// Key returns one key.
func (m *Manager) Key(ctx context.Context, scope tenancy.Scope, id string) (*Key, error) {
	return m.store.Key(ctx, scope, id)
}

// List returns up to n keys, oldest first, after the one with the given time and id.
func (m *Manager) List(ctx context.Context, scope tenancy.Scope, afterTime time.Time, afterID string, n int) ([]*Key, error) {
	return m.store.List(ctx, scope, afterTime, afterID, n)
}

// Revoke makes a key useless from the next call on. Revoking it again changes nothing.
func (m *Manager) Revoke(ctx context.Context, scope tenancy.Scope, id string) (*Key, error) {
	k, err := m.store.Revoke(ctx, scope, id, m.now())
	if err != nil {
		return nil, err
	}
	m.revoked(ctx, scope, id)
	return k, nil
}

// Permissions returns every permission that k has, sorted.
func (m *Manager) Permissions(k *Key) []string {
	if k.Operator() {
		return slices.Clone(m.all)
	}
	var out []string
	for _, p := range m.company {
		if k.Holds(p) {
			out = append(out, p)
		}
	}
	return out
}

// known reports whether scope is a permission that a Company's key can hold, the
// prefix of one, or all of them.
func (m *Manager) known(scope string) bool {
	if scope == everything {
		return true
	}
	if prefix, ok := strings.CutSuffix(scope, ".*"); ok {
		return slices.ContainsFunc(m.company, func(p string) bool { return strings.HasPrefix(p, prefix+".") })
	}
	return slices.Contains(m.company, scope)
}
