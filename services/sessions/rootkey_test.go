package sessions_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
)

// While the root key is changed, processes of both go on with each other's sign-ins.
func TestSignIn_AcrossARotationOfTheRootKey(t *testing.T) {
	roots := map[byte][]byte{1: bytes.Repeat([]byte{1}, keys.RootSize), 2: bytes.Repeat([]byte{2}, keys.RootSize)}
	before, err := keys.NewRing(1, roots)
	require.NoError(t, err)
	after, err := keys.NewRing(2, roots)
	require.NoError(t, err)
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := newPlatform(t, d)
		p.Keys = before
		old := onPlatform(t, p, nil)
		old.offer(rotating)
		now := old.replicaWith(t, after)
		for _, pair := range [][2]*rig{{old, now}, {now, old}} {
			started := pair[0].startDevice(t)
			found, err := pair[1].find(t, started.GetUserCode())
			require.NoError(t, err)
			require.Equal(t, started.GetUserCode(), found.GetUserCode())

			in := pair[0].signIn(t, nil)
			first, err := pair[0].refresh(t, in.GetRefreshToken())
			require.NoError(t, err)
			second, err := pair[1].refresh(t, in.GetRefreshToken())
			require.NoError(t, err)
			require.Equal(t, first.GetRefreshToken(), second.GetRefreshToken())
			_, err = pair[1].refresh(t, first.GetRefreshToken())
			require.NoError(t, err)
			old.Clock.Advance(time.Second)
		}
	})
}
