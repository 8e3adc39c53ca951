package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

func TestTogether_IsOfOneCompany(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		other := suite{s.Store, s.db, dbtest.Company(t, s.db)}
		var asked []string
		var spans []store.Span
		for _, of := range []suite{s, other, s, other, s} {
			c := of.conversation(t, ids.New(ids.Event), "one", "two", "three")
			asked = append(asked, c.ID)
			spans = append(spans, store.Span{ConversationID: c.ID, After: 1, Last: 3})
		}
		s.read(t, func(ctx context.Context, tx store.Tx) error {
			heads, err := tx.Heads(ctx, append(asked, "cnv_unknown", asked[0]))
			require.NoError(t, err)
			require.Len(t, heads, 3)
			for _, i := range []int{0, 2, 4} {
				whole, err := tx.Conversation(ctx, asked[i])
				require.NoError(t, err)
				got := heads[asked[i]]
				require.Equal(t, whole.Owner(), got.Owner())
				require.Equal(t, []any{whole.ID, whole.Status, whole.Responder, whole.CursorKey, whole.LastSequence, whole.OldestSequence},
					[]any{got.ID, got.Status, got.Responder, got.CursorKey, got.LastSequence, got.OldestSequence})
			}
			events, err := tx.Spans(ctx, spans)
			require.NoError(t, err)
			for i, span := range spans {
				if i%2 == 1 {
					require.Empty(t, events[span], "another company's")
					continue
				}
				require.Equal(t, []string{"two", "three"}, texts(events[span]))
			}
			return nil
		})
	})
}

func TestSpans_EachIsWhatItsOwnReadWouldBe(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		c := s.conversation(t, "msg_1", "1", "2", "3", "4", "5")
		spans := []store.Span{{c.ID, 0, 5}, {c.ID, 4, 5}, {c.ID, 1, 3}, {c.ID, 1, 3}, {c.ID, 5, 5}, {c.ID, 2, 9}}
		for n := range len(spans) + 1 {
			s.read(t, func(ctx context.Context, tx store.Tx) error {
				got, err := tx.Spans(ctx, spans[:n])
				require.NoError(t, err)
				for _, span := range spans[:n] {
					var want []string
					for seq := span.After + 1; seq <= min(span.Last, 5); seq++ {
						want = append(want, string(rune('0'+seq)))
					}
					require.Equal(t, want, texts(got[span]), "%v of %d", span, n)
				}
				return nil
			})
		}
	})
}

func TestHeads_ManyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		var asked []string
		for range 33 {
			asked = append(asked, s.conversation(t, ids.New(ids.Event), "hello").ID)
			s.read(t, func(ctx context.Context, tx store.Tx) error {
				heads, err := tx.Heads(ctx, asked)
				require.NoError(t, err)
				require.Len(t, heads, len(asked))
				return nil
			})
		}
	})
}

func texts(events []store.Event) []string {
	var out []string
	for _, e := range events {
		m, _ := e.Payload.(conversation.MessagePayload)
		out = append(out, m.Text)
	}
	return out
}
