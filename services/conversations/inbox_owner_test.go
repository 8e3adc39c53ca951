package conversations_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestInbox_APersonJoinsAndAnswers(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#3", "poppy-0.1/7.9#4", "poppy-0.1/7.9#8")
		d, u := in.desk(t), in.user("usr_1")
		d.present(t, "anna", time.Hour)
		id := u.queued(t, "msg_1")
		got := u.read(t, id, "")
		require.Equal(t, []string{"user: hello", "=working", "company: echo: hello", "=idle", "=queued"}, got.told())
		require.Equal(t, "agent", got.Responder, "while it is queued")
		u.send(t, id, "", text("msg_2", "it is about my order"))

		d.joined(t, id, "anna")
		d.joined(t, id, "anna") // again: harmless
		joined := u.next(t, got)
		require.Equal(t, []string{"user: it is about my order", "=idle"}, joined.told())
		require.Equal(t, "human", joined.Responder)
		require.Equal(t, "human", joined.Events[1].Responder)

		sent, err := d.send(t, id, "anna", saying("Hello, I am Anna.", "What is its number?"), func(r *adminv1.SendAsPersonRequest) {
			r.Messages[1].Data, _ = structpb.NewStruct(map[string]any{"field": "order"})
		})
		require.NoError(t, err)
		require.Len(t, sent.GetEvents(), 2)
		heard := u.next(t, joined)
		require.Equal(t, []string{"company: Hello, I am Anna.", "company: What is its number?"}, heard.told())
		for _, e := range heard.Events {
			require.Equal(t, "human", e.Message.Sender)
			require.Equal(t, "company", e.Message.Role)
		}
		require.JSONEq(t, `{"field":"order"}`, string(heard.Events[1].Message.Data))

		// A turn of theirs is the person's: no backend hears of it.
		before := len(in.backend.webhooks())
		require.Equal(t, "working", u.send(t, id, "", text("msg_3", "1042")).State)
		_, err = d.send(t, id, "anna", saying("Thank you."))
		require.NoError(t, err)
		require.Equal(t, []string{"user: 1042", "=working", "company: Thank you.", "=idle"}, u.next(t, heard).told())
		require.Len(t, in.backend.webhooks(), before)

		_, err = d.send(t, id, "anna", func(r *adminv1.SendAsPersonRequest) { saying("Bye.")(r); r.Close = true })
		require.NoError(t, err)
		require.Equal(t, "closed", in.get(t, id).GetStatus())
		require.Equal(t, "company", in.get(t, id).GetClosedBy())
		_, err = d.send(t, id, "anna", saying("Wait."))
		requireReason(t, err, problem.ConversationClosed)
		_, err = d.join(t, id, "anna")
		requireReason(t, err, problem.ConversationClosed)
	})
}

func TestInbox_OneOwnerOfTwentyAtTwoInstances(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		here, u := in.desk(t), in.user("usr_1")
		there, _ := here.other(t)
		here.present(t, "p0", time.Hour)
		id := u.queued(t, "msg_1")
		var wg sync.WaitGroup
		errs := make([]error, 20)
		for i := range errs {
			d := here
			if i%2 == 1 {
				d = there
			}
			wg.Go(func() {
				_, errs[i] = d.api.JoinConversation(d.company.Ctx(t.Context()), &adminv1.JoinConversationRequest{Conversation: d.name(id), Person: fmt.Sprintf("p%d", i)})
			})
		}
		wg.Wait()
		owner := in.get(t, id).GetPerson()
		for i, err := range errs {
			if fmt.Sprintf("p%d", i) == owner {
				require.NoError(t, err)
				continue
			}
			requireReason(t, err, problem.NotResponder)
		}
		humans := 0
		for _, e := range u.read(t, id, "").Events {
			if e.Responder == "human" {
				humans++
			}
		}
		require.Equal(t, 1, humans)
	})
}

