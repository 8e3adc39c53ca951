package conversations_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// requests are one request to each endpoint of a conversation.
func requests(id string) map[string][3]string {
	return map[string][3]string{
		"start":    {http.MethodPost, endpoint, text("msg_s", "hello")},
		"messages": {http.MethodPost, endpoint + "/" + id + "/messages", text("msg_m", "hello")},
		"handoff":  {http.MethodPost, endpoint + "/" + id + "/handoff", "{}"},
		"events":   {http.MethodGet, endpoint + "/" + id + "/events", ""},
		"close":    {http.MethodPost, endpoint + "/" + id + "/close", "{}"},
	}
}

func TestToken_IsJudgedBeforeAnythingElse(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.2#3", "poppy-0.1/7.13#1", "poppy-0.1/4.3#1", "poppy-0.1/4.3#2")
		u := in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		in.sessions.mu.Lock()
		in.sessions.nonce = "nonce-1"
		in.sessions.mu.Unlock()
		for name, r := range requests(id) {
			for what, change := range map[string]func(*http.Request){
				"no token":      func(r *http.Request) { r.Header.Del("Authorization") },
				"unknown token": func(r *http.Request) { r.Header.Set("Authorization", "DPoP nobody") },
				"no proof":      func(r *http.Request) { r.Header.Del("DPoP") },
				"broken body":   func(r *http.Request) { r.Header.Del("Authorization"); r.Body = http.NoBody },
			} {
				got := u.do(t, r[0], r[1], r[2], change)
				require.Equal(t, http.StatusUnauthorized, got.Status, "%s %s: %s", name, what, got.Raw)
				require.True(t, strings.HasPrefix(got.Header.Get("WWW-Authenticate"), `DPoP error="`+got.Error+`"`), name)
				require.Equal(t, "nonce-1", got.Header.Get("DPoP-Nonce"))
				require.NotContains(t, got.Raw, "nonce-1")
				require.NotContains(t, got.Raw, "dpop_nonce")
				require.Equal(t, "no-store", got.Header.Get("Cache-Control"))
			}
		}
		require.Len(t, in.events(t, id), 4)
	})
}

func TestToken_IsJudgedForTheConfiguredAddress(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.3#d2", "poppy-0.1/7.2#3", "poppy-0.1/7.2#9", "poppy-0.1/4.3#1", "poppy-0.1/4.3#2")
		in.company.Snapshot.ConversationsResource = "https://talk.example/"
		in.Changed(in.company)
		u := in.user("usr_1")
		in.sessions.mu.Lock()
		in.sessions.known[u.token].DpopNonce = "nonce-2"
		in.sessions.mu.Unlock()
		issuer := in.company.Issuer.String()
		for name := range requests("") {
			r := requests(u.start(t, "msg_"+name, "hello").ConversationID)[name]
			got := u.do(t, r[0], r[1]+"?wait=0", r[2], func(r *http.Request) {
				r.Header.Set("X-Forwarded-Host", "evil.example")
				r.Header.Set("Forwarded", "host=evil.example;proto=http")
			})
			require.Less(t, got.Status, 300, name)
			require.Equal(t, "nonce-2", got.Header.Get("DPoP-Nonce"), name)
			asked := in.sessions.last()
			require.Equal(t, issuer+r[1], asked.GetProof().GetUrl())
			require.Equal(t, r[0], asked.GetProof().GetMethod())
			require.Equal(t, []string{"proof"}, asked.GetProof().GetProofs())
			require.Equal(t, "https://talk.example/", asked.GetRequiredResource())
		}
	})
}

func TestToken_RefusalsOfEveryKindPassThrough(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.13#16", "poppy-0.1/4.3#46", "poppy-0.1/7.13#1")
		u := in.user("usr_1")
		for _, c := range []struct {
			refusal *problem.Error
			status  int
			header  string
			value   string
		}{
			{problem.New(problem.RateLimited, problem.RateLimitedReason, "", "too many requests").WithRetryAfter(7 * time.Second), http.StatusTooManyRequests, "Retry-After", "7"},
			{problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "briefly unavailable").WithRetryAfter(time.Second), http.StatusServiceUnavailable, "Retry-After", "1"},
			{problem.New(problem.Unauthenticated, problem.UseDPoPNonce, "", "needs a nonce").WithExtra("dpop_nonce", "n1"), http.StatusUnauthorized, "DPoP-Nonce", "n1"},
		} {
			in.sessions.mu.Lock()
			in.sessions.refusal = c.refusal
			in.sessions.mu.Unlock()
			got := u.do(t, http.MethodPost, endpoint, text("msg_1", "hello"))
			require.Equal(t, c.status, got.Status)
			require.Equal(t, c.value, got.Header.Get(c.header))
			require.Equal(t, c.refusal.Reason.Wire(), got.Error)
			require.NotContains(t, got.Raw, "nonce\":")
		}
		require.Empty(t, in.backend.webhooks())
	})
}

