package conversation_test

import (
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

var modelSeed = flag.Uint64("model.seed", 0, "repeats a run of the model test; 0 draws a seed")

const modelSteps = 150_000

// happening is an input as the model reads it: the same facts, without the type under test.
type happening struct {
	what                         string
	messages                     []conversation.MessagePayload
	authorization                *conversation.AuthorizationPayload
	request                      *conversation.UserRequestedPayload
	handOff, close, nobody, more bool
	turn, signedIn               bool
	id                           string
}

// weights says how often each thing happens: closes seldom, so that much happens before.
var weights = map[string]int{
	"agent message": 30, "agent handoff": 8, "company acts": 10, "backend answers": 14, "answer deadline": 5, "queue deadline": 4,
	"person joins": 10, "person acts": 14, "person leaves": 4, "person requeues": 4, "direct opens": 6, "direct closes": 9,
	"agent closes": 1, "company closes": 1,
}

// model is a conversation as a reader of section 7 would keep it: four facts about the
// Company's side, and what was told last.
type model struct {
	closed, waiting, person, busy bool // waiting: for a person; busy: an answer is owed
	bound, direct                 bool
	child                         string
	told                          conversation.StatePayload
	log                           []conversation.Payload
}

func (m *model) status() conversation.Status {
	if m.closed {
		return conversation.Closed
	}
	if m.waiting {
		return conversation.Queued
	}
	if m.busy {
		return conversation.Working
	}
	return conversation.Idle
}

func (m *model) responder() conversation.Responder {
	if m.person {
		return conversation.ResponderHuman
	}
	return conversation.ResponderAgent
}

// tell adds a state event where the last one is no longer true.
func (m *model) tell() {
	if now := (conversation.StatePayload{Status: m.status(), Responder: m.responder()}); now != m.told {
		m.told = now
		m.log = append(m.log, now)
	}
}

func (m *model) say(messages []conversation.MessagePayload) {
	for _, p := range messages {
		m.log = append(m.log, p)
	}
}

func (m *model) end() {
	if m.child != "" {
		m.log = append(m.log, conversation.DirectClosedPayload{ConversationID: m.child})
		m.child = ""
	}
	m.closed = true
	m.tell()
}

func (m *model) seek(h happening) {
	m.waiting, m.busy = true, false
	m.tell()
	if h.nobody {
		m.waiting, m.busy = false, h.more
		m.log = append(m.log, nobodyThere)
		m.tell()
	}
}

// do has h happen, or returns why it is refused.
func (m *model) do(h happening) problem.Reason {
	switch h.what {
	case "agent message", "agent handoff":
		return m.agent(h)
	case "company acts", "backend answers", "person acts":
		return m.company(h)
	case "person joins", "person leaves", "person requeues":
		return m.desk(h)
	case "direct opens", "direct closes":
		return m.below(h)
	case "answer deadline":
		if m.busy && !m.closed {
			m.say(h.messages)
			m.busy = h.more
			m.tell()
		}
	case "queue deadline":
		if m.waiting && !m.closed {
			m.say(h.messages)
			m.waiting = false
			m.tell()
		}
	case "agent closes", "company closes":
		if !m.closed {
			m.end()
		}
	}
	return ""
}

func (m *model) agent(h happening) problem.Reason {
	if m.closed {
		return problem.ConversationClosed
	}
	if h.what == "agent message" && m.bound && !h.signedIn {
		return problem.SignInRequired
	}
	if m.child != "" {
		return problem.DirectConversationOpen
	}
	if h.what == "agent handoff" {
		if !m.waiting && !m.person {
			m.seek(h)
		}
		return ""
	}
	m.bound = m.bound || h.signedIn
	m.say(h.messages)
	if h.turn && !m.waiting {
		m.busy = true
	}
	m.tell()
	return ""
}

func (m *model) company(h happening) problem.Reason {
	byPerson := h.what == "person acts"
	if m.closed {
		return problem.ConversationClosed
	}
	if byPerson != m.person {
		empty := len(h.messages) == 0 && h.authorization == nil && h.request == nil && !h.handOff && !h.close
		if !byPerson && empty {
			return ""
		}
		return problem.NotResponder
	}
	if h.request != nil && h.what != "backend answers" {
		if m.direct {
			return problem.FailedPrecondition
		}
		if m.child != "" {
			return problem.DirectConversationOpen
		}
	}
	m.say(h.messages)
	if h.authorization != nil {
		m.log = append(m.log, *h.authorization)
	}
	if h.request != nil && m.child == "" && !m.direct {
		m.log = append(m.log, *h.request)
	}
	if h.close {
		m.end()
		return ""
	}
	if h.handOff && !byPerson && !m.waiting {
		m.seek(h)
		return ""
	}
	if m.busy {
		m.busy = h.more && !byPerson
		m.tell()
	}
	return ""
}

func (m *model) desk(h happening) problem.Reason {
	if m.closed {
		if h.what == "person leaves" {
			return ""
		}
		return problem.ConversationClosed
	}
	if m.person == (h.what == "person joins") {
		return "" // there already, or not there
	}
	if h.what == "person leaves" {
		m.say(h.messages)
	}
	m.person = h.what == "person joins"
	m.waiting = h.what == "person requeues"
	if h.what == "person leaves" {
		m.busy = h.more
	}
	if m.waiting {
		m.busy = false
	}
	m.tell()
	return ""
}

func (m *model) below(h happening) problem.Reason {
	if h.what == "direct closes" {
		if m.child != "" && m.child == h.id {
			m.log = append(m.log, conversation.DirectClosedPayload{ConversationID: h.id})
			m.child = ""
		}
		return ""
	}
	if m.direct {
		return problem.ConversationNotFound
	}
	if m.closed {
		return problem.ConversationClosed
	}
	if m.child != "" {
		return problem.DirectConversationOpen
	}
	m.child = h.id
	m.log = append(m.log, conversation.DirectOpenedPayload{ConversationID: h.id})
	return ""
}

var nobodyThere = conversation.MessagePayload{ID: "msg_nobody", Role: conversation.RoleCompany, Sender: conversation.SenderAgent, Text: "Nobody is here."}

// chance draws what happens.
type chance struct {
	*rand.Rand
	whats []string // each as often as it weighs
	ids   int
}

func newChance(seed uint64) *chance {
	c := &chance{Rand: rand.New(rand.NewPCG(seed, 7))}
	for what, weight := range weights {
		for range weight {
			c.whats = append(c.whats, what)
		}
	}
	return c
}

func (c *chance) one(of int) bool { return c.IntN(of) == 0 }

func (c *chance) message() conversation.MessagePayload {
	c.ids++
	return conversation.MessagePayload{ID: "msg_" + strconv.Itoa(c.ids), Role: conversation.RoleCompany, Sender: conversation.SenderAgent, Text: "x"}
}

// happens draws something that can happen, as the model and as Step are told of it.
func (c *chance) happens(t *testing.T) (happening, conversation.Input) {
	h := happening{what: c.whats[c.IntN(len(c.whats))], more: c.one(3), nobody: c.one(3), turn: !c.one(4), signedIn: c.one(3), id: "cnv_" + strconv.Itoa(c.IntN(3))}
	staffing := conversation.Staffing{}
	if h.nobody {
		staffing = conversation.Staffing{Nobody: true, Notice: nobodyThere}
	}
	switch h.what {
	case "agent message":
		c.ids++
		content := `"context":{"a":1}`
		if h.turn {
			content = `"text":"x"`
		}
		m := message(t, `"id":"msg_`+strconv.Itoa(c.ids)+`","sender":"agent",`+content)
		h.messages = []conversation.MessagePayload{m.Payload()}
		return h, conversation.AgentSays(m, h.signedIn)
	case "agent handoff":
		return h, conversation.AgentAsksForPerson(staffing, h.more)
	case "company acts", "backend answers", "person acts":
		return c.acts(h, staffing)
	case "answer deadline":
		h.messages = []conversation.MessagePayload{c.message()}
		return h, conversation.DeadlinePassed(h.messages[0], h.more)
	case "queue deadline":
		h.messages = []conversation.MessagePayload{c.message()}
		return h, conversation.NobodyJoined(h.messages[0])
	case "person leaves":
		for range c.IntN(2) {
			h.messages = append(h.messages, c.message())
		}
		return h, conversation.PersonLeaves(h.more, h.messages...)
	case "direct opens":
		return h, conversation.DirectOpens(h.id)
	case "direct closes":
		return h, conversation.DirectCloses(h.id)
	}
	return h, map[string]func() conversation.Input{
		"person joins": conversation.PersonJoins, "person requeues": conversation.PersonRequeues,
		"agent closes": conversation.AgentCloses, "company closes": conversation.CompanyCloses,
	}[h.what]()
}

func (c *chance) acts(h happening, staffing conversation.Staffing) (happening, conversation.Input) {
	for range c.IntN(3) {
		h.messages = append(h.messages, c.message())
	}
	if c.one(6) {
		h.authorization = &conversation.AuthorizationPayload{Error: "sign_in_required"}
	}
	if c.one(6) {
		h.request = &conversation.UserRequestedPayload{Reason: "x"}
	}
	h.handOff, h.close = c.one(5), c.one(30)
	a := conversation.Acts{Messages: h.messages, Authorization: h.authorization, UserRequested: h.request, HandOff: h.handOff, Close: h.close}
	switch h.what {
	case "company acts":
		return h, conversation.CompanyActs(a, staffing, h.more)
	case "backend answers":
		return h, conversation.BackendAnswers(a, staffing, h.more)
	}
	return h, conversation.PersonActs(a)
}

// requireSound checks what must hold whatever the rules are: of one step, and of all
// messages up to it.
func requireSound(t *testing.T, before, after conversation.State, events []conversation.Payload, err error, lastMessage *int) {
	t.Helper()
	if err != nil || before.Status == conversation.Closed {
		require.Equal(t, before, after)
		require.Empty(t, events)
	}
	require.Equal(t, before.Direct, after.Direct)
	require.False(t, before.AccountBound && !after.AccountBound, "a conversation went back to its User")
	require.False(t, after.Status == conversation.Queued && after.Responder != conversation.ResponderAgent)
	require.False(t, after.Direct && after.Child != "")
	require.False(t, after.Status == conversation.Closed && after.Child != "")
	last := conversation.StatePayload{Status: before.Status, Responder: before.Responder}
	for _, e := range events {
		switch e := e.(type) {
		case conversation.StatePayload:
			require.NotEqual(t, last, e, "a state event without a change")
			last = e
		case conversation.MessagePayload:
			if e.ID == nobodyThere.ID {
				continue
			}
			n, err := strconv.Atoi(e.ID[len("msg_"):])
			require.NoError(t, err)
			require.Greater(t, n, *lastMessage, "messages out of order")
			*lastMessage = n
		}
	}
	now := conversation.StatePayload{Status: after.Status, Responder: after.Responder}
	require.Equal(t, now, last, "a change without a state event")
}

// The state machine does what a plain reading of section 7 does, whatever happens in
// whatever order, and every cell of its table is tried.
func TestStep_LikeTheModel(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/7.7#1", "poppy-0.1/7.7#2", "poppy-0.1/7.7#7", "poppy-0.1/7.7#11", "poppy-0.1/7.7#13", "poppy-0.1/7.7#14", "poppy-0.1/7.9#d23", "poppy-0.1/7.12#d24")
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-model.seed=%d", seed)
	c := newChance(seed)
	var tried [conversation.Inputs][conversation.Phases]int
	for steps := 0; steps < modelSteps; {
		s := conversation.NewState()
		s.Direct = c.one(4)
		m := model{direct: s.Direct, told: conversation.StatePayload{Status: s.Status, Responder: s.Responder}}
		lastMessage, trail := c.ids, []string(nil)
		for n := 20 + c.IntN(60); n > 0; n, steps = n-1, steps+1 {
			h, in := c.happens(t)
			trail = append(trail, h.what)
			row, column := conversation.Cell(s, in)
			tried[row][column]++

			m.log = nil
			want := m.do(h)
			next, events, err := conversation.Step(s, in)
			if want != "" {
				require.True(t, problem.Is(err, want), "want %s, not %v: %v, %+v", want, err, trail, h)
			} else {
				require.NoError(t, err, "%v, %+v", trail, h)
			}
			if len(m.log)+len(events) > 0 {
				require.Equal(t, m.log, events, "%v, %+v", trail, h)
			}
			require.Equal(t, conversation.State{
				Status: m.status(), Responder: m.responder(), AccountBound: m.bound, Direct: m.direct, Child: m.child,
			}, next, "%v, %+v", trail, h)
			requireSound(t, s, next, events, err, &lastMessage)
			s = next
		}
	}
	for row := range tried {
		for column, n := range tried[row] {
			require.Positive(t, n, "input %d in phase %d was never tried", row, column)
		}
	}
}
