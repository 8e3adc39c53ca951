package conversation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

var (
	opened = conversation.DirectOpenedPayload{ConversationID: "cnv_d"}
	over   = conversation.DirectClosedPayload{ConversationID: "cnv_d"}
)

func below(s conversation.State) conversation.State {
	s.Child = "cnv_d"
	return s
}

func direct(s conversation.State) conversation.State {
	s.Direct = true
	return s
}

func userRequest(t testing.TB) *conversation.UserRequestedPayload {
	t.Helper()
	p, err := conversation.NewUserRequest("A specialist needs to confirm the exchange.")
	require.NoError(t, err)
	return p
}

func TestCV01_Direct_Opens(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.10#6", "poppy-0.1/7.10#17", "poppy-0.1/7.10#d38")
	for _, s := range takesMessages {
		next, events := step(t, s, conversation.DirectOpens("cnv_d"))
		require.Equal(t, below(s), next)
		require.Equal(t, []conversation.Payload{opened}, events)
	}
}

func TestCV01_Direct_Nested(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.10#8", "poppy-0.1/7.10#d22", "poppy-0.1/7.10#d38", "poppy-0.1/7.13#17")
	for _, s := range append([]conversation.State{state(conversation.Closed)}, takesMessages...) { // not found goes before closed
		p := refusalOf(t, direct(s), conversation.DirectOpens("cnv_e"), problem.ConversationNotFound)
		require.Equal(t, problem.NotFound, p.Kind)
		require.Equal(t, conversation.NotFound("").Detail, p.Detail) // as for an id that never was
	}
}

func TestCV01_Direct_ClosedParent(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.10#6", "poppy-0.1/7.10#11", "poppy-0.1/7.10#d38", "poppy-0.1/7.13#5")
	requireRefused(t, state(conversation.Closed), conversation.DirectOpens("cnv_d"), problem.ConversationClosed)
}

func TestCV01_Direct_ForeignParent(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.10#7", "poppy-0.1/7.10#10", "poppy-0.1/7.13#3")
	owner := conversation.Owner{ClientID: "https://a.example/a.json", UserID: "usr_1", AccountID: "acc_1"}
	for _, caller := range []conversation.Owner{
		{ClientID: "https://b.example/a.json", UserID: "usr_1", AccountID: "acc_1"},
		{ClientID: owner.ClientID, UserID: "usr_2", AccountID: "acc_1"},
		{ClientID: owner.ClientID, UserID: "usr_1", AccountID: "acc_2"},
	} {
		require.True(t, problem.Is(conversation.CheckOwner(owner, caller), problem.ConversationNotFound))
	}
}

func TestCV01_Direct_Second(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.10#20", "poppy-0.1/7.13#7")
	clausetest.Refuses(t, "poppy-0.1/7.10#9", "poppy-0.1/7.10#12", "poppy-0.1/7.10#19", "poppy-0.1/7.13#7")
	for _, s := range takesMessages {
		for _, in := range []conversation.Input{
			conversation.DirectOpens("cnv_e"), conversation.DirectOpens("cnv_d"), conversation.AgentSays(message(t, plain), true),
			conversation.AgentSays(message(t, `"id":"m","sender":"agent","context":{"a":1}`), false),
			conversation.AgentAsksForPerson(conversation.Staffing{}, false), conversation.AgentAsksForPerson(nobody(t), true),
		} {
			p := refusalOf(t, below(s), in, problem.DirectConversationOpen)
			require.Equal(t, problem.Conflict, p.Kind)
			require.Equal(t, "cnv_d", p.Extra["conversation_id"])
		}
	}
	// One who is signed out learns nothing of it.
	bound := below(conversation.NewState())
	bound.AccountBound = true
	requireRefused(t, bound, conversation.AgentSays(message(t, plain), false), problem.SignInRequired)
}

