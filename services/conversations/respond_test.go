package conversations_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

func (in *installation) respond(t testing.TB, id string, req *adminv1.RespondRequest) (*adminv1.RespondResponse, error) {
	t.Helper()
	req.Conversation = in.name(id)
	return in.admin.Respond(in.company.Ctx(t.Context()), req)
}

func (in *installation) responded(t testing.TB, id string, req *adminv1.RespondRequest) *adminv1.RespondResponse {
	t.Helper()
	got, err := in.respond(t, id, req)
	require.NoError(t, err)
	return got
}

func isReason(err error, want problem.Reason) bool { return problem.Is(err, want) }

// offer has the Company's sign-ins grant scopes.
func (in *installation) offer(scopes ...string) {
	in.company.Snapshot.SignIn = &directoryv1.SignIn{DirectScopes: scopes}
	in.company.Snapshot.CustomScopes = []string{"orders"}
	in.Changed(in.company)
}

func TestRespond_EverythingInOneStep(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.10#13", "poppy-0.1/7.11#2", "poppy-0.1/7.11#3", "poppy-0.1/7.11#4", "poppy-0.1/7.11#5", "poppy-0.1/7.11#6", "poppy-0.1/7.11#9",
			"poppy-0.1/7.5#8", "poppy-0.1/7.5#9", "poppy-0.1/7.9#7", "poppy-0.1/7.11#d37")
		in.offer("poppy:read", "poppy:write")
		in.desk(t).present(t, "dana", time.Hour)
		in.backend.always(later)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		eventually(t, func() bool { return in.delivered(t, id) }, "taken over")
		before := u.read(t, id, "")
		got := in.responded(t, id, &adminv1.RespondRequest{
			Messages:      []*adminv1.Message{{Text: "one", Id: "mine", Role: "user", Sender: "human"}, {Text: "two"}},
			Authorization: &adminv1.Authorization{Error: "insufficient_scope", Scope: "poppy:read orders"},
			RequestUser:   "A specialist needs to confirm the exchange.", HandOff: &adminv1.HandOff{Reason: "refund"},
		})
		want := []string{
			"company: one", "company: two", "authorization insufficient_scope poppy:read orders",
			"user_requested A specialist needs to confirm the exchange.", "=queued",
		}
		told := u.next(t, before)
		require.Equal(t, want, told.told())
		require.Equal(t, "agent", told.Events[0].Message.Sender)
		require.Equal(t, "queued", got.GetConversation().GetStatus())
		require.Len(t, got.GetEvents(), 5)
		for i, e := range got.GetEvents() {
			require.Equal(t, told.Events[i].ID, e.GetUid())
			require.NotEmpty(t, e.GetSections())
		}
		require.Equal(t, "poppy:read orders", got.GetEvents()[2].GetAuthorization().GetScope())
		require.Equal(t, "A specialist needs to confirm the exchange.", got.GetEvents()[3].GetReason())
		require.Equal(t, "refund", got.GetConversation().GetHandoffReason())
		require.Equal(t, "answered", in.deliveries(t, id)[0].AgentOutcome)
	})
}

func TestRespond_AuthorizationSpeaksForItself(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.11#3", "poppy-0.1/7.11#d37", "poppy-0.1/7.11#8")
		in.offer("poppy:read")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		in.responded(t, first.ConversationID, &adminv1.RespondRequest{Authorization: &adminv1.Authorization{Error: "sign_in_required"}})
		told := u.next(t, first)
		require.Equal(t, []string{"company: To go on with this, please sign in to your account.", "authorization sign_in_required"}, told.told())
		require.NotContains(t, told.Raw, `"scope"`)
		in.responded(t, first.ConversationID, &adminv1.RespondRequest{Authorization: &adminv1.Authorization{Error: "sign_in_required", Scope: "poppy:read"}})
		in.responded(t, first.ConversationID, &adminv1.RespondRequest{Authorization: &adminv1.Authorization{Error: "insufficient_scope", Scope: "poppy:read"}})
		more := u.read(t, first.ConversationID, "?cursor="+told.Cursor)
		require.Equal(t, []string{
			"company: To go on with this, please sign in to your account.", "authorization sign_in_required poppy:read",
			"company: To go on with this, more access to your account is needed. Please allow it.", "authorization insufficient_scope poppy:read",
		}, more.told())
		got := u.signedIn("acc_1").send(t, first.ConversationID, "?wait=20&cursor="+more.Cursor, text("msg_2", "there"))
		require.Equal(t, "company: echo: there", got.told()[2])
		require.Equal(t, "acc_1", in.get(t, first.ConversationID).GetAccount())
	})
}

