package admin

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/store"
)

// bootstrap is the creator of keys that no key made.
const bootstrap = "installation"

var errKeyShape = errors.New("not a key: pfk_ and 43 characters of base64url are needed")

// NewKey returns the value of a new key, for whoever keeps it before its row is made.
func NewKey() string { return app.NewSecret() }

// CreateOperatorKey makes an operator's key and returns its value, which can't be
// read again. The zero expires means that it never expires.
func CreateOperatorKey(ctx context.Context, d *db.DB, name string, expires time.Time) (string, error) {
	key := app.NewSecret()
	k := newKey(ids.OperatorKey, name, key)
	if !expires.IsZero() {
		if !expires.After(k.CreatedAt) {
			return "", errors.New("the key would be expired already")
		}
		at := expires.UTC()
		k.ExpiresAt = &at
	}
	if err := store.NewKeys(d).CreateOperator(ctx, k); err != nil {
		return "", err
	}
	return key, nil
}

// EnsureOperatorKey makes key, which the caller keeps, an operator's key; nothing
// happens when it is one already.
func EnsureOperatorKey(ctx context.Context, d *db.DB, name, key string) error {
	s := store.NewKeys(d)
	there, err := exists(ctx, s, key)
	if err != nil || there {
		return err
	}
	return s.CreateOperator(ctx, newKey(ids.OperatorKey, name, key))
}

// EnsureAPIKey makes key, which the caller keeps, a key of scope's Company with the
// given scopes; nothing happens when there is such a key already.
func EnsureAPIKey(ctx context.Context, d *db.DB, scope tenancy.Scope, name, key string, scopes ...string) error {
	s := store.NewKeys(d)
	there, err := exists(ctx, s, key)
	if err != nil || there {
		return err
	}
	k := newKey(ids.APIKey, name, key)
	k.CompanyID, k.Scopes = scope.CompanyID(), scopes
	return s.Create(ctx, scope, k)
}

func exists(ctx context.Context, s *store.Keys, key string) (bool, error) {
	if !app.WellFormed(key) {
		return false, errKeyShape
	}
	_, err := s.ByHash(ctx, app.HashSecret(key))
	if problem.Is(err, problem.NotFoundReason) {
		return false, nil
	}
	return err == nil, err
}

func newKey(kind, name, key string) *app.Key {
	return &app.Key{
		ID: ids.New(kind), DisplayName: name, Hash: app.HashSecret(key), Prefix: app.PrefixOf(key), CreatedAt: clock.System(), Creator: bootstrap,
	}
}
