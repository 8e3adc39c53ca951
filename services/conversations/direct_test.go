package conversations_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/conversations/dispatch"
)

// below is the first message of a Direct Conversation.
func below(parent, id, s string) string {
	raw, _ := json.Marshal(map[string]any{"parent_conversation_id": parent, "message": map[string]any{"id": id, "sender": "human", "text": s}})
	return string(raw)
}

// direct starts a Direct Conversation and waits for the backend's answer.
func (u *user) direct(t testing.TB, parent, id string) answer {
	t.Helper()
	got := u.do(t, http.MethodPost, endpoint+"?wait=20", below(parent, id, "hi, it's me"))
	require.Equal(t, http.StatusCreated, got.Status, got.Raw)
	return got
}

func requireError(t testing.TB, got answer, status int, code string) {
	t.Helper()
	require.Equal(t, status, got.Status, got.Raw)
	require.Equal(t, code, got.Error)
}

func TestDirect_OpensBelowItsParentAndCloses(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.10#2", "poppy-0.1/7.10#4", "poppy-0.1/7.10#5", "poppy-0.1/7.10#6", "poppy-0.1/7.10#7", "poppy-0.1/7.10#8", "poppy-0.1/7.10#9",
			"poppy-0.1/7.10#17", "poppy-0.1/7.10#18", "poppy-0.1/7.10#21", "poppy-0.1/7.10#22", "poppy-0.1/7.5#10", "poppy-0.1/7.5#11", "poppy-0.1/7.5#12", "poppy-0.1/7.10#16")
		u := in.user("usr_1")
		parent := u.start(t, "msg_1", "hello")
		child := u.direct(t, parent.ConversationID, "msg_2")
		require.NotEqual(t, parent.ConversationID, child.ConversationID)
		require.Equal(t, []string{"user: hi, it's me", "=working", "company: echo: hi, it's me", "=idle"}, child.told(), "the User sees nothing of the parent")
		require.Equal(t, "human", child.Events[0].Message.Sender)

		opened := u.next(t, parent)
		require.Equal(t, []string{"direct_opened " + child.ConversationID}, opened.told())
		require.Equal(t, "idle", opened.State)
		require.Equal(t, parent.ConversationID, in.get(t, child.ConversationID).GetParent())
		require.Equal(t, child.ConversationID, in.get(t, parent.ConversationID).GetDirectConversation())
		require.Equal(t, []string{child.ConversationID}, names(in.list(t, `parent = "`+parent.ConversationID+`"`)))

		require.Equal(t, "closed", u.close(t, child.ConversationID).State)
		closed := u.next(t, opened)
		require.Equal(t, []string{"direct_closed " + child.ConversationID}, closed.told())
		require.Empty(t, in.get(t, parent.ConversationID).GetDirectConversation())
		events := in.events(t, parent.ConversationID)
		require.Equal(t, child.ConversationID, events[len(events)-1].GetConversation())
		require.Equal(t, []string{"7.10"}, events[len(events)-1].GetSections())

		again := u.send(t, parent.ConversationID, "?wait=20&cursor="+closed.Cursor, text("msg_3", "go on"))
		require.Equal(t, []string{"user: go on", "=working", "company: echo: go on", "=idle"}, again.told())
		require.Equal(t, http.StatusCreated, u.do(t, http.MethodPost, endpoint, below(parent.ConversationID, "msg_4", "once more")).Status, "one after the other")
	})
}

func names(l *adminv1.ListConversationsResponse) []string {
	var out []string
	for _, c := range l.GetConversations() {
		out = append(out, c.GetUid())
	}
	return out
}

