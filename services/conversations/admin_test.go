package conversations_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

func (in *installation) name(id string) string {
	return in.company.Scope.Name() + "/conversations/" + id
}

func (in *installation) get(t testing.TB, id string) *adminv1.Conversation {
	t.Helper()
	c, err := in.admin.GetConversation(in.company.Ctx(t.Context()), &adminv1.GetConversationRequest{Name: in.name(id)})
	require.NoError(t, err)
	return c
}

func (in *installation) list(t testing.TB, filter string) *adminv1.ListConversationsResponse {
	t.Helper()
	out, err := in.admin.ListConversations(in.company.Ctx(t.Context()), &adminv1.ListConversationsRequest{Parent: in.company.Scope.Name(), Filter: filter})
	require.NoError(t, err)
	return out
}

func (in *installation) post(t testing.TB, id string, more bool, m *adminv1.Message) *adminv1.PostMessageResponse {
	t.Helper()
	out, err := in.admin.PostMessage(in.company.Ctx(t.Context()), &adminv1.PostMessageRequest{Conversation: in.name(id), Message: m, More: more})
	require.NoError(t, err)
	return out
}

func TestAdmin_GetConversation(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		c := in.get(t, got.ConversationID)
		require.Equal(t, in.name(got.ConversationID), c.GetName())
		require.Equal(t, got.ConversationID, c.GetUid())
		require.Equal(t, "idle", c.GetStatus())
		require.Equal(t, "agent", c.GetResponder())
		require.Equal(t, agentID, c.GetClientId())
		require.Equal(t, "Example Agent", c.GetAgentName())
		require.Equal(t, "usr_1", c.GetUser())
		require.Equal(t, u.session.GetSessionId(), c.GetSession())
		require.Nil(t, c.GetAnswerDueTime())
		require.Equal(t, []string{"post_message", "respond", "join", "assign", "close"}, c.GetViewerActions())
		require.NotEmpty(t, c.GetEtag())

		for _, name := range []string{in.name("cnv_none"), in.newCompany(t).Scope.Name() + "/conversations/" + got.ConversationID} {
			_, err := in.admin.GetConversation(in.company.Ctx(t.Context()), &adminv1.GetConversationRequest{Name: name})
			require.True(t, problem.Is(err, problem.NotFoundReason), "%v", err)
		}
		_, err := in.admin.GetConversation(t.Context(), &adminv1.GetConversationRequest{Name: in.name(got.ConversationID)})
		require.Error(t, err, "a call without a company")
	})
}

func TestAdmin_ListPagesWithoutGapOrRepeat(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.always(says())
		want := []string{}
		for i := range 7 {
			in.Clock.Advance(time.Duration(i%2) * time.Second) // some share their time
			want = append(want, in.user("usr_1").start(t, fmt.Sprintf("msg_%d", i), "hello").ConversationID)
		}
		foreign := in.userOf(in.newCompany(t), agentID, "usr_1").start(t, "msg_0", "hello").ConversationID
		var got []string
		token := ""
		var last time.Time
		for pages := 1; ; pages++ {
			page, err := in.admin.ListConversations(in.company.Ctx(t.Context()), &adminv1.ListConversationsRequest{Parent: in.company.Scope.Name(), PageSize: 3, PageToken: token})
			require.NoError(t, err)
			require.Equal(t, int64(7), page.GetCount().GetValue())
			require.True(t, page.GetCount().GetExact())
			require.NotEmpty(t, page.GetWatchToken())
			for _, c := range page.GetConversations() {
				got = append(got, c.GetUid())
				require.True(t, last.IsZero() || !c.GetLastEventTime().AsTime().After(last))
				last = c.GetLastEventTime().AsTime()
			}
			if token = page.GetNextPageToken(); token == "" {
				require.Equal(t, 3, pages)
				break
			}
		}
		require.ElementsMatch(t, want, got)
		require.NotContains(t, got, foreign)

		page, err := in.admin.ListConversations(in.company.Ctx(t.Context()), &adminv1.ListConversationsRequest{Parent: in.company.Scope.Name(), PageSize: 3})
		require.NoError(t, err)
		for _, req := range []*adminv1.ListConversationsRequest{
			{Parent: in.company.Scope.Name(), PageToken: page.GetNextPageToken(), Filter: `status = "idle"`},
			{Parent: in.company.Scope.Name(), PageToken: "nonsense"},
		} {
			_, err := in.admin.ListConversations(in.company.Ctx(t.Context()), req)
			require.True(t, problem.Is(err, problem.InvalidRequest))
			require.Equal(t, "page_token", problem.As(err).Fields[0].Path)
		}
	})
}