func TestInbox_JoinAndCloseRace(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#9")
		d, u := in.desk(t), in.user("usr_1")
		d.present(t, "anna", time.Hour)
		for i := range 10 {
			id := u.queued(t, fmt.Sprintf("msg_%d", i))
			var wg sync.WaitGroup
			var joined error
			wg.Go(func() {
				_, joined = d.api.JoinConversation(d.company.Ctx(t.Context()), &adminv1.JoinConversationRequest{Conversation: d.name(id), Person: "anna"})
			})
			wg.Go(func() { _, _ = u.try(t.Context(), http.MethodPost, endpoint+"/"+id+"/close", "{}") })
			wg.Wait()
			c := in.get(t, id)
			require.Equal(t, "closed", c.GetStatus())
			require.Empty(t, c.GetPerson())
			if joined != nil {
				requireReason(t, joined, problem.ConversationClosed)
				require.Equal(t, "agent", c.GetResponder())
			} else {
				require.Equal(t, "human", c.GetResponder(), "whoever handled it last")
			}
		}
		require.Empty(t, d.list(t, "").GetItems())
	})
}

func TestInbox_OnlyTheOwnerActs(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		_, err := d.send(t, id, "anna", saying("Hello."))
		requireReason(t, err, problem.NotResponder)
		d.joined(t, id, "anna") // without a handoff
		_, err = d.send(t, id, "ben", saying("Hello."))
		requireReason(t, err, problem.NotResponder)
		_, err = d.transfer(t, id, "ben", "cleo")
		requireReason(t, err, problem.NotResponder)
		_, err = d.handBack(t, id, "ben", "")
		requireReason(t, err, problem.NotResponder)
		_, err = d.join(t, id, "ben")
		requireReason(t, err, problem.NotResponder)
		_, err = d.assign(t, id, "ben")
		requireReason(t, err, problem.FailedPrecondition)
		_, err = in.admin.PostMessage(in.company.Ctx(t.Context()), &adminv1.PostMessageRequest{Conversation: d.name(id), Message: &adminv1.Message{Text: "late"}})
		requireReason(t, err, problem.NotResponder)

		_, err = d.send(t, id, "anna")
		requireReason(t, err, problem.InvalidRequest)
		_, err = d.send(t, id, "anna", func(r *adminv1.SendAsPersonRequest) { r.RequestUser, r.Close = "please", true })
		requireReason(t, err, problem.InvalidRequest)
		for _, name := range []string{" anna", "an\nna"} {
			_, err = d.join(t, id, name)
			requireReason(t, err, problem.InvalidRequest)
		}
		_, err = d.join(t, "cnv_none", "anna")
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestInbox_APersonAsksForTheUserAndForASignIn(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		in.company.Snapshot.SignIn = fixture.SignIn()
		in.Changed(in.company)
		id := u.start(t, "msg_1", "hello").ConversationID
		d.joined(t, id, "anna")
		got, err := d.send(t, id, "anna", func(r *adminv1.SendAsPersonRequest) {
			r.RequestUser = "I would like to talk about it."
			r.Authorization = &adminv1.Authorization{Error: "insufficient_scope", Scope: "poppy:write"}
		})
		require.NoError(t, err)
		types := map[string]bool{}
		for _, e := range got.GetEvents() {
			types[e.GetType()] = true
		}
		require.Equal(t, map[string]bool{"message": true, "authorization": true, "user_requested": true}, types)
		_, err = d.send(t, id, "anna", func(r *adminv1.SendAsPersonRequest) {
			r.Authorization = &adminv1.Authorization{Error: "insufficient_scope"}
		})
		requireReason(t, err, problem.InvalidRequest)
	})
}

