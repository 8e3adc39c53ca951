package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

func clients(t *testing.T, x suite) {
	newClient := func(ends time.Duration) store.RegisteredClient {
		return store.RegisteredClient{
			ID: ids.New(ids.MCPClient), Name: "Tool", RedirectURIs: []string{"http://127.0.0.1/back", "https://tool.example/back"}, CreatedAt: at(0), ExpiresAt: at(ends),
		}
	}
	one, two := newClient(time.Hour), newClient(2*time.Hour)
	require.NoError(t, x.s.Register(t.Context(), x.one, one, 2))
	require.NoError(t, x.s.Register(t.Context(), x.one, two, 2))
	require.ErrorIs(t, x.s.Register(t.Context(), x.one, newClient(time.Hour), 2), store.ErrFull)
	require.NoError(t, x.s.Register(t.Context(), x.other, newClient(time.Hour), 2), "each Company has its own")
	got, err := x.s.Client(t.Context(), x.one, one.ID)
	require.NoError(t, err)
	require.Equal(t, one, got)
	_, err = x.s.Client(t.Context(), x.other, one.ID)
	require.ErrorIs(t, err, store.ErrNotFound)

	// One that has expired takes no place.
	late := newClient(5 * time.Hour)
	late.CreatedAt = at(time.Hour)
	require.NoError(t, x.s.Register(t.Context(), x.one, late, 2))

	// A use moves the end, never back, and at its own Company alone.
	require.NoError(t, x.s.KeepClient(t.Context(), x.other, one.ID, at(9*time.Hour)))
	require.NoError(t, x.s.KeepClient(t.Context(), x.one, two.ID, at(9*time.Hour)))
	require.NoError(t, x.s.KeepClient(t.Context(), x.one, two.ID, at(8*time.Hour)))
	got, err = x.s.Client(t.Context(), x.one, two.ID)
	require.NoError(t, err)
	require.Equal(t, at(9*time.Hour), got.ExpiresAt)

	n, err := x.s.PruneClients(t.Context(), at(6*time.Hour), 10)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	_, err = x.s.Client(t.Context(), x.one, one.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = x.s.Client(t.Context(), x.one, two.ID)
	require.NoError(t, err)
}
