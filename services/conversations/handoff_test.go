package conversations_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/conversations/dispatch"
)

func (u *user) ask(t testing.TB, id string) answer {
	t.Helper()
	return u.do(t, http.MethodPost, endpoint+"/"+id+"/handoff", "{}")
}

func TestHandoff_QueuesOnceAndTakesMessages(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#1", "poppy-0.1/7.9#2", "poppy-0.1/7.9#3", "poppy-0.1/7.9#8", "poppy-0.1/7.9#d23", "poppy-0.1/7.7#5",
			"poppy-0.1/7.7#8", "poppy-0.1/7.7#10", "poppy-0.1/7.7#11", "poppy-0.1/7.7#13", "poppy-0.1/7.2#7")
		in.desk(t).present(t, "dana", time.Hour)
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		for range 3 {
			got := u.ask(t, first.ConversationID)
			require.Equal(t, http.StatusAccepted, got.Status)
			require.JSONEq(t, `{"conversation_id":"`+first.ConversationID+`","status":"queued","responder":"agent"}`, got.Raw)
		}
		queued := u.next(t, first)
		require.Equal(t, []string{"=queued"}, queued.told())
		require.Equal(t, "agent", queued.Events[0].Responder)

		sent := u.send(t, first.ConversationID, "", text("msg_2", "it is about order 1042"))
		require.Equal(t, http.StatusAccepted, sent.Status)
		require.Equal(t, "queued", sent.State)
		require.Equal(t, []string{"user: it is about order 1042"}, u.next(t, queued).told())
		require.Len(t, in.backend.webhooks(), 1, "what a person is awaited for goes to no backend")

		c := in.get(t, first.ConversationID)
		require.True(t, c.GetHadHandoff())
		require.NotNil(t, c.GetWaitingTime())
		require.Equal(t, []string{"post_message", "respond", "join", "assign", "decline_handoff", "close"}, c.GetViewerActions())
		require.Equal(t, []string{"7.7", "7.9"}, in.events(t, first.ConversationID)[4].GetSections())
	})
}

func TestHandoff_NobodyIsThere(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#5", "poppy-0.1/7.9#6", "poppy-0.1/7.9#2", "poppy-0.1/7.7#11")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		got := u.ask(t, first.ConversationID)
		require.Equal(t, http.StatusAccepted, got.Status)
		require.Equal(t, "idle", got.State)
		require.Equal(t, "agent", got.Responder)
		told := u.next(t, first)
		require.Equal(t, []string{"=queued", "company: No person is available at the company right now.", "=idle"}, told.told())
		require.Equal(t, "agent", told.Events[1].Message.Sender)
		c := in.get(t, first.ConversationID)
		require.True(t, c.GetHadHandoff(), "it was asked for all the same")
		require.Nil(t, c.GetWaitingTime())
		require.Equal(t, "idle", u.send(t, first.ConversationID, "?wait=20&cursor="+told.Cursor, text("msg_2", "then you")).State)
	})
}

func TestHandoff_AnOpenTurnGoesOnWhereNobodyIsThere(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#5", "poppy-0.1/7.7#3")
		in.backend.always(later)
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		eventually(t, func() bool { return in.delivered(t, id) }, "taken over")
		due := in.get(t, id).GetAnswerDueTime().AsTime()
		got := u.ask(t, id)
		require.Equal(t, "working", got.State)
		require.Equal(t, due, in.get(t, id).GetAnswerDueTime().AsTime())
		in.post(t, id, false, message1("done"))
		require.Equal(t, []string{
			"user: hello", "=working", "=queued", "company: No person is available at the company right now.", "=working", "company: done", "=idle",
		}, u.read(t, id, "").told())
	})
}

// A turn that the backend still thinks about is the person's now.
func TestHandoff_EndsTheOpenTurn(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#3")
		in.desk(t).present(t, "dana", time.Hour)
		release := make(chan struct{})
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			<-release
			return says("too slow"), nil
		})
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		in.backend.await(t, 1)
		require.Equal(t, "queued", u.ask(t, id).State)
		in.desk(t).joined(t, id, "dana")
		d := in.deliveries(t, id)[0]
		require.EqualValues(t, "expired", d.State)
		require.Equal(t, "handed over to a person", d.LastReason)
		require.Equal(t, "handed_off", d.AgentOutcome)
		close(release)
		eventually(t, func() bool { return in.service.InFlight() == 0 }, "the answer came")
		require.NotContains(t, u.read(t, id, "").told(), "company: too slow")
	})
}

func TestHandoff_TheCompanyAgentHandsOff(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#7", "poppy-0.1/7.9#3", "poppy-0.1/7.9#6")
		r := says("I get somebody.")
		r.HandOff, r.HandOffReason = true, "wants to talk about a refund"
		in.backend.always(r)
		u := in.user("usr_1")
		alone := u.start(t, "msg_1", "hello")
		require.Equal(t, []string{"user: hello", "=working", "company: I get somebody.", "=queued", "company: No person is available at the company right now.", "=idle"}, alone.told())
		require.Equal(t, "wants to talk about a refund", in.get(t, alone.ConversationID).GetHandoffReason())
		require.True(t, in.get(t, alone.ConversationID).GetHadHandoff())

		in.desk(t).present(t, "dana", time.Hour)
		got := u.start(t, "msg_2", "hello")
		require.Equal(t, []string{"user: hello", "=working", "company: I get somebody.", "=queued"}, got.told())
		require.NotContains(t, got.Raw, "refund", "the reason is for the person")
		require.Equal(t, "answered", in.deliveries(t, got.ConversationID)[0].AgentOutcome)
	})
}