func TestInbox_TransferIsSeenOnlyWhereItQueues(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		d.settings(t, &adminv1.InboxSettings{QueueTimeout: durationpb.New(time.Minute), MaxPerPerson: 1})
		d.present(t, "anna", time.Hour)
		id := u.queued(t, "msg_1")
		d.joined(t, id, "anna")
		before := u.read(t, id, "")
		c, err := d.transfer(t, id, "anna", "ben")
		require.NoError(t, err)
		require.Equal(t, "ben", c.GetPerson())
		require.Equal(t, "ben", c.GetAssignee())
		require.Empty(t, u.read(t, id, "?cursor="+before.Cursor).Events, "nothing that the agent has to know")
		_, err = d.send(t, id, "anna", saying("I have gone."))
		requireReason(t, err, problem.NotResponder)

		busy := u.start(t, "msg_2", "another").ConversationID
		d.joined(t, busy, "cleo")
		_, err = d.transfer(t, id, "ben", "cleo")
		requireReason(t, err, problem.FailedPrecondition)

		c, err = d.transfer(t, id, "ben", "")
		require.NoError(t, err)
		require.Equal(t, "queued", c.GetStatus())
		require.Empty(t, c.GetPerson()+c.GetAssignee())
		require.Equal(t, in.Clock.Now().Add(time.Minute), c.GetAnswerDueTime().AsTime())
		queued := u.next(t, before)
		require.Equal(t, []string{"=queued"}, queued.told())
		require.Equal(t, "agent", queued.Responder)
		in.Clock.Advance(time.Minute)
		require.Equal(t, []string{"company: No person at the company could join.", "=idle"}, u.next(t, queued).told())
	})
}

func TestInbox_HandBackWithoutAnOpenMessage(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		d.joined(t, id, "anna")
		_, err := d.send(t, id, "anna", saying("All done."))
		require.NoError(t, err)
		before := len(in.backend.webhooks())
		c, err := d.handBack(t, id, "anna", "they are happy")
		require.NoError(t, err)
		require.Equal(t, "idle", c.GetStatus())
		require.Equal(t, "agent", c.GetResponder())
		require.Len(t, in.backend.webhooks(), before)
		notes, err := d.api.ListNotes(in.company.Ctx(t.Context()), &adminv1.ListNotesRequest{Parent: d.name(id)})
		require.NoError(t, err)
		require.Equal(t, "they are happy", notes.GetNotes()[0].GetText())
		require.Equal(t, "anna", notes.GetNotes()[0].GetAuthor())
		// The agent's next message is the backend's.
		require.Equal(t, "idle", u.send(t, id, "?wait=20&cursor="+u.read(t, id, "").Cursor, text("msg_2", "one more thing")).State)
		require.Len(t, in.backend.webhooks(), before+1)
	})
}

func TestInbox_HandBackGivesTheOpenMessageToTheBackend(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1").signedIn("acc_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		d.joined(t, id, "anna")
		u.send(t, id, "", text("msg_2", "where is it?"))
		u.send(t, id, "", `{"message":{"id":"msg_3","sender":"agent","context":{"user_available":false}}}`)
		before, webhooks := u.read(t, id, ""), len(in.backend.webhooks())
		c, err := d.handBack(t, id, "anna", "look it up")
		require.NoError(t, err)
		require.Equal(t, "working", c.GetStatus())
		require.Equal(t, "agent", c.GetResponder())
		got := in.backend.await(t, webhooks+1)[webhooks]
		require.Equal(t, "where is it?", got.Data.Message.Text)
		require.True(t, got.Data.Expected.Reply)
		require.Equal(t, "working", got.Data.Conversation.Status)
		require.True(t, got.Data.Session.SignedIn)
		require.Equal(t, []string{"poppy:read"}, got.Data.Session.Scopes)
		require.Contains(t, got.raw, `"handback":{"note":"look it up"}`)
		told := u.next(t, before)
		for len(told.told()) < 3 {
			told = u.read(t, id, "?wait=20&cursor="+before.Cursor)
		}
		require.Equal(t, []string{"=working", "company: echo: where is it?", "=idle"}, told.told())

		// And the same message again, from a person who joined in the middle of its turn.
		release := make(chan struct{})
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) { <-release; return says("first"), nil })
		u.send(t, id, "", text("msg_4", "and now?"))
		n := len(in.backend.await(t, webhooks+2))
		d.joined(t, id, "anna")
		in.backend.always(says("second"))
		_, err = d.handBack(t, id, "anna", "")
		require.NoError(t, err)
		again := in.backend.await(t, n+1)[n]
		require.Equal(t, "and now?", again.Data.Message.Text)
		require.NotEqual(t, in.backend.webhooks()[n-1].id, again.id)
		require.Contains(t, again.raw, `"handback":{"note":""}`)
		eventually(t, func() bool { return in.get(t, id).GetStatus() == "idle" }, "the second answer ends the turn")
		// What the backend says to the first, which a person took over, comes too late.
		close(release)
		eventually(t, func() bool { return in.service.InFlight() == 0 }, "the first answer came")
		require.NotContains(t, u.read(t, id, "").told(), "company: first")

		// And once more, for one that had been handed back before.
		in.backend.always(later)
		u.send(t, id, "", text("msg_5", "thanks"))
		n = len(in.backend.await(t, n+2))
		for range 2 {
			d.joined(t, id, "anna")
			_, err = d.handBack(t, id, "anna", "")
			require.NoError(t, err)
			n++
			require.Equal(t, "thanks", in.backend.await(t, n)[n-1].Data.Message.Text)
		}
	})
}

