package main

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// CV-01: every rule of the parent and the child (7.10).
func TestCV01_DirectConversations(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#10", "poppy-0.1/7.5#11", "poppy-0.1/7.5#12", "poppy-0.1/7.10#1", "poppy-0.1/7.10#2", "poppy-0.1/7.10#4", "poppy-0.1/7.10#5",
			"poppy-0.1/7.10#9", "poppy-0.1/7.10#17", "poppy-0.1/7.10#18", "poppy-0.1/7.10#20", "poppy-0.1/7.10#21", "poppy-0.1/7.10#22", "poppy-0.1/7.10#23", "poppy-0.1/7.8#5")
		clausetest.Refuses(t, "poppy-0.1/7.10#6", "poppy-0.1/7.10#7", "poppy-0.1/7.10#8", "poppy-0.1/7.10#9", "poppy-0.1/7.10#10", "poppy-0.1/7.10#11", "poppy-0.1/7.10#12",
			"poppy-0.1/7.10#19", "poppy-0.1/7.13#3", "poppy-0.1/7.13#5", "poppy-0.1/7.13#7", "poppy-0.1/7.13#8", "poppy-0.1/7.13#17", "poppy-0.1/7.10#d22", "poppy-0.1/7.10#d38", "poppy-0.1/7.13#d21")
		co := in.company(t)
		s := co.visitor(t)
		parent := s.talk(t, "Hello")
		s.settled(t, parent)
		co.backend.next(t)
		closed := s.talk(t, "Hello")
		s.settled(t, closed)
		s.post(t, closePath(closed), "{}").is(t, http.StatusOK, "")
		co.backend.next(t)
		foreign := co.visitor(t).talk(t, "Hello")
		co.backend.next(t)

		// What is no parent.
		for _, none := range []string{"cnv_unknown", foreign} {
			require.Equal(t, `{"error":"conversation_not_found"}`, string(s.directBelow(t, none, "Hi").is(t, http.StatusNotFound, "conversation_not_found").raw))
		}
		s.directBelow(t, closed, "Hi").is(t, http.StatusConflict, "conversation_closed")
		for _, none := range []any{"", 1, object{}} {
			body := text("Hi")
			body["parent_conversation_id"] = none
			s.post(t, conversationsPath, body).is(t, http.StatusBadRequest, "invalid_request")
		}
		require.Len(t, s.events(t, parent), 4)

		// One opens; the backend learns whose child it is.
		child := s.directBelow(t, parent, "Hi, I have a question.").is(t, http.StatusCreated, "").str("conversation_id")
		require.NotEqual(t, parent, child)
		told := co.backend.next(t).body.Data
		require.True(t, told.Conversation.Direct)
		require.Equal(t, parent, *told.Conversation.Parent)
		require.Equal(t, "human", told.Message.Sender)
		opened := s.events(t, parent)[4]
		require.Equal(t, []string{"direct_opened", child}, []string{opened.Type, opened.ConversationID})

		// The parent is readable and takes nothing; the child is no parent.
		for _, refused := range []answer{
			s.post(t, messagesPath(parent), text("Hello?")), s.post(t, handoffPath(parent), "{}"), s.directBelow(t, parent, "Another"),
			s.post(t, messagesPath(parent), message(object{"context": object{"user_available": true}})),
		} {
			refused.is(t, http.StatusConflict, "direct_conversation_open")
			require.Equal(t, child, refused.str("conversation_id"))
		}
		s.directBelow(t, child, "Nested").is(t, http.StatusNotFound, "conversation_not_found")
		s.read(t, parent, "").is(t, http.StatusOK, "")
		require.Equal(t, []string{"user", "working", "company", "idle"}, shape(s.settled(t, child)))

		// It closes, and the parent takes messages again.
		s.post(t, closePath(child), "{}").is(t, http.StatusOK, "")
		over := s.events(t, parent)[5]
		require.Equal(t, []string{"direct_closed", child}, []string{over.Type, over.ConversationID})
		s.directBelow(t, child, "Nested").is(t, http.StatusNotFound, "conversation_not_found")
		s.post(t, messagesPath(parent), text("I'm back")).is(t, http.StatusAccepted, "")
		s.settled(t, parent)
		again := s.directBelow(t, parent, "And another").is(t, http.StatusCreated, "").str("conversation_id")
		require.NotEqual(t, child, again)
	})
}

