package db

import (
	"context"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// ReadValue is Read for a unit of work that finds one value.
func ReadValue[T any](ctx context.Context, d *DB, scope tenancy.Scope, fn func(context.Context, *ent.Tx) (T, error)) (T, error) {
	return value(ctx, scope, d.Read, fn)
}

// WriteValue is Write for a unit of work that has one value as its result.
func WriteValue[T any](ctx context.Context, d *DB, scope tenancy.Scope, fn func(context.Context, *ent.Tx) (T, error)) (T, error) {
	return value(ctx, scope, d.Write, fn)
}

type run func(context.Context, tenancy.Scope, func(context.Context, *ent.Tx) error) error

func value[T any](ctx context.Context, scope tenancy.Scope, in run, fn func(context.Context, *ent.Tx) (T, error)) (T, error) {
	var out T
	err := in(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		var err error
		out, err = fn(ctx, tx)
		return err
	})
	return out, err
}
