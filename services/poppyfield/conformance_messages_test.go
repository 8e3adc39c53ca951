package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

func TestMessages_EveryFieldThatThereIs(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7#2", "poppy-0.1/7.4#1", "poppy-0.1/7.4#2", "poppy-0.1/7.4#3", "poppy-0.1/7.4#5", "poppy-0.1/7.4#6", "poppy-0.1/7.4#7", "poppy-0.1/7.4#9", "poppy-0.1/7.4#12", "poppy-0.1/7.4#16", "poppy-0.1/7.4#17", "poppy-0.1/7.4#19", "poppy-0.1/7.4#20",
			"poppy-0.1/7.4#21", "poppy-0.1/7.4#22", "poppy-0.1/7.4#23", "poppy-0.1/7.4#26", "poppy-0.1/7.4#27", "poppy-0.1/7.4#d46", "poppy-0.1/7.5#4", "poppy-0.1/7.5#6", "poppy-0.1/7.2#16", "poppy-0.1/7.4#10", "poppy-0.1/7.4#31", "poppy-0.1/7.2#19")
		co := in.company(t)
		s := co.visitor(t)
		whole := object{
			"id": "A-z_0", "sender": "human", "text": "Plätze zusammen 🍜 <b>&\"", "data": object{"travelers": []any{object{"seat": "14A", "n": 1.5}}},
			"context": object{"locale": "zh-Hant-TW", "time_zone": "America/Los_Angeles", "user_available": true, "units": object{"length": "m"}, "gone": nil},
		}
		id := s.post(t, conversationsPath, object{"message": whole}).is(t, http.StatusCreated, "").str("conversation_id")
		got := co.backend.next(t).body.Data
		require.Equal(t, whole["text"], got.Message.Text)
		require.Equal(t, "human", got.Message.Sender)
		require.Equal(t, "A-z_0", got.Message.ID)
		require.Equal(t, whole["data"], got.Message.Data)
		require.Equal(t, object{"locale": "zh-Hant-TW", "time_zone": "America/Los_Angeles", "user_available": true, "units": object{"length": "m"}}, got.Context)
		own := s.settled(t, id)[0].Message
		require.Equal(t, object{"id": "A-z_0", "role": "user", "sender": "human", "text": whole["text"], "data": whole["data"]}, own)
		// Fields that are left out keep their values, null counts as left out.
		s.post(t, messagesPath(id), message(object{"text": "Away", "context": object{"user_available": false, "locale": nil}})).is(t, http.StatusAccepted, "")
		require.Equal(t, object{"locale": "zh-Hant-TW", "time_zone": "America/Los_Angeles", "user_available": false, "units": object{"length": "m"}}, co.backend.next(t).body.Data.Context)
		for name, fields := range map[string]object{
			"text alone":        {"text": "x"},
			"data alone":        {"data": object{"a": 1}},
			"id like a cursor":  {"id": "evt_1", "text": "x"},
			"id of one dash":    {"id": "-", "text": "x"},
			"id of 256":         {"id": strings.Repeat("a", 256), "text": "x"},
			"32,000 characters": {"text": strings.Repeat("ü", 32000)},
			"64 KiB of data":    {"data": object{"a": strings.Repeat("x", 64<<10-8)}},
			"newlines, NBSP":    {"text": "a\nb\tc\u00a0d\u2028e"},
			"a locale alone":    {"text": "x", "context": object{"locale": "de"}},
			"an operation":      {"text": "x", "operation": object{"operation_id": "op_1"}},
		} {
			t.Run(name, func(t *testing.T) { s.post(t, messagesPath(id), message(fields)).is(t, http.StatusAccepted, "") })
		}
	})
}

