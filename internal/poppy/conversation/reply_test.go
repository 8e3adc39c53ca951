package conversation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

func TestNewAuthorization(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.11#5", "poppy-0.1/7.11#6", "poppy-0.1/7.11#d37")
	for _, c := range [][2]string{
		{"sign_in_required", ""}, {"sign_in_required", "poppy:read"}, {"insufficient_scope", "poppy:read poppy:write"}, {"insufficient_scope", "!#[]~"},
	} {
		p, err := conversation.NewAuthorization(c[0], c[1])
		require.NoError(t, err, c)
		require.Equal(t, &conversation.AuthorizationPayload{Error: c[0], Scope: c[1]}, p)
	}
}

func TestNewAuthorization_Refused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/7.11#5", "poppy-0.1/7.11#6", "poppy-0.1/7.11#d37")
	for _, code := range []string{"", "invalid_token", "SIGN_IN_REQUIRED", "sign_in_required "} {
		_, err := conversation.NewAuthorization(code, "poppy:read")
		require.Equal(t, "authorization.error", invalidOf(t, err, code).Fields[0].Path)
	}
	for _, scope := range []string{"", " ", "a  b", " a", "a ", "a a", "a\tb", "a\"b", `a\b`, "ü", "a\x00", strings.Repeat("a", 2001)} {
		_, err := conversation.NewAuthorization("insufficient_scope", scope)
		require.Equal(t, "authorization.scope", invalidOf(t, err, scope).Fields[0].Path)
	}
	_, err := conversation.NewAuthorization("sign_in_required", "a  b")
	requireInvalid(t, err)
}

func TestAuthorization_Event(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.11#2", "poppy-0.1/7.11#3", "poppy-0.1/7.11#9")
	p, err := conversation.NewAuthorization("insufficient_scope", "poppy:read")
	require.NoError(t, err)
	a := says(reply(t)...)
	a.Authorization = p
	for _, s := range []conversation.State{state(conversation.Working), direct(state(conversation.Working)), below(state(conversation.Working))} {
		next, events := step(t, s, backendSays(a, false))
		require.Equal(t, conversation.Idle, next.Status)
		require.Equal(t, []conversation.Payload{reply(t)[0], *p, became(conversation.Idle, agent)}, events)
	}
	_, events := step(t, at(conversation.Idle, person), conversation.PersonActs(conversation.Acts{Authorization: p}))
	require.Equal(t, []conversation.Payload{*p}, events)
}

func TestAuthorization_TheConversationGoesOnWithTheNewToken(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.11#8", "poppy-0.1/7.11#11", "poppy-0.1/7.2#d21")
	clausetest.Refuses(t, "poppy-0.1/7.11#d21")
	s, _ := step(t, conversation.NewState(), conversation.AgentSays(message(t, plain), false))
	s, _ = step(t, s, backendSays(conversation.Acts{Authorization: &conversation.AuthorizationPayload{Error: "sign_in_required"}}, false))
	s, _ = step(t, s, conversation.AgentSays(message(t, plain), true))
	require.True(t, s.AccountBound)
	for _, from := range takesMessages {
		from.AccountBound = true
		requireRefused(t, from, conversation.AgentSays(message(t, plain), false), problem.SignInRequired)
	}
}

func TestNewUserRequest(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.10#13")
	clausetest.Refuses(t, "poppy-0.1/7.10#13")
	for _, reason := range []string{"x", strings.Repeat("é", conversation.MaxReason)} {
		p, err := conversation.NewUserRequest(reason)
		require.NoError(t, err)
		require.Equal(t, reason, p.Reason)
	}
	for _, reason := range []string{"", " \n", "a\x00b", "\xff"} {
		_, err := conversation.NewUserRequest(reason)
		require.Equal(t, "user_requested.reason", invalidOf(t, err, reason).Fields[0].Path)
	}
	_, err := conversation.NewUserRequest(strings.Repeat("é", conversation.MaxReason+1))
	require.Equal(t, problem.TooLarge, problem.As(err).Kind)
}

func TestReply(t *testing.T) {
	m := companyMessage(t, "Bye.", "")
	require.True(t, conversation.Reply{}.Empty())
	for _, r := range []conversation.Reply{
		{Messages: []conversation.CompanyMessage{m}},
		{Close: true},
		{HandOff: true},
		{UserRequested: userRequest(t)},
		{Authorization: &conversation.AuthorizationPayload{Error: "sign_in_required"}},
		{Close: true, Messages: []conversation.CompanyMessage{m}},
	} {
		require.False(t, r.Empty())
		require.NoError(t, r.Check())
	}
	for _, r := range []conversation.Reply{
		{Close: true, HandOff: true}, {Close: true, UserRequested: userRequest(t)}, {Close: true, Authorization: &conversation.AuthorizationPayload{}},
	} {
		require.Equal(t, "close", invalidOf(t, r.Check()).Fields[0].Path)
	}
	n := 0
	r := conversation.Reply{Messages: []conversation.CompanyMessage{m, m}, UserRequested: userRequest(t), HandOff: true, Close: true, HandOffReason: "why"}
	require.Equal(t, conversation.Acts{
		Messages: []conversation.MessagePayload{m.Payload("msg_1"), m.Payload("msg_2")}, UserRequested: r.UserRequested, HandOff: true, Close: true,
	}, r.Acts(func() string { n++; return fmt.Sprintf("msg_%d", n) }))
}
