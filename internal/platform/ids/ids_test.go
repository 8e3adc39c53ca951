package ids_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

func TestNew_SortsByCreationAndNeverRepeats(t *testing.T) {
	made := make([]string, 10000)
	for i := range made {
		made[i] = ids.New(ids.Conversation)
		require.Regexp(t, `^cnv_[0-7][0-9a-hjkmnp-tv-z]{25}$`, made[i])
	}
	require.True(t, slices.IsSorted(made))
	require.Len(t, slices.Compact(made), 10000)
}

func TestNew_FitsWhereItIsUsed(t *testing.T) {
	_, err := tenancy.For(ids.New(ids.Company))
	require.NoError(t, err)
	require.NoError(t, conversation.CheckID("id", ids.New(ids.Message)))
}
