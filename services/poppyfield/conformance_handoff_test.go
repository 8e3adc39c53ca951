package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// A person is asked for, joins, talks, and gives the conversation back (7.7, 7.9).
func TestHandoff_APersonJoinsAndHandsBack(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#7", "poppy-0.1/7.7#1", "poppy-0.1/7.7#2", "poppy-0.1/7.7#5", "poppy-0.1/7.7#8", "poppy-0.1/7.7#9", "poppy-0.1/7.7#11",
			"poppy-0.1/7.7#12", "poppy-0.1/7.7#13", "poppy-0.1/7.7#15", "poppy-0.1/7.7#16", "poppy-0.1/7.8#1", "poppy-0.1/7.8#4", "poppy-0.1/7.8#5",
			"poppy-0.1/7.9#1", "poppy-0.1/7.9#2", "poppy-0.1/7.9#3", "poppy-0.1/7.9#4", "poppy-0.1/7.9#8")
		clausetest.Refuses(t, "poppy-0.1/7.9#1", "poppy-0.1/7.2#7", "poppy-0.1/7.7#15")
		co := in.company(t)
		co.staff(t, "anna", "3600s")
		s := co.visitor(t)
		id := s.talk(t, "The jacket isn't warm enough.")
		s.settled(t, id)
		for _, body := range []string{"", "[]", "x", "{"} {
			s.post(t, handoffPath(id), body).is(t, http.StatusBadRequest, "invalid_request")
		}
		got := s.post(t, handoffPath(id), `{}`).is(t, http.StatusAccepted, "")
		require.Equal(t, object{"conversation_id": id, "status": "queued", "responder": "agent"}, got.body)
		// Twice is once (decision 23).
		require.Equal(t, got.body, s.post(t, handoffPath(id), `{"future":1}`).is(t, http.StatusAccepted, "").body)
		webhooks := co.backend.total()
		s.post(t, messagesPath(id), text("It is the blue one.")).is(t, http.StatusAccepted, "")
		require.Equal(t, "queued", s.read(t, id, "").str("status"))

		joined := co.act(t, id, "join", object{"person": "anna"}).is(t, http.StatusOK, "")
		require.Equal(t, []string{"idle", "human", "anna"}, []string{joined.str("status"), joined.str("responder"), joined.str("person")})
		// One owner at a time: not another person, and not the backend.
		require.Equal(t, http.StatusConflict, co.act(t, id, "join", object{"person": "ben"}).status)
		late := co.act(t, id, "respond", object{"messages": []any{object{"text": "I am the bot"}}})
		require.Equal(t, http.StatusConflict, late.status, "%s", late.raw)
		require.Contains(t, string(late.raw), "NOT_RESPONDER")
		require.Equal(t, http.StatusConflict, co.act(t, id, "sendAsPerson", object{"person": "ben", "messages": []any{object{"text": "I am Ben"}}}).status)

		require.Equal(t, object{"conversation_id": id, "status": "idle", "responder": "human"}, s.post(t, handoffPath(id), `{}`).is(t, http.StatusAccepted, "").body)
		s.post(t, messagesPath(id), message(object{"text": "Medium, please.", "sender": "human"})).is(t, http.StatusAccepted, "")
		require.Equal(t, []string{"working", "human"}, []string{s.read(t, id, "").str("status"), s.read(t, id, "").str("responder")})
		co.act(t, id, "sendAsPerson", object{"person": "anna", "messages": []any{object{"text": "I've reviewed the exchange."}}}).is(t, http.StatusOK, "")
		require.Equal(t, webhooks, co.backend.total(), "the backend hears nothing while a person is there")

		back := co.act(t, id, "handBack", object{"person": "anna", "note": "Exchange is fine."}).is(t, http.StatusOK, "")
		require.Equal(t, []string{"idle", "agent"}, []string{back.str("status"), back.str("responder")})
		s.post(t, messagesPath(id), text("Thanks")).is(t, http.StatusAccepted, "")
		events := s.settled(t, id)
		require.Equal(t, []string{
			"user", "working", "company", "idle", "queued", "user", "idle*", "user", "working*", "company", "idle*", "idle", "user", "working", "company", "idle",
		}, shape(events))
		senders := []any{}
		for _, e := range events {
			if e.from("company") {
				senders = append(senders, e.Message["sender"])
			}
		}
		require.Equal(t, []any{"agent", "human", "agent"}, senders)
	})
}

