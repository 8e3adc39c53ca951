package db

import (
	"context"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// FirstCompany returns the Company whose id probe finds with one question; ok is
// false where it finds no row. A job that works through all Companies asks for each after the one before, by
// one index probe, and never scans their rows to find them.
func (d *DB) FirstCompany(ctx context.Context, why Reason, probe func(context.Context, *ent.Tx) (id string, err error)) (scope tenancy.Scope, ok bool, err error) {
	err = d.SystemRead(ctx, why, func(ctx context.Context, tx *ent.Tx) error {
		ok = false
		id, err := probe(Last(ctx), tx)
		if ent.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		ok = true
		scope, err = tenancy.For(id)
		return err
	})
	return scope, ok, err
}
