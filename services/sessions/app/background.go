package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/prune"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

const (
	// keepTokens is how long an expired token or cookie is kept, keepSessions how long a Session that is over.
	keepTokens   = 24 * time.Hour
	keepSessions = 30 * 24 * time.Hour
	// keepCodes is how long an expired code of any kind is kept, so that its reuse is seen; keepGrants how long a sign-in that is over.
	keepCodes  = 24 * time.Hour
	keepGrants = 30 * 24 * time.Hour
	// keepChanges is many times what a watch looks back.
	keepChanges = 10 * time.Minute
)

// Start writes last uses and prunes every interval until Stop.
func (a *App) Start(ctx context.Context, pruneEvery time.Duration) {
	ctx = context.WithoutCancel(ctx)
	a.touches.start(ctx)
	pruning, cancel := context.WithCancel(ctx)
	a.background.Go(func() {
		defer cancel()
		<-a.touches.stop
	})
	a.background.Go(func() {
		clock.Every(pruning, pruneEvery, func(ctx context.Context) {
			if err := a.Prune(ctx); err != nil {
				a.Log.WarnContext(ctx, "sessions not pruned", "error", err)
			}
		})
	})
}

// Stop ends what Start began, at the latest with ctx. It may be called more than once.
func (a *App) Stop(ctx context.Context) error {
	a.stopping.Do(func() { close(a.touches.stop) })
	done := make(chan struct{})
	go func() {
		a.background.Wait()
		a.touches.done.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Prune drops tokens, browsers' cookies and codes a day after they expired, Grants 30 days after they
// ended or expired, and Sessions 30 days after they ended or became idle. Several processes may prune at once.
func (a *App) Prune(ctx context.Context) error {
	now := a.Now()
	for _, drop := range []struct {
		keep time.Duration
		rows func(ctx context.Context, before time.Time, limit int) (int, error)
	}{
		{keepTokens, a.Store.PruneTokens},
		{keepTokens, a.Store.PruneBrowserCookies},
		{keepCodes, a.Store.PruneCodes},
		{keepCodes, a.Store.PruneDevices},
		{keepGrants, a.Store.PruneGrants},
		{keepChanges, a.Store.PruneChanges},
	} {
		if err := prune.InBatches(ctx, func(limit int) (int, error) { return drop.rows(ctx, now.Add(-drop.keep), limit) }); err != nil {
			return err
		}
	}
	return errors.Join(a.endIdle(ctx, now), a.pruneSessions(ctx, now))
}

// endIdle writes down the end of Sessions that idled out, where somebody listens: it
// is over without that, but nobody would be told.
func (a *App) endIdle(ctx context.Context, now time.Time) error {
	if a.Listening == nil {
		return nil
	}
	return a.eachUnused(ctx, now.Add(-touchEvery), func(scope tenancy.Scope) error {
		if !a.Listening(scope) {
			return nil
		}
		c, err := a.Companies.Get(ctx, scope)
		if err != nil || c.SessionIdleLifetime <= 0 {
			return err
		}
		used := now.Add(-c.SessionIdleLifetime - touchEvery)
		return prune.InBatches(ctx, func(limit int) (int, error) { return a.Store.EndIdle(ctx, scope, used, now, limit) })
	})
}

// maxFailed is after how many Companies with an error the others wait for the next time: then it isn't theirs.
const maxFailed = 100

// eachUnused calls do for every Company with Sessions that were not used since before.
// One that fails doesn't keep it from the others.
func (a *App) eachUnused(ctx context.Context, before time.Time, do func(tenancy.Scope) error) error {
	scopes, err := a.Store.Unused(ctx, before)
	if err != nil {
		return err
	}
	var errs []error
	for _, scope := range scopes {
		if err := do(scope); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", scope.Name(), err))
		}
		if ctx.Err() != nil || len(errs) == maxFailed {
			break
		}
	}
	return errors.Join(errs...)
}

func (a *App) pruneSessions(ctx context.Context, now time.Time) error {
	cutoff := now.Add(-keepSessions)
	return a.eachUnused(ctx, cutoff, func(scope tenancy.Scope) error {
		c, err := a.Companies.Get(ctx, scope)
		if err != nil {
			return err
		}
		used := cutoff.Add(-c.SessionIdleLifetime - touchEvery)
		return prune.InBatches(ctx, func(limit int) (int, error) { return a.Store.PruneSessions(ctx, scope, cutoff, used, limit) })
	})
}
