package conversation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func state(status conversation.Status) conversation.State {
	s := conversation.NewState()
	s.Status = status
	return s
}

func reply(t testing.TB) []conversation.MessagePayload {
	t.Helper()
	return []conversation.MessagePayload{companyMessage(t, "I can exchange it.", "").Payload("msg_c1")}
}

// says is an answer of messages alone.
func says(messages ...conversation.MessagePayload) conversation.Acts {
	return conversation.Acts{Messages: messages}
}

// backendSays is a backend's answer that hands nothing off.
func backendSays(a conversation.Acts, moreTurns bool) conversation.Input {
	return conversation.BackendAnswers(a, conversation.Staffing{}, moreTurns)
}

// companySays is what the API adds, handing nothing off.
func companySays(a conversation.Acts, moreTurns bool) conversation.Input {
	return conversation.CompanyActs(a, conversation.Staffing{}, moreTurns)
}

func became(status conversation.Status, responder conversation.Responder) conversation.Payload {
	return conversation.StatePayload{Status: status, Responder: responder}
}

func requireRefused(t testing.TB, s conversation.State, in conversation.Input, reason problem.Reason) {
	t.Helper()
	_ = refusalOf(t, s, in, reason)
}

// refusalOf has s refuse in for reason, and stay as it is.
func refusalOf(t testing.TB, s conversation.State, in conversation.Input, reason problem.Reason) *problem.Error {
	t.Helper()
	next, events, err := conversation.Step(s, in)
	require.True(t, problem.Is(err, reason), "%v", err)
	require.Empty(t, events)
	require.Equal(t, s, next)
	return problem.As(err)
}

func step(t testing.TB, s conversation.State, in conversation.Input) (conversation.State, []conversation.Payload) {
	t.Helper()
	next, events, err := conversation.Step(s, in)
	require.NoError(t, err)
	return next, events
}

func TestStep_FirstTurn(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.5#1", "poppy-0.1/7.7#3", "poppy-0.1/7.7#4", "poppy-0.1/7.7#8", "poppy-0.1/7.7#11")
	hi := message(t, plain)
	s, events := step(t, conversation.NewState(), conversation.AgentSays(hi, false))
	require.Equal(t, []conversation.Payload{
		hi.Payload(), conversation.StatePayload{Status: conversation.Working, Responder: conversation.ResponderAgent},
	}, events)
	s, events = step(t, s, backendSays(says(reply(t)...), false))
	require.Equal(t, []conversation.Payload{
		reply(t)[0], conversation.StatePayload{Status: conversation.Idle, Responder: conversation.ResponderAgent},
	}, events)
	require.Equal(t, conversation.NewState(), s)
}

func TestCV06_Step_ContextOnlyStartsNoTurn(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.4#28", "poppy-0.1/7.4#d20")
	m := message(t, `"id":"m","sender":"agent","context":{"user_available":false}`)
	for _, status := range []conversation.Status{conversation.Idle, conversation.Working} {
		s, events := step(t, state(status), conversation.AgentSays(m, false))
		require.Equal(t, status, s.Status)
		require.Equal(t, []conversation.Payload{m.Payload()}, events)
	}
}

func TestStep_TurnsOverlap(t *testing.T) {
	s, events := step(t, state(conversation.Working), conversation.AgentSays(message(t, plain), false))
	require.Equal(t, conversation.Working, s.Status)
	require.Len(t, events, 1)
	s, events = step(t, s, backendSays(says(reply(t)...), true))
	require.Equal(t, conversation.Working, s.Status)
	require.Len(t, events, 1)
	s, events = step(t, s, backendSays(conversation.Acts{}, false))
	require.Equal(t, conversation.Idle, s.Status)
	require.Equal(t, []conversation.Payload{conversation.StatePayload{Status: conversation.Idle, Responder: conversation.ResponderAgent}}, events)
}

func TestStep_NothingToSay(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#d45")
	in := backendSays(conversation.Acts{}, false)
	s, events := step(t, state(conversation.Working), in)
	require.Equal(t, []conversation.Payload{became(conversation.Idle, conversation.ResponderAgent)}, events)
	_, events = step(t, s, in)
	require.Empty(t, events)
}