func TestRespond_WrongRequests(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.11#5", "poppy-0.1/7.11#6", "poppy-0.1/7.10#13", "poppy-0.1/7.11#d37")
		in.offer("poppy:read")
		u := in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		foreign := u.start(t, "msg_2", "hello").ConversationID
		for field, r := range map[string]*adminv1.RespondRequest{
			"messages[1]":          {Messages: []*adminv1.Message{{Text: "fine"}, {}}},
			"messages[0].text":     {Messages: []*adminv1.Message{{Text: "a\x00b"}}},
			"authorization.scope":  {Authorization: &adminv1.Authorization{Error: "insufficient_scope"}},
			"request_user":         {RequestUser: "  "},
			"hand_off.reason":      {HandOff: &adminv1.HandOff{Reason: strings.Repeat("x", 501)}},
			"close":                {Close: true, HandOff: &adminv1.HandOff{}},
			"more":                 {Close: true, More: true},
			"delivery":             {Delivery: in.deliveries(t, foreign)[0].ID},
			"authorization.scope ": {Authorization: &adminv1.Authorization{Error: "sign_in_required", Scope: "poppy:read poppy:write"}},
			"delivery ":            {Delivery: "dlv_none"},
		} {
			_, err := in.respond(t, id, r)
			require.Error(t, err, field)
			require.Equal(t, strings.TrimSpace(field), problem.As(err).Fields[0].Path, "%v", err)
		}
		_, err := in.respond(t, "cnv_none", &adminv1.RespondRequest{Messages: []*adminv1.Message{{Text: "x"}}})
		requireReason(t, err, problem.NotFoundReason)
		require.Len(t, in.events(t, id), 4)
	})
}

func TestRespond_ADeliveryIsAnsweredOnce(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.always(later)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "one")
		u.send(t, id, "", text("msg_2", "two"))
		eventually(t, func() bool { return len(in.backend.webhooks()) == 2 && in.delivered(t, id) }, "both are taken over")
		hooks := in.backend.webhooks()
		second := &adminv1.RespondRequest{Messages: []*adminv1.Message{{Text: "to two"}}, Delivery: hooks[1].id}
		got := in.responded(t, id, second)
		require.Equal(t, "working", got.GetConversation().GetStatus(), "the first turn is open")
		require.Len(t, got.GetEvents(), 1)
		again := in.responded(t, id, second)
		require.Empty(t, again.GetEvents())
		require.Equal(t, got.GetConversation().GetEtag(), again.GetConversation().GetEtag())
		first := &adminv1.RespondRequest{Delivery: hooks[0].id, More: true, Messages: []*adminv1.Message{{Text: "let me see"}}}
		in.responded(t, id, first)
		in.responded(t, id, first)
		first.More, first.Close = false, true
		require.Equal(t, "closed", in.responded(t, id, first).GetConversation().GetStatus())
		require.Equal(t, "closed", in.responded(t, id, first).GetConversation().GetStatus(), "a retry of what closed it is no answer after the close")
		_, err := in.respond(t, id, &adminv1.RespondRequest{Messages: []*adminv1.Message{{Text: "unasked"}}})
		requireReason(t, err, problem.ConversationClosed)
		require.Equal(t, []string{"user: one", "=working", "user: two", "company: to two", "company: let me see", "company: let me see", "company: let me see", "=closed"}, u.read(t, id, "").told())
	})
}

