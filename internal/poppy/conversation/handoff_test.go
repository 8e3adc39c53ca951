package conversation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const (
	agent  = conversation.ResponderAgent
	person = conversation.ResponderHuman
)

func notice(t testing.TB, text string) conversation.MessagePayload {
	t.Helper()
	return companyMessage(t, text, "").Payload("msg_n")
}

func byPerson(t testing.TB, text string) conversation.MessagePayload {
	t.Helper()
	m, err := conversation.ParseCompanyMessage("human", text, nil)
	require.NoError(t, err)
	return m.Payload("msg_p")
}

func nobody(t testing.TB) conversation.Staffing {
	t.Helper()
	return conversation.Staffing{Nobody: true, Notice: notice(t, "Nobody is here.")}
}

func at(status conversation.Status, responder conversation.Responder) conversation.State {
	s := state(status)
	s.Responder = responder
	return s
}

// takesMessages are the states of an open conversation.
var takesMessages = []conversation.State{
	at(conversation.Idle, agent), at(conversation.Working, agent), at(conversation.Queued, agent),
	at(conversation.Idle, person), at(conversation.Working, person),
}

func TestHandoff_Queue(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#3", "poppy-0.1/7.7#5", "poppy-0.1/7.7#8", "poppy-0.1/7.7#13")
	for _, from := range []conversation.Status{conversation.Idle, conversation.Working} {
		for _, moreTurns := range []bool{false, true} { // they end with the handoff
			s, events := step(t, state(from), conversation.AgentAsksForPerson(conversation.Staffing{}, moreTurns))
			require.Equal(t, at(conversation.Queued, agent), s)
			require.Equal(t, []conversation.Payload{became(conversation.Queued, agent)}, events)
		}
	}
}

func TestHandoff_Nobody(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#5", "poppy-0.1/7.9#6")
	s, events := step(t, state(conversation.Idle), conversation.AgentAsksForPerson(nobody(t), false))
	require.Equal(t, conversation.NewState(), s)
	require.Equal(t, []conversation.Payload{
		became(conversation.Queued, agent), nobody(t).Notice, became(conversation.Idle, agent),
	}, events)

	// The backend still owes the answer to an open turn.
	s, events = step(t, state(conversation.Working), conversation.AgentAsksForPerson(nobody(t), true))
	require.Equal(t, state(conversation.Working), s)
	require.Equal(t, became(conversation.Working, agent), events[2])
}

func TestHandoff_Twice(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#d23")
	for _, s := range []conversation.State{at(conversation.Queued, agent), at(conversation.Idle, person), at(conversation.Working, person)} {
		for _, f := range []conversation.Staffing{{}, nobody(t)} {
			again, events := step(t, s, conversation.AgentAsksForPerson(f, false))
			require.Equal(t, s, again)
			require.Empty(t, events)
		}
	}
}

func TestHandoff_MessagesMeanwhile(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#8", "poppy-0.1/7.7#2", "poppy-0.1/7.7#13")
	m := message(t, plain)
	s, events := step(t, state(conversation.Queued), conversation.AgentSays(m, false))
	require.Equal(t, state(conversation.Queued), s)
	require.Equal(t, []conversation.Payload{m.Payload()}, events)

	s, events = step(t, at(conversation.Idle, person), conversation.AgentSays(m, false))
	require.Equal(t, at(conversation.Working, person), s)
	require.Equal(t, []conversation.Payload{m.Payload(), became(conversation.Working, person)}, events)
	_, events = step(t, s, conversation.AgentSays(m, false))
	require.Equal(t, []conversation.Payload{m.Payload()}, events)

	away := message(t, `"id":"m","sender":"agent","context":{"user_available":false}`)
	for _, s := range takesMessages {
		next, events := step(t, s, conversation.AgentSays(away, false))
		require.Equal(t, s, next)
		require.Equal(t, []conversation.Payload{away.Payload()}, events)
	}
}