func TestLG03_TokenInTheURL(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/4.3#45", "poppy-0.1/4.3#d26")
		u := in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		for name, r := range requests(id) {
			for _, query := range []string{"?access_token=secret-value", "?DPoP=secret-value", "?x=eyJhbGciOiJFUzI1NiJ9.secret-value.x"} {
				got := u.do(t, r[0], r[1]+query, r[2])
				require.Equal(t, http.StatusBadRequest, got.Status, name)
				require.Equal(t, "invalid_request", got.Error, name)
				require.NotContains(t, got.Raw, "secret-value")
				got = u.do(t, r[0], r[1]+query, r[2], func(r *http.Request) { r.Header.Del("Authorization") })
				require.Equal(t, http.StatusUnauthorized, got.Status, name)
			}
		}
		require.NotContains(t, in.Logged.String(), "secret-value")
		require.Len(t, in.events(t, id), 4)
	})
}

func TestOwner_StrangersGetTheAnswerOfNoConversation(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.2#12", "poppy-0.1/7.2#15", "poppy-0.1/7.13#3", "poppy-0.1/7.13#4", "poppy-0.1/7.13#d21", "poppy-0.1/7.13#2")
		id := in.user("usr_1").start(t, "msg_1", "hello").ConversationID
		strangers := map[string]*user{
			"other user":    in.user("usr_2"),
			"other client":  in.userOf(in.company, "https://other.example/agent.json", "usr_1"),
			"other company": in.userOf(in.newCompany(t), agentID, "usr_1"),
		}
		for who, s := range strangers {
			for name := range requests(id) {
				if name == "start" {
					continue
				}
				ask := func(id string) answer { r := requests(id)[name]; return s.do(t, r[0], r[1], r[2]) }
				unknown := ask("cnv_0000000000000000000000000")
				require.Equal(t, http.StatusNotFound, unknown.Status)
				require.Equal(t, "conversation_not_found", unknown.Error)
				for _, other := range []string{id, strings.Repeat("a", 300), "a%20b", "a.b"} {
					got := ask(other)
					require.Equal(t, unknown.Status, got.Status, "%s %s", who, name)
					require.Equal(t, unknown.Raw, got.Raw, "%s %s", who, name)
					got.Header.Del("X-Request-Id")
					unknown.Header.Del("X-Request-Id")
					got.Header.Del("Date")
					unknown.Header.Del("Date")
					require.Equal(t, unknown.Header, got.Header)
				}
			}
		}
		require.Len(t, in.events(t, id), 4)
	})
}

func TestOwner_AnySessionOfTheUserGoesOn(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#12", "poppy-0.1/7.2#14", "poppy-0.1/7.2#15", "poppy-0.1/7.13#d21", "poppy-0.1/7.11#10", "poppy-0.1/7.11#11", "poppy-0.1/7.11#12")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		next := u.again()
		got := next.send(t, first.ConversationID, "?wait=20&cursor="+first.Cursor, text("msg_2", "still me"))
		require.Equal(t, http.StatusAccepted, got.Status)
		require.Equal(t, first.ConversationID, got.ConversationID)
		hooks := in.backend.webhooks()
		require.Equal(t, next.session.GetSessionId(), hooks[len(hooks)-1].Data.Session.ID)
	})
}