// Messages that waited behind the one whose answer hands off are a person's too.
func TestHandoff_WhatWaitedForTheBackendIsNotSent(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.desk(t).present(t, "dana", time.Hour)
		release := make(chan struct{})
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			<-release
			r := says("I get somebody.")
			r.HandOff = true
			return r, nil
		})
		u := in.user("usr_1")
		id := u.posted(t, "msg_1", "hello")
		in.backend.await(t, 1)
		u.send(t, id, "", text("msg_2", "more"))
		u.send(t, id, "", text("msg_3", "still more"))
		close(release)
		eventually(t, func() bool { return in.get(t, id).GetStatus() == "queued" }, "handed off")
		eventually(t, func() bool { return in.deliveries(t, id)[2].State == "expired" }, "not sent any more")
		require.EqualValues(t, "expired", in.deliveries(t, id)[1].State)
		require.Equal(t, "handed_off", in.deliveries(t, id)[1].AgentOutcome)
		in.Clock.Advance(time.Minute)
		require.Len(t, in.backend.webhooks(), 1)
	})
}

func TestHandoff_CloseCancelsIt(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#9", "poppy-0.1/7.12#3", "poppy-0.1/7.12#4")
		clausetest.Refuses(t, "poppy-0.1/7.13#5", "poppy-0.1/7.12#d24")
		d := in.desk(t)
		d.present(t, "dana", time.Hour)
		u := in.user("usr_1")
		id := u.queued(t, "msg_1")
		require.Equal(t, "closed", u.close(t, id).State)
		require.Empty(t, d.list(t, "").GetItems())
		again := u.ask(t, id)
		require.Equal(t, http.StatusConflict, again.Status)
		require.Equal(t, "conversation_closed", again.Error)
		_, err := d.join(t, id, "dana")
		requireReason(t, err, "CONVERSATION_CLOSED")
		in.Clock.Advance(time.Hour)
		require.Equal(t, "closed", u.read(t, id, "").State)
	})
}

func TestHandoff_WhileAPersonIsThere(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#d23", "poppy-0.1/7.9#4", "poppy-0.1/7.7#9", "poppy-0.1/7.7#12")
		d := in.desk(t)
		d.present(t, "dana", time.Hour)
		u := in.user("usr_1")
		id := u.queued(t, "msg_1")
		d.joined(t, id, "dana")
		before := len(in.events(t, id))
		got := u.ask(t, id)
		require.Equal(t, http.StatusAccepted, got.Status)
		require.Equal(t, "idle", got.State)
		require.Equal(t, "human", got.Responder)
		require.Len(t, in.events(t, id), before)
		require.Equal(t, []string{"transfer", "hand_back", "close"}, in.get(t, id).GetViewerActions())
	})
}

func TestHandoff_WrongRequests(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.9#1", "poppy-0.1/7.13#3", "poppy-0.1/7.13#14", "poppy-0.1/7.11#15")
		u := in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		for _, body := range []string{"", "[]", "null", "handoff", `{"a":1,"a":2}`} {
			got := u.do(t, http.MethodPost, endpoint+"/"+id+"/handoff", body)
			require.Equal(t, http.StatusBadRequest, got.Status, body)
			require.Equal(t, "invalid_request", got.Error)
		}
		require.Equal(t, "conversation_not_found", u.ask(t, "cnv_none").Error)
		require.Equal(t, "conversation_not_found", in.user("usr_2").ask(t, id).Error)
		require.Equal(t, http.StatusMethodNotAllowed, u.do(t, http.MethodGet, endpoint+"/"+id+"/handoff", "").Status)
		u.signedIn("acc_1").send(t, id, "", text("msg_2", "my orders"))
		require.Equal(t, "sign_in_required", u.ask(t, id).Error)
		require.False(t, in.get(t, id).GetHadHandoff())
	})
}

// Handoffs, messages and closes at two processes at once: one queue entry at most, and
// a closed conversation is the end.
func TestHandoff_RacesOfTwoProcesses(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#d23")
		in.desk(t).present(t, "dana", time.Hour)
		other := in.replica(t, dispatch.Config{})
		start(t, other)
		_, address := in.serveWeb(t, other)
		u := in.user("usr_1")
		elsewhere := *u
		elsewhere.address = address
		for round := range 5 {
			id := u.start(t, messageID(round), "hello").ConversationID
			var wait sync.WaitGroup
			for i := range 8 {
				who := []*user{u, &elsewhere}[i%2]
				wait.Go(func() {
					got, err := who.try(t.Context(), http.MethodPost, endpoint+"/"+id+"/handoff", "{}")
					if err != nil || got.Status != http.StatusAccepted || got.State != "queued" {
						t.Errorf("%v %v", got.Raw, err)
					}
				})
			}
			wait.Wait()
			require.Equal(t, []string{"user: hello", "=working", "company: echo: hello", "=idle", "=queued"}, u.read(t, id, "").told())
		}
	})
}
