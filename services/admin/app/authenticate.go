package app

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// usedTimeout bounds what recording the use of a key may add to a call.
const usedTimeout = time.Second

// Authenticator finds out who calls.
type Authenticator struct {
	store Store
	now   clock.Clock
	log   *slog.Logger
}

// NewAuthenticator makes an Authenticator over store.
func NewAuthenticator(store Store, now clock.Clock, log *slog.Logger) *Authenticator {
	return &Authenticator{store: store, now: now, log: log}
}

// Authenticate returns the key that secret is. An unknown, an expired and a revoked
// key are refused in the same words.
func (a *Authenticator) Authenticate(ctx context.Context, secret string) (*Key, error) {
	if !WellFormed(secret) {
		return nil, refused()
	}
	hash := HashSecret(secret)
	k, err := a.store.ByHash(ctx, hash)
	if problem.Is(err, problem.NotFoundReason) {
		return nil, refused()
	}
	if err != nil {
		return nil, err
	}
	now := a.now()
	if subtle.ConstantTimeCompare([]byte(k.Hash), []byte(hash)) != 1 || !k.Valid(now) {
		return nil, refused()
	}
	a.used(ctx, k, now)
	return k, nil
}

// StillHolds reads k again and reports whether it is valid and has the permission.
func (a *Authenticator) StillHolds(ctx context.Context, k *Key, permission string) (bool, error) {
	again, err := a.store.Reload(ctx, k)
	if problem.Is(err, problem.NotFoundReason) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return again.Valid(a.now()) && again.Holds(permission), nil
}

// used records the use, at most once a minute. That it was used is worth no failed call.
func (a *Authenticator) used(ctx context.Context, k *Key, now time.Time) {
	if k.LastUsedAt != nil && now.Sub(*k.LastUsedAt) < time.Minute {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usedTimeout)
	defer cancel()
	if err := a.store.Used(ctx, k, now); err != nil {
		a.log.WarnContext(ctx, "recording the use of a key", "key", k.Name(), "error", err)
	}
}

func refused() error {
	return problem.New(problem.Unauthenticated, problem.Unauthenticated401, "", "a valid API key is needed: authorization: Bearer pfk_…")
}
