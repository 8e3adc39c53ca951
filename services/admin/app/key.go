package app

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Key is a key to the admin API as stored: of a Company, or, without one, of an operator.
type Key struct {
	ID          string
	CompanyID   string
	DisplayName string
	// Scopes are permissions, "prefix.*" or "*"; an operator's key needs none.
	Scopes     []string
	Hash       string
	Prefix     string
	ExpiresAt  *time.Time
	RevokedAt  *time.Time
	LastUsedAt *time.Time
	CreatedAt  time.Time
	Creator    string
}

// Operator reports whether k is an operator's key.
func (k *Key) Operator() bool { return k.CompanyID == "" }

// Name is the key's resource name, which is what other services and audits get as the actor.
func (k *Key) Name() string {
	if k.Operator() {
		return "operatorKeys/" + k.ID
	}
	return "companies/" + k.CompanyID + "/apiKeys/" + k.ID
}

// Valid reports whether k opens anything at now.
func (k *Key) Valid(now time.Time) bool {
	return k.RevokedAt == nil && (k.ExpiresAt == nil || now.Before(*k.ExpiresAt))
}

// Holds reports whether k has a permission. An operator's key has every one.
func (k *Key) Holds(permission string) bool {
	if k.Operator() {
		return true
	}
	return slices.ContainsFunc(k.Scopes, func(scope string) bool { return covers(scope, permission) })
}

// Grants reports whether k may give scope to another key: nobody gives away more than they hold.
func (k *Key) Grants(scope string) bool {
	if k.Operator() {
		return true
	}
	return slices.ContainsFunc(k.Scopes, func(own string) bool { return own == scope || covers(own, scope) })
}

// covers reports whether scope holds asked, which is a permission or a narrower "prefix.*".
func covers(scope, asked string) bool {
	if scope == everything {
		return true
	}
	if prefix, ok := strings.CutSuffix(scope, ".*"); ok {
		got, _, _ := strings.Cut(asked, ".")
		return got == prefix
	}
	return scope == asked
}

const everything = "*"

// secretPrefix begins every key.
const secretPrefix = "pfk"

// shownPrefix is how many characters of a key stay readable, to tell keys apart.
const shownPrefix = 10

var secretShape = regexp.MustCompile(`^pfk_[A-Za-z0-9_-]{43}$`)

// NewSecret returns the value of a new key.
func NewSecret() string { return keys.RandomToken(secretPrefix) }

// WellFormed reports whether secret looks like a key at all.
func WellFormed(secret string) bool { return secretShape.MatchString(secret) }

// HashSecret returns what is stored of a key. Which Company it belongs to isn't known
// before it was found, so the hash isn't bound to one.
func HashSecret(secret string) string { return keys.HashToken("", secret) }

// PrefixOf returns the part of a key that may be shown.
func PrefixOf(secret string) string { return secret[:min(len(secret), shownPrefix)] }

// Store keeps keys. Not found is problem NOT_FOUND.
type Store interface {
	// ByHash finds a key of whatever Company, or an operator's.
	ByHash(ctx context.Context, hash string) (*Key, error)
	// Reload reads a key that was found before.
	Reload(ctx context.Context, k *Key) (*Key, error)
	// Used records that k was used at now, unless it was within the minute before.
	Used(ctx context.Context, k *Key, now time.Time) error
	CompanyExists(ctx context.Context, scope tenancy.Scope) (bool, error)

	Create(ctx context.Context, scope tenancy.Scope, k *Key) error
	Key(ctx context.Context, scope tenancy.Scope, id string) (*Key, error)
	List(ctx context.Context, scope tenancy.Scope, afterTime time.Time, afterID string, n int) ([]*Key, error)
	// Revoke keeps the time of the first revocation.
	Revoke(ctx context.Context, scope tenancy.Scope, id string, now time.Time) (*Key, error)
}

type callerKey struct{}

// WithCaller returns ctx saying whose key makes the call.
func WithCaller(ctx context.Context, k *Key) context.Context {
	return context.WithValue(ctx, callerKey{}, k)
}

// Caller returns the key that makes the call; nil outside of one.
func Caller(ctx context.Context) *Key {
	k, _ := ctx.Value(callerKey{}).(*Key)
	return k
}