func TestOwner_ConversationOfAnAccount(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#13", "poppy-0.1/7.2#d21", "poppy-0.1/7.11#8")
		clausetest.Refuses(t, "poppy-0.1/7.2#13", "poppy-0.1/7.2#d21", "poppy-0.1/7.11#15", "poppy-0.1/7.11#d21", "poppy-0.1/7.13#d21")
		out := in.user("usr_1")
		first := out.start(t, "msg_1", "hello")
		mine, other := out.signedIn("acc_1"), out.signedIn("acc_2")
		require.Equal(t, http.StatusOK, other.read(t, first.ConversationID, "").Status, "a read binds nothing")
		got := mine.send(t, first.ConversationID, "?wait=20&cursor="+first.Cursor, text("msg_2", "my orders?"))
		require.Equal(t, http.StatusAccepted, got.Status)
		hooks := in.backend.webhooks()
		require.True(t, hooks[1].Data.Session.SignedIn)
		require.Equal(t, "acc_1", *hooks[1].Data.Session.Account)
		for name := range requests(first.ConversationID) {
			if name == "start" {
				continue
			}
			r := requests(first.ConversationID)[name]
			signedOut := out.do(t, r[0], r[1], r[2])
			require.Equal(t, http.StatusForbidden, signedOut.Status, name)
			require.Equal(t, "sign_in_required", signedOut.Error)
			require.Contains(t, signedOut.Header.Get("WWW-Authenticate"), `DPoP error="sign_in_required"`)
			require.Equal(t, http.StatusNotFound, other.do(t, r[0], r[1], r[2]).Status, name)
		}
		require.Equal(t, http.StatusForbidden, out.do(t, http.MethodPost, endpoint, text("msg_1", "hello")).Status, "a retry shows no more than a read")
		require.Equal(t, http.StatusOK, mine.read(t, first.ConversationID, "").Status)
	})
}

func TestClose_ByTheAgent(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.2#8", "poppy-0.1/7.2#9", "poppy-0.1/7.7#6", "poppy-0.1/7.7#14", "poppy-0.1/7.12#1", "poppy-0.1/7.12#2", "poppy-0.1/7.12#4", "poppy-0.1/7.12#7", "poppy-0.1/7.10#d38")
		clausetest.Refuses(t, "poppy-0.1/7.7#6", "poppy-0.1/7.12#6", "poppy-0.1/7.13#5", "poppy-0.1/7.13#6", "poppy-0.1/7.13#2")
		u := in.user("usr_1")
		first := u.start(t, "msg_1", "hello")
		for range 2 {
			got := u.close(t, first.ConversationID)
			require.Equal(t, http.StatusOK, got.Status)
			require.JSONEq(t, `{"conversation_id":"`+first.ConversationID+`","status":"closed","responder":"agent"}`, got.Raw)
		}
		require.Equal(t, []string{"=closed"}, u.read(t, first.ConversationID, "?cursor="+first.Cursor).told())
		require.Equal(t, "agent", in.get(t, first.ConversationID).GetClosedBy())
		refused := u.send(t, first.ConversationID, "", text("msg_2", "one more thing"))
		require.Equal(t, http.StatusConflict, refused.Status)
		require.Equal(t, "conversation_closed", refused.Error)
		require.Len(t, in.events(t, first.ConversationID), 5)
	})
}

func TestClose_WrongBodies(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/7.12#1", "poppy-0.1/7.2#8")
		u := in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		for _, body := range []string{"", "[]", "null", "close", `{"a":1,"a":2}`} {
			got := u.do(t, http.MethodPost, endpoint+"/"+id+"/close", body)
			require.Equal(t, http.StatusBadRequest, got.Status, body)
			require.Equal(t, "invalid_request", got.Error)
		}
		require.Equal(t, http.StatusOK, u.do(t, http.MethodPost, endpoint+"/"+id+"/close", `{"reason":"done"}`).Status)
	})
}

func TestEndpoint_OffIsNotFound(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		u := in.user("usr_1")
		in.company.Snapshot.ConversationsEnabled = false
		in.Changed(in.company)
		got := u.do(t, http.MethodPost, endpoint, text("msg_1", "hello"))
		require.Equal(t, http.StatusNotFound, got.Status)
		require.Equal(t, "not_found", got.Error)
	})
}

func TestEndpoint_NoRedirects(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Refuses(t, "poppy-0.1/4.3#d27", "poppy-0.1/7.2#2")
		u := in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		for _, path := range []string{endpoint + "/", endpoint + "/" + id, endpoint + "/" + id + "/events/", endpoint + "//events", endpoint + "/" + id + "/none"} {
			require.Equal(t, http.StatusNotFound, u.do(t, http.MethodGet, path, "").Status, path)
		}
		require.Equal(t, http.StatusMethodNotAllowed, u.do(t, http.MethodGet, endpoint, "").Status)
		require.Equal(t, http.StatusMethodNotAllowed, u.do(t, http.MethodDelete, endpoint+"/"+id+"/events", "").Status)
	})
}