func TestDirect_TheParentGoesOn(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.10#18", "poppy-0.1/7.7#11")
	s, events := step(t, below(state(conversation.Working)), backendSays(says(reply(t)...), false))
	require.Equal(t, below(conversation.NewState()), s)
	require.Len(t, events, 2)
	s, _ = step(t, s, backendSays(conversation.Acts{HandOff: true}, false)) // the Company's agent may ask for a person all the same
	require.Equal(t, below(state(conversation.Queued)), s)
	s, _ = step(t, s, conversation.PersonJoins())
	require.Equal(t, below(at(conversation.Idle, person)), s)
	_, events = step(t, s, conversation.PersonActs(says(reply(t)...)))
	require.Equal(t, []conversation.Payload{reply(t)[0]}, events)
}

func TestDirect_Closes(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.10#21", "poppy-0.1/7.10#22")
	for _, s := range takesMessages {
		next, events := step(t, below(s), conversation.DirectCloses("cnv_d"))
		require.Equal(t, s, next)
		require.Equal(t, []conversation.Payload{over}, events)
		_, events = step(t, next, conversation.AgentSays(message(t, plain), false))
		require.NotEmpty(t, events)
		_, events = step(t, next, conversation.DirectOpens("cnv_e"))
		require.Len(t, events, 1)
		for _, id := range []string{"cnv_d", ""} { // told twice
			again, events := step(t, next, conversation.DirectCloses(id))
			require.Equal(t, next, again)
			require.Empty(t, events)
		}
	}
	other, events := step(t, below(conversation.NewState()), conversation.DirectCloses("cnv_e"))
	require.Equal(t, below(conversation.NewState()), other)
	require.Empty(t, events)
}

func TestCV02_Direct_CloseOfTheParent(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.12#d22", "poppy-0.1/7.10#24", "poppy-0.1/7.10#21")
	for _, from := range takesMessages {
		for _, in := range []conversation.Input{conversation.AgentCloses(), conversation.CompanyCloses()} {
			s, events := step(t, below(from), in)
			require.Equal(t, at(conversation.Closed, from.Responder), s)
			require.Equal(t, []conversation.Payload{over, became(conversation.Closed, from.Responder)}, events)
			_, events = step(t, s, conversation.DirectCloses("cnv_d")) // said already
			require.Empty(t, events)
		}
	}
}

func TestUserRequested(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.10#13", "poppy-0.1/7.10#16")
	a := says(reply(t)...)
	a.UserRequested = userRequest(t)
	s, events := step(t, state(conversation.Working), backendSays(a, false))
	require.Equal(t, conversation.NewState(), s) // it opens nothing by itself
	require.Equal(t, []conversation.Payload{reply(t)[0], *userRequest(t), became(conversation.Idle, agent)}, events)
	_, events = step(t, s, companySays(a, false))
	require.Equal(t, []conversation.Payload{reply(t)[0], *userRequest(t)}, events)
	_, events = step(t, at(conversation.Working, person), conversation.PersonActs(a))
	require.Equal(t, []conversation.Payload{reply(t)[0], *userRequest(t), became(conversation.Idle, person)}, events)
}

func TestUserRequested_WhileTheUserTalks(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.10#13", "poppy-0.1/7.13#7")
	a := says(reply(t)...)
	a.UserRequested = userRequest(t)
	requireRefused(t, direct(state(conversation.Idle)), companySays(a, false), problem.FailedPrecondition)
	requireRefused(t, direct(at(conversation.Idle, person)), conversation.PersonActs(a), problem.FailedPrecondition)

	p := refusalOf(t, below(state(conversation.Idle)), companySays(a, false), problem.DirectConversationOpen)
	require.Equal(t, "cnv_d", p.Extra["conversation_id"])
	requireRefused(t, below(at(conversation.Working, person)), conversation.PersonActs(a), problem.DirectConversationOpen)

	// The User came while the backend was thinking, or it doesn't look who talks: what else it says counts.
	for _, with := range []func(conversation.State) conversation.State{below, direct} {
		s, events := step(t, with(state(conversation.Working)), backendSays(a, false))
		require.Equal(t, with(conversation.NewState()), s)
		require.Equal(t, []conversation.Payload{reply(t)[0], became(conversation.Idle, agent)}, events)
	}
}