// Nobody is there: the status goes back to idle, and a message says why (7.9).
func TestHandoff_NobodyIsThere(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#5", "poppy-0.1/7.9#6", "poppy-0.1/7.7#11")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		s.settled(t, id)
		got := s.post(t, handoffPath(id), `{}`).is(t, http.StatusAccepted, "")
		require.Equal(t, object{"conversation_id": id, "status": "idle", "responder": "agent"}, got.body)
		events := s.events(t, id)[4:]
		require.Equal(t, []string{"queued", "company", "idle"}, shape(events))
		require.Equal(t, "agent", events[1].Message["sender"])
		require.NotEmpty(t, events[1].words())
		// Somebody was there, and nobody joined in time.
		co.staff(t, "anna", "3600s")
		co.patch(t, "inbox/settings", object{"queue_timeout": "10s"})
		s.post(t, handoffPath(id), `{}`).is(t, http.StatusAccepted, "")
		require.Equal(t, "queued", s.read(t, id, "").str("status"))
		co.act(t, id, "declineHandoff", object{"reason": "Everybody is at lunch."}).is(t, http.StatusOK, "")
		events = s.events(t, id)[7:]
		require.Equal(t, []string{"queued", "company", "idle"}, shape(events))
		require.Equal(t, "Everybody is at lunch.", events[1].words())
		// And the conversation goes on with the agent.
		s.post(t, messagesPath(id), text("All right")).is(t, http.StatusAccepted, "")
		require.Equal(t, "agent", s.settled(t, id)[13].Responder)
	})
}

// The Company's agent hands off on its own, in its answer (7.9).
func TestHandoff_ByTheBackend(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#7")
		co := in.company(t)
		co.staff(t, "anna", "3600s")
		co.backend.answer(func(delivery) reply {
			return reply{body: `{"messages":[{"text":"I'll get a colleague."}],"hand_off":{"reason":"wants a refund"}}`}
		})
		s := co.visitor(t)
		id := s.talk(t, "I want my money back.")
		until(t, "it is queued", func() bool { return s.read(t, id, "").str("status") == "queued" })
		require.Equal(t, []string{"user", "working", "company", "queued"}, shape(s.events(t, id)))
		items := co.admin(t, http.MethodGet, co.name+"/inbox/items", nil).is(t, http.StatusOK, "")
		require.Contains(t, string(items.raw), "wants a refund")
		require.NotContains(t, string(s.read(t, id, "").raw), "wants a refund")
	})
}

// Closing cancels the wait, and who joins after the close is refused (7.9, 7.12, decision 24).
func TestHandoff_LateJoinAfterClose(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#9", "poppy-0.1/7.12#3", "poppy-0.1/7.7#14")
		clausetest.Refuses(t, "poppy-0.1/7.12#d24", "poppy-0.1/7.13#5", "poppy-0.1/7.9#9", "poppy-0.1/7.12#3")
		co := in.company(t)
		co.staff(t, "anna", "3600s")
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		s.settled(t, id)
		s.post(t, handoffPath(id), `{}`).is(t, http.StatusAccepted, "")
		s.post(t, closePath(id), `{}`).is(t, http.StatusOK, "")
		late := co.act(t, id, "join", object{"person": "anna"})
		require.Equal(t, http.StatusConflict, late.status, "%s", late.raw)
		require.Contains(t, string(late.raw), "CONVERSATION_CLOSED")
		require.NotContains(t, string(co.admin(t, http.MethodGet, co.name+"/inbox/items", nil).is(t, http.StatusOK, "").raw), id)
		s.post(t, handoffPath(id), `{}`).is(t, http.StatusConflict, "conversation_closed")
		s.post(t, handoffPath("cnv_unknown"), `{}`).is(t, http.StatusNotFound, "conversation_not_found")
		co.visitor(t).post(t, handoffPath(id), `{}`).is(t, http.StatusNotFound, "conversation_not_found")
		require.Equal(t, []string{"queued", "closed"}, shape(s.events(t, id)[4:]))
		// One that a person handled last stays so.
		other := s.talk(t, "Hello")
		s.settled(t, other)
		co.act(t, other, "join", object{"person": "anna"}).is(t, http.StatusOK, "")
		require.Equal(t, object{"conversation_id": other, "status": "closed", "responder": "human"}, s.post(t, closePath(other), `{}`).is(t, http.StatusOK, "").body)
		require.Equal(t, http.StatusConflict, co.act(t, other, "sendAsPerson", object{"person": "anna", "messages": []any{object{"text": "One more thing"}}}).status)
		require.Equal(t, []string{"idle*", "closed*"}, shape(s.events(t, other)[4:]))
	})
}

