package conversations_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	entconversation "github.com/poppyfield/poppyfield/ent/conversation"
	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations/web"
)

// written adds a message as another process would whose ring gets lost.
func (in *installation) written(t *testing.T, id, text string) {
	t.Helper()
	require.NoError(t, in.DB.Write(t.Context(), in.company.Scope, func(ctx context.Context, tx *ent.Tx) error {
		c, err := tx.Conversation.Get(ctx, id)
		if err != nil {
			return err
		}
		raw, err := conversation.EncodePayload(conversation.MessagePayload{ID: "msg_" + text, Role: conversation.RoleCompany, Sender: conversation.SenderAgent, Text: text})
		if err != nil {
			return err
		}
		if err := tx.Conversation.Update().Where(entconversation.ID(id)).SetLastSequence(c.LastSequence + 1).Exec(ctx); err != nil {
			return err
		}
		return tx.Event.Create().SetID(ids.UUID()).SetConversationID(id).SetSequence(c.LastSequence + 1).SetType("message").SetPayload(raw).SetCreatedAt(in.Clock.Now()).Exec(ctx)
	}))
}

func TestStream_FindsWhatItWasNotRungFor(t *testing.T) {
	overEach(t, web.Streams{Heartbeat: 50 * time.Millisecond}, func(t *testing.T, in *installation, tr transport) {
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		s := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor)
		require.True(t, (<-s.items).comment)
		in.written(t, got.ConversationID, "quiet")
		require.Equal(t, "quiet", s.events(t, 1)[0].event.Message.Text)
	})
}

func TestStream_EndsWhenTheCompanyChanges(t *testing.T) {
	overEach(t, web.Streams{}, func(t *testing.T, in *installation, tr transport) {
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		other := in.userOf(in.newCompany(t), agentID, "usr_"+tr.name)
		theirs := other.start(t, "msg_1", "hello")
		s, stays := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor), other.stream(t, tr, theirs.ConversationID, "?cursor="+theirs.Cursor)
		require.True(t, (<-s.items).comment)
		require.True(t, (<-stays.items).comment)
		subject, err := bus.CompanySubject(in.company.Scope.CompanyID())
		require.NoError(t, err)
		in.Bus.Publish(t.Context(), subject, nil)
		s.ends(t)
		in.bells(t).Delta(t.Context(), other.company.Scope, theirs.ConversationID, "msg_new", 1, "still here")
		piece, ok := stays.next(t)
		require.True(t, ok, "another Company's stream goes on")
		require.Equal(t, "still here", piece.delta.Text)
	})
}

func TestPieces_AreForWhoMayReadWhatTheyAnswer(t *testing.T) {
	overEach(t, web.Streams{}, func(t *testing.T, in *installation, tr transport) {
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		bells := in.bells(t)
		last := int64(len(got.Events))
		t.Run("a reader that is behind reads first", func(t *testing.T) {
			s := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor)
			require.True(t, (<-s.items).comment)
			in.written(t, got.ConversationID, "unheard"+tr.name)
			bells.Delta(t.Context(), in.company.Scope, got.ConversationID, "msg_a"+tr.name, last+1, "piece")
			require.Equal(t, "unheard"+tr.name, s.events(t, 1)[0].event.Message.Text)
			piece, ok := s.next(t)
			require.True(t, ok)
			require.Equal(t, "piece", piece.delta.Text)
			// One of an answer to what is not there is not shown, nor what follows it.
			bells.Delta(t.Context(), in.company.Scope, got.ConversationID, "msg_b"+tr.name, last+100, "nowhere")
			bells.Delta(t.Context(), in.company.Scope, got.ConversationID, "msg_c"+tr.name, last+1, "next")
			piece, ok = s.next(t)
			require.True(t, ok)
			require.Equal(t, "next", piece.delta.Text)
		})
		t.Run("a reader whose right is gone reads nothing", func(t *testing.T) {
			s := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor+"&", lastEventID(""))
			s.events(t, 1)
			require.NoError(t, in.DB.Write(t.Context(), in.company.Scope, func(ctx context.Context, tx *ent.Tx) error {
				return tx.Conversation.Update().Where(entconversation.ID(got.ConversationID)).SetAccount("acc_1").SetLastSequence(last + 2).Exec(ctx)
			}))
			bells.Delta(t.Context(), in.company.Scope, got.ConversationID, "msg_e"+tr.name, last+2, "secret")
			s.ends(t)
		})
	})
}

