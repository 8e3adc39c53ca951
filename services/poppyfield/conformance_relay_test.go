package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

func TestRelay_AMessageReachesTheBackendAndItsAnswerTheAgent(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7#1", "poppy-0.1/7.4#17", "poppy-0.1/4#19")
		co := in.company(t, withDomain)
		secret, public := co.signing(t)
		s := co.visitor(t)
		id := s.post(t, conversationsPath, message(object{"id": "msg_1", "text": "Where is my order? 1.0 <&> é", "data": object{"big": 9007199254740993, "n": 1.5}, "context": object{"locale": "en-US"}})).
			is(t, http.StatusCreated, "").str("conversation_id")
		got := co.backend.next(t)
		got.verify(t, secret)
		got.verify(t, public)
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		for _, name := range []string{"Authorization", "Dpop", "Cookie", "Poppy-Session"} {
			require.Empty(t, got.header.Get(name), "PS-03")
		}
		require.NotContains(t, string(got.raw), s.token)
		require.Contains(t, string(got.raw), "9007199254740993", "numbers come as they were sent")
		require.Equal(t, "conversation.message", got.body.Type)
		d := got.body.Data
		require.Equal(t, co.name, d.Company)
		require.Equal(t, id, d.Conversation.ID)
		require.Equal(t, "working", d.Conversation.Status)
		require.Equal(t, "agent", d.Conversation.Responder)
		require.False(t, d.Conversation.Direct)
		require.Nil(t, d.Conversation.Parent)
		require.EqualValues(t, 1, d.Sequence)
		require.Equal(t, "msg_1", d.Message.ID)
		require.Equal(t, "agent", d.Message.Sender)
		require.Equal(t, object{"locale": "en-US"}, d.Context)
		require.Equal(t, s.agent.ClientID, d.Agent.ClientID)
		require.Equal(t, "Example Agent", d.Agent.Name)
		require.Equal(t, s.user, d.User.ID)
		require.Equal(t, s.id, d.Session.ID)
		require.False(t, d.Session.SignedIn)
		require.Nil(t, d.Session.Account)
		require.NotNil(t, d.Session.Scopes)
		require.True(t, d.Expected.Reply)
		by, err := time.Parse(time.RFC3339, *d.Expected.ReplyBy)
		require.NoError(t, err)
		require.WithinDuration(t, now().Add(30*time.Second), by, 15*time.Second)
		events := s.settled(t, id)
		require.Equal(t, []string{"user", "working", "company", "idle"}, shape(events))
	})
}

func TestWH14_SecretsOverlapWhileTheyAreRotated(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		co := in.company(t)
		s := co.visitor(t)
		old, _ := co.signing(t)
		made := co.admin(t, http.MethodPost, co.name+"/backend:rotateSecret", object{"kind": "SECRET_KIND_HMAC", "overlap": "3600s"}).is(t, http.StatusOK, "")
		fresh, err := webhook.ParseSecret(made.str("secret"))
		require.NoError(t, err)
		s.talk(t, "Hello")
		got := co.backend.next(t)
		got.verify(t, old)
		got.verify(t, fresh)
		require.Len(t, strings.Fields(got.header.Get(webhook.HeaderSignature)), 3, "two of HMAC, one of ed25519")
		made = co.admin(t, http.MethodPost, co.name+"/backend:rotateSecret", object{"kind": "SECRET_KIND_HMAC"}).is(t, http.StatusOK, "")
		newest, err := webhook.ParseSecret(made.str("secret"))
		require.NoError(t, err)
		s.talk(t, "Hello")
		got = co.backend.next(t)
		got.verify(t, newest)
		require.Error(t, webhook.Verify(webhook.Headers{
			ID: got.header.Get(webhook.HeaderID), Timestamp: got.header.Get(webhook.HeaderTimestamp), Signature: got.header.Get(webhook.HeaderSignature),
		}, got.raw, now(), fresh))
		for _, secret := range []string{old.Reveal(), fresh.Reveal(), newest.Reveal()} {
			require.NotContains(t, in.log.String(), secret)
		}
	})
}

func TestRelay_NothingToSay(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		co := in.company(t)
		s := co.visitor(t)
		for _, out := range []reply{{body: `{}`}, {body: ``}, {body: `{"messages":[]}`}, {status: http.StatusNoContent}} {
			co.backend.answer(func(delivery) reply { return out })
			require.Equal(t, []string{"user", "working", "idle"}, shape(s.settled(t, s.talk(t, "Hello"))))
		}
	})
}