func TestAdmin_ListFilters(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		a, b := in.user("usr_1"), in.userOf(in.company, "https://other.example/agent.json", "usr_2")
		first, second := a.start(t, "msg_1", "hello").ConversationID, b.start(t, "msg_1", "hello").ConversationID
		b.close(t, second)
		ids := func(filter string) []string {
			var out []string
			for _, c := range in.list(t, filter).GetConversations() {
				out = append(out, c.GetUid())
			}
			return out
		}
		require.Len(t, ids(""), 2)
		require.Equal(t, []string{first}, ids(`status = "idle"`))
		require.Equal(t, []string{second}, ids(`status="closed" AND responder = "agent"`))
		require.Equal(t, []string{second}, ids(`client_id = "https://other.example/agent.json" AND user = "usr_2"`))
		require.Equal(t, []string{first}, ids(`session = "`+a.session.GetSessionId()+`"`))
		require.Empty(t, ids(`user = "usr_1" AND status = "closed"`))
		require.Equal(t, int64(1), in.list(t, `status = "idle"`).GetCount().GetValue())
		for _, wrong := range []string{`status`, `status = idle`, `status = "idle`, `status = "idle" OR user = "x"`, `text = "x"`, `status = "open"`, `status = "idle" AND status = "idle"`, `status = ""`, `user = "a\n"`} {
			_, err := in.admin.ListConversations(in.company.Ctx(t.Context()), &adminv1.ListConversationsRequest{Parent: in.company.Scope.Name(), Filter: wrong})
			require.True(t, problem.Is(err, problem.InvalidRequest), wrong)
			require.Equal(t, "filter", problem.As(err).Fields[0].Path, wrong)
		}
	})
}

func TestAdmin_ListEvents(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		u.close(t, got.ConversationID)
		public := u.read(t, got.ConversationID, "")
		var uids []string
		token := ""
		for {
			page, err := in.admin.ListConversationEvents(in.company.Ctx(t.Context()), &adminv1.ListConversationEventsRequest{Parent: in.name(got.ConversationID), PageSize: 2, PageToken: token})
			require.NoError(t, err)
			for _, e := range page.GetEvents() {
				uids = append(uids, e.GetUid())
				require.Equal(t, int64(len(uids)), e.GetSequence())
				require.NotEmpty(t, e.GetSections())
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		require.Len(t, uids, 5)
		for i, e := range public.Events {
			require.Equal(t, e.ID, uids[i])
		}
		after, err := in.admin.ListConversationEvents(in.company.Ctx(t.Context()), &adminv1.ListConversationEventsRequest{Parent: in.name(got.ConversationID), AfterSequence: 4})
		require.NoError(t, err)
		require.Len(t, after.GetEvents(), 1)
		require.Equal(t, "closed", after.GetEvents()[0].GetStatus())
		_, err = in.admin.ListConversationEvents(in.company.Ctx(t.Context()), &adminv1.ListConversationEventsRequest{Parent: in.name("cnv_none")})
		require.True(t, problem.Is(err, problem.NotFoundReason))
	})
}

