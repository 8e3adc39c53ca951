package agent

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	talkAt   = "api.shop.example/poppy/conversations"
	sendAt   = talkAt + "/cnv_1/messages"
	eventsAt = talkAt + "/cnv_1/events"
)

func human() TalkOptions { return TalkOptions{Sender: "human"} }

// waiting is human without streams: answers come in the response to the message.
func waiting() TalkOptions { return TalkOptions{Sender: "human", NoStream: true} }

func texts(r Reply) []string {
	var out []string
	for _, m := range r.Messages {
		out = append(out, m.Text)
	}
	return out
}

func sentBody(t *testing.T, r seenRequest) sentMessage {
	t.Helper()
	var in struct {
		Message sentMessage `json:"message"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &in))
	return in.Message
}

func TestTalk_AnswerAndContinuation(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	opts := waiting()
	opts.Locale, opts.TimeZone = "de-DE", "Europe/Berlin"
	available := true
	opts.UserAvailable = &available
	opts.Data = json.RawMessage(`{"order":"1042"}`)
	reply, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "Where is my order?", opts)
	require.NoError(t, err)
	require.Equal(t, []string{"answer 1 to Where is my order?"}, texts(reply))
	require.Equal(t, "cnv_1", reply.ConversationID)
	require.Equal(t, statusIdle, reply.Status)
	m := sentBody(t, c.requests(talkAt)[0])
	require.Regexp(t, `^msg_[A-Za-z0-9_-]{24}$`, m.ID)
	require.Equal(t, "human", m.Sender)
	require.JSONEq(t, `{"order":"1042"}`, string(m.Data))
	require.Equal(t, map[string]any{"locale": "de-DE", "time_zone": "Europe/Berlin", "user_available": true}, m.Context)

	steps := &collect{}
	reply, err = c.agent(dir, steps).Talk(t.Context(), shopDomain, "And the gyoza?", waiting())
	require.NoError(t, err)
	require.Equal(t, []string{"answer 2 to And the gyoza?"}, texts(reply), "nothing of the first turn again")
	require.Equal(t, "cnv_1", reply.ConversationID)
	require.Empty(t, steps.titled("Skip an event"))
	q, err := url.ParseQuery(c.requests(sendAt)[0].query)
	require.NoError(t, err)
	require.Equal(t, "evt_cnv_1_4", q.Get("cursor"))
	require.Len(t, c.requests(tokenAt), 1, "one Session for both")
	for _, r := range c.seen {
		for token := range c.tokens {
			require.NotContains(t, r.path+r.query, token)
		}
	}
}

func TestTalk_SkipsUnknownAndRepeatedEvents(t *testing.T) {
	c := newFakeCompany(t)
	c.answer = func(int, string) []map[string]any {
		said := companySays("once")
		said["id"] = "evt_said"
		return []map[string]any{
			{"type": "hologram", "message": "not an object", "status": 7},
			said,
			{"id": "evt_said", "type": "message", "message": said["message"]},
			{"type": "state", "status": "idle", "responder": "agent"},
		}
	}
	steps := &collect{}
	reply, err := c.agent(t.TempDir(), steps).Talk(t.Context(), shopDomain, "hello", human())
	require.NoError(t, err)
	require.Equal(t, []string{"once"}, texts(reply))
	require.Len(t, steps.titled("Skip an event handled before"), 1)
	require.Len(t, steps.titled("Skip an event type"), 1)
}

func TestTalk_ReadsOnWhileThereIsMore(t *testing.T) {
	c := newFakeCompany(t)
	c.pageSize = 1
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "hello", waiting())
	require.NoError(t, err)
	require.Equal(t, []string{"answer 1 to hello"}, texts(reply))
	reads := c.requests(eventsAt)
	require.Len(t, reads, 3)
	for _, r := range reads {
		require.NotContains(t, r.query, "wait", "has_more: again at once")
	}
}

func TestTalk_WaitsWhileTheCompanyWorks(t *testing.T) {
	c := newFakeCompany(t)
	c.status = statusWorking
	c.answer = func(int, string) []map[string]any {
		return []map[string]any{{"type": "state", "status": "working", "responder": "agent"}}
	}
	reads := 0
	c.routes[eventsAt] = func(w http.ResponseWriter, r *http.Request) {
		if reads++; reads == 3 {
			c.add("cnv_1", companySays("at last"))
			c.add("cnv_1", map[string]any{"type": "state", "status": "idle", "responder": "agent"})
			c.status = statusIdle
		}
		c.read(w, r, "cnv_1", 200)
	}
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "hello", waiting())
	require.NoError(t, err)
	require.Equal(t, []string{"at last"}, texts(reply))
	require.Equal(t, []time.Duration{time.Second, time.Second}, c.clock.waits, "no tight loop at a Company that doesn't hold reads")
}

func TestTalk_NothingToSay(t *testing.T) {
	for name, events := range map[string][]map[string]any{
		"with states": {
			{"type": "state", "status": "working", "responder": "agent"},
			{"type": "state", "status": "idle", "responder": "agent"},
		},
		"without": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			c.answer = func(int, string) []map[string]any { return events }
			reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "bye", human())
			require.NoError(t, err)
			require.Empty(t, reply.Messages)
			require.Equal(t, statusIdle, reply.Status)
		})
	}
}

func TestTalk_ReadsWhenTheCompanyIgnoresWait(t *testing.T) {
	c := newFakeCompany(t)
	c.routes[talkAt] = func(w http.ResponseWriter, _ *http.Request) {
		raw := c.seen[len(c.seen)-1].body
		var in struct {
			Message map[string]any `json:"message"`
		}
		_ = json.Unmarshal([]byte(raw), &in)
		in.Message["role"] = "user"
		c.add("cnv_1", map[string]any{"type": "message", "message": in.Message})
		c.add("cnv_1", companySays("hi"))
		writeJSON(w, 201, map[string]any{"conversation_id": "cnv_1", "status": "idle", "responder": "agent"})
	}
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "hello", waiting())
	require.NoError(t, err)
	require.Equal(t, []string{"hi"}, texts(reply))
}

func TestTalk_RenewsOnInvalidToken(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "one", human())
	require.NoError(t, err)
	for token := range c.tokens {
		c.revoked[token] = true
	}
	reply, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "two", human())
	require.NoError(t, err)
	require.Equal(t, []string{"answer 2 to two"}, texts(reply))
	require.Equal(t, "ses_1", c.requests(tokenAt)[1].form.Get("session_id"))
	sent := c.requests(sendAt)
	require.Len(t, sent, 2)
	require.Equal(t, sentBody(t, sent[0]).ID, sentBody(t, sent[1]).ID, "the same message again")
	require.NotEqual(t, sent[0].header.Get("Authorization"), sent[1].header.Get("Authorization"))
}

func TestTalk_GivesTheNonceThatIsAskedFor(t *testing.T) {
	c := newFakeCompany(t)
	c.nonce = "nonce-1"
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "hello", human())
	require.NoError(t, err)
	require.Len(t, reply.Messages, 1)
	require.Len(t, c.requests(talkAt), 2)
}

func TestTalk_ClosedConversationIsReplaced(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "one", human())
	require.NoError(t, err)
	c.status = statusClosed
	reply, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "two", human())
	require.NoError(t, err)
	require.Equal(t, "cnv_2", reply.ConversationID)
	require.Equal(t, []string{"answer 2 to two"}, texts(reply))
	require.NotEqual(t, sentBody(t, c.requests(sendAt)[0]).ID, sentBody(t, c.requests(talkAt)[1]).ID)
}

func TestTalk_ExpiredCursor(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "one", waiting())
	require.NoError(t, err)
	c.expired["evt_cnv_1_4"] = true
	steps := &collect{}
	reply, err := c.agent(dir, steps).Talk(t.Context(), shopDomain, "two", waiting())
	require.NoError(t, err)
	require.True(t, reply.Missing)
	require.Equal(t, []string{"answer 2 to two"}, texts(reply))
	require.Len(t, steps.titled("part of the conversation is missing"), 1)
	require.Len(t, steps.titled("Skip an event handled before"), 4)
	sent := c.requests(sendAt)
	require.Equal(t, sentBody(t, sent[0]).ID, sentBody(t, sent[1]).ID)
}

func TestTalk_RepeatsAfterABrokenConnection(t *testing.T) {
	c := newFakeCompany(t)
	c.routes[talkAt] = func(http.ResponseWriter, *http.Request) {
		delete(c.routes, talkAt)
		panic(http.ErrAbortHandler)
	}
	reply, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "hello", human())
	require.NoError(t, err)
	require.Len(t, reply.Messages, 1)
	sent := c.requests(talkAt)
	require.GreaterOrEqual(t, len(sent), 2)
	require.Equal(t, sentBody(t, sent[0]).ID, sentBody(t, sent[len(sent)-1]).ID)
}

func TestTalk_RefusalsAreSaid(t *testing.T) {
	for code, status := range map[string]int{
		"sign_in_required": 403, "direct_conversation_open": 409, "message_id_conflict": 409, "invalid_request": 400,
		"invalid_dpop_proof": 401, "temporarily_unavailable": 500,
	} {
		t.Run(code, func(t *testing.T) {
			c := newFakeCompany(t)
			c.routes[talkAt] = func(w http.ResponseWriter, _ *http.Request) { oauthError(w, status, code) }
			_, err := c.agent(t.TempDir(), Discard{}).Talk(t.Context(), shopDomain, "hello", human())
			require.ErrorContains(t, err, code)
			require.Equal(t, ExitRefused, ExitCode(err))
			require.Len(t, c.requests(talkAt), 1)
		})
	}
}

func TestTalk_RefusesBadMessages(t *testing.T) {
	a := newFakeCompany(t).agent(t.TempDir(), Discard{})
	for name, tc := range map[string]struct {
		text string
		opts TalkOptions
	}{
		"nothing":    {"", human()},
		"sender":     {"x", TalkOptions{Sender: "robot"}},
		"too long":   {strings.Repeat("ü", textLimit+1), human()},
		"not UTF-8":  {"\xff", human()},
		"bad domain": {"x", human()},
	} {
		t.Run(name, func(t *testing.T) {
			domain := shopDomain
			if name == "bad domain" {
				domain = "http://x/y"
			}
			_, err := a.Talk(t.Context(), domain, tc.text, tc.opts)
			require.Equal(t, ExitUsage, ExitCode(err))
		})
	}
	_, err := objectOrNil("--data", "[1]")
	require.Error(t, err)
}

func TestEventsAndClose(t *testing.T) {
	c := newFakeCompany(t)
	dir := t.TempDir()
	require.Equal(t, ExitUsage, ExitCode(c.agent(dir, Discard{}).Events(t.Context(), shopDomain, EventsOptions{})))
	_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "one", human())
	require.NoError(t, err)
	c.add("cnv_1", companySays("by the way"))

	steps := &collect{}
	require.NoError(t, c.agent(dir, steps).Events(t.Context(), shopDomain, EventsOptions{}))
	require.Len(t, steps.titled("Message from the Company"), 1, "only what is new")
	steps = &collect{}
	require.NoError(t, c.agent(dir, steps).Events(t.Context(), shopDomain, EventsOptions{All: true}))
	require.Len(t, steps.titled("Message from the Company"), 2)
	require.Len(t, steps.titled("Message from this side"), 1)

	require.NoError(t, c.agent(dir, Discard{}).CloseConversation(t.Context(), shopDomain))
	closed := c.requests(talkAt + "/cnv_1/close")
	require.Len(t, closed, 1)
	require.Equal(t, "{}", closed[0].body)
	c.status = statusIdle
	reply, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "two", human())
	require.NoError(t, err)
	require.Equal(t, "cnv_2", reply.ConversationID)
}

func TestReporters_ShowNoSecrets(t *testing.T) {
	for name, show := range map[string]bool{"redacted": false, "shown": true} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCompany(t)
			var out bytes.Buffer
			a := c.agent(t.TempDir(), NewJSONReporter(&out))
			a.redact = newRedactor(show)
			_, err := a.Talk(t.Context(), shopDomain, "Where is my order?", human())
			require.NoError(t, err)
			for line := range strings.Lines(out.String()) {
				require.True(t, json.Valid([]byte(line)))
			}
			var secrets []string
			for token := range c.tokens {
				secrets = append(secrets, token)
			}
			for _, r := range c.requests(tokenAt) {
				secrets = append(secrets, r.form.Get("assertion"), r.form.Get("client_assertion"), r.header.Get("Dpop"))
			}
			for _, r := range c.requests(talkAt) {
				secrets = append(secrets, r.header.Get("Dpop"))
			}
			require.Len(t, secrets, 5)
			for _, s := range secrets {
				require.Equal(t, show, strings.Contains(out.String(), s))
			}
			require.Contains(t, out.String(), "Where is my order?")
			require.Contains(t, out.String(), "client_assertion_type=urn")
		})
	}
}

func TestTextReporter_StripsTerminalControl(t *testing.T) {
	var out bytes.Buffer
	r := NewTextReporter(&out, false)
	r.Report(Step{Section: "7.5", Title: "Message from the Company", Detail: "Shop", OK: true, Message: &Message{Role: "company", Sender: "agent", Text: "a\x1b[2Jb\u202ec\nd"}})
	require.Equal(t, "\nShop (agent): a[2Jbc\nd\n", out.String())
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"conversation_id":"cnv_1","events":[{"id":"evt_1","type":"message","message":{"id":"m","role":"company","sender":"agent","text":"x","data":{"a":1}}}],"cursor":"evt_1","has_more":false,"status":"idle","responder":"agent"}`))
	f.Add([]byte(`{"events":[{"id":"evt_1","type":"hologram","message":7}],"status":"idle","responder":"agent"}`))
	f.Add([]byte(`{"events":null,"status":"closed","responder":"human"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parsePage(raw)
		if err != nil {
			return
		}
		for _, ev := range p.Events {
			if got, _, err := parseEvent(ev); err == nil {
				require.True(t, validID(got.ID))
			}
		}
	})
}