// The answer by the admin API, after a 202.
func TestRelay_AnswerThatComesLater(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.4#29", "poppy-0.1/7.5#7")
		co := in.company(t)
		co.backend.answer(func(delivery) reply { return reply{status: http.StatusAccepted} })
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		co.backend.next(t)
		require.Equal(t, "working", s.read(t, id, "").str("status"))
		r := s.request(t, http.MethodGet, eventsPath(id)+"?wait=30&cursor="+s.events(t, id)[1].ID, nil)
		done := make(chan answer, 1)
		go func() {
			got, _ := in.try(r)
			done <- got
		}()
		co.say(t, id, object{"text": "Let me see."}).is(t, http.StatusOK, "")
		require.Equal(t, "Let me see.", (<-done).events(t)[0].words())
		require.Equal(t, []string{"user", "working", "company", "idle"}, shape(s.settled(t, id)))
		require.Equal(t, 1, co.backend.total())
	})
}

// Decision 25: a backend that doesn't answer becomes a visible message and idle.
func TestRelay_NobodyWaitsForever(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.4#8", "poppy-0.1/7.4#13", "poppy-0.1/7.5#7")
		quick := limits(object{"answer_deadline": "0.500s"})
		for name, script := range map[string]func(delivery) reply{
			"failing": func(delivery) reply { return reply{status: http.StatusInternalServerError} },
			"WH-01 redirects": func(delivery) reply {
				return reply{status: http.StatusTemporaryRedirect, header: map[string]string{"Location": "https://" + backendHost + "/elsewhere"}}
			},
			"no JSON": func(delivery) reply {
				return reply{header: map[string]string{"Content-Type": "text/html"}, body: "<html>"}
			},
			"CV-05 wrong sender": func(delivery) reply {
				return reply{body: `{"messages":[{"text":"x","sender":"user"}]}`}
			},
			"too large": func(delivery) reply {
				return reply{body: `{"messages":[{"text":"` + strings.Repeat("x", 300<<10) + `"}]}`}
			},
			"never after 202": func(delivery) reply { return reply{status: http.StatusAccepted} },
			"throttled": func(delivery) reply {
				return reply{status: http.StatusTooManyRequests, header: map[string]string{"Retry-After": "3600"}}
			},
		} {
			t.Run(name, func(t *testing.T) {
				co := in.company(t, quick)
				co.backend.answer(script)
				s := co.visitor(t)
				id := s.talk(t, "Hello")
				events := s.settled(t, id)
				require.Equal(t, []string{"user", "working", "company", "idle"}, shape(events))
				require.Contains(t, events[2].words(), "did not answer in time")
				require.NotRegexp(t, "[<>{}*_#`\\[\\]]", events[2].words())
				require.Zero(t, in.web.asks(backendHost+"/elsewhere"))
			})
		}
		t.Run("no backend at all", func(t *testing.T) {
			co := in.company(t, quick, noBackend)
			s := co.visitor(t)
			require.Equal(t, []string{"user", "working", "company", "idle"}, shape(s.settled(t, s.talk(t, "Hello"))))
		})
		t.Run("late messages are not wanted", func(t *testing.T) {
			co := in.company(t, quick, backendSettings(object{"deliver_late": false, "attempt_timeout": "0.200s"}))
			gone := t.Context().Done()
			co.backend.answer(func(d delivery) reply {
				if d.body.Data.Message.Text == "Hello" {
					<-gone
				}
				return says("Here I am.")
			})
			s := co.visitor(t)
			id := s.talk(t, "Hello")
			require.Equal(t, "Hello", co.backend.next(t).body.Data.Message.Text)
			require.Len(t, s.settled(t, id), 4)
			// It is dropped when it would be sent again, and holds those behind it back until then.
			until(t, "another message comes through", func() bool {
				s.post(t, messagesPath(id)+"?wait=1", text("Still there?")).is(t, http.StatusAccepted, "")
				return co.backend.total() > 1
			})
			require.Equal(t, "Still there?", co.backend.next(t).body.Data.Message.Text)
		})
		t.Run("a late answer still comes", func(t *testing.T) {
			co := in.company(t, quick)
			release := make(chan struct{})
			co.backend.answer(func(delivery) reply { <-release; return says("Here it is.") })
			s := co.visitor(t)
			id := s.talk(t, "Hello")
			require.Len(t, s.settled(t, id), 4)
			close(release)
			until(t, "the late answer is there", func() bool { return len(s.events(t, id)) == 5 })
			events := s.events(t, id)
			require.Equal(t, "Here it is.", events[4].words())
			require.Equal(t, "idle", s.read(t, id, "").str("status"))
		})
	})
}