func TestCV01_DirectConversationRules(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.10#18")
		clausetest.Refuses(t, "poppy-0.1/7.10#6", "poppy-0.1/7.10#7", "poppy-0.1/7.10#8", "poppy-0.1/7.10#9", "poppy-0.1/7.10#10", "poppy-0.1/7.10#11", "poppy-0.1/7.10#12",
			"poppy-0.1/7.10#19", "poppy-0.1/7.10#20", "poppy-0.1/7.10#d22", "poppy-0.1/7.10#d38", "poppy-0.1/7.13#3", "poppy-0.1/7.13#4", "poppy-0.1/7.13#5", "poppy-0.1/7.13#7", "poppy-0.1/7.13#8", "poppy-0.1/7.13#17")
		u := in.user("usr_1")
		parent := u.start(t, "msg_1", "hello").ConversationID
		child := u.direct(t, parent, "msg_2").ConversationID
		for _, got := range []answer{
			u.send(t, parent, "", text("msg_3", "hello?")),
			u.ask(t, parent),
			u.do(t, http.MethodPost, endpoint, below(parent, "msg_3", "second")),
		} {
			requireError(t, got, http.StatusConflict, "direct_conversation_open")
			require.Equal(t, child, got.ConversationID)
		}
		unknown := u.do(t, http.MethodPost, endpoint, below("cnv_none", "msg_3", "x"))
		requireError(t, unknown, http.StatusNotFound, "conversation_not_found")
		nested := u.do(t, http.MethodPost, endpoint, below(child, "msg_3", "x"))
		require.Equal(t, unknown.Raw, nested.Raw)
		foreign := in.user("usr_2").start(t, "msg_1", "hi").ConversationID
		require.Equal(t, unknown.Raw, u.do(t, http.MethodPost, endpoint, below(foreign, "msg_3", "x")).Raw)
		require.Equal(t, http.StatusOK, u.read(t, parent, "").Status, "it stays readable")

		// Direct goes before closed, closed before open.
		u.close(t, child)
		require.Equal(t, unknown.Raw, u.do(t, http.MethodPost, endpoint, below(child, "msg_3", "x")).Raw)
		u.close(t, parent)
		requireError(t, u.do(t, http.MethodPost, endpoint, below(parent, "msg_3", "x")), http.StatusConflict, "conversation_closed")
		require.Equal(t, []string{"user: hello", "=working", "company: echo: hello", "=idle", "direct_opened " + child, "direct_closed " + child, "=closed"}, u.read(t, parent, "").told())
	})
}

func TestDirect_OfAnAccount(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.10#7", "poppy-0.1/7.2#13")
		clausetest.Refuses(t, "poppy-0.1/7.10#7", "poppy-0.1/7.11#15", "poppy-0.1/7.13#d21")
		out := in.user("usr_1")
		mine, other := out.signedIn("acc_1"), out.signedIn("acc_2")
		parent := mine.start(t, "msg_1", "my orders").ConversationID
		requireError(t, out.do(t, http.MethodPost, endpoint, below(parent, "msg_2", "x")), http.StatusForbidden, "sign_in_required")
		requireError(t, other.do(t, http.MethodPost, endpoint, below(parent, "msg_2", "x")), http.StatusNotFound, "conversation_not_found")
		child := mine.direct(t, parent, "msg_2").ConversationID
		require.Equal(t, "acc_1", in.get(t, child).GetAccount())
		require.True(t, in.get(t, child).GetSignedIn())
		require.Equal(t, []string{"poppy:read"}, in.get(t, child).GetScopes())
		require.Equal(t, http.StatusForbidden, out.read(t, child, "").Status)
	})
}

