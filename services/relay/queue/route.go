package queue

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/prune"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

const (
	routeBatch = 256 // events of one transaction
	findBatch  = 256 // events that are looked at to find Companies
	// defaultRetention stands in where the directory names none.
	defaultRetention = 30 * 24 * time.Hour
)

func (q *Queue) routeLoop(ctx context.Context) {
	tick := time.NewTicker(q.cfg.Sweep)
	defer tick.Stop()
	for {
		if err := q.route(ctx); err != nil && ctx.Err() == nil {
			q.deps.Log.WarnContext(ctx, "events not routed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-q.toRoute:
		}
	}
}

// route makes the deliveries of all events that have none yet. Companies take turns, so
// that one with a pile of events keeps no other waiting.
func (q *Queue) route(ctx context.Context) error {
	for {
		scopes, err := q.unrouted(ctx)
		if err != nil {
			return err
		}
		var failed []error
		full := false
		for _, scope := range scopes {
			n, to, err := q.deps.Store.Route(ctx, scope, q.deps.Now(), routeBatch)
			if err != nil { // an endpoint was deleted meanwhile, or the database is away
				failed = append(failed, err)
				continue
			}
			full = full || n == routeBatch
			q.look(to...)
		}
		if len(failed) > 0 || !full {
			return errors.Join(failed...)
		}
	}
}

// unrouted returns every Company with events to route.
func (q *Queue) unrouted(ctx context.Context) ([]tenancy.Scope, error) {
	var all []tenancy.Scope
	for {
		scopes, more, err := q.deps.Store.Unrouted(ctx, all, findBatch)
		if err != nil {
			return nil, err
		}
		all = append(all, scopes...)
		if !more || len(scopes) == 0 {
			return all, nil
		}
	}
}

// turnedLoop makes due what waits for endpoints that are on again.
func (q *Queue) turnedLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case scope := <-q.turned:
			q.makeDue(ctx, scope)
		}
	}
}

func (q *Queue) makeDue(ctx context.Context, scope tenancy.Scope) {
	keys, err := q.deps.Store.MakeDue(ctx, scope, q.deps.Now())
	if err != nil && ctx.Err() == nil {
		q.deps.Log.WarnContext(ctx, "waiting webhook deliveries not made due", "company", scope, "error", err)
	}
	q.look(keys...)
}

// unpark does the same where the doorbell was not heard.
func (q *Queue) unpark(ctx context.Context) {
	scopes, err := q.deps.Store.Stranded(ctx)
	if err != nil && ctx.Err() == nil {
		q.deps.Log.WarnContext(ctx, "parked webhook deliveries not found", "error", err)
	}
	for _, scope := range scopes {
		q.makeDue(ctx, scope)
	}
}

// prune drops events, and their deliveries, that are older than the Company's retention.
func (q *Queue) prune(ctx context.Context) {
	if err := q.pruneAll(ctx); err != nil && ctx.Err() == nil {
		q.deps.Log.WarnContext(ctx, "old events not pruned", "error", err)
	}
}

func (q *Queue) pruneAll(ctx context.Context) error {
	if q.deps.Retention == nil {
		return nil
	}
	for after := ""; ; {
		scope, ok, err := q.deps.Store.NextCompany(ctx, after)
		if err != nil || !ok {
			return err
		}
		after = scope.CompanyID()
		keep, err := q.deps.Retention(ctx, scope)
		if err != nil && !problem.Is(err, problem.NotFoundReason) {
			return err
		}
		if keep <= 0 {
			keep = defaultRetention
		}
		before := q.deps.Now().Add(-keep)
		err = prune.InBatches(ctx, func(limit int) (int, error) { return q.deps.Store.Prune(ctx, scope, before, limit) })
		if err != nil {
			return err
		}
	}
}
