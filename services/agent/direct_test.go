package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

// conversing is a Company with an open conversation, cnv_1, and the agent's directory.
func conversing(t *testing.T) (*fakeCompany, string) {
	t.Helper()
	c, dir := newFakeCompany(t), t.TempDir()
	_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "one", human())
	require.NoError(t, err)
	return c, dir
}

func TestDirect_TheUserTalksUntilItIsClosed(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.8#2", "poppy-0.1/7.10#3", "poppy-0.1/7.10#4")
	c, dir := conversing(t)
	reply, err := c.agent(dir, Discard{}).Direct(t.Context(), shopDomain, "Hi, it's me.", TalkOptions{Sender: "agent"})
	require.NoError(t, err)
	require.Equal(t, "cnv_2", reply.ConversationID)
	require.Equal(t, []string{"answer 2 to Hi, it's me."}, texts(reply))
	started := c.requests(talkAt)[1]
	var body struct {
		Parent string `json:"parent_conversation_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(started.body), &body))
	require.Equal(t, "cnv_1", body.Parent)
	require.Equal(t, "human", sentBody(t, started).Sender, "the User's own words, whoever is asked to send them")

	reply, err = c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "And this.", human())
	require.NoError(t, err)
	require.Equal(t, "cnv_2", reply.ConversationID)
	_, err = c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "I, the agent.", TalkOptions{Sender: "agent"})
	require.Equal(t, ExitUsage, ExitCode(err))
	require.ErrorContains(t, err, "poppyfield agent close shop.example")
	reply, err = c.agent(dir, Discard{}).Direct(t.Context(), shopDomain, "Once more.", TalkOptions{})
	require.NoError(t, err)
	require.Equal(t, "cnv_2", reply.ConversationID, "one at a time")
	require.Len(t, c.requests(talkAt), 2)

	require.NoError(t, c.agent(dir, Discard{}).CloseConversation(t.Context(), shopDomain))
	require.Len(t, c.requests(talkAt+"/cnv_2/close"), 1)
	require.Empty(t, c.requests(talkAt+"/cnv_1/close"))
	c.status = statusIdle
	reply, err = c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "Thanks", TalkOptions{Sender: "agent"})
	require.NoError(t, err)
	require.Equal(t, "cnv_1", reply.ConversationID)
}

func TestDirect_NeedsAConversation(t *testing.T) {
	c := newFakeCompany(t)
	_, err := c.agent(t.TempDir(), Discard{}).Direct(t.Context(), shopDomain, "Hi", TalkOptions{})
	require.Equal(t, ExitUsage, ExitCode(err))
	_, err = c.agent(t.TempDir(), Discard{}).Direct(t.Context(), shopDomain, "", TalkOptions{})
	require.Equal(t, ExitUsage, ExitCode(err))

	c, dir := conversing(t)
	c.routes[talkAt] = func(w http.ResponseWriter, _ *http.Request) { oauthError(w, 409, "conversation_closed") }
	_, err = c.agent(dir, Discard{}).Direct(t.Context(), shopDomain, "Hi", TalkOptions{})
	require.Equal(t, ExitRefused, ExitCode(err))
	require.ErrorContains(t, err, "talk")
	delete(c.routes, talkAt)
	reply, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "two", human())
	require.NoError(t, err)
	require.Equal(t, "cnv_2", reply.ConversationID, "the closed one is left")
}

func TestDirect_TheCompanyClosedIt(t *testing.T) {
	c, dir := conversing(t)
	_, err := c.agent(dir, Discard{}).Direct(t.Context(), shopDomain, "Hi", TalkOptions{})
	require.NoError(t, err)
	c.routes[talkAt+"/cnv_2/messages"] = func(w http.ResponseWriter, _ *http.Request) { oauthError(w, 409, "conversation_closed") }
	steps := &collect{}
	reply, err := c.agent(dir, steps).Talk(t.Context(), shopDomain, "Still there?", human())
	require.NoError(t, err)
	require.Equal(t, "cnv_1", reply.ConversationID)
	require.Len(t, steps.titled("The Direct Conversation is over"), 1)

	// And with it the one before: a new one begins.
	_, err = c.agent(dir, Discard{}).Direct(t.Context(), shopDomain, "Hi again", TalkOptions{})
	require.NoError(t, err)
	for _, id := range []string{"cnv_1", "cnv_3"} {
		c.routes[talkAt+"/"+id+"/messages"] = func(w http.ResponseWriter, _ *http.Request) { oauthError(w, 409, "conversation_closed") }
	}
	reply, err = c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "Hello?", human())
	require.NoError(t, err)
	require.Equal(t, "cnv_4", reply.ConversationID)
}

func TestDirect_ClosedWhileTheUserTalks(t *testing.T) {
	c, dir := conversing(t)
	c.answer = func(int, string) []map[string]any {
		return []map[string]any{companySays("Goodbye!"), state("closed", "agent")}
	}
	c.status = statusClosed
	steps := &collect{}
	reply, err := c.agent(dir, steps).Direct(t.Context(), shopDomain, "Bye", TalkOptions{})
	require.NoError(t, err)
	require.Equal(t, statusClosed, reply.Status)
	require.Equal(t, []string{"Goodbye!"}, texts(reply))
	require.Len(t, steps.titled("The Direct Conversation is over"), 1)
	c.status = statusIdle
	reply, err = c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "on we go", human())
	require.NoError(t, err)
	require.Equal(t, "cnv_1", reply.ConversationID)
}

func TestDirect_AnotherRunStartedIt(t *testing.T) {
	open := func(id string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, 409, map[string]any{"error": "direct_conversation_open", "conversation_id": id})
		}
	}
	c, dir := conversing(t)
	c.add("cnv_2", companySays("said to the other run"))
	c.routes[sendAt] = open("cnv_2")
	steps := &collect{}
	reply, err := c.agent(dir, steps).Talk(t.Context(), shopDomain, "Hello?", human())
	require.NoError(t, err)
	require.Equal(t, "cnv_2", reply.ConversationID)
	require.Len(t, steps.titled("Go on in the open Direct Conversation"), 1)

	for name, at := range map[string]string{"not ours": "cnv_9", "no id": ""} {
		t.Run(name, func(t *testing.T) {
			c, dir := conversing(t)
			c.routes[sendAt] = open(at)
			_, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "Hello?", human())
			require.Equal(t, ExitRefused, ExitCode(err))
			delete(c.routes, sendAt)
			reply, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "Hello?", human())
			require.NoError(t, err)
			require.Equal(t, "cnv_1", reply.ConversationID)
		})
	}
	c, dir = conversing(t)
	c.routes[sendAt] = open("cnv_2")
	c.add("cnv_2", companySays("said to the other run"))
	_, err = c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "I, the agent.", TalkOptions{Sender: "agent"})
	require.Equal(t, ExitUsage, ExitCode(err))
}

func TestDirect_TheCompanyAsksForTheUser(t *testing.T) {
	c := newFakeCompany(t)
	c.answer = func(int, string) []map[string]any {
		return []map[string]any{
			companySays("May I speak to them?"), {"type": "user_requested", "reason": "A cook has\na question."}, state("idle", "agent"),
		}
	}
	steps := &collect{}
	reply, err := c.agent(t.TempDir(), steps).Talk(t.Context(), shopDomain, "hello", TalkOptions{Sender: "agent"})
	require.NoError(t, err)
	require.Equal(t, "poppyfield agent direct shop.example", reply.Direct)
	asked := steps.titled("The Company asks to talk with you yourself")
	require.Len(t, asked, 1)
	require.Equal(t, "A cook has a question.; if you agree, run: poppyfield agent direct shop.example", asked[0].Detail)
	require.Len(t, c.requests(talkAt), 1, "only the User decides (7.10)")
}

func TestHandOff_WaitsForThePerson(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#1")
	c, dir := conversing(t)
	c.routes[talkAt+"/cnv_1/handoff"] = func(w http.ResponseWriter, _ *http.Request) {
		c.add("cnv_1", state("queued", "agent"))
		c.status = statusQueued
		writeJSON(w, 202, map[string]any{"status": "queued", "responder": "agent"})
	}
	steps := &collect{}
	reply, err := c.agent(dir, steps).HandOff(t.Context(), shopDomain)
	require.NoError(t, err)
	require.Equal(t, statusQueued, reply.Status)
	require.Equal(t, "{}", c.requests(talkAt + "/cnv_1/handoff")[0].body)
	require.Contains(t, steps.titled("The conversation is")[0].Detail, "a person at the Company is awaited")

	c.answer = func(int, string) []map[string]any { return nil }
	person := says("msg_p", "This is Anna.")
	person["message"].(map[string]any)["sender"] = "human"
	c.streams(
		func(s *streamWriter) { s.events(4, 6); s.cut() },
		func(s *streamWriter) {
			c.add("cnv_1", companySays("Somebody is coming."))
			c.add("cnv_1", state("idle", "human"))
			s.events(6, 8)
			s.cut()
		},
		func(s *streamWriter) { c.add("cnv_1", person); s.events(8, 9) },
	)
	steps = &collect{}
	reply, err = c.agent(dir, steps).Talk(t.Context(), shopDomain, "It is about the exchange.", human())
	require.NoError(t, err)
	require.Equal(t, []string{"Somebody is coming.", "This is Anna."}, texts(reply))
	require.Equal(t, "human", reply.Messages[1].Sender)
	require.Equal(t, "human", reply.Responder)
	var states []string
	for _, s := range steps.titled("State") {
		states = append(states, s.Detail)
	}
	require.Equal(t, []string{"queued, agent (a person at the Company is awaited)", "idle, human (a person at the Company is there)"}, states)
}

func TestHandOff_NobodyComes(t *testing.T) {
	c, dir := conversing(t)
	c.status = statusQueued
	c.answer = func(int, string) []map[string]any { return nil }
	c.streams(
		func(s *streamWriter) { s.events(4, 5); s.cut() },
		func(s *streamWriter) {
			c.add("cnv_1", companySays("Nobody is there."))
			c.add("cnv_1", state("idle", "agent"))
			s.events(5, 7)
		},
	)
	reply, err := c.agent(dir, Discard{}).Talk(t.Context(), shopDomain, "anybody?", human())
	require.NoError(t, err)
	require.Equal(t, []string{"Nobody is there."}, texts(reply))

	c, dir = conversing(t)
	c.status = statusQueued
	c.answer = func(int, string) []map[string]any { return []map[string]any{state("queued", "agent")} }
	ctx, stop := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer stop()
	_, err = c.agent(dir, Discard{}).Talk(ctx, shopDomain, "anybody?", human())
	require.Equal(t, ExitNoAnswer, ExitCode(err))
	require.ErrorContains(t, err, "a person at the Company is awaited")

	c.mu.Lock() // a request that was given up may still be on its way
	c.routes[talkAt+"/cnv_1/handoff"] = func(w http.ResponseWriter, _ *http.Request) { oauthError(w, 409, "conversation_closed") }
	c.mu.Unlock()
	_, err = c.agent(dir, Discard{}).HandOff(t.Context(), shopDomain)
	require.Equal(t, ExitRefused, ExitCode(err))
	_, err = c.agent(t.TempDir(), Discard{}).HandOff(t.Context(), shopDomain)
	require.Equal(t, ExitUsage, ExitCode(err))
}

func TestCommand_DirectAsksForTheWords(t *testing.T) {
	c, flags := presentCompany(t)
	dir := t.TempDir()
	flags = append(flags, "--dir", dir)
	id, err := InitIdentity(dir, testClient, Profile{})
	require.NoError(t, err)
	c.identity = id
	_, err = command(t, append([]string{"talk", shopDomain, "hello"}, flags...)...)
	require.NoError(t, err)
	out, _, err := commandWith(t, "It's me.\n", nil, append([]string{"direct", shopDomain}, flags...)...)
	require.NoError(t, err)
	require.Contains(t, out, "answer 2 to It's me.")
	require.Equal(t, "human", sentBody(t, c.requests(talkAt)[1]).Sender)
	c.routes[talkAt+"/cnv_2/handoff"] = func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 202, map[string]any{"status": "queued", "responder": "agent"})
	}
	out, err = command(t, append([]string{"handoff", shopDomain, "-q"}, flags...)...)
	require.NoError(t, err)
	require.Equal(t, "queued, agent (a person at the Company is awaited)", strings.TrimSpace(out))
}
