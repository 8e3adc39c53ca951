package bus_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
)

func TestSubject_BuildsFromTokens(t *testing.T) {
	s, err := bus.Subject("conversation", "cmp_1", "A-b_9")
	require.NoError(t, err)
	require.Equal(t, "pf.conversation.cmp_1.A-b_9", s)
	require.Equal(t, []string{"cmp_1", "A-b_9"}, bus.Tokens(s))

	s, err = bus.DeliverySubject("cmp_1")
	require.NoError(t, err)
	require.Equal(t, "pf.delivery.cmp_1", s)
}

func TestSubject_RefusesWhatCouldMatchMore(t *testing.T) {
	for _, token := range []string{"", "*", ">", "a.b", "a b", "a\n", "ä", "a*", "$JS", "a/b", strings.Repeat("a", bus.MaxToken+1)} {
		_, err := bus.ConversationSubject("cmp_1", token)
		require.Error(t, err, token)
		_, err = bus.ConversationSubject(token, "cnv_1")
		require.Error(t, err, token)
		_, err = bus.Subject(token, "x")
		require.Error(t, err, token)
	}
}

func TestTokens_OfForeignSubjects(t *testing.T) {
	require.Nil(t, bus.Tokens("other.a.b"))
	require.Empty(t, bus.Tokens("pf.conversation"))
}

func FuzzSubject_NeverHoldsAWildcard(f *testing.F) {
	for _, s := range []string{"cnv_1", "*", ">", "a.b", "", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		s, err := bus.Subject("conversation", "cmp_1", token)
		if err != nil {
			require.Empty(t, s)
			return
		}
		require.Equal(t, []string{"cmp_1", token}, bus.Tokens(s))
		require.NotContains(t, token, ".")
		require.NotContains(t, token, "*")
		require.NotContains(t, token, ">")
	})
}