// The API's answer is faster than the webhook's: the latter is a second one.
func TestRespond_EndsTheWebhookInFlight(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		release := make(chan struct{})
		let := sync.OnceFunc(func() { close(release) })
		defer let()
		in.backend.answers(func(_ context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			if w.Data.Message.Text == "one" {
				<-release
			}
			return says("echo: " + w.Data.Message.Text), nil
		})
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "one")
		hook := in.backend.await(t, 1)[0]
		u.send(t, id, "", text("msg_2", "two"))
		_, err := in.respond(t, id, &adminv1.RespondRequest{Delivery: in.deliveries(t, id)[1].ID, Messages: []*adminv1.Message{{Text: "x"}}})
		require.Equal(t, "delivery", problem.As(err).Fields[0].Path, "it hasn't been sent: %v", err)
		in.responded(t, id, &adminv1.RespondRequest{Delivery: hook.id, Messages: []*adminv1.Message{{Text: "by the API"}}})
		eventually(t, func() bool { return in.get(t, id).GetStatus() == "idle" }, "the next one is sent and answered")
		let()
		eventually(t, func() bool { return in.service.InFlight() == 0 }, "the first webhook is answered")
		require.Equal(t, []string{"user: one", "=working", "user: two", "company: by the API", "company: echo: two", "=idle"}, u.read(t, id, "").told())
		d := in.deliveries(t, id)[0]
		require.EqualValues(t, "delivered", d.State)
		require.Equal(t, "answered by the API", d.LastReason)
	})
}

func TestRespond_LateAnswersCountOnce(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.7#d25")
		in.backend.always(later)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "one")
		eventually(t, func() bool { return in.delivered(t, id) }, "taken over")
		in.Clock.Advance(time.Minute)
		eventually(t, func() bool { return in.get(t, id).GetStatus() == "idle" }, "the agent is told")
		late := &adminv1.RespondRequest{Messages: []*adminv1.Message{{Text: "sorry"}}, Delivery: in.backend.webhooks()[0].id}
		require.Equal(t, "idle", in.responded(t, id, late).GetConversation().GetStatus())
		require.Empty(t, in.responded(t, id, late).GetEvents())
		require.Equal(t, []string{"user: one", "=working", notice, "=idle", "company: sorry"}, u.read(t, id, "").told())
		require.Equal(t, "late", in.deliveries(t, id)[0].AgentOutcome)
	})
}

func TestRespond_SilenceEndsTheTurn(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.7#d45")
		in.backend.always(later)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "one")
		eventually(t, func() bool { return in.delivered(t, id) }, "taken over")
		require.Equal(t, "idle", in.responded(t, id, &adminv1.RespondRequest{}).GetConversation().GetStatus())
		require.Equal(t, []string{"user: one", "=working", "=idle"}, u.read(t, id, "").told())
		require.Equal(t, "silent", in.deliveries(t, id)[0].AgentOutcome)
	})
}

func TestRespond_NotWhileAPersonHandlesIt(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d := in.desk(t)
		d.present(t, "dana", time.Hour)
		u := in.user("usr_1")
		id := u.queued(t, "msg_1")
		in.responded(t, id, &adminv1.RespondRequest{Messages: []*adminv1.Message{{Text: "somebody comes"}}})
		d.joined(t, id, "dana")
		before := len(in.events(t, id))
		_, err := in.respond(t, id, &adminv1.RespondRequest{Messages: []*adminv1.Message{{Text: "x"}}})
		requireReason(t, err, problem.NotResponder)
		_, err = in.admin.PostMessage(in.company.Ctx(t.Context()), &adminv1.PostMessageRequest{Conversation: in.name(id), Message: message1("x")})
		requireReason(t, err, problem.NotResponder)
		require.Equal(t, problem.Conflict, problem.As(err).Kind)
		require.Len(t, in.events(t, id), before)
		require.Equal(t, []string{id}, names(in.list(t, `person = "dana"`)))
		require.Empty(t, names(in.list(t, `person = "ben" AND responder = "human"`)))
	})
}