func TestHandoff_ByTheCompanyAgent(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#7", "poppy-0.1/7.9#3", "poppy-0.1/7.9#5", "poppy-0.1/7.9#6")
	a := says(reply(t)...)
	a.HandOff = true
	for _, from := range []conversation.Status{conversation.Idle, conversation.Working} {
		for _, input := range []func(conversation.Acts, conversation.Staffing, bool) conversation.Input{conversation.BackendAnswers, conversation.CompanyActs} {
			s, events := step(t, state(from), input(a, conversation.Staffing{}, true))
			require.Equal(t, state(conversation.Queued), s)
			require.Equal(t, []conversation.Payload{reply(t)[0], became(conversation.Queued, agent)}, events)

			s, events = step(t, state(from), input(a, nobody(t), false))
			require.Equal(t, conversation.NewState(), s)
			require.Equal(t, []conversation.Payload{
				reply(t)[0], became(conversation.Queued, agent), nobody(t).Notice, became(conversation.Idle, agent),
			}, events)
		}
	}
	// Asking again while one is awaited says only what it says.
	s, events := step(t, state(conversation.Queued), conversation.BackendAnswers(a, nobody(t), false))
	require.Equal(t, state(conversation.Queued), s)
	require.Equal(t, []conversation.Payload{reply(t)[0]}, events)
}

func TestHandoff_QueueDeadline(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#5", "poppy-0.1/7.9#6", "poppy-0.1/7.7#d25")
	in := conversation.NobodyJoined(notice(t, "Nobody could join."))
	s, events := step(t, state(conversation.Queued), in)
	require.Equal(t, conversation.NewState(), s)
	require.Equal(t, []conversation.Payload{notice(t, "Nobody could join."), became(conversation.Idle, agent)}, events)
	for _, s := range takesMessages {
		if s.Status != conversation.Queued {
			next, events := step(t, s, in)
			require.Equal(t, s, next)
			require.Empty(t, events)
		}
	}
}

func TestPersonJoins(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#4", "poppy-0.1/7.7#9", "poppy-0.1/7.7#12", "poppy-0.1/7.7#11")
	for from, want := range map[conversation.Status]conversation.Status{
		conversation.Idle: conversation.Idle, conversation.Queued: conversation.Idle,
		conversation.Working: conversation.Working, // who takes over a turn owes its answer
	} {
		s, events := step(t, state(from), conversation.PersonJoins())
		require.Equal(t, at(want, person), s)
		require.Equal(t, []conversation.Payload{became(want, person)}, events)
		again, events := step(t, s, conversation.PersonJoins()) // a colleague takes over
		require.Equal(t, s, again)
		require.Empty(t, events)
	}
}

func TestPersonActs(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#2", "poppy-0.1/7.7#15", "poppy-0.1/7.7#16")
	clausetest.Refuses(t, "poppy-0.1/7.7#12")
	said := byPerson(t, "It is Dana.")
	require.Equal(t, conversation.RoleCompany, said.Role)
	s, events := step(t, at(conversation.Working, person), conversation.PersonActs(says(said)))
	require.Equal(t, at(conversation.Idle, person), s)
	require.Equal(t, []conversation.Payload{said, became(conversation.Idle, person)}, events)
	s, events = step(t, s, conversation.PersonActs(says(said)))
	require.Equal(t, at(conversation.Idle, person), s)
	require.Equal(t, []conversation.Payload{said}, events)

	a := says(said)
	a.HandOff = true // is there already
	again, events := step(t, s, conversation.PersonActs(a))
	require.Equal(t, s, again)
	require.Equal(t, []conversation.Payload{said}, events)

	for _, s := range takesMessages {
		if s.Responder == agent {
			require.Equal(t, problem.Conflict, refusalOf(t, s, conversation.PersonActs(says(said)), problem.NotResponder).Kind)
		}
	}
}

func TestPersonJoined_BackendIsSuperseded(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.7#1")
	asks, err := conversation.NewUserRequest("why")
	require.NoError(t, err)
	for _, status := range []conversation.Status{conversation.Idle, conversation.Working} {
		s := at(status, person)
		for _, a := range []conversation.Acts{says(reply(t)...), {Close: true}, {HandOff: true}, {UserRequested: asks}, {Authorization: &conversation.AuthorizationPayload{}}} {
			requireRefused(t, s, backendSays(a, false), problem.NotResponder)
			requireRefused(t, s, companySays(a, false), problem.NotResponder)
		}
		next, events := step(t, s, backendSays(conversation.Acts{}, false))
		require.Equal(t, s, next)
		require.Empty(t, events)
	}
	// While a person is only awaited, the backend may go on.
	s, events := step(t, state(conversation.Queued), backendSays(says(reply(t)...), false))
	require.Equal(t, state(conversation.Queued), s)
	require.Equal(t, []conversation.Payload{reply(t)[0]}, events)
}

