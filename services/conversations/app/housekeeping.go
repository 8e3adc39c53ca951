package app

import (
	"context"
	"errors"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// CloseInactive closes the idle conversations of every Company that had no event
// for the Company's idle lifetime (Poppy 7.12).
func (a *App) CloseInactive(ctx context.Context) error {
	return a.eachCompany(ctx, func(co *directory.Company) error {
		if co.ConversationIdleLifetime <= 0 {
			return nil
		}
		before := a.now().Add(-co.ConversationIdleLifetime)
		for {
			var ids []string
			err := a.store.Read(ctx, co.Scope, func(ctx context.Context, tx store.Tx) error {
				var err error
				ids, err = tx.Inactive(ctx, before, sweepBatch)
				return err
			})
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := a.closeInactive(ctx, co.Scope, id, before); err != nil && !errors.Is(err, errKeep) {
					return err
				}
			}
			if len(ids) < sweepBatch {
				return nil
			}
		}
	})
}

// Prune drops the events of every Company that are older than its retention. A
// conversation keeps what its agent's retries are recognised by.
func (a *App) Prune(ctx context.Context) error {
	return a.eachCompany(ctx, func(co *directory.Company) error {
		if co.EventRetention <= 0 {
			return nil
		}
		before := a.now().Add(-co.EventRetention)
		for {
			var ids []string
			err := a.store.Read(ctx, co.Scope, func(ctx context.Context, tx store.Tx) error {
				var err error
				ids, err = tx.Prunable(ctx, before, sweepBatch)
				return err
			})
			if err != nil {
				return err
			}
			for _, id := range ids {
				err := a.store.Write(ctx, co.Scope, func(ctx context.Context, tx store.Tx) error {
					c, err := tx.Lock(ctx, id)
					if err != nil {
						return err
					}
					if pruned, err := tx.Prune(ctx, c, before); err != nil || !pruned {
						return err
					}
					return tx.Save(ctx, c, a.now())
				})
				if err != nil {
					return err
				}
			}
			if len(ids) < sweepBatch {
				return nil
			}
		}
	})
}

func (a *App) eachCompany(ctx context.Context, work func(*directory.Company) error) error {
	for after := ""; ; {
		scope, ok, err := a.store.NextCompany(ctx, after)
		if err != nil || !ok {
			return err
		}
		after = scope.CompanyID()
		co, err := a.companies.Get(ctx, scope)
		if problem.Is(err, problem.NotFoundReason) {
			continue
		}
		if err != nil {
			return err
		}
		if err := work(co); err != nil {
			return err
		}
	}
}
