package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestConversations_FromStartToClose(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#15", "poppy-0.1/7#1", "poppy-0.1/7#2", "poppy-0.1/7.1#5", "poppy-0.1/7.2#1", "poppy-0.1/7.2#2", "poppy-0.1/7.2#3", "poppy-0.1/7.2#4", "poppy-0.1/7.2#5", "poppy-0.1/7.2#6", "poppy-0.1/7.2#8", "poppy-0.1/7.2#9",
			"poppy-0.1/7.2#10", "poppy-0.1/7.2#12", "poppy-0.1/7.2#16", "poppy-0.1/7.2#17", "poppy-0.1/7.2#18", "poppy-0.1/7.3#1", "poppy-0.1/7.3#2", "poppy-0.1/7.3#3", "poppy-0.1/7.3#4", "poppy-0.1/7.3#5",
			"poppy-0.1/7.12#1", "poppy-0.1/7.12#2", "poppy-0.1/7.12#4", "poppy-0.1/4#11", "poppy-0.1/4#7")
		co := in.company(t)
		s := co.visitor(t)
		got := s.post(t, conversationsPath, text("Hello")).is(t, http.StatusCreated, "")
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		require.Len(t, got.body, 3)
		id := got.str("conversation_id")
		require.Regexp(t, `^cnv_[A-Za-z0-9_-]{1,252}$`, id)
		require.Equal(t, "working", got.str("status"))
		require.Equal(t, "agent", got.str("responder"))
		s.settled(t, id)
		got = s.post(t, messagesPath(id), text("And now?")).is(t, http.StatusAccepted, "")
		require.Equal(t, object{"conversation_id": id, "status": "working", "responder": "agent"}, got.body)
		events := s.settled(t, id)
		require.Equal(t, []string{"user", "working", "company", "idle", "user", "working", "company", "idle"}, shape(events))
		for _, e := range events {
			require.Regexp(t, `^evt_[A-Za-z0-9_-]{1,252}$`, e.ID)
			if e.from("company") {
				require.Regexp(t, `^msg_[A-Za-z0-9_-]{1,252}$`, e.Message["id"])
			}
		}
		got = s.post(t, closePath(id), "{}").is(t, http.StatusOK, "")
		require.Equal(t, object{"conversation_id": id, "status": "closed", "responder": "agent"}, got.body)
		require.Equal(t, []string{"closed"}, shape(s.events(t, id)[8:]))
	})
}

// A conversation is its client's and User's, and nobody else learns that it exists.
func TestConversations_OfOthersAreNotThere(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.13#3", "poppy-0.1/7.13#4", "poppy-0.1/7.13#d21", "poppy-0.1/7.13#2")
		clausetest.Refuses(t, "poppy-0.1/4#3", "poppy-0.1/7.2#2", "poppy-0.1/7.2#12", "poppy-0.1/7.2#14", "poppy-0.1/7.2#15", "poppy-0.1/7.13#3", "poppy-0.1/7.13#4", "poppy-0.1/7.13#d21", "poppy-0.1/7.2#16", "poppy-0.1/7.3#4",
			"poppy-0.1/7.2#5", "poppy-0.1/7.2#6", "poppy-0.1/7.2#8", "poppy-0.1/7.2#9", "poppy-0.1/4#2")
		co, elsewhere := in.company(t), in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		s.settled(t, id)
		strangers := map[string]*session{
			"another client":  co.open(t, in.agent(t), s.user),
			"another User":    co.open(t, s.agent, "usr_other"),
			"another Company": elsewhere.open(t, s.agent, s.user),
		}
		unknown := s.read(t, "cnv_01h00000000000000000000000", "").is(t, http.StatusNotFound, "conversation_not_found")
		require.Equal(t, `{"error":"conversation_not_found"}`, string(unknown.raw))
		for name, who := range strangers {
			for _, got := range []answer{who.read(t, id, ""), who.post(t, messagesPath(id), text("Hi")), who.post(t, closePath(id), "{}"), who.post(t, handoffPath(id), "{}"), who.directBelow(t, id, "Hi"), who.read(t, id, "cursor=x&wait=1")} {
				require.Equal(t, http.StatusNotFound, got.status, name)
				require.Equal(t, unknown.raw, got.raw, name)
			}
		}
		for _, odd := range []string{"x", "CNV_" + strings.TrimPrefix(id, "cnv_"), strings.Repeat("a", 256), strings.Repeat("a", 2000), "%00", "a%20b", "%F0%9F%8D%9C"} {
			for _, got := range []answer{s.read(t, odd, ""), s.post(t, messagesPath(odd), text("Hi")), s.post(t, closePath(odd), "{}")} {
				require.Equal(t, http.StatusNotFound, got.status, odd)
			}
		}
		require.Len(t, s.events(t, id), 4)
		for _, path := range []string{"/handoff/x", "/nothing", "", "/events/", "/messages/x"} {
			s.post(t, conversationsPath+"/"+id+path, "{}").is(t, http.StatusNotFound, "not_found")
		}
		got := s.do(t, http.MethodPut, messagesPath(id), text("Hi")).is(t, http.StatusMethodNotAllowed, "method_not_allowed")
		require.Equal(t, "POST", got.header.Get("Allow"))
	})
}