// Of two starts below one parent at the same time one wins, and a retry gets its first answer.
func TestDirect_ParallelStartsAndRetries(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#10")
		clausetest.Refuses(t, "poppy-0.1/7.10#12")
		co := in.company(t)
		s := co.visitor(t)
		parent := s.talk(t, "Hello")
		s.settled(t, parent)
		var wg sync.WaitGroup
		got := make([]answer, 8)
		for i := range got {
			body := message(object{"text": "Hi", "sender": "human"})
			body["parent_conversation_id"] = parent
			r := s.request(t, http.MethodPost, conversationsPath, body)
			wg.Go(func() { got[i], _ = in.try(r) })
		}
		wg.Wait()
		won := ""
		for _, a := range got {
			if a.status == http.StatusCreated {
				require.Empty(t, won)
				won = a.str("conversation_id")
			} else {
				a.is(t, http.StatusConflict, "direct_conversation_open")
			}
		}
		require.NotEmpty(t, won)
		s.settled(t, won)
		s.post(t, closePath(won), "{}").is(t, http.StatusOK, "")
		body := message(object{"id": "msg_" + fixture.RandomID(), "text": "Hi", "sender": "human"})
		body["parent_conversation_id"] = parent
		first := s.post(t, conversationsPath, body).is(t, http.StatusCreated, "").str("conversation_id")
		require.Equal(t, first, s.post(t, conversationsPath, body).is(t, http.StatusCreated, "").str("conversation_id"))
		delete(body, "parent_conversation_id")
		s.post(t, conversationsPath, body).is(t, http.StatusConflict, "message_id_conflict")
	})
}

// Closing the parent closes its open Direct Conversation first (7.10, 7.12, decision 22).
func TestDirect_CloseOfTheParent(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.10#24", "poppy-0.1/7.12#d22")
		clausetest.Refuses(t, "poppy-0.1/7.10#24", "poppy-0.1/7.12#d22")
		for name, shut := range map[string]func(*testing.T, *session, string){
			"by the agent": func(t *testing.T, s *session, id string) { s.post(t, closePath(id), "{}").is(t, http.StatusOK, "") },
			"by the Company": func(t *testing.T, s *session, id string) {
				s.co.act(t, id, "close", object{}).is(t, http.StatusOK, "")
			},
		} {
			t.Run(name, func(t *testing.T) {
				co := in.company(t)
				s := co.visitor(t)
				parent := s.talk(t, "Hello")
				s.settled(t, parent)
				child := s.directBelow(t, parent, "Hi").is(t, http.StatusCreated, "").str("conversation_id")
				s.settled(t, child)
				shut(t, s, parent)
				require.Equal(t, []string{"direct_opened", "direct_closed", "closed"}, shape(s.events(t, parent)[4:]))
				require.Equal(t, "closed", shape(s.events(t, child))[4])
				s.post(t, messagesPath(child), text("Hello?")).is(t, http.StatusConflict, "conversation_closed")
				require.Equal(t, "parent", co.admin(t, http.MethodGet, co.name+"/conversations/"+child, nil).is(t, http.StatusOK, "").str("closed_by"))
			})
		}
	})
}

// The Company asks for the User, who decides (7.10).
func TestDirect_WhenTheCompanyAsks(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.5#9", "poppy-0.1/7.10#13", "poppy-0.1/7.10#16")
		clausetest.Refuses(t, "poppy-0.1/7.10#16")
		co := in.company(t)
		co.backend.answer(func(delivery) reply {
			return reply{body: `{"messages":[{"text":"One moment."}],"request_user":{"reason":"A specialist needs to confirm the exchange."}}`}
		})
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		events := s.settled(t, id)
		require.Equal(t, []string{"user", "working", "company", "user_requested", "idle"}, shape(events))
		require.Equal(t, "A specialist needs to confirm the exchange.", events[3].Reason)
		// No way for the Company to start one: nothing of its API does, and it stays the agent's to do.
		require.Empty(t, s.read(t, id, "").body["direct_conversation"])
		child := s.directBelow(t, id, "Here I am").is(t, http.StatusCreated, "").str("conversation_id")
		// There the User talks already: the Company can't ask again.
		refused := co.act(t, child, "respond", object{"request_user": "Please come"})
		require.Equal(t, http.StatusConflict, refused.status, "%s", refused.raw)
	})
}