func TestInbox_OneOfTwoMayTakeOverWhenTheOwnerHasGone(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		d.settings(t, &adminv1.InboxSettings{AnswerTimeout: durationpb.New(time.Minute)})
		d.present(t, "anna", 10*time.Minute)
		id := u.queued(t, "msg_1")
		d.joined(t, id, "anna")
		u.send(t, id, "", text("msg_2", "are you there?"))
		before := u.read(t, id, "")
		in.Clock.Advance(time.Minute)
		told := u.next(t, before)
		require.Equal(t, []string{"company: The person at the company has not answered yet.", "=idle"}, told.told())
		require.Equal(t, "human", told.Responder, "it stays theirs")
		require.Equal(t, "anna", in.get(t, id).GetPerson())
		_, err := d.join(t, id, "ben")
		requireReason(t, err, problem.NotResponder)
		in.Clock.Advance(9 * time.Minute)
		d.joined(t, id, "ben")
		require.Empty(t, u.read(t, id, "?cursor="+told.Cursor).Events, "still a person")
		_, err = d.join(t, id, "anna")
		requireReason(t, err, problem.NotResponder)
	})
}

func TestInbox_Assign(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		d.present(t, "anna", time.Hour)
		id := u.queued(t, "msg_1")
		before := u.read(t, id, "")
		c, err := d.assign(t, id, "ben")
		require.NoError(t, err)
		require.Equal(t, "ben", c.GetAssignee())
		require.Equal(t, []string{id}, uids(d.list(t, `assignee = "ben" AND person = ""`).GetItems()))
		require.Empty(t, u.read(t, id, "?cursor="+before.Cursor).Events)
		c, err = d.assign(t, id, "")
		require.NoError(t, err)
		require.Empty(t, c.GetAssignee())
		require.Equal(t, "anna", d.joined(t, id, "anna").GetAssignee())
		u.close(t, id)
		_, err = d.assign(t, id, "ben")
		requireReason(t, err, problem.FailedPrecondition)
	})
}

// What the agent said while a person was awaited reaches the backend when nobody came.
func TestInbox_TheBackendHearsWhatWasSaidInTheQueue(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		d.present(t, "anna", time.Hour)
		id := u.start(t, "msg_1", "hello").ConversationID
		require.Equal(t, "queued", u.ask(t, id).State)
		u.send(t, id, "", text("msg_2", "my order is 1042"))
		u.send(t, id, "", text("msg_3", "it is late"))
		_, err := d.api.DeclineHandoff(d.company.Ctx(t.Context()), &adminv1.DeclineHandoffRequest{Conversation: d.name(id)})
		require.NoError(t, err)
		told := u.read(t, id, "")
		require.Equal(t, "idle", told.State)
		got := in.backend.await(t, 3)
		require.Equal(t, []string{"hello", "my order is 1042", "it is late"}, []string{got[0].Data.Message.Text, got[1].Data.Message.Text, got[2].Data.Message.Text})
		require.False(t, got[1].Data.Expected.Reply)
		u.send(t, id, "", text("msg_4", "so?"))
		require.Equal(t, "so?", in.backend.await(t, 4)[3].Data.Message.Text)
	})
}
