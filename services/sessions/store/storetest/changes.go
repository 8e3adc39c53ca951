package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// changes looks at all Companies: it counts those of its own.
func changes(t *testing.T, x suite) {
	since := func(after time.Time) []string {
		found, err := x.s.Changes(t.Context(), after, 10000)
		require.NoError(t, err)
		var out []string
		for _, c := range found {
			require.NotZero(t, c.ID)
			if c.CompanyID == x.one.CompanyID() {
				out = append(out, c.SessionID)
			}
		}
		return out
	}
	sn := newSession(at(0))
	token := x.issue(t, sn)
	require.Empty(t, since(at(-time.Hour)), "a new token is known to nobody")
	_, err := x.s.Revoke(t.Context(), x.one, token.Hash, agentB, signedOut(at(time.Second)))
	require.NoError(t, err)
	_, _, err = x.s.End(t.Context(), x.other, sn.ID, at(time.Second))
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Empty(t, since(at(-time.Hour)), "nothing was changed")
	_, err = x.s.Revoke(t.Context(), x.one, token.Hash, agentA, signedOut(at(time.Second)))
	require.NoError(t, err)
	_, _, err = x.s.End(t.Context(), x.one, sn.ID, at(2*time.Second))
	require.NoError(t, err)
	require.Equal(t, []string{sn.ID, sn.ID}, since(at(0)))
	require.Equal(t, []string{sn.ID}, since(at(time.Second)))
	_, err = x.s.PutRule(t.Context(), x.one, store.Rule{ID: "rul_changes", ClientID: agentA, Effect: store.EffectBlock, CreatedAt: at(3 * time.Second)})
	require.NoError(t, err)
	require.Equal(t, []string{""}, since(at(2*time.Second)))

	_, err = x.s.PruneChanges(t.Context(), at(3*time.Second), 10000)
	require.NoError(t, err)
	require.Equal(t, []string{""}, since(at(-time.Hour)))
}