func TestDirect_ARetryFindsWhatItStarted(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#11", "poppy-0.1/7.3#d17")
		clausetest.Refuses(t, "poppy-0.1/7.3#d16", "poppy-0.1/7.13#9", "poppy-0.1/7.3#d17")
		u := in.user("usr_1")
		parent, other := u.start(t, "msg_1", "hello").ConversationID, u.start(t, "msg_2", "hello").ConversationID
		first := below(parent, "msg_3", "hi")
		child := u.do(t, http.MethodPost, endpoint, first)
		retry := func() {
			t.Helper()
			got := u.do(t, http.MethodPost, endpoint, first)
			require.Equal(t, http.StatusCreated, got.Status, got.Raw)
			require.Equal(t, child.ConversationID, got.ConversationID)
		}
		retry()
		for _, body := range []string{below(other, "msg_3", "hi"), text("msg_3", "hi"), below(parent, "msg_3", "other")} {
			requireError(t, u.do(t, http.MethodPost, endpoint, body), http.StatusConflict, "message_id_conflict")
		}
		u.close(t, child.ConversationID)
		retry()
		u.close(t, parent)
		retry()
		require.Equal(t, 1, count(u.read(t, parent, "").told(), "direct_opened "+child.ConversationID))
		requireError(t, u.do(t, http.MethodPost, endpoint, below(other, "msg_3", "hi")), http.StatusConflict, "message_id_conflict")
	})
}

func count(all []string, one string) int {
	n := 0
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// Starts below one parent at two processes: one is first, the others learn its id. Those
// of the same message are retries, whoever had the lock.
func TestDirect_ParallelStartsBelowOneParent(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.10#9", "poppy-0.1/7.3#11")
		clausetest.Refuses(t, "poppy-0.1/7.10#12")
		other := in.replica(t, dispatch.Config{})
		start(t, other)
		_, address := in.serveWeb(t, other)
		u := in.user("usr_1")
		elsewhere := *u
		elsewhere.address = address
		for round := range 4 {
			parent := u.start(t, messageID(round), "hello").ConversationID
			got := make([]answer, 12)
			var wait sync.WaitGroup
			for i := range got {
				who := []*user{u, &elsewhere}[i%2]
				wait.Go(func() {
					var err error
					// Three messages, four times each.
					if got[i], err = who.try(t.Context(), http.MethodPost, endpoint, below(parent, messageID(round)+string(rune('a'+i%3)), "hi")); err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			child, won := "", map[int]bool{}
			for i, a := range got {
				require.NotEmpty(t, a.ConversationID, a.Raw)
				if child == "" {
					child = a.ConversationID
				}
				require.Equal(t, child, a.ConversationID, "all learn of the same one")
				if a.Status == http.StatusCreated {
					won[i%3] = true
				} else {
					requireError(t, a, http.StatusConflict, "direct_conversation_open")
				}
			}
			require.Len(t, won, 1, "one message has opened it")
			for i, a := range got {
				require.Equal(t, won[i%3], a.Status == http.StatusCreated, "its retries are retries")
			}
			require.Equal(t, 1, count(u.read(t, parent, "").told(), "direct_opened "+child))
		}
	})
}

func TestCV02_ClosingTheParentClosesTheChildFirst(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.10#24", "poppy-0.1/7.10#21", "poppy-0.1/7.12#d22", "poppy-0.1/7.12#1", "poppy-0.1/7.12#2", "poppy-0.1/7.10#d38", "poppy-0.1/7.12#7")
		clausetest.Refuses(t, "poppy-0.1/7.12#6", "poppy-0.1/7.13#5", "poppy-0.1/7.12#d24")
		u := in.user("usr_1")
		for i, closing := range []func(id string){
			func(id string) { require.Equal(t, "closed", u.close(t, id).State) },
			func(id string) {
				_, err := in.admin.CloseConversation(in.company.Ctx(t.Context()), &adminv1.CloseConversationRequest{Name: in.name(id)})
				require.NoError(t, err)
			},
			func(id string) {
				_, err := in.respond(t, id, &adminv1.RespondRequest{Messages: []*adminv1.Message{{Text: "bye"}}, Close: true})
				require.NoError(t, err)
			},
		} {
			parent := u.start(t, messageID(i), "hello")
			child := u.direct(t, parent.ConversationID, messageID(i)+"b")
			waiting := make(chan answer, 2)
			for _, a := range []answer{u.read(t, parent.ConversationID, ""), child} {
				go func() {
					got, err := u.try(t.Context(), http.MethodGet, endpoint+"/"+a.ConversationID+"/events?wait=20&cursor="+a.Cursor, "")
					if err != nil {
						t.Error(err)
					}
					waiting <- got
				}()
			}
			eventually(t, func() bool { return in.service.Waiting() >= 2 }, "both are read")
			closing(parent.ConversationID)
			for range 2 {
				got := <-waiting
				require.Equal(t, "closed", got.State, "reads of both wake")
				if got.ConversationID == child.ConversationID {
					require.Equal(t, []string{"=closed"}, got.told())
				} else {
					told := got.told()
					require.Equal(t, []string{"direct_closed " + child.ConversationID, "=closed"}, told[len(told)-2:])
				}
			}
			require.Equal(t, "parent", in.get(t, child.ConversationID).GetClosedBy())
			for _, id := range []string{parent.ConversationID, child.ConversationID} {
				before := len(in.events(t, id))
				require.Equal(t, http.StatusOK, u.close(t, id).Status, "a second close is harmless")
				requireError(t, u.send(t, id, "", text("msg_late", "x")), http.StatusConflict, "conversation_closed")
				requireError(t, u.ask(t, id), http.StatusConflict, "conversation_closed")
				require.Len(t, in.events(t, id), before)
			}
		}
	})
}

