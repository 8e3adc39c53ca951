// Package prune drops rows that nobody needs any more bit by bit, so that no
// transaction of it gets long.
package prune

import "context"

// Batch is how many rows one call of a drop takes at most.
const Batch = 500

// InBatches calls drop, which gets Batch as its limit and returns how many rows it
// dropped, until it drops fewer than that. It ends early with ctx.
func InBatches(ctx context.Context, drop func(limit int) (int, error)) error {
	for {
		n, err := drop(Batch)
		if err != nil || n < Batch {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
