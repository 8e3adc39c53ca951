package module

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
)

// Module is a part of the process. Functions that are nil do nothing.
type Module struct {
	Name string
	// Start returns when the module works or has failed. What goes on running is the module's own.
	Start func(ctx context.Context) error
	// Ready returns why requests should go elsewhere for now; nil when they should not.
	Ready func(ctx context.Context) error
	// Stop ends what Start began, by the deadline of ctx.
	Stop func(ctx context.Context) error
}

// Group is the modules of a process in the order of their dependencies: each may
// use the ones before it.
type Group struct {
	log      *slog.Logger
	modules  []Module
	mu       sync.Mutex // one Start or Stop at a time
	started  int
	running  atomic.Bool
	draining atomic.Bool
}

// ErrNotRunning is the reason for not being ready before Start has finished and after Stop.
var ErrNotRunning = errors.New("not running")

// ErrDraining is the reason for not being ready once a drain has begun.
var ErrDraining = errors.New("draining")

// NewGroup makes a group; log may be nil.
func NewGroup(log *slog.Logger, modules ...Module) *Group {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Group{log: log, modules: modules}
}

// Start starts the modules one after another. When one fails, those that were
// started are stopped in reverse and the error names the culprit.
func (g *Group) Start(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.modules[g.started:] {
		err := ctx.Err()
		if err == nil && m.Start != nil {
			err = m.Start(ctx)
		}
		if err != nil {
			err = fmt.Errorf("starting %s: %w", m.Name, err)
			return errors.Join(err, g.stop(context.WithoutCancel(ctx)))
		}
		g.started++
		g.log.DebugContext(ctx, "module started", "module", m.Name)
	}
	g.running.Store(true)
	return nil
}

// Stop stops the modules in reverse. Each gets its turn even when ctx is over or
// another failed; the errors are joined and name their modules.
func (g *Group) Stop(ctx context.Context) error {
	g.draining.Store(true)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stop(ctx)
}

func (g *Group) stop(ctx context.Context) error {
	g.running.Store(false)
	var errs []error
	for ; g.started > 0; g.started-- {
		m := g.modules[g.started-1]
		if m.Stop == nil {
			continue
		}
		if err := m.Stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", m.Name, err))
			g.log.ErrorContext(ctx, "module did not stop", "module", m.Name, "error", err)
			continue
		}
		g.log.DebugContext(ctx, "module stopped", "module", m.Name)
	}
	return errors.Join(errs...)
}

// BeginDrain makes the group not ready for good, and changes nothing else.
func (g *Group) BeginDrain() { g.draining.Store(true) }

// Ready returns nil when every module is, or the name of the first that is not and why.
func (g *Group) Ready(ctx context.Context) error {
	if g.draining.Load() {
		return ErrDraining
	}
	if !g.running.Load() {
		return ErrNotRunning
	}
	for _, m := range g.modules {
		if m.Ready == nil {
			continue
		}
		if err := m.Ready(ctx); err != nil {
			return &NotReadyError{Module: m.Name, cause: err}
		}
	}
	return nil
}

// NotReadyError names the module that is not ready. The cause is for the log.
type NotReadyError struct {
	Module string
	cause  error
}

// Error includes the cause.
func (e *NotReadyError) Error() string { return e.Module + " is not ready: " + e.cause.Error() }

// Unwrap returns the cause.
func (e *NotReadyError) Unwrap() error { return e.cause }
