package entstore

import (
	"context"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/db"
)

// NothingIssued reports whether the installation has no Session yet, so that no
// assertion and no proof was ever accepted by it.
func NothingIssued(ctx context.Context, d *db.DB) (bool, error) {
	var some bool
	err := d.SystemRead(ctx, db.FirstStart, func(ctx context.Context, tx *ent.Tx) error {
		var err error
		some, err = tx.Session.Query().Exist(ctx)
		return err
	})
	return !some, err
}
