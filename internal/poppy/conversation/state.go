package conversation

import "github.com/poppyfield/poppyfield/internal/poppy/problem"

// State is what the rules of section 7 need to know of a conversation.
type State struct {
	Status    Status
	Responder Responder
	// AccountBound says that a message with a signed-in token was accepted: from
	// then on the conversation is the account's (7.2).
	AccountBound bool
}

// NewState is the state before the first message.
func NewState() State { return State{Status: Idle, Responder: ResponderAgent} }

// Input is something that happens to a conversation. Its constructors are the
// complete list.
type Input struct {
	kind      inputKind
	messages  []MessagePayload
	turn      bool // the messages ask for an answer
	signedIn  bool
	moreTurns bool
}

type inputKind uint8

const (
	agentMessage   inputKind = iota + 1
	companyMessage           // unasked, or after a 202
	backendAnswer            // with messages
	backendNothing           // it has nothing to say
	answerDeadline
	closeByAgent
	closeByCompany
)

// AgentSays is an accepted message of the Personal Agent; signedIn tells whether
// its token was signed in to the account.
func AgentSays(m Message, signedIn bool) Input {
	return Input{kind: agentMessage, messages: []MessagePayload{m.Payload()}, turn: m.StartsTurn(), signedIn: signedIn}
}

// CompanySays are messages that the Company sends by the admin API. In the four
// inputs that end a turn, moreTurns says that another turn of the conversation
// still waits for the backend, which keeps it working.
func CompanySays(messages []MessagePayload, moreTurns bool) Input {
	return Input{kind: companyMessage, messages: messages, moreTurns: moreTurns}
}

// BackendAnswers is the backend's answer to one turn; no messages are BackendHasNothing.
func BackendAnswers(messages []MessagePayload, moreTurns bool) Input {
	if len(messages) == 0 {
		return BackendHasNothing(moreTurns)
	}
	return Input{kind: backendAnswer, messages: messages, moreTurns: moreTurns}
}

// BackendHasNothing is a backend that answers a turn without a message.
func BackendHasNothing(moreTurns bool) Input {
	return Input{kind: backendNothing, moreTurns: moreTurns}
}

// DeadlinePassed is a turn that the backend did not answer in time; notice is the
// message that tells the agent so.
func DeadlinePassed(notice MessagePayload, moreTurns bool) Input {
	return Input{kind: answerDeadline, messages: []MessagePayload{notice}, moreTurns: moreTurns}
}

// AgentCloses is a close asked for by the Personal Agent.
func AgentCloses() Input { return Input{kind: closeByAgent} }

// CompanyCloses is a close by the Company, by a person or for inactivity.
func CompanyCloses() Input { return Input{kind: closeByCompany} }

// at is a row of the transition table: a status and what happens in it.
type at struct {
	status Status
	kind   inputKind
}

// Step applies in to s. It returns the new state and the events to add, in order;
// the caller gives them sequence numbers and a time. A refused input changes
// nothing. This switch is the whole transition table; a further input (handoff,
// join, Direct Conversations) is a further row.
func Step(s State, in Input) (State, []Payload, error) {
	switch (at{s.Status, in.kind}) {
	case at{Idle, agentMessage}:
		return s.hear(in, startedStatus(in))
	case at{Working, agentMessage}:
		return s.hear(in, Working)
	case at{Closed, agentMessage}:
		return s, nil, closed(clauseClosed)

	case at{Idle, companyMessage}, at{Idle, backendAnswer}:
		// Unasked, or late: the turn was settled already. What was said still counts.
		return s.say(in, Idle)
	case at{Working, companyMessage}, at{Working, backendAnswer}, at{Working, answerDeadline}:
		return s.say(in, settledStatus(in))
	case at{Closed, companyMessage}, at{Closed, backendAnswer}, at{Closed, backendNothing}:
		return s, nil, closed(clauseLate)

	case at{Working, backendNothing}:
		return s.say(in, settledStatus(in)) // no message: 7.7#d45
	case at{Idle, backendNothing}, at{Idle, answerDeadline}, at{Closed, answerDeadline}:
		return s, nil, nil

	case at{Idle, closeByAgent}, at{Working, closeByAgent}, at{Idle, closeByCompany}, at{Working, closeByCompany}:
		return s.say(in, Closed)
	case at{Closed, closeByAgent}, at{Closed, closeByCompany}:
		return s, nil, nil // 7.10#d38: harmless, no event
	}
	return s, nil, problem.New(problem.Internal, problem.ServerError, "", "no rule for what happened to the conversation")
}

// hear adds the agent's message and moves to status. A conversation that has used
// the account takes no signed-out message (7.11).
func (s State) hear(in Input, status Status) (State, []Payload, error) {
	if s.AccountBound && !in.signedIn {
		return s, nil, problem.New(problem.Forbidden, problem.SignInRequired, clauseSignedOut,
			"the conversation has used the user's account, and the token is not signed in to it")
	}
	s.AccountBound = s.AccountBound || in.signedIn
	return s.say(in, status)
}

// say adds the messages of in and moves to status, with a state event if that is a
// change (7.7). The responder stays who it was, also in a closed conversation.
func (s State) say(in Input, status Status) (State, []Payload, error) {
	events := make([]Payload, 0, len(in.messages)+1)
	for _, m := range in.messages {
		events = append(events, m)
	}
	if s.Status != status {
		s.Status = status
		events = append(events, StatePayload{Status: s.Status, Responder: s.Responder})
	}
	return s, events, nil
}

func startedStatus(in Input) Status {
	if in.turn {
		return Working
	}
	return Idle
}

func settledStatus(in Input) Status {
	if in.moreTurns {
		return Working
	}
	return Idle
}