func TestRespond_TwoAtOnce(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.always(later)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "one")
		hook := in.backend.await(t, 1)[0]
		events := make([]int, 8)
		var wait sync.WaitGroup
		for i := range events {
			wait.Go(func() {
				got, err := in.admin.Respond(in.company.Ctx(t.Context()), &adminv1.RespondRequest{Conversation: in.name(id), Delivery: hook.id, Messages: []*adminv1.Message{{Text: "once"}}})
				if err != nil {
					t.Error(err)
				}
				events[i] = len(got.GetEvents())
			})
		}
		wait.Wait()
		sum := 0
		for _, n := range events {
			sum += n
		}
		require.Equal(t, 2, sum)
		require.Equal(t, []string{"user: one", "=working", "company: once", "=idle"}, u.read(t, id, "").told())
	})
}

func TestAnswer_OfTheBackendActs(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.11#2", "poppy-0.1/7.11#3", "poppy-0.1/7.10#13", "poppy-0.1/7.12#5")
		in.offer("poppy:read")
		u := in.user("usr_1")
		asks := says()
		asks.AuthorizationError, asks.AuthorizationScope, asks.RequestUser = "insufficient_scope", "poppy:read", "Please confirm."
		in.backend.always(asks)
		first := u.start(t, "msg_1", "hello")
		require.Equal(t, []string{
			"user: hello", "=working", "company: To go on with this, more access to your account is needed. Please allow it.",
			"authorization insufficient_scope poppy:read", "user_requested Please confirm.", "=idle",
		}, first.told())
		bye := says("bye")
		bye.Close = true
		in.backend.always(bye)
		closed := u.send(t, first.ConversationID, "?wait=20&cursor="+first.Cursor, text("msg_2", "no"))
		require.Equal(t, []string{"user: no", "=working", "company: bye", "=closed"}, closed.told())
	})
}

// Asking for a scope that nobody can give would send the User on an errand: the answer
// is refused, and not asked for again.
func TestAnswer_ScopeThatIsNotOffered(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.11#6")
		in.offer("poppy:read")
		wrong := says("more, please")
		wrong.AuthorizationError, wrong.AuthorizationScope = "insufficient_scope", "poppy:read poppy:everything"
		in.backend.always(wrong)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		eventually(t, func() bool { return in.deliveries(t, id)[0].State == "failed" }, "refused")
		d := in.deliveries(t, id)[0]
		require.Equal(t, "scope not offered", d.LastReason)
		require.Empty(t, d.AgentOutcome, "the Company may still answer")
		require.Equal(t, "working", u.read(t, id, "").State)
		in.Clock.Advance(time.Minute)
		eventually(t, func() bool { return in.get(t, id).GetStatus() == "idle" }, "the agent is told at the deadline")
		require.Equal(t, []string{"user: hello", "=working", notice, "=idle"}, u.read(t, id, "").told())
		require.Len(t, in.backend.webhooks(), 1)
	})
}

func TestExtensionRequired_ByTheCompany(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/3.3#12", "poppy-0.1/3.3#10")
		clausetest.Refuses(t, "poppy-0.1/3.3#12", "poppy-0.1/3.3#13", "poppy-0.1/3.3#14", "poppy-0.1/7.13#15")
		u := in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		in.company.Snapshot.RequiredExtensions = []string{"a.example/gift-wrap", "operations"}
		in.Changed(in.company)
		lists := func(names ...string) {
			in.sessions.mu.Lock()
			defer in.sessions.mu.Unlock()
			u.session.Extensions = names
		}
		for _, c := range []struct {
			listed []string
			want   string
		}{{nil, "a.example/gift-wrap"}, {[]string{"a.example/gift-wrap", "other"}, "operations"}, {[]string{"operations", "a.example/gift"}, "a.example/gift-wrap"}} {
			lists(c.listed...)
			for name, r := range requests(id) {
				got := u.do(t, r[0], r[1], r[2])
				requireError(t, got, http.StatusForbidden, "extension_required")
				require.Equal(t, c.want, got.Extension, name)
				require.Empty(t, got.Header.Get("WWW-Authenticate"), "no token would help")
			}
		}
		require.Len(t, in.events(t, id), 4)
		lists("operations", "a.example/gift-wrap", "another")
		require.Equal(t, http.StatusOK, u.read(t, id, "").Status)
		require.Equal(t, http.StatusAccepted, u.send(t, id, "", text("msg_2", "with a bow")).Status)
	})
}