func TestCV05_MessagesThatAreNotRight(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.4#4", "poppy-0.1/7.13#14", "poppy-0.1/7.13#2")
		clausetest.Refuses(t, "poppy-0.1/7.2#18", "poppy-0.1/7.4#22", "poppy-0.1/7.4#26", "poppy-0.1/7#2", "poppy-0.1/7.2#1", "poppy-0.1/7.2#4", "poppy-0.1/7.2#5", "poppy-0.1/7.2#16", "poppy-0.1/7.3#1", "poppy-0.1/7.3#4", "poppy-0.1/7.4#1", "poppy-0.1/7.4#2", "poppy-0.1/7.4#3", "poppy-0.1/7.4#4", "poppy-0.1/7.4#5",
			"poppy-0.1/7.4#6", "poppy-0.1/7.4#7", "poppy-0.1/7.4#10", "poppy-0.1/7.4#19", "poppy-0.1/7.4#20", "poppy-0.1/7.4#21", "poppy-0.1/7.4#d46", "poppy-0.1/7.13#14", "poppy-0.1/7.13#2", "poppy-0.1/7.4#9")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		s.settled(t, id)
		msg := func(fields object) string {
			raw, err := json.Marshal(message(fields))
			require.NoError(t, err)
			return string(raw)
		}
		for name, body := range map[string]string{
			"no id":                          msg(object{"id": nil, "text": "x"}),
			"empty id":                       msg(object{"id": "", "text": "x"}),
			"id of 257":                      msg(object{"id": strings.Repeat("a", 257), "text": "x"}),
			"id with a dot":                  msg(object{"id": "msg.1", "text": "x"}),
			"id is a number":                 msg(object{"id": 1, "text": "x"}),
			"GW-05 id of a megabyte":         msg(object{"id": strings.Repeat("a", 200<<10), "text": "x"}),
			"no sender":                      msg(object{"sender": nil, "text": "x"}),
			"CV-05 sender company":           msg(object{"sender": "company", "text": "x"}),
			"sender in upper case":           msg(object{"sender": "Agent", "text": "x"}),
			"sender is null":                 `{"message":{"id":"a","sender":null,"text":"x"}}`,
			"CV-06 nothing to say":           msg(object{}),
			"CV-06 empty text alone":         msg(object{"text": ""}),
			"CV-06 context null alone":       `{"message":{"id":"a","sender":"agent","context":null}}`,
			"text is a number":               msg(object{"text": 1}),
			"text is an object":              msg(object{"text": object{}}),
			"text of 32,001 characters":      msg(object{"text": strings.Repeat("ü", 32001)}),
			"data is a list":                 msg(object{"data": []any{1}}),
			"data is text":                   msg(object{"data": "x"}),
			"context is a list":              msg(object{"text": "x", "context": []any{}}),
			"locale is a number":             msg(object{"context": object{"locale": 1}}),
			"locale is no tag":               msg(object{"context": object{"locale": "not a language"}}),
			"time_zone is a boolean":         msg(object{"context": object{"time_zone": true}}),
			"user_available is text":         msg(object{"context": object{"user_available": "true"}}),
			"no message":                     `{}`,
			"message is text":                `{"message":"x"}`,
			"GW-05 broken":                   `{"message":{`,
			"GW-05 a list":                   `[]`,
			"GW-05 null":                     `null`,
			"empty body":                     ``,
			"two documents":                  msg(object{"text": "x"}) + "{}",
			"GW-08 message twice":            `{"message":{"id":"a","sender":"agent","text":"x"},"message":{"id":"b","sender":"agent","text":"y"}}`,
			"GW-08 text twice":               `{"message":{"id":"a","sender":"agent","text":"x","text":"y"}}`,
			"GW-08 twice within data":        `{"message":{"id":"a","sender":"agent","data":{"k":1,"k":2}}}`,
			"CO-04 NUL in text":              `{"message":{"id":"a","sender":"agent","text":"a\u0000b"}}`,
			"CO-04 NUL in a key of data":     `{"message":{"id":"a","sender":"agent","data":{"k\u0000":1}}}`,
			"CO-04 NUL in context":           `{"message":{"id":"a","sender":"agent","text":"x","context":{"a":"\u0000"}}}`,
			"CO-04 NUL in the id":            `{"message":{"id":"a\u0000","sender":"agent","text":"x"}}`,
			"CO-04 lone surrogate":           `{"message":{"id":"a","sender":"agent","text":"\ud800"}}`,
			"CO-04 bytes that are no UTF-8":  "{\"message\":{\"id\":\"a\",\"sender\":\"agent\",\"text\":\"\xff\"}}",
			"CO-04 number beyond any double": `{"message":{"id":"a","sender":"agent","data":{"n":1e400}}}`,
			"nested too deeply":              `{"message":{"id":"a","sender":"agent","data":` + strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100) + `}}`,
		} {
			t.Run(name, func(t *testing.T) {
				for _, path := range []string{conversationsPath, messagesPath(id)} {
					got := s.post(t, path, body)
					if strings.Contains(name, "32,001") || strings.Contains(name, "megabyte") {
						require.Contains(t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, got.status, "%s", got.raw)
						continue
					}
					got.is(t, http.StatusBadRequest, "invalid_request")
				}
			})
		}
		for name, fields := range map[string]object{
			"data over 64 KiB":    {"data": object{"a": strings.Repeat("x", 64<<10)}},
			"context over 64 KiB": {"context": object{"a": strings.Repeat("x", 64<<10)}},
			"body over 256 KiB":   {"text": "x", "future": strings.Repeat("x", 260<<10)},
		} {
			t.Run(name, func(t *testing.T) {
				got := s.post(t, messagesPath(id), message(fields))
				require.Contains(t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, got.status, "%s", got.raw)
				require.NotEmpty(t, got.str("error"))
			})
		}
		require.Len(t, s.events(t, id), 4, "nothing of what was refused is left")
		require.Equal(t, 1, co.backend.total())
		t.Run("CV-05 role is ours", func(t *testing.T) {
			s.post(t, messagesPath(id), message(object{"text": "x", "role": "company"})).is(t, http.StatusAccepted, "")
			require.Equal(t, "user", s.events(t, id)[4].Message["role"])
		})
	})
}

