package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

func TestParseFilter_Escapes(t *testing.T) {
	f, err := parseFilter(`  user="a \"b\" \\ c"   AND status = "idle"`)
	require.NoError(t, err)
	require.Equal(t, store.Filter{UserID: `a "b" \ c`, Status: "idle"}, f)
}

func FuzzParseFilter(f *testing.F) {
	for _, seed := range []string{
		``, `status = "idle"`, `status="idle" AND client_id = "https://a.example/x"`, `user = "\""`, `status`, `= "x"`, `user = "x" AND`, `user = "x`, `user = "\`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parseFilter(raw)
		if err != nil {
			require.True(t, problem.Is(err, problem.InvalidRequest))
			require.Equal(t, store.Filter{}, got)
		}
	})
}
