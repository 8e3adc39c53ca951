package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Kinds of Secret.
const (
	HMAC    = "hmac"
	Ed25519 = "ed25519"
)

// Secret signs webhooks. Sealed opens only with the Company's key.
type Secret struct {
	ID         string
	Kind       string
	EndpointID string // the listener that it signs for; "" for the backend, and for ed25519 keys, which sign for all
	Sealed     []byte
	PublicKey  string
	Prefix     string
	CreatedAt  time.Time
	ExpiresAt  *time.Time
}

// purposes of sealing
const (
	purpose            = "webhook secret"
	purposeCredentials = "endpoint credentials"
)

// Backend is the id that stands for the Company's one backend, where an endpoint is asked for.
const Backend = ""

// Secrets returns the secrets that sign for the endpoint now, oldest first.
func (a *App) Secrets(ctx context.Context, scope tenancy.Scope, endpointID string) ([]Secret, error) {
	_, secrets, err := a.store.Endpoint(ctx, scope, endpointID, a.now())
	return secrets, err
}

// keyOverlap is how long a Company's first key signs on where two calls made one at the
// same time: the receiver of either may have read the other's alone.
const keyOverlap = time.Minute

// ensureKey makes the key of v1a signatures unless secrets, those in force, hold one.
func (a *App) ensureKey(ctx context.Context, scope tenancy.Scope, secrets []Secret) error {
	if count(secrets, Ed25519) > 0 {
		return nil
	}
	_, _, err := a.RotateSecret(ctx, scope, Backend, Ed25519, keyOverlap)
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

// maxSecrets is how many secrets of a kind may sign at once; every one of them makes
// the header longer, which receivers bound.
const maxSecrets = 5

// RotateSecret makes a secret of the kind for an endpoint and returns it with its value,
// which for HMAC is shown this once. Earlier ones of the kind sign for overlap longer.
// Ed25519 keys are the Company's, whichever endpoint they are made for.
func (a *App) RotateSecret(ctx context.Context, scope tenancy.Scope, endpointID, kind string, overlap time.Duration) (Secret, string, error) {
	now := a.now()
	if overlap > 0 || endpointID != Backend { // a listener has to be there
		secrets, err := a.Secrets(ctx, scope, endpointID)
		if err != nil {
			return Secret{}, "", err
		}
		if overlap > 0 && count(secrets, kind) >= maxSecrets {
			return Secret{}, "", problem.New(problem.Conflict, problem.FailedPrecondition, "", "%d secrets sign already: wait for one to end, or rotate without overlap", maxSecrets)
		}
	}
	s, reveal, err := a.newSecret(scope, endpointID, kind, now)
	if err != nil {
		return Secret{}, "", err
	}
	if err := a.store.AddSecret(ctx, scope, s, now.Add(overlap)); err != nil {
		return Secret{}, "", err
	}
	return s, reveal, nil
}

func (a *App) newSecret(scope tenancy.Scope, endpointID, kind string, now time.Time) (Secret, string, error) {
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
		s.EndpointID = endpointID
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
	s.Sealed, err = a.keys.Seal(scope.CompanyID(), purpose, s.ID, raw)
	return s, reveal, err
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
	out := make(http.Header, 8)
	out.Set(webhook.HeaderID, h.ID)
	out.Set(webhook.HeaderTimestamp, h.Timestamp)
	out.Set(webhook.HeaderSignature, h.Signature)
	return out, nil
}

// open returns the endpoint's credentials.
func (a *App) open(scope tenancy.Scope, e Endpoint) (Credentials, error) {
	var c Credentials
	if len(e.Sealed) == 0 {
		return c, nil
	}
	raw, err := a.keys.Open(scope.CompanyID(), purposeCredentials, e.ID, e.Sealed)
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(raw, &c)
}

// seal puts the credentials into the endpoint.
func (a *App) seal(scope tenancy.Scope, e *Endpoint, c Credentials) error {
	e.HasAPIKey = c.APIKey != ""
	if c.empty() {
		e.Sealed = nil
		return nil
	}
	raw, err := json.Marshal(c) //nolint:gosec // sealed in the next line
	if err != nil {
		return err
	}
	e.Sealed, err = a.keys.Seal(scope.CompanyID(), purposeCredentials, e.ID, raw)
	return err
}