// WH-01: every redirect is a failure with its reason, nothing is followed, and the
// same webhook is sent again.
func TestWH01_RetriesHaveOneID(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		co := in.company(t)
		secret, public := co.signing(t)
		s := co.visitor(t)
		for _, status := range []int{301, 302, 303, 307, 308, 500} {
			co.backend.answer(func(d delivery) reply {
				if d.sequence%2 == 1 {
					return reply{status: status, header: map[string]string{"Location": "https://127.0.0.1/"}}
				}
				return says("At the second attempt")
			})
			id := s.talk(t, "Hello")
			first, second := co.backend.next(t), co.backend.next(t)
			require.Equal(t, first.raw, second.raw)
			require.Equal(t, first.header.Get(webhook.HeaderID), second.header.Get(webhook.HeaderID))
			require.NotEqual(t, first.header.Get(webhook.HeaderSignature), second.header.Get(webhook.HeaderSignature), "WH-13: a fresh timestamp")
			second.verify(t, secret)
			second.verify(t, public)
			require.Equal(t, "At the second attempt", s.settled(t, id)[2].words())
		}
	})
}

// WH-03: 410 turns the backend off, visibly, and keeps what is to be delivered.
func TestWH03_GoneBackends(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		co := in.company(t)
		co.backend.answer(func(delivery) reply { return reply{status: http.StatusGone} })
		s := co.visitor(t)
		s.talk(t, "Hello")
		co.backend.next(t)
		until(t, "the backend is off", func() bool {
			return co.admin(t, http.MethodGet, co.name+"/backend", nil).str("state") == "BACKEND_STATE_DISABLED"
		})
		got := co.admin(t, http.MethodGet, co.name+"/backend", nil)
		require.Equal(t, "endpoint gone", got.str("disable_reason"))
		s.talk(t, "Anybody?")
		co.backend.answer(nil)
		co.admin(t, http.MethodPost, co.name+"/backend:enable", object{}).is(t, http.StatusOK, "")
		id := s.talk(t, "And now?")
		require.Equal(t, "You said: And now?", s.settled(t, id)[2].words())
		// What was kept comes, too: a backend that is off is asked for again every half minute.
		heard := map[string]bool{}
		for len(heard) < 3 {
			heard[co.backend.next(t).body.Data.Message.Text] = true
		}
	})
}

// Within a conversation webhooks are in order and one at a time; others don't wait.
func TestRelay_OrderWithinAConversation(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		co, hanging := in.company(t), in.company(t)
		release := make(chan struct{})
		hanging.backend.answer(func(delivery) reply { <-release; return reply{} })
		stuck := hanging.visitor(t)
		for range 20 {
			stuck.talk(t, "Hello")
		}
		s := co.visitor(t)
		id := s.talk(t, "0")
		for i := 1; i < 8; i++ {
			s.post(t, messagesPath(id), text(fmt.Sprint(i))).is(t, http.StatusAccepted, "")
		}
		last := int64(0)
		for i := range 8 {
			got := co.backend.next(t).body.Data
			require.Equal(t, fmt.Sprint(i), got.Message.Text)
			require.Greater(t, got.Sequence, last)
			last = got.Sequence
		}
		events := s.settled(t, id)
		var answers []string
		for _, e := range events {
			if e.from("company") {
				answers = append(answers, e.words())
			}
		}
		require.Equal(t, []string{"You said: 0", "You said: 1", "You said: 2", "You said: 3", "You said: 4", "You said: 5", "You said: 6", "You said: 7"}, answers)
		close(release)
	})
}

// CO-04: text arrives everywhere as it was sent.
func TestCO04_TextIsTheSameEverywhere(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		co := in.company(t)
		s := co.visitor(t)
		const odd = "emoji 👩‍👩‍👧 \u202eRTL\u202c \u00a0 <script> \\u0000 \"quotes\" \u2028 tab\t end"
		id := s.talk(t, odd)
		require.Equal(t, odd, co.backend.next(t).body.Data.Message.Text)
		events := s.settled(t, id)
		require.Equal(t, odd, events[0].words())
		require.Equal(t, "You said: "+odd, events[2].words())
		seen := co.admin(t, http.MethodGet, co.name+"/conversations/"+id+"/events", nil).is(t, http.StatusOK, "")
		require.Equal(t, odd, member(t, seen.body["events"].([]any)[0], "message", "text"))
		// Nothing of what is said gets into the log.
		require.NotContains(t, in.log.String(), "👩‍👩‍👧")
	})
}
