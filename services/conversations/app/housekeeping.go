package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// CloseInactive closes the idle conversations of every Company that had no event
// for the Company's idle lifetime (Poppy 7.12). The parent of an open Direct
// Conversation stays open with it; the end of that one is an event of the parent.
func (a *App) CloseInactive(ctx context.Context) error {
	return a.eachCompany(ctx, func(co *directory.Company) error {
		if co.ConversationIdleLifetime <= 0 {
			return nil
		}
		before := a.now().Add(-co.ConversationIdleLifetime)
		find := func(ctx context.Context, tx store.Tx) ([]string, error) { return tx.Inactive(ctx, before, sweepBatch) }
		return a.eachFound(ctx, co.Scope, find, func(ctx context.Context, id string) error {
			if err := a.closeInactive(ctx, co.Scope, id, before); err != nil && !errors.Is(err, errKeep) {
				return err
			}
			return nil
		})
	})
}

// Prune drops the events of every Company that are older than its retention, and gives
// up what waited for its backend for as long. A conversation keeps what its agent's
// retries are recognised by.
func (a *App) Prune(ctx context.Context) error {
	return a.eachCompany(ctx, func(co *directory.Company) error {
		if co.EventRetention <= 0 {
			return nil
		}
		before := a.now().Add(-co.EventRetention)
		outdated := func(ctx context.Context, tx store.Tx) ([]string, error) { return tx.Outdated(ctx, before, sweepBatch) }
		prunable := func(ctx context.Context, tx store.Tx) ([]string, error) { return tx.Prunable(ctx, before, sweepBatch) }
		return errors.Join(
			a.eachFound(ctx, co.Scope, outdated, func(ctx context.Context, id string) error { return a.giveUp(ctx, co.Scope, id, before) }),
			a.eachFound(ctx, co.Scope, prunable, func(ctx context.Context, id string) error { return a.prune(ctx, co.Scope, id, before) }),
			a.store.Write(ctx, co.Scope, func(ctx context.Context, tx store.Tx) error { return tx.PruneNotes(ctx, before) }),
		)
	})
}

func (a *App) prune(ctx context.Context, scope tenancy.Scope, id string, before time.Time) error {
	return a.store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		c, err := tx.Lock(ctx, id)
		if err != nil {
			return err
		}
		if pruned, err := tx.Prune(ctx, c, before); err != nil || !pruned {
			return err
		}
		return tx.Save(ctx, c, a.now())
	})
}

// eachFound works on conversations for as long as there are more. One whose row is
// damaged is an error in the end, but doesn't keep the others from being worked on.
func (a *App) eachFound(ctx context.Context, scope tenancy.Scope, find func(context.Context, store.Tx) ([]string, error), work func(context.Context, string) error) error {
	for {
		var ids []string
		err := a.store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
			var err error
			ids, err = find(ctx, tx)
			return err
		})
		if err != nil {
			return err
		}
		var damaged []error
		for _, id := range ids {
			if err := work(ctx, id); store.IsDamage(err) {
				damaged = append(damaged, fmt.Errorf("%s: %w", id, err))
			} else if err != nil {
				return err
			}
		}
		if len(ids) < sweepBatch || len(damaged) > 0 {
			return errors.Join(damaged...)
		}
	}
}

func (a *App) eachCompany(ctx context.Context, work func(*directory.Company) error) error {
	var damaged []error
	for after := ""; ; {
		scope, ok, err := a.store.NextCompany(ctx, after)
		if err != nil || !ok {
			return errors.Join(append(damaged, err)...)
		}
		after = scope.CompanyID()
		co, err := a.companies.Get(ctx, scope)
		if problem.Is(err, problem.NotFoundReason) {
			continue
		}
		if err != nil {
			return err
		}
		if err := work(co); store.IsDamage(err) {
			damaged = append(damaged, err)
		} else if err != nil {
			return err
		}
	}
}