// CV-06: a message with context alone tells the Company Agent something and asks it nothing.
func TestCV06_ContextOnly(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.4#1", "poppy-0.1/7.4#26", "poppy-0.1/7.4#27", "poppy-0.1/7.4#28", "poppy-0.1/7.4#d20", "poppy-0.1/7.4#17")
		clausetest.Refuses(t, "poppy-0.1/7.4#27", "poppy-0.1/7.4#d20", "poppy-0.1/7.4#28")
		co := in.company(t)
		s := co.visitor(t)
		id := s.post(t, conversationsPath, message(object{"text": "Hello", "context": object{"locale": "en-US"}})).is(t, http.StatusCreated, "").str("conversation_id")
		s.settled(t, id)
		co.backend.next(t)
		away := message(object{"id": "msg_away", "context": object{"user_available": false}})
		got := s.post(t, messagesPath(id), away).is(t, http.StatusAccepted, "")
		require.Equal(t, "idle", got.str("status"))
		d := co.backend.next(t).body.Data
		require.False(t, d.Expected.Reply)
		require.Nil(t, d.Expected.ReplyBy)
		require.Equal(t, object{"locale": "en-US", "user_available": false}, d.Context)
		// A refused message changes no context.
		s.post(t, messagesPath(id), message(object{"id": "msg_away", "context": object{"locale": "fr"}})).is(t, http.StatusConflict, "message_id_conflict")
		s.post(t, messagesPath(id), message(object{"context": object{"locale": 7}})).is(t, http.StatusBadRequest, "invalid_request")
		s.post(t, messagesPath(id), text("Back")).is(t, http.StatusAccepted, "")
		require.Equal(t, object{"locale": "en-US", "user_available": false}, co.backend.next(t).body.Data.Context)
		until(t, "all is said", func() bool { return len(s.events(t, id)) >= 9 })
		events := s.settled(t, id)
		require.Equal(t, "msg_away", events[4].Message["id"])
		require.Equal(t, "user", events[4].Message["role"])
		require.NotContains(t, events[4].Message, "context")
	})
}

