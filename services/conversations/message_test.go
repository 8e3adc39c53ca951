package conversations_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/conversations/dispatch"
)

func TestStart_CreatesConversationAndAnswersAtOnce(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#1", "poppy-0.1/7.2#2", "poppy-0.1/7.2#3", "poppy-0.1/7.2#4", "poppy-0.1/7.2#17", "poppy-0.1/7.2#18",
			"poppy-0.1/7.3#1", "poppy-0.1/7.3#2", "poppy-0.1/7.3#3", "poppy-0.1/7.7#3", "poppy-0.1/7.7#10")
		hang := make(chan struct{})
		defer close(hang)
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) { <-hang; return says(), nil })
		got := in.user("usr_1").do(t, http.MethodPost, endpoint, text("msg_1", "hello"))
		require.Equal(t, http.StatusCreated, got.Status)
		require.Equal(t, "application/json", got.Header.Get("Content-Type"))
		require.Equal(t, "no-store", got.Header.Get("Cache-Control"))
		require.Regexp(t, `^cnv_[a-z0-9]{26}$`, got.ConversationID)
		require.JSONEq(t, fmt.Sprintf(`{"conversation_id":%q,"status":"working","responder":"agent"}`, got.ConversationID), got.Raw)
	})
}

func TestStart_WaitBringsTheReply(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#10", "poppy-0.1/7.2#16", "poppy-0.1/7.3#13", "poppy-0.1/7.3#14", "poppy-0.1/7.3#15", "poppy-0.1/7.3#16", "poppy-0.1/7.3#d18",
			"poppy-0.1/7.4#5", "poppy-0.1/7.4#8", "poppy-0.1/7.4#9", "poppy-0.1/7.4#29", "poppy-0.1/7.5#1", "poppy-0.1/7.5#3", "poppy-0.1/7.5#4", "poppy-0.1/7.5#5", "poppy-0.1/7.5#6", "poppy-0.1/7.5#7",
			"poppy-0.1/7.7#1", "poppy-0.1/7.7#4", "poppy-0.1/7.7#7", "poppy-0.1/7.7#8", "poppy-0.1/7.7#11", "poppy-0.1/7.7#15", "poppy-0.1/7.7#16", "poppy-0.1/7.8#4", "poppy-0.1/7.4#14")
		in.backend.answers(func(_ context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			r := says("echo: " + w.Data.Message.Text)
			r.Messages[0].Data = []byte(`{"sku":"stormline-insulated-m","price":70.50}`)
			return r, nil
		})
		got := in.user("usr_1").start(t, "msg_1", "hello")
		require.Equal(t, []string{"user: hello", "=working", "company: echo: hello", "=idle"}, got.told())
		require.Equal(t, "idle", got.State)
		require.Equal(t, "agent", got.Responder)
		require.False(t, got.HasMore)
		require.Equal(t, got.Events[3].ID, got.Cursor)
		require.Equal(t, message{ID: "msg_1", Role: "user", Sender: "agent", Text: "hello"}, *got.Events[0].Message)
		reply := got.Events[2].Message
		require.Equal(t, "agent", reply.Sender)
		require.Regexp(t, `^msg_`, reply.ID)
		require.JSONEq(t, `{"sku":"stormline-insulated-m","price":70.50}`, string(reply.Data))
		for _, e := range got.Events {
			require.Regexp(t, `^evt_[A-Za-z0-9_-]{1,252}$`, e.ID)
			require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`, e.CreatedAt)
		}
		require.Equal(t, "agent", got.Events[3].Responder)
	})
}

func TestSend_LaterMessages(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#5", "poppy-0.1/7.3#4", "poppy-0.1/7.3#5", "poppy-0.1/7.8#1", "poppy-0.1/7.8#5", "poppy-0.1/7#2")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		plain := u.send(t, first.ConversationID, "", text("msg_2", "and?"))
		require.Equal(t, http.StatusAccepted, plain.Status)
		require.JSONEq(t, fmt.Sprintf(`{"conversation_id":%q,"status":"working","responder":"agent"}`, first.ConversationID), plain.Raw)
		human := `{"message":{"id":"msg_3","sender":"human","text":"Medium, please."}}`
		held := u.send(t, first.ConversationID, "?wait=20&cursor="+first.Cursor, human)
		require.Equal(t, http.StatusAccepted, held.Status)
		all := u.read(t, first.ConversationID, "")
		for all.State != "idle" {
			all = u.read(t, first.ConversationID, "?wait=20&cursor="+all.Cursor)
		}
		all = u.read(t, first.ConversationID, "")
		require.Contains(t, all.told(), "company: echo: and?")
		require.Contains(t, all.told(), "company: echo: Medium, please.")
		for _, e := range all.Events {
			if e.Message != nil && e.Message.ID == "msg_3" {
				require.Equal(t, "human", e.Message.Sender)
			}
		}
	})
}

func TestSend_CursorWithoutWaitIsIgnored(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#d18")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		got := u.send(t, first.ConversationID, "?cursor=nonsense", text("msg_2", "more"))
		require.Equal(t, http.StatusAccepted, got.Status)
		require.NotContains(t, got.Raw, "events")
	})
}

func TestSend_BadCursorIsRefusedBeforeAnythingIsAccepted(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.3#14", "poppy-0.1/7.13#11")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		for _, path := range []string{endpoint, endpoint + "/" + first.ConversationID + "/messages"} {
			got := u.do(t, http.MethodPost, path+"?wait=1&cursor=evt_none", text("msg_2", "more"))
			require.Equal(t, http.StatusBadRequest, got.Status)
			require.Equal(t, "invalid_cursor", got.Error)
		}
		require.Len(t, u.read(t, first.ConversationID, "").Events, 4)
	})
}

func TestRetry_FirstMessageGetsItsConversation(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#8", "poppy-0.1/7.3#9", "poppy-0.1/7.3#10", "poppy-0.1/7.3#d16", "poppy-0.1/7.3#d17", "poppy-0.1/7.3#d36")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		// Other spelling, other order, unknown fields: the same message.
		again := u.do(t, http.MethodPost, endpoint, `{"x":1,"message":{"text":"hel\u006co","sender":"agent","more":[],"id":"msg_1","context":null}}`)
		require.Equal(t, http.StatusCreated, again.Status)
		require.JSONEq(t, fmt.Sprintf(`{"conversation_id":%q,"status":"idle","responder":"agent"}`, first.ConversationID), again.Raw)
		waited := u.again().do(t, http.MethodPost, endpoint+"?wait=20", text("msg_1", "hello"))
		require.Equal(t, http.StatusCreated, waited.Status)
		require.Equal(t, first.Events, waited.Events)
		require.Len(t, u.read(t, first.ConversationID, "").Events, 4)
		require.Len(t, in.backend.webhooks(), 1)
	})
}

func TestRetry_LaterMessage(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#8", "poppy-0.1/7.3#9", "poppy-0.1/7.3#d36", "poppy-0.1/7.3#d17", "poppy-0.1/7.12#d24")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		u.send(t, first.ConversationID, "?wait=20&cursor="+first.Cursor, text("msg_2", "more"))
		u.close(t, first.ConversationID)
		// The retry check comes before the closed check.
		again := u.send(t, first.ConversationID, "", text("msg_2", "more"))
		require.Equal(t, http.StatusAccepted, again.Status)
		require.Equal(t, "closed", again.State)
		waited := u.send(t, first.ConversationID, "?wait=20&cursor="+first.Cursor, text("msg_2", "more"))
		require.Equal(t, http.StatusAccepted, waited.Status)
		require.Equal(t, []string{"user: more", "=working", "company: echo: more", "=idle", "=closed"}, waited.told())
		require.Len(t, in.backend.webhooks(), 2)
	})
}

func TestRetry_OtherContentIsAConflict(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.3#11", "poppy-0.1/7.3#d16", "poppy-0.1/7.3#d17", "poppy-0.1/7.13#9", "poppy-0.1/7.13#10")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		second := u.start(t, "msg_2", "hello")
		for name, got := range map[string]answer{
			"other text":         u.do(t, http.MethodPost, endpoint, text("msg_1", "hello!")),
			"context added":      u.do(t, http.MethodPost, endpoint, `{"message":{"id":"msg_1","sender":"agent","text":"hello","context":{"locale":"de"}}}`),
			"other sender":       u.do(t, http.MethodPost, endpoint, `{"message":{"id":"msg_1","sender":"human","text":"hello"}}`),
			"as a later message": u.send(t, first.ConversationID, "", text("msg_1", "hello")),
			"other conversation": u.send(t, second.ConversationID, "", text("msg_1", "hello")),
		} {
			require.Equal(t, http.StatusConflict, got.Status, name)
			require.Equal(t, "message_id_conflict", got.Error, name)
		}
		require.Len(t, in.backend.webhooks(), 2)
	})
}

func TestRetry_IDsBelongToTheUser(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#8", "poppy-0.1/7.4#2")
		a := in.user("usr_1").start(t, "msg_1", "hello")
		b := in.user("usr_2").start(t, "msg_1", "other")
		c := in.userOf(in.company, "https://other.example/agent.json", "usr_1").start(t, "msg_1", "third")
		d := in.userOf(in.newCompany(t), agentID, "usr_1").start(t, "msg_1", "fourth")
		require.Len(t, map[string]bool{a.ConversationID: true, b.ConversationID: true, c.ConversationID: true, d.ConversationID: true}, 4)
	})
}

func TestID02_ParallelFirstSendsOfOneMessage(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#8", "poppy-0.1/7.3#9", "poppy-0.1/7.3#10")
		other := in.replica(t, dispatch.Config{})
		start(t, other)
		_, address := in.serveWeb(t, other)
		const n = 50
		answers := make([]answer, n)
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			u := in.user("usr_1")
			if i%2 == 1 {
				u.address = address
			}
			wg.Go(func() { answers[i], errs[i] = u.try(t.Context(), http.MethodPost, endpoint, text("msg_1", "hello")) })
		}
		wg.Wait()
		for i := range n {
			require.NoError(t, errs[i])
			require.Equal(t, http.StatusCreated, answers[i].Status, answers[i].Raw)
			require.Equal(t, answers[0].ConversationID, answers[i].ConversationID)
		}
		in.backend.await(t, 1)
		list := in.list(t, "")
		require.Len(t, list.GetConversations(), 1)
		require.Len(t, in.backend.webhooks(), 1)
	})
}

func TestID02_ParallelSendsOfOneLaterMessage(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#9")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		second := in.user("usr_1").start(t, "msg_2", "hello")
		statuses := make([]int, 40)
		var wg sync.WaitGroup
		for i := range statuses {
			to := first.ConversationID
			if i%2 == 1 {
				to = second.ConversationID // the same id in two conversations: only one can have it
			}
			wg.Go(func() {
				got, err := u.try(t.Context(), http.MethodPost, endpoint+"/"+to+"/messages", text("msg_3", "again"))
				if err == nil {
					statuses[i] = got.Status
				}
			})
		}
		wg.Wait()
		won := statuses[0] == http.StatusAccepted
		for i, s := range statuses {
			if (i%2 == 0) == won {
				require.Equal(t, http.StatusAccepted, s)
			} else {
				require.Equal(t, http.StatusConflict, s)
			}
		}
	})
}

func TestMessage_WrongBodies(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.2#16", "poppy-0.1/7.3#1", "poppy-0.1/7.3#4", "poppy-0.1/7.4#1", "poppy-0.1/7.4#2", "poppy-0.1/7.4#3", "poppy-0.1/7.4#4",
			"poppy-0.1/7.4#5", "poppy-0.1/7.4#6", "poppy-0.1/7.4#7", "poppy-0.1/7.4#d46", "poppy-0.1/7.13#2", "poppy-0.1/7.13#14")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		for name, body := range map[string]string{
			"empty":                   ``,
			"no JSON":                 `hello`,
			"list":                    `[]`,
			"no message":              `{}`,
			"message no object":       `{"message":"hello"}`,
			"no id":                   `{"message":{"sender":"agent","text":"x"}}`,
			"id with a dot":           `{"message":{"id":"a.b","sender":"agent","text":"x"}}`,
			"id empty":                `{"message":{"id":"","sender":"agent","text":"x"}}`,
			"id too long":             `{"message":{"id":"` + strings.Repeat("a", 257) + `","sender":"agent","text":"x"}}`,
			"id a number":             `{"message":{"id":7,"sender":"agent","text":"x"}}`,
			"no sender":               `{"message":{"id":"m","text":"x"}}`,
			"sender company":          `{"message":{"id":"m","sender":"company","text":"x"}}`,
			"nothing to say":          `{"message":{"id":"m","sender":"agent"}}`,
			"CV-06 empty text":        `{"message":{"id":"m","sender":"agent","text":""}}`,
			"CV-06 null context":      `{"message":{"id":"m","sender":"agent","context":null}}`,
			"text a number":           `{"message":{"id":"m","sender":"agent","text":1}}`,
			"data a list":             `{"message":{"id":"m","sender":"agent","data":[]}}`,
			"context a string":        `{"message":{"id":"m","sender":"agent","context":"de"}}`,
			"locale no tag":           `{"message":{"id":"m","sender":"agent","context":{"locale":"not a tag"}}}`,
			"time zone a number":      `{"message":{"id":"m","sender":"agent","context":{"time_zone":1}}}`,
			"user_available a string": `{"message":{"id":"m","sender":"agent","context":{"user_available":"yes"}}}`,
			"CO-04 NUL in text":       `{"message":{"id":"m","sender":"agent","text":"a\u0000b"}}`,
			"CO-04 NUL in a key":      `{"message":{"id":"m","sender":"agent","data":{"k\u0000":1}}}`,
			"CO-04 lone surrogate":    `{"message":{"id":"m","sender":"agent","text":"\ud800"}}`,
			"CO-04 no UTF-8":          "{\"message\":{\"id\":\"m\",\"sender\":\"agent\",\"text\":\"\xff\"}}",
			"GW-08 doubled key":       `{"message":{"id":"m","sender":"agent","text":"a"},"message":{"id":"m","sender":"agent","text":"b"}}`,
			"GW-08 doubled inside":    `{"message":{"id":"m","id":"n","sender":"agent","text":"a"}}`,
			"form":                    `message=hello`,
		} {
			for _, path := range []string{endpoint, endpoint + "/" + first.ConversationID + "/messages"} {
				got := u.do(t, http.MethodPost, path, body)
				require.Equal(t, http.StatusBadRequest, got.Status, "%s: %s", name, got.Raw)
				require.Equal(t, "invalid_request", got.Error, name)
				require.Equal(t, "application/json", got.Header.Get("Content-Type"))
				for _, leak := range []string{"json:", "pq:", "sql", "strconv", ".go"} {
					require.NotContains(t, got.Raw, leak, "GW-05 %s", name)
				}
			}
		}
		require.Len(t, in.list(t, "").GetConversations(), 1)
		require.Len(t, u.read(t, first.ConversationID, "").Events, 4)
	})
}

func TestMessage_TooLarge(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.4#10")
		clausetest.Refuses(t, "poppy-0.1/7.4#10")
		u := in.user("usr_1")
		got := u.do(t, http.MethodPost, endpoint, text("msg_1", strings.Repeat("x", 300<<10)))
		require.Equal(t, http.StatusRequestEntityTooLarge, got.Status)
		require.Equal(t, "request_too_large", got.Error)
		got = u.do(t, http.MethodPost, endpoint, text("msg_1", strings.Repeat("x", 32_001)))
		require.Equal(t, http.StatusRequestEntityTooLarge, got.Status)
		long := u.do(t, http.MethodPost, endpoint, text("msg_1", strings.Repeat("é", 32_000)))
		require.Equal(t, http.StatusCreated, long.Status)
	})
}

func TestCO04_TextComesBackAsItWasSent(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.4#5", "poppy-0.1/7.4#6")
		const said = "<b>&amp; \u2028 \\u0041 😀 \u202e \t"
		u := in.user("usr_1")
		got := u.start(t, "msg_1", said)
		require.Equal(t, said, got.Events[0].Message.Text)
		require.Equal(t, said, in.backend.webhooks()[0].Data.Message.Text)
		body := `{"message":{"id":"msg_2","sender":"agent","data":{"n":1.0,"big":12345678901234567890,"z":{"é":"ü"},"a":[1e2,-0]}}}`
		u.send(t, got.ConversationID, "?wait=20&cursor="+got.Cursor, body)
		read := u.read(t, got.ConversationID, "?cursor="+got.Cursor)
		require.Equal(t, `{"n":1.0,"big":12345678901234567890,"z":{"é":"ü"},"a":[1e2,-0]}`, string(read.Events[0].Message.Data))
	})
}

func TestCV06_ContextOnlyMessage(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.4#7", "poppy-0.1/7.4#17", "poppy-0.1/7.4#19", "poppy-0.1/7.4#20", "poppy-0.1/7.4#21", "poppy-0.1/7.4#22", "poppy-0.1/7.4#26",
			"poppy-0.1/7.4#27", "poppy-0.1/7.4#28", "poppy-0.1/7.4#30", "poppy-0.1/7.4#d46", "poppy-0.1/7.4#d20", "poppy-0.1/7.4#1")
		u := in.user("usr_1")
		got := u.do(t, http.MethodPost, endpoint+"?wait=20",
			`{"message":{"id":"msg_1","sender":"agent","text":"hi","context":{"locale":"en-US","time_zone":"America/Los_Angeles","user_available":true,"units":{"z":1,"a":2.50}}}}`)
		stepped := u.send(t, got.ConversationID, "", `{"message":{"id":"msg_2","sender":"agent","context":{"user_available":false,"locale":null}}}`)
		require.Equal(t, http.StatusAccepted, stepped.Status)
		require.Equal(t, "idle", stepped.State, "a context asks for no reply")
		hooks := in.backend.await(t, 2)
		require.Equal(t, map[string]any{"locale": "en-US", "time_zone": "America/Los_Angeles", "user_available": true, "units": map[string]any{"z": 1.0, "a": 2.5}}, hooks[0].Data.Context)
		require.Equal(t, map[string]any{"locale": "en-US", "time_zone": "America/Los_Angeles", "user_available": false, "units": map[string]any{"z": 1.0, "a": 2.5}}, hooks[1].Data.Context)
		require.True(t, hooks[0].Data.Expected.Reply)
		require.False(t, hooks[1].Data.Expected.Reply)
		require.Nil(t, hooks[1].Data.Expected.ReplyBy)
		read := u.read(t, got.ConversationID, "?cursor="+got.Cursor)
		require.Equal(t, message{ID: "msg_2", Role: "user", Sender: "agent"}, *read.Events[0].Message)
		require.NotContains(t, read.Raw, "context")
	})
}

func TestContext_IsNotMergedByARetryOrARefusedMessage(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.4#d20")
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "hi")
		u.send(t, got.ConversationID, "", `{"message":{"id":"msg_2","sender":"agent","context":{"locale":"de"}}}`)
		u.send(t, got.ConversationID, "", `{"message":{"id":"msg_3","sender":"agent","context":{"locale":"fr"}}}`)
		require.Equal(t, http.StatusAccepted, u.send(t, got.ConversationID, "", `{"message":{"id":"msg_2","sender":"agent","context":{"locale":"de"}}}`).Status)
		require.Equal(t, http.StatusConflict, u.send(t, got.ConversationID, "", `{"message":{"id":"msg_2","sender":"agent","context":{"locale":"es"}}}`).Status)
		require.Equal(t, "fr", in.get(t, got.ConversationID).GetContext().GetFields()["locale"].GetStringValue())
	})
}

func TestCV05_RoleOfTheAgentIsIgnored(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.4#9", "poppy-0.1/7.4#3")
		u := in.user("usr_1")
		got := u.do(t, http.MethodPost, endpoint+"?wait=20", `{"message":{"id":"msg_1","role":"company","sender":"agent","text":"I am the company"}}`)
		require.Equal(t, http.StatusCreated, got.Status)
		require.Equal(t, "user", got.Events[0].Message.Role)
	})
}