func TestDirect_TheCompanyClosesTheChild(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.10#21", "poppy-0.1/7.12#5")
		u := in.user("usr_1")
		parent := u.start(t, "msg_1", "hello")
		bye := says("bye")
		bye.Close = true
		in.backend.always(bye)
		child := u.direct(t, parent.ConversationID, "msg_2")
		require.Equal(t, []string{"user: hi, it's me", "=working", "company: bye", "=closed"}, child.told())
		require.Equal(t, "company", in.get(t, child.ConversationID).GetClosedBy())
		require.Equal(t, []string{"direct_opened " + child.ConversationID, "direct_closed " + child.ConversationID}, u.read(t, parent.ConversationID, "?cursor="+parent.Cursor).told())

		in.backend.always(says("ok"))
		child = u.direct(t, parent.ConversationID, "msg_3")
		_, err := in.admin.CloseConversation(in.company.Ctx(t.Context()), &adminv1.CloseConversationRequest{Name: in.name(child.ConversationID)})
		require.NoError(t, err)
		told := u.read(t, parent.ConversationID, "").told()
		require.Equal(t, "direct_closed "+child.ConversationID, told[len(told)-1])
	})
}

// The User talks below: the parent is not inactive until they are done.
func TestDirect_InactivityClosesTheChildThenTheParent(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.12#5", "poppy-0.1/7.10#21")
		in.company.Snapshot.ConversationIdleLifetime = durationOf(time.Hour)
		in.Changed(in.company)
		u := in.user("usr_1")
		parent := u.start(t, "msg_1", "hello")
		child := u.direct(t, parent.ConversationID, "msg_2")
		parent = u.next(t, parent)
		in.Clock.Advance(50 * time.Minute)
		child = u.send(t, child.ConversationID, "?wait=20&cursor="+child.Cursor, text("msg_3", "still here"))
		in.Clock.Advance(50 * time.Minute)
		other := u.start(t, "msg_4", "hello") // its close tells that the job has run
		require.Empty(t, u.read(t, parent.ConversationID, "?wait=1&cursor="+parent.Cursor).Events)
		in.Clock.Advance(11 * time.Minute)
		require.Equal(t, []string{"=closed"}, u.next(t, child).told())
		require.Equal(t, "inactivity", in.get(t, child.ConversationID).GetClosedBy())
		require.Equal(t, "idle", in.get(t, parent.ConversationID).GetStatus())
		in.Clock.Advance(50 * time.Minute)
		require.Equal(t, []string{"=closed"}, u.next(t, other).told())
		require.Equal(t, []string{"direct_closed " + child.ConversationID}, u.read(t, parent.ConversationID, "?cursor="+parent.Cursor).told())
		in.Clock.Advance(11 * time.Minute)
		eventually(t, func() bool { return in.get(t, parent.ConversationID).GetStatus() == "closed" }, "an hour after its last event")
	})
}

