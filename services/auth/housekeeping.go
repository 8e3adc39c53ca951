package auth

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/prune"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

const (
	// keepSignIns is how long a sign-in is kept after it ran out: late browsers and
	// agents are told that it did.
	keepSignIns = 24 * time.Hour
)

// Kept is everything that the service keeps.
type Kept interface {
	store.SignIns
	store.Attempts
	store.Clients
}

// Start begins the work in the background: rows that nobody needs are dropped.
func (s *Service) Start(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.background.Go(func() {
		clock.Every(ctx, s.pruneEvery, func(ctx context.Context) {
			if err := s.Prune(ctx); err != nil {
				s.log.WarnContext(ctx, "sign-ins not pruned", "error", err)
			}
		})
	})
	return nil
}

// Stop ends it, at the latest with ctx. It may be called more than once.
func (s *Service) Stop(ctx context.Context) error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	done := make(chan struct{})
	go func() {
		s.background.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Prune drops sign-ins a day after they ran out, registrations that have expired, and
// counters whose window is over.
// Several processes may prune at once.
func (s *Service) Prune(ctx context.Context) error {
	now := s.now()
	if err := prune.InBatches(ctx, func(limit int) (int, error) { return s.kept.Prune(ctx, now.Add(-keepSignIns), limit) }); err != nil {
		return err
	}
	if err := prune.InBatches(ctx, func(limit int) (int, error) { return s.kept.PruneClients(ctx, now, limit) }); err != nil {
		return err
	}
	return prune.InBatches(ctx, func(limit int) (int, error) { return s.kept.PruneAttempts(ctx, now, limit) })
}