func TestPersonLeaves(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#8", "poppy-0.1/7.7#11")
	bye := companyMessage(t, "Our agent goes on.", "").Payload("msg_b")
	for _, status := range []conversation.Status{conversation.Idle, conversation.Working} {
		s, events := step(t, at(status, person), conversation.PersonLeaves(false))
		require.Equal(t, conversation.NewState(), s)
		require.Equal(t, []conversation.Payload{became(conversation.Idle, agent)}, events)

		s, events = step(t, at(status, person), conversation.PersonLeaves(true, bye))
		require.Equal(t, state(conversation.Working), s)
		require.Equal(t, []conversation.Payload{bye, became(conversation.Working, agent)}, events)
		_, events = step(t, s, backendSays(says(reply(t)...), false))
		require.Len(t, events, 2)
	}
	for _, status := range []conversation.Status{conversation.Idle, conversation.Working, conversation.Queued} {
		s, events := step(t, state(status), conversation.PersonLeaves(true, bye))
		require.Equal(t, state(status), s)
		require.Empty(t, events)
	}
}

func TestPersonRequeues(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#13", "poppy-0.1/7.9#3")
	for _, status := range []conversation.Status{conversation.Idle, conversation.Working} {
		s, events := step(t, at(status, person), conversation.PersonRequeues())
		require.Equal(t, state(conversation.Queued), s)
		require.Equal(t, []conversation.Payload{became(conversation.Queued, agent)}, events)
	}
	for _, status := range []conversation.Status{conversation.Idle, conversation.Working, conversation.Queued} {
		s, events := step(t, state(status), conversation.PersonRequeues())
		require.Equal(t, state(status), s)
		require.Empty(t, events)
	}
}

func TestPersonAnswersTooLate(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#d25")
	in := conversation.DeadlinePassed(notice(t, "No answer yet."), false)
	s, events := step(t, at(conversation.Working, person), in)
	require.Equal(t, at(conversation.Idle, person), s)
	require.Equal(t, []conversation.Payload{notice(t, "No answer yet."), became(conversation.Idle, person)}, events)
	for _, s := range []conversation.State{s, state(conversation.Queued)} {
		next, events := step(t, s, in)
		require.Equal(t, s, next)
		require.Empty(t, events)
	}
	said := byPerson(t, "Sorry!")
	_, events = step(t, s, conversation.PersonActs(says(said)))
	require.Equal(t, []conversation.Payload{said}, events)
}

func TestClose_CancelsHandoff(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.9#9", "poppy-0.1/7.12#3", "poppy-0.1/7.12#2", "poppy-0.1/7.7#14")
	clausetest.Refuses(t, "poppy-0.1/7.12#d24")
	s, events := step(t, state(conversation.Queued), conversation.AgentCloses())
	require.Equal(t, []conversation.Payload{became(conversation.Closed, agent)}, events)
	requireRefused(t, s, conversation.PersonJoins(), problem.ConversationClosed)
	next, events := step(t, s, conversation.NobodyJoined(notice(t, "late")))
	require.Equal(t, s, next)
	require.Empty(t, events)
}

func TestClose_WithMessages(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.12#5", "poppy-0.1/7.12#2", "poppy-0.1/7.7#14")
	a := says(reply(t)...)
	a.Close, a.HandOff = true, true // for good goes first
	for _, from := range takesMessages {
		in := []conversation.Input{backendSays(a, true), companySays(a, true)}
		if from.Responder == person {
			in = []conversation.Input{conversation.PersonActs(a)}
		}
		for _, in := range in {
			s, events := step(t, from, in)
			require.Equal(t, at(conversation.Closed, from.Responder), s)
			require.Equal(t, []conversation.Payload{reply(t)[0], became(conversation.Closed, from.Responder)}, events)
		}
	}
	_, events := step(t, conversation.State{Status: conversation.Idle, Responder: agent, Child: "cnv_d"}, companySays(a, false))
	require.Equal(t, []conversation.Payload{
		reply(t)[0], conversation.DirectClosedPayload{ConversationID: "cnv_d"}, became(conversation.Closed, agent),
	}, events)
}
