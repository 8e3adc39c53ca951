package app

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Bounds of an attempt's length.
const (
	DefaultAttemptTimeout = 30 * time.Second
	MinAttemptTimeout     = 100 * time.Millisecond
	MaxAttemptTimeout     = 60 * time.Second
)

// sealing purpose of webhook secrets
const purpose = "webhook secret"

// NewBackend is the backend of a Company that has set up none yet.
func NewBackend() Backend { return Backend{Enabled: true, DeliverLate: true} }

// Backend returns the Company's backend; one never set up has no ID and no URL.
func (a *App) Backend(ctx context.Context, scope tenancy.Scope) (Backend, error) {
	b, _, err := a.store.Endpoint(ctx, scope, a.now())
	return b, err
}

// Secrets returns the secrets that sign now, oldest first.
func (a *App) Secrets(ctx context.Context, scope tenancy.Scope) ([]Secret, error) {
	_, secrets, err := a.store.Endpoint(ctx, scope, a.now())
	return secrets, err
}

// BackendChange is what may change of a backend; nil leaves a field.
type BackendChange struct {
	URL            *string
	AttemptTimeout *time.Duration
	DeliverLate    *bool
	ETag           string
	ValidateOnly   bool
}

// UpdateBackend changes the backend. The first URL also makes the key of v1a
// signatures, so that no webhook ever goes out unsigned.
func (a *App) UpdateBackend(ctx context.Context, scope tenancy.Scope, ch BackendChange) (Backend, error) {
	moved := false
	apply := func(b *Backend) error {
		if err := resource.CheckETag(ch.ETag, b.Version); err != nil {
			return err
		}
		if ch.URL != nil {
			if *ch.URL != "" { // an empty one takes the backend away
				if err := a.check(*ch.URL); err != nil {
					return resource.Invalid("backend.url", err.Error())
				}
			}
			// A new address starts afresh, also after the old one said 410.
			if moved = *ch.URL != b.URL; moved {
				b.Enabled, b.DisableReason = true, ""
			}
			b.URL = *ch.URL
		}
		if ch.AttemptTimeout != nil {
			if d := *ch.AttemptTimeout; d != 0 && (d < MinAttemptTimeout || d > MaxAttemptTimeout) {
				return resource.Invalid("backend.attempt_timeout", "must be between 0.1 s and 60 s")
			}
			b.AttemptTimeout = *ch.AttemptTimeout
		}
		if ch.DeliverLate != nil {
			b.DeliverLate = *ch.DeliverLate
		}
		return nil
	}
	now, secrets, err := a.store.Endpoint(ctx, scope, a.now())
	if err != nil {
		return Backend{}, err
	}
	// What is refused must not leave a key behind.
	if err := apply(&now); err != nil {
		return Backend{}, err
	}
	if ch.ValidateOnly {
		return now, nil
	}
	if now.URL != "" {
		if err := a.ensureKey(ctx, scope, secrets); err != nil {
			return Backend{}, err
		}
	}
	b, err := a.store.UpdateBackend(ctx, scope, apply)
	if err == nil && moved && b.URL != "" {
		a.reachable(ctx, scope)
	}
	return b, err
}

// keyOverlap is how long a Company's first key signs on where two calls made one at the
// same time: the receiver of either may have read the other's alone.
const keyOverlap = time.Minute

// ensureKey makes the key of v1a signatures unless secrets, those in force, hold one.
func (a *App) ensureKey(ctx context.Context, scope tenancy.Scope, secrets []Secret) error {
	if count(secrets, Ed25519) > 0 {
		return nil
	}
	_, _, err := a.RotateSecret(ctx, scope, Ed25519, keyOverlap)
	return err
}

func count(secrets []Secret, kind string) int {
	n := 0
	for _, s := range secrets {
		if s.Kind == kind {
			n++
		}
	}
	return n
}

// EnableBackend turns a disabled backend on again. What waits for it is tried at once,
// also when it was on.
func (a *App) EnableBackend(ctx context.Context, scope tenancy.Scope) (Backend, error) {
	b, err := a.store.UpdateBackend(ctx, scope, func(b *Backend) error {
		if b.URL == "" {
			return problem.New(problem.Conflict, problem.FailedPrecondition, "", "the backend has no URL yet").WithField("backend.url", "required")
		}
		b.Enabled, b.DisableReason = true, ""
		return nil
	})
	if err == nil {
		a.reachable(ctx, scope)
	}
	return b, err
}

// maxSecrets is how many secrets of a kind may sign at once; every one of them makes
// the header longer, which receivers bound.
const maxSecrets = 5

// RotateSecret makes a secret of the kind and returns it with its value, which for
// HMAC is shown this once. Earlier ones of the kind sign for overlap longer.
func (a *App) RotateSecret(ctx context.Context, scope tenancy.Scope, kind string, overlap time.Duration) (Secret, string, error) {
	now := a.now()
	if overlap > 0 {
		secrets, err := a.Secrets(ctx, scope)
		if err != nil {
			return Secret{}, "", err
		}
		if count(secrets, kind) >= maxSecrets {
			return Secret{}, "", problem.New(problem.Conflict, problem.FailedPrecondition, "", "%d secrets sign already: wait for one to end, or rotate without overlap", maxSecrets)
		}
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return Secret{}, "", err
	}
	s := Secret{ID: ids.New(ids.WebhookSecret), Kind: kind, CreatedAt: now}
	reveal := ""
	if kind == HMAC {
		secret, err := webhook.NewSecret(raw)
		if err != nil {
			return Secret{}, "", err
		}
		reveal = secret.Reveal()
		s.Prefix = reveal[:len("whsec_")+4]
	} else {
		key, err := webhook.NewPrivateKey(raw)
		if err != nil {
			return Secret{}, "", err
		}
		s.PublicKey = key.Public().String()
	}
	var err error
	if s.Sealed, err = a.keys.Seal(scope.CompanyID(), purpose, s.ID, raw); err != nil {
		return Secret{}, "", err
	}
	if err := a.store.AddSecret(ctx, scope, s, now.Add(overlap)); err != nil {
		return Secret{}, "", err
	}
	return s, reveal, nil
}

// signers opens the secrets.
func (a *App) signers(scope tenancy.Scope, secrets []Secret) ([]webhook.Signer, error) {
	out := make([]webhook.Signer, 0, len(secrets))
	for _, s := range secrets {
		raw, err := a.keys.Open(scope.CompanyID(), purpose, s.ID, s.Sealed)
		if err != nil {
			return nil, err
		}
		if s.Kind == HMAC {
			secret, err := webhook.NewSecret(raw)
			if err != nil {
				return nil, err
			}
			out = append(out, secret)
			continue
		}
		key, err := webhook.NewPrivateKey(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, key)
	}
	return out, nil
}

// sign returns the headers of a webhook that is signed by every secret.
func (a *App) sign(scope tenancy.Scope, id string, at time.Time, body []byte, secrets []Secret) (http.Header, error) {
	signers, err := a.signers(scope, secrets)
	if err != nil {
		return nil, err
	}
	h, err := webhook.Sign(id, at, body, signers...)
	if err != nil {
		return nil, err
	}
	return http.Header{
		webhook.HeaderID: {h.ID}, webhook.HeaderTimestamp: {h.Timestamp}, webhook.HeaderSignature: {h.Signature},
	}, nil
}