func TestConversations_OutlastTheirSession(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#14", "poppy-0.1/4.2#40")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		s.settled(t, id)
		co.admin(t, http.MethodPost, co.name+"/sessions/"+s.id+":end", object{}).is(t, http.StatusOK, "")
		next := s.again(t)
		next.post(t, messagesPath(id), text("Still there?")).is(t, http.StatusAccepted, "")
		require.Len(t, next.settled(t, id), 8)
		require.Equal(t, s.id, co.backend.next(t).body.Data.Session.ID)
		require.Equal(t, next.id, co.backend.next(t).body.Data.Session.ID)
	})
}

// The credentials are judged before anything else of the request.
func TestConversations_BodyIsNotLookedAtWithoutAToken(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.2#3", "poppy-0.1/4.3#1", "poppy-0.1/7.13#1")
		co := in.company(t)
		s := co.visitor(t)
		for _, body := range []string{"", "{", "x", `{"message":{}}`} {
			s.post(t, conversationsPath, body, header("Authorization")).is(t, http.StatusUnauthorized, "invalid_token")
		}
		s.read(t, "x", "wait=abc", header("Authorization")).is(t, http.StatusUnauthorized, "invalid_token")
		off := in.company(t, settings(object{"conversations_enabled": false, "apis": []any{object{"type": "openapi", "url": "https://api.harbor.example/o.json"}}}))
		o := off.open(t, s.agent, s.user)
		o.post(t, conversationsPath, text("Hello")).is(t, http.StatusNotFound, "not_found")
	})
}

// ID-02: one message sent many times at once is one message.
func TestID02_ParallelSendsOfOneMessage(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#8", "poppy-0.1/7.3#9", "poppy-0.1/7.3#10", "poppy-0.1/7.3#d36")
		co := in.company(t)
		s := co.visitor(t)
		many := func(path string, body object) []answer {
			const count = 50
			requests := make([]*http.Request, count)
			for i := range requests {
				requests[i] = s.request(t, http.MethodPost, path, body)
			}
			type result struct {
				answer answer
				err    error
			}
			results := make(chan result, count)
			for _, r := range requests {
				go func() {
					got, err := in.try(r)
					results <- result{got, err}
				}()
			}
			out := make([]answer, count)
			for i := range out {
				one := <-results
				require.NoError(t, one.err)
				out[i] = one.answer
			}
			return out
		}
		id := ""
		for _, got := range many(conversationsPath, text("Hello")) {
			got.is(t, http.StatusCreated, "")
			if id == "" {
				id = got.str("conversation_id")
			}
			require.Equal(t, id, got.str("conversation_id"))
		}
		s.settled(t, id)
		for _, got := range many(messagesPath(id), text("And now?")) {
			require.Equal(t, id, got.is(t, http.StatusAccepted, "").str("conversation_id"))
		}
		require.Equal(t, []string{"user", "working", "company", "idle", "user", "working", "company", "idle"}, shape(s.settled(t, id)))
		require.Equal(t, 2, co.backend.total())
	})
}