// What the backend says of the parent while the User talks below still counts; asking
// for the User is met.
func TestDirect_AnAnswerInTheParentMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.10#18")
		in.backend.always(later)
		u := in.user("usr_1")
		parent := u.posted(t, "msg_1", "hello")
		eventually(t, func() bool { return in.delivered(t, parent) }, "taken over")
		child := u.do(t, http.MethodPost, endpoint, below(parent, "msg_2", "hi")).ConversationID
		require.Equal(t, "working", in.get(t, parent).GetStatus())
		require.NotNil(t, in.get(t, parent).GetAnswerDueTime(), "the turn's deadline stays")
		in.post(t, parent, false, message1("here you are"))
		require.Equal(t, []string{"user: hello", "=working", "direct_opened " + child, "company: here you are", "=idle"}, u.read(t, parent, "").told())
		_, err := in.respond(t, parent, &adminv1.RespondRequest{RequestUser: "Please confirm."})
		requireReason(t, err, "DIRECT_CONVERSATION_OPEN")
	})
}

func TestDirect_LateEvents(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.12#d24")
		release := make(chan struct{})
		u := in.user("usr_1")
		parent := u.start(t, "msg_1", "hello").ConversationID
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			<-release
			r := says("too late")
			r.Close = true
			return r, nil
		})
		child := u.do(t, http.MethodPost, endpoint, below(parent, "msg_2", "hi")).ConversationID
		in.backend.await(t, 2)
		u.close(t, parent)
		close(release)
		eventually(t, func() bool { return in.delivered(t, child) }, "the answer came")
		require.Equal(t, "conversation closed", in.deliveries(t, child)[0].LastReason)
		require.Equal(t, "refused", in.deliveries(t, child)[0].AgentOutcome)
		require.Equal(t, []string{"user: hi", "=working", "=closed"}, u.read(t, child, "").told())
		require.Equal(t, 1, count(u.read(t, parent, "").told(), "direct_closed "+child))
		_, err := in.desk(t).join(t, child, "dana")
		requireReason(t, err, "CONVERSATION_CLOSED")
	})
}

// Everything that locks a parent and its child at once, at two processes: nothing hangs,
// nothing fails, and the parent's story of its children is whole.
func TestDirect_RacesOfParentAndChild(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.10#24", "poppy-0.1/7.12#d22")
		other := in.replica(t, dispatch.Config{})
		start(t, other)
		_, address := in.serveWeb(t, other)
		in.company.Snapshot.ConversationIdleLifetime = durationOf(time.Hour)
		in.Changed(in.company)
		var answers atomic.Int64
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			r := says("ok")
			r.Close = answers.Add(1)%3 == 0
			return r, nil
		})
		for round := range 6 {
			u := in.user("usr_1")
			elsewhere := *u
			elsewhere.address = address
			in.backend.always(says("ok"))
			parent := u.start(t, messageID(round), "hello").ConversationID
			in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
				r := says("ok")
				r.Close = answers.Add(1)%3 == 0
				return r, nil
			})
			child := u.do(t, http.MethodPost, endpoint, below(parent, messageID(round)+"c", "hi")).ConversationID
			require.NotEmpty(t, child)
			posts := []func(*user) (answer, error){
				func(u *user) (answer, error) {
					return u.try(t.Context(), http.MethodPost, endpoint+"/"+child+"/close", "{}")
				},
				func(u *user) (answer, error) {
					return u.try(t.Context(), http.MethodPost, endpoint, below(parent, messageID(round)+"d", "hi"))
				},
				func(u *user) (answer, error) {
					return u.try(t.Context(), http.MethodPost, endpoint+"/"+child+"/messages", text(messageID(round)+"e", "hi"))
				},
				func(u *user) (answer, error) {
					return u.try(t.Context(), http.MethodPost, endpoint+"/"+parent+"/messages", text(messageID(round)+"f", "hi"))
				},
				func(u *user) (answer, error) {
					return u.try(t.Context(), http.MethodPost, endpoint+"/"+child+"/handoff", "{}")
				},
			}
			if round%2 == 1 {
				posts = append(posts, func(u *user) (answer, error) {
					return u.try(t.Context(), http.MethodPost, endpoint+"/"+parent+"/close", "{}")
				})
			}
			var wait sync.WaitGroup
			for i := range 2 * len(posts) {
				who := []*user{u, &elsewhere}[i%2]
				wait.Go(func() {
					if got, err := posts[i/2](who); err != nil || got.Status >= http.StatusInternalServerError {
						t.Errorf("%d: %s %v", i/2, got.Raw, err)
					}
				})
			}
			for _, id := range []string{child, parent} {
				wait.Go(func() {
					_, err := in.admin.Respond(in.company.Ctx(t.Context()), &adminv1.RespondRequest{Conversation: in.name(id), Messages: []*adminv1.Message{{Text: "bye"}}, Close: id == child})
					if err != nil && !isReason(err, "CONVERSATION_CLOSED") {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			// Answers that are still under way may close the child between two looks.
			eventually(t, func() bool {
				open := openChild(t, u, parent)
				c := in.get(t, parent)
				return open == c.GetDirectConversation() && (open == "" || c.GetStatus() != "closed")
			}, "the parent's head and its events tell the same")
		}
	})
}