func TestAdmin_PostMessageEndsATurnTakenOver(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.7#4", "poppy-0.1/7.7#15", "poppy-0.1/7.7#16", "poppy-0.1/7.4#8")
		in.backend.always(later)
		u := in.user("usr_1")
		got := u.do(t, http.MethodPost, endpoint, text("msg_1", "hello"))
		in.backend.await(t, 1)
		eventually(t, func() bool { return in.delivered(t, got.ConversationID) }, "the 202 is recorded")
		require.Equal(t, "working", u.read(t, got.ConversationID, "").State, "a 202 is no answer")
		require.NotNil(t, in.get(t, got.ConversationID).GetAnswerDueTime())

		data, err := structpb.NewStruct(map[string]any{"n": 1})
		require.NoError(t, err)
		// CV-05: role and id are ours, sender is required to be honest.
		first := in.post(t, got.ConversationID, true, &adminv1.Message{Id: "mine", Role: "user", Sender: "human", Text: "one moment", Data: data})
		require.Equal(t, "working", first.GetConversation().GetStatus())
		require.Equal(t, "company", first.GetEvent().GetMessage().GetRole())
		require.Equal(t, "human", first.GetEvent().GetMessage().GetSender())
		require.NotEqual(t, "mine", first.GetEvent().GetMessage().GetId())
		second := in.post(t, got.ConversationID, false, &adminv1.Message{Text: "done"})
		require.Equal(t, "idle", second.GetConversation().GetStatus())
		require.Nil(t, second.GetConversation().GetAnswerDueTime())
		require.Equal(t, []string{"user: hello", "=working", "company: one moment", "company: done", "=idle"}, u.read(t, got.ConversationID, "").told())

		unasked := in.post(t, got.ConversationID, false, &adminv1.Message{Text: "by the way"})
		require.Equal(t, "idle", unasked.GetConversation().GetStatus())
	})
}

func TestCV05_WrongCompanyMessages(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.7#15", "poppy-0.1/7.4#8")
		id := in.user("usr_1").start(t, "msg_1", "hello").ConversationID
		for name, m := range map[string]*adminv1.Message{
			"sender": {Sender: "user", Text: "x"}, "message": {}, "text": {Text: "a\x00b"},
		} {
			_, err := in.admin.PostMessage(in.company.Ctx(t.Context()), &adminv1.PostMessageRequest{Conversation: in.name(id), Message: m})
			require.True(t, problem.Is(err, problem.InvalidRequest), name)
			require.Contains(t, problem.As(err).Fields[0].Path, name)
		}
		_, err := in.admin.PostMessage(in.company.Ctx(t.Context()), &adminv1.PostMessageRequest{Conversation: in.name("cnv_none"), Message: &adminv1.Message{Text: "x"}})
		require.True(t, problem.Is(err, problem.NotFoundReason))
	})
}

func TestAdmin_ClosedConversationTakesNoMessage(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.12#5", "poppy-0.1/7.7#14")
		clausetest.Refuses(t, "poppy-0.1/7.12#d24")
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hello")
		closed, err := in.admin.CloseConversation(in.company.Ctx(t.Context()), &adminv1.CloseConversationRequest{Name: in.name(got.ConversationID)})
		require.NoError(t, err)
		require.Equal(t, "closed", closed.GetStatus())
		require.Equal(t, "company", closed.GetClosedBy())
		require.Empty(t, closed.GetViewerActions())
		again, err := in.admin.CloseConversation(in.company.Ctx(t.Context()), &adminv1.CloseConversationRequest{Name: in.name(got.ConversationID)})
		require.NoError(t, err)
		require.Equal(t, closed.GetEtag(), again.GetEtag())
		_, err = in.admin.PostMessage(in.company.Ctx(t.Context()), &adminv1.PostMessageRequest{Conversation: in.name(got.ConversationID), Message: &adminv1.Message{Text: "late"}})
		require.True(t, problem.Is(err, problem.ConversationClosed), "%v", err)
		require.Equal(t, []string{"=closed"}, u.read(t, got.ConversationID, "?cursor="+got.Cursor).told())
	})
}
