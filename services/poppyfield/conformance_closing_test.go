package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// CV-02: a closed conversation takes nothing more and stays readable.
func TestCV02_ClosedConversations(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#8", "poppy-0.1/7.2#9", "poppy-0.1/7.12#1", "poppy-0.1/7.12#2", "poppy-0.1/7.12#4", "poppy-0.1/7.12#6", "poppy-0.1/7.12#7", "poppy-0.1/7.12#8", "poppy-0.1/7.13#5", "poppy-0.1/7.13#6")
		clausetest.Refuses(t, "poppy-0.1/7.12#1", "poppy-0.1/7.12#2", "poppy-0.1/7.12#4", "poppy-0.1/7.12#6", "poppy-0.1/7.12#d24", "poppy-0.1/7.13#5", "poppy-0.1/7.13#6", "poppy-0.1/7.2#8")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		before := s.settled(t, id)
		for _, body := range []string{"", "[]", "null", "x", "{", `{"a":1,"a":2}`} {
			s.post(t, closePath(id), body).is(t, http.StatusBadRequest, "invalid_request")
		}
		// A read that waits learns of it.
		r := s.request(t, http.MethodGet, eventsPath(id)+"?wait=30&cursor="+before[3].ID, nil)
		type result struct {
			got answer
			err error
		}
		waiting := make(chan result, 1)
		go func() {
			got, err := in.try(r)
			waiting <- result{got, err}
		}()
		got := s.post(t, closePath(id), `{"future":1}`).is(t, http.StatusOK, "")
		require.Equal(t, object{"conversation_id": id, "status": "closed", "responder": "agent"}, got.body)
		woken := <-waiting
		require.NoError(t, woken.err)
		require.Equal(t, "closed", woken.got.is(t, http.StatusOK, "").str("status"))
		events := s.events(t, id)
		require.Equal(t, before, events[:4])
		require.Equal(t, []string{"closed"}, shape(events[4:]))
		require.Equal(t, "agent", events[4].Responder)
		// Closing again is harmless.
		require.Equal(t, got.body, s.post(t, closePath(id), "{}").is(t, http.StatusOK, "").body)
		s.post(t, messagesPath(id), text("Hello?")).is(t, http.StatusConflict, "conversation_closed")
		s.post(t, messagesPath(id), message(object{"context": object{"a": 1}})).is(t, http.StatusConflict, "conversation_closed")
		said := co.say(t, id, object{"text": "One more thing"})
		require.Equal(t, http.StatusConflict, said.status, "%s", said.raw)
		require.Contains(t, string(said.raw), "CONVERSATION_CLOSED")
		require.Len(t, s.events(t, id), 5)
		require.Equal(t, "closed", s.read(t, id, "wait=0").str("status"))
		// Others of the User go on.
		s.talk(t, "A new one")
	})
}

func TestClosing_ByTheCompany(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.12#5", "poppy-0.1/7.12#2", "poppy-0.1/7.12#7")
		clausetest.Refuses(t, "poppy-0.1/7.12#6", "poppy-0.1/7.12#5")
		t.Run("its staff", func(t *testing.T) {
			co := in.company(t)
			s := co.visitor(t)
			id := s.talk(t, "Hello")
			s.settled(t, id)
			co.admin(t, http.MethodPost, co.name+"/conversations/"+id+":close", object{}).is(t, http.StatusOK, "")
			require.Equal(t, "closed", shape(s.events(t, id))[4])
			s.post(t, messagesPath(id), text("Hello?")).is(t, http.StatusConflict, "conversation_closed")
		})
		t.Run("inactivity", func(t *testing.T) {
			co := in.company(t, limits(object{"conversation_idle_lifetime": "1s"}))
			s := co.visitor(t)
			id := s.talk(t, "Hello")
			until(t, "it is closed", func() bool { return s.read(t, id, "").str("status") == "closed" })
			got := co.admin(t, http.MethodGet, co.name+"/conversations/"+id, nil).is(t, http.StatusOK, "")
			require.Equal(t, "inactivity", got.str("closed_by"))
			s.post(t, messagesPath(id), text("Hello?")).is(t, http.StatusConflict, "conversation_closed")
		})
	})
}

// Decision 24: what comes after the close changes nothing, and its sender is told.
func TestClosing_LateAnswersAreRefused(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.12#d24", "poppy-0.1/7.12#8")
		clausetest.Refuses(t, "poppy-0.1/7.12#d24")
		co := in.company(t)
		release := make(chan struct{})
		co.backend.answer(func(delivery) reply { <-release; return says("Too late") })
		s := co.visitor(t)
		slow := s.talk(t, "Hello")
		co.backend.next(t)
		s.post(t, closePath(slow), "{}").is(t, http.StatusOK, "")
		close(release)
		// The backend's answer by the API, after a 202.
		co.backend.answer(func(delivery) reply { return reply{status: http.StatusAccepted} })
		later := s.talk(t, "Hello")
		co.backend.next(t)
		s.post(t, closePath(later), "{}").is(t, http.StatusOK, "")
		require.Equal(t, http.StatusConflict, co.say(t, later, object{"text": "Too late"}).status)
		// Another conversation is answered in the meantime, and these stay as they were.
		co.backend.answer(nil)
		s.settled(t, s.talk(t, "Hello"))
		for _, id := range []string{slow, later} {
			require.Equal(t, []string{"user", "working", "closed"}, shape(s.events(t, id)))
		}
	})
}
