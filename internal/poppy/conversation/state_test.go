package conversation_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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
	s, events = step(t, s, conversation.BackendAnswers(reply(t), false))
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
	s, events = step(t, s, conversation.BackendAnswers(reply(t), true))
	require.Equal(t, conversation.Working, s.Status)
	require.Len(t, events, 1)
	s, events = step(t, s, conversation.BackendHasNothing(false))
	require.Equal(t, conversation.Idle, s.Status)
	require.Equal(t, []conversation.Payload{conversation.StatePayload{Status: conversation.Idle, Responder: conversation.ResponderAgent}}, events)
}

func TestStep_NothingToSay(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#d45")
	for _, in := range []conversation.Input{conversation.BackendHasNothing(false), conversation.BackendAnswers(nil, false)} {
		s, events := step(t, state(conversation.Working), in)
		require.Equal(t, conversation.Idle, s.Status)
		require.Len(t, events, 1)
		require.Equal(t, conversation.EventState, events[0].Type())
		_, events = step(t, s, in)
		require.Empty(t, events)
	}
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
	_, events = step(t, s, conversation.BackendAnswers(reply(t), false))
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
				conversation.CompanySays(reply(t), false), conversation.BackendAnswers(reply(t), false), conversation.BackendHasNothing(false),
			} {
				next, events, err := conversation.Step(s, late)
				require.True(t, problem.Is(err, problem.ConversationClosed))
				require.Equal(t, problem.Conflict, problem.As(err).Kind)
				require.Empty(t, events)
				require.Equal(t, s, next)
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
	next, events, err := conversation.Step(s, conversation.AgentSays(message(t, plain), false))
	require.True(t, problem.Is(err, problem.SignInRequired))
	require.Equal(t, s, next)
	require.Empty(t, events)
	_, _, err = conversation.Step(conversation.State{Status: conversation.Closed}, conversation.AgentSays(message(t, plain), true))
	require.True(t, problem.Is(err, problem.ConversationClosed))
}

func TestStep_NoRule(t *testing.T) {
	for _, s := range []conversation.State{{}, state("paused")} {
		_, _, err := conversation.Step(s, conversation.AgentCloses())
		require.Equal(t, problem.Internal, problem.As(err).Kind)
	}
	_, _, err := conversation.Step(conversation.NewState(), conversation.Input{})
	require.Equal(t, problem.Internal, problem.As(err).Kind)
}

// model is a conversation the simple way: a count of open turns.
type model struct {
	closed, bound bool
	turns         int
	said          []string // ids of all messages, in order
}

func (m *model) status() conversation.Status {
	switch {
	case m.closed:
		return conversation.Closed
	case m.turns > 0:
		return conversation.Working
	}
	return conversation.Idle
}

func TestStep_LikeTheModel(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#7", "poppy-0.1/7.7#11")
	content := map[bool]string{true: `"text":"x"`, false: `"context":{"a":1}`}
	rapid.Check(t, func(t *rapid.T) {
		var m model
		s, n := conversation.NewState(), 0
		var log []conversation.Payload
		nextID := func() string { n++; return fmt.Sprintf("msg_%d", n) }
		said := func(count int) []conversation.MessagePayload {
			var out []conversation.MessagePayload
			for range count {
				out = append(out, companyMessage(t, "x", "").Payload(nextID()))
			}
			return out
		}
		apply := func(in conversation.Input, want problem.Reason) bool {
			next, events, err := conversation.Step(s, in)
			if want != "" {
				require.True(t, problem.Is(err, want), "%v", err)
				require.Equal(t, s, next)
				require.Empty(t, events)
				return false
			}
			require.NoError(t, err)
			s, log = next, append(log, events...)
			return true
		}
		record := func(messages []conversation.MessagePayload) {
			for _, p := range messages {
				m.said = append(m.said, p.ID)
			}
		}
		late := func() problem.Reason {
			if m.closed {
				return problem.ConversationClosed
			}
			return ""
		}
		t.Repeat(map[string]func(*rapid.T){
			"agent says": func(t *rapid.T) {
				turn, signedIn := rapid.Bool().Draw(t, "turn"), rapid.Bool().Draw(t, "signed in")
				msg := message(t, `"id":"`+nextID()+`","sender":"agent",`+content[turn])
				want := late()
				if want == "" && m.bound && !signedIn {
					want = problem.SignInRequired
				}
				if apply(conversation.AgentSays(msg, signedIn), want) {
					record([]conversation.MessagePayload{msg.Payload()})
					m.bound = m.bound || signedIn
					if turn {
						m.turns++
					}
				}
			},
			"backend answers": func(t *rapid.T) {
				msgs := said(rapid.IntRange(0, 3).Draw(t, "messages"))
				if apply(conversation.BackendAnswers(msgs, m.turns > 1), late()) {
					record(msgs)
					m.turns = max(m.turns-1, 0)
				}
			},
			"company says": func(t *rapid.T) {
				settled := rapid.IntRange(0, m.turns).Draw(t, "settled")
				msgs := said(1)
				if apply(conversation.CompanySays(msgs, m.turns > settled), late()) {
					record(msgs)
					m.turns -= settled
				}
			},
			"deadline": func(*rapid.T) {
				msgs, due := said(1), !m.closed && m.turns > 0
				apply(conversation.DeadlinePassed(msgs[0], m.turns > 1), "")
				if due {
					record(msgs)
					m.turns--
				}
			},
			"close": func(t *rapid.T) {
				in := conversation.AgentCloses()
				if rapid.Bool().Draw(t, "by company") {
					in = conversation.CompanyCloses()
				}
				apply(in, "")
				m.closed, m.turns = true, 0
			},
			"": func(t *rapid.T) {
				require.Equal(t, m.status(), s.Status)
				require.Equal(t, m.bound, s.AccountBound)
				require.Equal(t, conversation.ResponderAgent, s.Responder)
				// A reader that follows the events knows what we know: every message once, in
				// order, and the status, which no state event repeats.
				var ids []string
				status := conversation.Idle
				for _, p := range log {
					switch p := p.(type) {
					case conversation.MessagePayload:
						ids = append(ids, p.ID)
					case conversation.StatePayload:
						require.NotEqual(t, status, p.Status)
						require.NotEqual(t, conversation.Closed, status)
						status = p.Status
					}
				}
				require.Equal(t, m.said, ids)
				require.Equal(t, m.status(), status)
			},
		})
	})
}