func TestPieces_AreNotShownWhileAPersonAnswers(t *testing.T) {
	overEach(t, web.Streams{}, func(t *testing.T, in *installation, tr transport) {
		u := in.user("usr_" + tr.name)
		got := u.start(t, "msg_1", "hello")
		require.NoError(t, in.DB.Write(t.Context(), in.company.Scope, func(ctx context.Context, tx *ent.Tx) error {
			return tx.Conversation.Update().Where(entconversation.ID(got.ConversationID)).SetResponder("human").Exec(ctx)
		}))
		s := u.stream(t, tr, got.ConversationID, "?cursor="+got.Cursor)
		require.True(t, (<-s.items).comment)
		in.bells(t).Delta(t.Context(), in.company.Scope, got.ConversationID, "msg_a", 1, "by the agent")
		in.written(t, got.ConversationID, "by-a-person"+tr.name)
		in.bells(t).Ring(t.Context(), in.company.Scope, got.ConversationID, int64(len(got.Events)+1))
		require.Equal(t, "by-a-person"+tr.name, s.events(t, 1)[0].event.Message.Text, "and no piece before")
	})
}

func TestReaders_AreBounded(t *testing.T) {
	limits := web.Readers{PerConversation: 2, PerSession: 3, Most: 5}
	overEach(t, web.Streams{Readers: limits}, func(t *testing.T, in *installation, tr transport) {
		clausetest.Covers(t, "poppy-0.1/4.3#46")
		clausetest.Refuses(t, "poppy-0.1/4.3#46")
		u := in.user("usr_" + tr.name)
		first, second, third := u.start(t, "msg_1", "hello"), u.start(t, "msg_2", "hello"), u.start(t, "msg_3", "hello")
		refused := func(u *user, id string, status int, name string) {
			t.Helper()
			s, got := u.open(t, tr, id, "")
			require.Nil(t, s)
			require.Equal(t, status, got.Status)
			require.Equal(t, name, got.Error)
			require.NotEmpty(t, got.Header.Get("Retry-After"))
		}
		open := []*sse{u.stream(t, tr, first.ConversationID, ""), u.stream(t, tr, first.ConversationID, "")}
		refused(u, first.ConversationID, http.StatusTooManyRequests, "rate_limited")
		_, polled := u.open(t, tr, first.ConversationID, "?wait=30&cursor="+first.Cursor, func(r *http.Request) { r.Header.Set("Accept", "*/*") })
		require.Equal(t, http.StatusTooManyRequests, polled.Status)
		open = append(open, u.stream(t, tr, second.ConversationID, ""))
		refused(u, third.ConversationID, http.StatusTooManyRequests, "rate_limited")
		// Another Session of the User has its own.
		again := u.again()
		open = append(open, again.stream(t, tr, first.ConversationID, ""), again.stream(t, tr, third.ConversationID, ""))
		refused(in.user("usr_other"+tr.name), in.user("usr_other"+tr.name).start(t, "msg_1", "hello").ConversationID, http.StatusServiceUnavailable, "temporarily_unavailable")
		for _, s := range open {
			s.stop()
		}
		eventually(t, func() bool { return in.service.Waiting() == 0 }, "nobody is left")
		for _, id := range []string{first.ConversationID, third.ConversationID} {
			u.stream(t, tr, id, "").stop()
		}
	})
}

func TestRead_PagesAreBoundedByTheirBytes(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		const long, n = 30_000, 40
		for range n {
			in.post(t, got.ConversationID, false, &adminv1.Message{Text: strings.Repeat("x", long)})
		}
		seen, pages := 0, 0
		for cursor, more := got.Cursor, true; more; pages++ {
			page := u.read(t, got.ConversationID, "?cursor="+cursor)
			require.NotEmpty(t, page.Events)
			require.LessOrEqual(t, len(page.Raw), 600<<10)
			seen += len(page.Events)
			cursor, more = page.Cursor, page.HasMore
		}
		require.Equal(t, n, seen)
		require.Greater(t, pages, 2)
		list, err := in.admin.ListConversationEvents(in.company.Ctx(t.Context()), &adminv1.ListConversationEventsRequest{Parent: in.name(got.ConversationID)})
		require.NoError(t, err)
		require.NotEmpty(t, list.GetNextPageToken(), "the admin API says that there is more")
	})
}
