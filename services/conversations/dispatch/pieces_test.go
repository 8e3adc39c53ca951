package dispatch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPieces_NothingFollowsOneThatDoesNotFit(t *testing.T) {
	var got []string
	out := upTo(4, func(s string) { got = append(got, s) })
	for _, s := range []string{"abc", "de", "f"} {
		out(s)
	}
	require.Equal(t, []string{"abc"}, got, "what is shown is a beginning of the text")
}