// What the Company says has its own form, whoever of it speaks.
func TestMessages_OfTheCompany(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7#2", "poppy-0.1/7.4#8", "poppy-0.1/7.4#14", "poppy-0.1/7.4#29", "poppy-0.1/7.4#30", "poppy-0.1/7.5#4", "poppy-0.1/7.5#6", "poppy-0.1/7.2#18")
		clausetest.Refuses(t, "poppy-0.1/7.4#14", "poppy-0.1/7.4#8", "poppy-0.1/7.4#29", "poppy-0.1/7.4#30", "poppy-0.1/7#2", "poppy-0.1/7.4#6")
		co := in.company(t)
		co.backend.answer(func(delivery) reply {
			return reply{body: `{"messages":[{"text":"I can do that.","data":{"price_difference":70}},{"text":"I am Dana.","sender":"human"}]}`}
		})
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		s.settled(t, id)
		co.say(t, id, object{"text": "One more thing", "data": object{"n": 1}, "sender": "human"}).is(t, http.StatusOK, "")
		co.say(t, id, object{"data": object{"n": 2}}).is(t, http.StatusOK, "")
		events := s.events(t, id)
		require.Equal(t, []string{"user", "working", "company", "company", "idle", "company", "company"}, shape(events))
		senders := []any{events[2].Message["sender"], events[3].Message["sender"], events[5].Message["sender"], events[6].Message["sender"]}
		require.Equal(t, []any{"agent", "human", "human", "agent"}, senders)
		require.Equal(t, object{"price_difference": 70.0}, events[2].Message["data"])
		for _, e := range events {
			if !e.from("company") {
				continue
			}
			require.Regexp(t, `^msg_[A-Za-z0-9_-]+$`, e.Message["id"])
			for field := range e.Message {
				require.Contains(t, []string{"id", "role", "sender", "text", "data"}, field)
			}
		}
		for name, message := range map[string]object{
			"CV-05 sender user": {"text": "x", "sender": "user"},
			"nothing to say":    {},
			"data is a list":    {"data": []any{1}},
			"context":           {"text": "x", "context": object{"a": 1}},
			"too long":          {"text": strings.Repeat("x", 32001)},
			"CO-04 NUL":         {"text": "a\x00b"},
		} {
			got := co.say(t, id, message)
			require.Contains(t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, got.status, "%s: %s", name, got.raw)
		}
		require.Len(t, s.events(t, id), 7)
	})
}

// Poppy 7.3: wait brings the reply in the response.
func TestMessages_ReplyInTheResponse(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#10", "poppy-0.1/7.3#13", "poppy-0.1/7.3#14", "poppy-0.1/7.3#15", "poppy-0.1/7.3#16", "poppy-0.1/7.3#d18", "poppy-0.1/7.5#23", "poppy-0.1/7.5#24")
		clausetest.Refuses(t, "poppy-0.1/7.3#13", "poppy-0.1/7.3#14", "poppy-0.1/7.3#d18", "poppy-0.1/7.5#d18", "poppy-0.1/7.2#10")
		co := in.company(t)
		s := co.visitor(t)
		got := s.post(t, conversationsPath+"?wait=20", text("Hello")).is(t, http.StatusCreated, "")
		require.Equal(t, []string{"user", "working", "company", "idle"}, shape(got.events(t)))
		require.Equal(t, "idle", got.str("status"))
		require.Equal(t, false, got.body["has_more"])
		id, cursor := got.str("conversation_id"), got.str("cursor")
		got = s.post(t, messagesPath(id)+"?wait=20&cursor="+cursor, text("And now?")).is(t, http.StatusAccepted, "")
		require.Equal(t, []string{"user", "working", "company", "idle"}, shape(got.events(t)))
		require.Equal(t, "You said: And now?", got.events(t)[2].words())
		// Without a cursor, from the first event.
		got = s.post(t, messagesPath(id)+"?wait=20", text("More")).is(t, http.StatusAccepted, "")
		require.Len(t, got.events(t), 12)
		// Nobody answers in time: the caller's own message alone.
		release := make(chan struct{})
		defer close(release)
		co.backend.answer(func(delivery) reply { <-release; return says("At last") })
		got = s.post(t, messagesPath(id)+"?wait=1&cursor="+got.str("cursor"), text("Slow?")).is(t, http.StatusAccepted, "")
		require.GreaterOrEqual(t, got.took, 900*time.Millisecond)
		require.Equal(t, []string{"user", "working"}, shape(got.events(t)))
		require.Equal(t, "working", got.str("status"))
		// cursor without wait counts for nothing, a bad one neither.
		s.post(t, messagesPath(id)+"?cursor=nonsense", text("x")).is(t, http.StatusAccepted, "")
		before := len(s.events(t, id))
		for _, query := range []string{"wait=-1", "wait=x", "wait=1&wait=2", "wait=1.5", "wait=", "wait=1&cursor=nonsense", "wait=1&cursor=a&cursor=b"} {
			got := s.post(t, messagesPath(id)+"?"+query, text("x"))
			require.Equal(t, http.StatusBadRequest, got.status, query)
		}
		require.Len(t, s.events(t, id), before, "nothing was accepted")
		require.Equal(t, "working", s.post(t, messagesPath(id)+"?wait=0&cursor="+s.events(t, id)[0].ID, text("x")).is(t, http.StatusAccepted, "").str("status"))
	})
}