// Two messages of one User with different contents may not share an id, wherever they go.
func TestID01_RetriesAndConflicts(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.3#8", "poppy-0.1/7.3#9", "poppy-0.1/7.3#10", "poppy-0.1/7.3#11", "poppy-0.1/7.3#12", "poppy-0.1/7.3#d16", "poppy-0.1/7.3#d17", "poppy-0.1/7.3#d36", "poppy-0.1/7.13#9", "poppy-0.1/7.13#10", "poppy-0.1/7.4#2")
		clausetest.Refuses(t, "poppy-0.1/7.3#9", "poppy-0.1/7.3#d36", "poppy-0.1/7.3#8", "poppy-0.1/7.3#10", "poppy-0.1/7.3#11", "poppy-0.1/7.3#12", "poppy-0.1/7.3#d16", "poppy-0.1/7.3#d17", "poppy-0.1/7.13#9", "poppy-0.1/7.13#10", "poppy-0.1/7.4#2", "poppy-0.1/7.4#d20")
		co := in.company(t)
		s := co.visitor(t)
		first := `{"message":{"id":"msg_1","sender":"agent","text":"Hello","data":{"a":1,"b":[2,{"c":null}]},"context":{"locale":"en-US"}}}`
		id := s.post(t, conversationsPath, first).is(t, http.StatusCreated, "").str("conversation_id")
		s.settled(t, id)
		for name, body := range map[string]string{
			"same bytes":       first,
			"keys reordered":   `{"message":{"context":{"locale":"en-US"},"data":{"b":[2,{"c":null}],"a":1},"text":"Hello","sender":"agent","id":"msg_1"}}`,
			"whitespace":       strings.ReplaceAll(first, ",", " ,\n"),
			"an unknown field": strings.Replace(first, `"sender"`, `"future":true,"sender"`, 1),
			"1.0 for 1":        strings.Replace(first, `"a":1`, `"a":1.0`, 1),
			"escapes":          strings.Replace(first, "Hello", `\u0048ello`, 1),
		} {
			got := s.post(t, conversationsPath, body).is(t, http.StatusCreated, "")
			require.Equal(t, object{"conversation_id": id, "status": "idle", "responder": "agent"}, got.body, name)
		}
		for name, body := range map[string]string{
			"other text":      strings.Replace(first, "Hello", "Hallo", 1),
			"other sender":    strings.Replace(first, `"agent"`, `"human"`, 1),
			"other data":      strings.Replace(first, `"a":1`, `"a":2`, 1),
			"no data":         strings.Replace(first, `"data":{"a":1,"b":[2,{"c":null}]},`, "", 1),
			"other context":   strings.Replace(first, "en-US", "de-DE", 1),
			"order of a list": strings.Replace(first, `[2,{"c":null}]`, `[{"c":null},2]`, 1),
		} {
			got := s.post(t, conversationsPath, body)
			require.Equal(t, http.StatusConflict, got.status, name)
			got.is(t, http.StatusConflict, "message_id_conflict")
		}
		// The same id in a conversation, whether that is the one it started or another.
		s.post(t, messagesPath(id), first).is(t, http.StatusConflict, "message_id_conflict")
		other := s.talk(t, "Something else")
		s.post(t, messagesPath(other), first).is(t, http.StatusConflict, "message_id_conflict")
		later := message(object{"id": "msg_2", "text": "Later"})
		s.post(t, messagesPath(id), later).is(t, http.StatusAccepted, "")
		s.settled(t, id)
		require.Equal(t, "idle", s.post(t, messagesPath(id), later).is(t, http.StatusAccepted, "").str("status"))
		s.post(t, conversationsPath, later).is(t, http.StatusConflict, "message_id_conflict")
		s.post(t, messagesPath(other), later).is(t, http.StatusConflict, "message_id_conflict")
		// Another User may well use the id; another Session of this one sends a retry.
		co.open(t, s.agent, "usr_other").post(t, conversationsPath, first).is(t, http.StatusCreated, "")
		require.Equal(t, id, s.again(t).post(t, conversationsPath, first).is(t, http.StatusCreated, "").str("conversation_id"))
		// With wait a retry is a read.
		got := s.post(t, conversationsPath+"?wait=5", first).is(t, http.StatusCreated, "")
		require.Equal(t, []string{"user", "working", "company", "idle", "user", "working", "company", "idle"}, shape(got.events(t)))
		// The check lasts as long as the conversation, closed or not.
		s.post(t, closePath(id), "{}").is(t, http.StatusOK, "")
		require.Equal(t, "closed", s.post(t, conversationsPath, first).is(t, http.StatusCreated, "").str("status"))
		require.Equal(t, "closed", s.post(t, messagesPath(id), later).is(t, http.StatusAccepted, "").str("status"))
		s.post(t, messagesPath(id), message(object{"id": "msg_2", "text": "Changed"})).is(t, http.StatusConflict, "message_id_conflict")
		s.post(t, messagesPath(id), text("New")).is(t, http.StatusConflict, "conversation_closed")
		require.Len(t, s.events(t, id), 9)
	})
}

// Two Users of one agent, two agents of one User: ids of messages are each one's own.
func TestConversations_MessageIDsBelongToTheUser(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#18", "poppy-0.1/7.4#2")
		co := in.company(t)
		a := in.agent(t)
		seen := map[string]bool{}
		for _, s := range []*session{co.open(t, a, "usr_1"), co.open(t, a, "usr_2"), co.open(t, in.agent(t), "usr_1")} {
			for _, words := range []string{"Hello from " + s.user + fixture.RandomID()} {
				seen[s.post(t, conversationsPath, message(object{"id": "msg_1", "text": words})).is(t, http.StatusCreated, "").str("conversation_id")] = true
			}
		}
		require.Len(t, seen, 3)
	})
}