// A person who takes a turn over owes its answer: the backend's own comes too late.
func TestHandoff_TheBackendIsSuperseded(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		co := in.company(t)
		release := make(chan struct{})
		co.backend.answer(func(delivery) reply { <-release; return says("The bot's answer") })
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		co.backend.next(t)
		got := co.act(t, id, "join", object{"person": "anna"}).is(t, http.StatusOK, "")
		require.Equal(t, []string{"working", "human"}, []string{got.str("status"), got.str("responder")})
		close(release)
		co.act(t, id, "sendAsPerson", object{"person": "anna", "messages": []any{object{"text": "Anna here."}}}).is(t, http.StatusOK, "")
		until(t, "the backend's answer is put aside", func() bool {
			list := co.admin(t, http.MethodGet, co.name+"/backend/deliveries?start_time="+time.Now().Add(-time.Hour).UTC().Format("2006-01-02T15:04:05Z"), nil).is(t, http.StatusOK, "")
			all, _ := list.body["deliveries"].([]any)
			if len(all) != 1 {
				return false
			}
			one, _ := all[0].(map[string]any)
			return one["state"] == "expired" && one["agent_outcome"] == "handed_off"
		})
		require.Equal(t, []string{"user", "working", "working*", "company", "idle*"}, shape(s.events(t, id)))
		require.Equal(t, "Anna here.", s.events(t, id)[3].words())
	})
}

// What the User granted is what the backend sees and what a person sees, and neither can widen it (7.9).
func TestHandoff_APersonHasNoMoreScopesThanTheAgent(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#10")
		clausetest.Refuses(t, "poppy-0.1/7.9#10")
		co := signsIn(t, in)
		co.staff(t, "anna", "3600s")
		s := co.visitor(t)
		signedIn := s.as(s.direct(t, "acc-1", "poppy:read").is(t, http.StatusOK, "").str("access_token"))
		id := signedIn.talk(t, "Return my order")
		require.Equal(t, []string{"poppy:read"}, co.backend.next(t).body.Data.Session.Scopes)
		signedIn.settled(t, id)
		signedIn.post(t, handoffPath(id), `{}`).is(t, http.StatusAccepted, "")
		granted := func(a answer) []any {
			t.Helper()
			a.is(t, http.StatusOK, "")
			scopes, _ := a.body["scopes"].([]any)
			return scopes
		}
		require.Equal(t, []any{"poppy:read"}, granted(co.act(t, id, "join", object{"person": "anna"})))
		wider := co.act(t, id, "sendAsPerson", object{"person": "anna", "messages": []any{object{"text": "Let me."}}, "scopes": []any{"poppy:write"}})
		require.Equal(t, http.StatusBadRequest, wider.status, "%s", wider.raw)
		co.act(t, id, "sendAsPerson", object{"person": "anna", "messages": []any{object{"text": "Let me."}}}).is(t, http.StatusOK, "")
		require.Equal(t, []any{"poppy:read"}, granted(co.admin(t, http.MethodGet, co.name+"/conversations/"+id, nil)))

		// Signed out, neither has any.
		other := s.talk(t, "And as a visitor")
		s.post(t, handoffPath(other), `{}`).is(t, http.StatusAccepted, "")
		require.Empty(t, granted(co.act(t, other, "join", object{"person": "anna"})))
	})
}