func TestStep_AnswerDeadline(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#d25")
	notice := companyMessage(t, "No answer came in time.", "").Payload("msg_n")
	s, events := step(t, state(conversation.Working), conversation.DeadlinePassed(notice, false))
	require.Equal(t, conversation.Idle, s.Status)
	require.Equal(t, []conversation.Payload{notice, conversation.StatePayload{Status: conversation.Idle, Responder: conversation.ResponderAgent}}, events)
	for _, status := range []conversation.Status{conversation.Idle, conversation.Closed} {
		s, events := step(t, state(status), conversation.DeadlinePassed(notice, false))
		require.Equal(t, state(status), s)
		require.Empty(t, events)
	}
	// The answer that comes after all is still said.
	_, events = step(t, s, backendSays(says(reply(t)...), false))
	require.Equal(t, []conversation.Payload{reply(t)[0]}, events)
}

func TestCV02_Step_Close(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#6", "poppy-0.1/7.7#14", "poppy-0.1/7.12#2", "poppy-0.1/7.12#5", "poppy-0.1/7.10#d38")
	clausetest.Refuses(t, "poppy-0.1/7.12#6", "poppy-0.1/7.12#d24", "poppy-0.1/7.13#5")
	for _, in := range []conversation.Input{conversation.AgentCloses(), conversation.CompanyCloses()} {
		for _, status := range []conversation.Status{conversation.Idle, conversation.Working} {
			s := state(status)
			s.Responder = conversation.ResponderHuman
			s, events := step(t, s, in)
			require.Equal(t, []conversation.Payload{conversation.StatePayload{Status: conversation.Closed, Responder: conversation.ResponderHuman}}, events)
			again, events := step(t, s, in)
			require.Empty(t, events)
			require.Equal(t, s, again)
			for _, late := range []conversation.Input{
				conversation.AgentSays(message(t, plain), false), conversation.AgentSays(message(t, plain), true),
				conversation.AgentAsksForPerson(conversation.Staffing{}, false), conversation.DirectOpens("cnv_d"),
				companySays(says(reply(t)...), false), backendSays(says(reply(t)...), false), backendSays(conversation.Acts{}, false),
				companySays(conversation.Acts{Close: true}, false), backendSays(conversation.Acts{HandOff: true}, false),
				conversation.PersonJoins(), conversation.PersonActs(says(reply(t)...)), conversation.PersonRequeues(),
			} {
				require.Equal(t, problem.Conflict, refusalOf(t, s, late, problem.ConversationClosed).Kind)
			}
			for _, moot := range []conversation.Input{
				conversation.DeadlinePassed(reply(t)[0], true), conversation.NobodyJoined(reply(t)[0]), conversation.PersonLeaves(true, reply(t)...),
				conversation.DirectCloses("cnv_d"), conversation.AgentCloses(), conversation.CompanyCloses(),
			} {
				again, events := step(t, s, moot)
				require.Empty(t, events)
				require.Equal(t, s, again)
			}
		}
	}
}

func TestStep_AccountBound(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.2#13", "poppy-0.1/7.2#d21")
	clausetest.Refuses(t, "poppy-0.1/7.11#15", "poppy-0.1/7.11#d21")
	s, _ := step(t, conversation.NewState(), conversation.AgentSays(message(t, plain), false))
	require.False(t, s.AccountBound)
	s, _ = step(t, s, conversation.AgentSays(message(t, plain), true))
	require.True(t, s.AccountBound)
	requireRefused(t, s, conversation.AgentSays(message(t, plain), false), problem.SignInRequired)
	requireRefused(t, state(conversation.Closed), conversation.AgentSays(message(t, plain), true), problem.ConversationClosed)
}

func TestStep_NoRule(t *testing.T) {
	queuedHuman := state(conversation.Queued)
	queuedHuman.Responder = conversation.ResponderHuman
	for _, s := range []conversation.State{{}, state("paused"), {Status: conversation.Idle}, {Status: conversation.Working, Responder: "company"}, queuedHuman} {
		require.Equal(t, problem.Internal, refusalOf(t, s, conversation.AgentCloses(), problem.ServerError).Kind)
	}
	requireRefused(t, conversation.NewState(), conversation.Input{}, problem.ServerError)
}
