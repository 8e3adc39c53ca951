package db_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	entdomain "github.com/poppyfield/poppyfield/ent/domain"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
)

func domains(t *testing.T, d *db.DB, read func(context.Context, *ent.Tx) error) {
	t.Helper()
	require.NoError(t, d.Write(t.Context(), dbtest.Company(t, d), read))
}

func TestLater_QueriesSeeWhatWasPutOff(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		domains(t, d, func(ctx context.Context, tx *ent.Tx) error {
			require.NoError(t, tx.Domain.Create().SetID("dom_1").SetDomain("a.example").SetChallenge("c").Exec(db.Later(ctx)))
			require.NoError(t, tx.Domain.Update().Where(entdomain.ID("dom_1")).SetProofMethod("d").Exec(db.Later(ctx)))
			got, err := tx.Domain.Get(ctx, "dom_1")
			require.NoError(t, err)
			require.Equal(t, "d", got.ProofMethod)
			// One that isn't put off comes after those that are.
			require.NoError(t, tx.Domain.Update().Where(entdomain.ID("dom_1")).SetProofMethod("e").Exec(db.Later(ctx)))
			n, err := tx.Domain.Delete().Where(entdomain.ProofMethod("e")).Exec(ctx)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			return nil
		})
	})
}

func TestLater_IsCommittedAndRolledBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scope := dbtest.Company(t, d)
		create := func(id string, end error) error {
			return d.Write(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error {
				if err := tx.Domain.Create().SetID(id).SetDomain(id + ".example").SetChallenge("c").Exec(db.Later(ctx)); err != nil {
					return err
				}
				return end
			})
		}
		count := func() (n int) {
			require.NoError(t, d.Read(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) (err error) {
				n, err = tx.Domain.Query().Count(ctx)
				return err
			}))
			return n
		}
		require.NoError(t, create("dom_1", nil))
		require.Equal(t, 1, count())
		require.ErrorIs(t, create("dom_2", context.Canceled), context.Canceled)
		require.Equal(t, 1, count())
		// A collision shows at the commit at the latest, and leaves nothing behind: neither rows nor a broken connection.
		for range 40 {
			require.True(t, db.IsTaken(create("dom_1", nil)))
		}
		require.Equal(t, 1, count())
		require.NoError(t, create("dom_3", nil))
		require.Equal(t, 2, count())
	})
}

func TestLater_MoreThanIsSentAtOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scope := dbtest.Company(t, d)
		require.NoError(t, d.Write(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error {
			for n := range 120 {
				if err := tx.Domain.Create().SetID("dom_" + fmt.Sprint(n)).SetDomain(fmt.Sprint(n) + ".example").SetChallenge("c").Exec(db.Later(ctx)); err != nil {
					return err
				}
			}
			return nil
		}))
		require.NoError(t, d.Read(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error {
			n, err := tx.Domain.Query().Count(ctx)
			require.Equal(t, 120, n)
			return err
		}))
	})
}

func TestLast_EndsTheUnitAndOnlyReads(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		company := dbtest.Company(t, d)
		require.NoError(t, d.Write(t.Context(), company, func(ctx context.Context, tx *ent.Tx) error {
			return tx.Domain.Create().SetID("dom_1").SetDomain("a.example").SetChallenge("c").Exec(ctx)
		}))
		for range 3 {
			require.NoError(t, d.Read(t.Context(), company, func(ctx context.Context, tx *ent.Tx) error {
				seen, err := tx.Domain.Query().All(db.Last(ctx))
				require.Len(t, seen, 1)
				require.Equal(t, "a.example", seen[0].Domain)
				return err
			}))
		}
		// A unit that writes can still be rolled back after it.
		require.ErrorIs(t, d.Write(t.Context(), company, func(ctx context.Context, tx *ent.Tx) error {
			n, err := tx.Domain.Delete().Where(entdomain.ID("dom_1")).Exec(ctx)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			left, err := tx.Domain.Query().Count(db.Last(ctx))
			require.NoError(t, err)
			require.Zero(t, left)
			return context.Canceled
		}), context.Canceled)
		if !d.Postgres() {
			return // nothing ends there
		}
		err := d.Read(t.Context(), company, func(ctx context.Context, tx *ent.Tx) error {
			if _, err := tx.Domain.Query().Count(db.Last(ctx)); err != nil {
				return err
			}
			_, err := tx.Domain.Query().Count(ctx)
			return err
		})
		require.ErrorContains(t, err, "after the last one")
	})
}

// A statement that failed ends its transaction on PostgreSQL: that nobody looked at the
// error makes nothing of the unit a success.
func TestUnit_AFailureThatNobodyLookedAtIsNotCommitted(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if !d.Postgres() {
			t.Skip("a failed statement of SQLite leaves its transaction usable")
		}
		scope := dbtest.Company(t, d)
		create := func(ctx context.Context, tx *ent.Tx, id string) error {
			return tx.Domain.Create().SetID(id).SetDomain(id + ".example").SetChallenge("c").Exec(ctx)
		}
		require.NoError(t, d.Write(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error { return create(ctx, tx, "dom_1") }))
		for _, first := range []string{"", "dom_2"} { // it fails as the statement that opens the transaction, and as another
			require.Error(t, d.Write(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error {
				if first != "" {
					require.NoError(t, create(ctx, tx, first))
				}
				require.Error(t, create(ctx, tx, "dom_1"))
				return nil
			}))
		}
		require.NoError(t, d.Read(t.Context(), scope, func(ctx context.Context, tx *ent.Tx) error {
			n, err := tx.Domain.Query().Count(ctx)
			require.Equal(t, 1, n)
			return err
		}))
	})
}
