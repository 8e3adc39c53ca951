package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/prune"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// Prune drops attempts that are older than what their Company keeps.
func (a *App) Prune(ctx context.Context) error {
	if a.retention == nil {
		return nil
	}
	var failed []error
	for after := ""; ; {
		scope, ok, err := a.store.NextCompany(ctx, after)
		if err != nil || !ok {
			return errors.Join(append(failed, err)...)
		}
		after = scope.CompanyID()
		keep, err := a.retention(ctx, scope)
		if err == nil && keep > 0 {
			before := a.now().Add(-keep)
			err = prune.InBatches(ctx, func(limit int) (int, error) { return a.store.PruneAttempts(ctx, scope, before, limit) })
		}
		if err != nil && !problem.Is(err, problem.NotFoundReason) {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// expiringAhead is how long before its end a secret is told of.
const expiringAhead = 24 * time.Hour

// TellExpiring tells Companies of the secrets that end within a day, of each once.
func (a *App) TellExpiring(ctx context.Context) error {
	now := a.now()
	ending, err := a.store.Expiring(ctx, now, now.Add(expiringAhead))
	if err != nil {
		return err
	}
	var failed []error
	for scope, secrets := range ending {
		for _, s := range secrets {
			name := s.Name()
			err := a.store.TellOnce(ctx, scope, Event{
				Type: webhook.EventSecretExpiring, Subject: name, At: now,
				Data: webhook.SecretExpiringData{Secret: webhook.EventSecret{
					Name: scope.Name() + "/" + name, Kind: s.Kind, ExpireTime: s.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000Z"),
				}},
			})
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Name is the resource name below the Company's.
func (s Secret) Name() string {
	of := Endpoint{Role: RoleAnswers}
	if s.EndpointID != "" {
		of = Endpoint{Role: RoleListens, ID: s.EndpointID}
	}
	return of.Name() + "/secrets/" + s.ID
}