// openChild is the Direct Conversation that the parent's events leave open: one at a
// time, and told to be closed only once it is.
func openChild(t testing.TB, u *user, parent string) string {
	t.Helper()
	open := ""
	for _, e := range u.read(t, parent, "").Events {
		switch e.Type {
		case "direct_opened":
			require.Empty(t, open)
			open = e.ConversationID
		case "direct_closed":
			require.Equal(t, open, e.ConversationID)
			require.Equal(t, "closed", u.read(t, open, "").State)
			open = ""
		}
	}
	return open
}

func TestDirect_EventsArePrunedLikeAny(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#28", "poppy-0.1/7.12#7")
		clausetest.Refuses(t, "poppy-0.1/7.5#29", "poppy-0.1/7.13#12", "poppy-0.1/7.13#13")
		in.company.Snapshot.EventRetention = durationOf(time.Hour)
		in.Changed(in.company)
		u := in.user("usr_1")
		parent := u.start(t, "msg_1", "hello")
		child := u.direct(t, parent.ConversationID, "msg_2")
		opened := u.next(t, parent)
		u.close(t, child.ConversationID)
		in.Clock.Advance(50 * time.Minute)
		closed := u.read(t, parent.ConversationID, "?cursor="+opened.Cursor)
		newest := u.send(t, parent.ConversationID, "?wait=20&cursor="+closed.Cursor, text("msg_3", "later"))
		u.close(t, parent.ConversationID)
		in.Clock.Advance(11 * time.Minute)
		eventually(t, func() bool { return len(in.events(t, child.ConversationID)) == 0 }, "the child's events are gone")
		eventually(t, func() bool { return len(in.events(t, parent.ConversationID)) == 5 }, "and the parent's old ones")
		for id, cursor := range map[string]string{child.ConversationID: child.Cursor, parent.ConversationID: opened.Cursor} {
			requireError(t, u.read(t, id, "?cursor="+cursor), http.StatusGone, "cursor_expired")
			require.Equal(t, "closed", u.read(t, id, "").State)
		}
		require.Equal(t, append(newest.told(), "=closed"), u.read(t, parent.ConversationID, "").told())
		require.Equal(t, http.StatusCreated, u.do(t, http.MethodPost, endpoint, below(parent.ConversationID, "msg_2", "hi, it's me")).Status, "retries are known")
	})
}
