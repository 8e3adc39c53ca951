package conversation

import "github.com/poppyfield/poppyfield/internal/poppy/problem"

// State is what the rules of section 7 need to know of a conversation.
type State struct {
	Status    Status
	Responder Responder
	// AccountBound says that a message with a signed-in token was accepted: from
	// then on the conversation is the account's (7.2).
	AccountBound bool
	// Direct says that it is a Direct Conversation: the User talks themselves (7.10).
	Direct bool
	// Child is the id of its open Direct Conversation, "" for none.
	Child string
}

// NewState is the state before the first message.
func NewState() State { return State{Status: Idle, Responder: ResponderAgent} }

// phase is a column of the transition table: the status, and with idle and working
// who handles the Company's side. A queued conversation is handled by the agent, and
// in a closed one it is no matter who did (7.7).
type phase uint8

const (
	idle phase = iota
	working
	queued
	idleHuman
	workingHuman
	closedPhase
	phases
)

// phase is phases for a state that is none of the protocol's.
func (s State) phase() phase {
	human := s.Responder == ResponderHuman
	switch {
	case s.Status == Closed:
		return closedPhase
	case !human && s.Responder != ResponderAgent:
		return phases
	case s.Status == Idle && human:
		return idleHuman
	case s.Status == Idle:
		return idle
	case s.Status == Working && human:
		return workingHuman
	case s.Status == Working:
		return working
	case s.Status == Queued && !human: // 7.7
		return queued
	}
	return phases
}

// rule is an entry of the transition table.
type rule func(State, Input) (State, []Payload, error)

// table is every rule: what each input does in each phase. None of it is elsewhere.
var table = [inputs][phases]rule{
	//                 idle      working     queued       idle/human    working/human  closed
	agentMessage:   {hear, hear, hear, hear, hear, tooLate},
	agentHandoff:   {ask, ask, askAgain, askAgain, askAgain, tooLate},
	companyActs:    {act, act, act, superseded, superseded, refuseLate},
	backendAnswer:  {answer, answer, answer, superseded, superseded, refuseLate},
	answerDeadline: {stay, settle, stay, stay, settle, stay},
	queueDeadline:  {stay, stay, settle, stay, stay, stay},
	personJoins:    {join, join, join, stay, stay, refuseLate},
	personActs:     {nobodyThere, nobodyThere, nobodyThere, act, act, refuseLate},
	personLeaves:   {stay, stay, stay, leave, leave, stay},
	personRequeues: {stay, stay, stay, requeue, requeue, refuseLate},
	directOpens:    {openDirect, openDirect, openDirect, openDirect, openDirect, tooLate},
	directCloses:   {closeDirect, closeDirect, closeDirect, closeDirect, closeDirect, stay},
	closeByAgent:   {shut, shut, shut, shut, shut, stay}, // a second close is harmless: 7.10#d38
	closeByCompany: {shut, shut, shut, shut, shut, stay},
}

// Step applies in to s. It returns the new state and the events to add, in order;
// the caller gives them sequence numbers and a time. A refused input changes
// nothing.
func Step(s State, in Input) (State, []Payload, error) {
	at := s.phase()
	if in.kind == 0 || in.kind >= inputs || at == phases {
		return s, nil, problem.New(problem.Internal, problem.ServerError, "", "no rule for what happened to the conversation")
	}
	next, events, err := table[in.kind][at](s, in)
	if err != nil {
		return s, nil, err
	}
	return next, events, nil
}

// stay changes nothing.
func stay(s State, _ Input) (State, []Payload, error) { return s, nil, nil }

// hear adds the agent's message. A conversation that has used the account takes no
// signed-out message (7.11), and one with an open Direct Conversation none at all (7.10).
func hear(s State, in Input) (State, []Payload, error) {
	if s.AccountBound && !in.signedIn {
		return s, nil, signInRequired()
	}
	if s.Child != "" {
		return s, nil, directOpen(s.Child)
	}
	s.AccountBound = s.AccountBound || in.signedIn
	status := s.Status
	if status == Idle && in.turn {
		status = Working
	}
	return s.say(in.acts, status, s.Responder)
}

// ask is a handoff that the Personal Agent asks for: not while its User talks in a
// Direct Conversation (7.10).
func ask(s State, in Input) (State, []Payload, error) {
	if s.Child != "" {
		return s, nil, directOpen(s.Child)
	}
	return handOff(s, in)
}

// askAgain is a handoff while a person is awaited or there: one is enough (7.9#d23).
func askAgain(s State, _ Input) (State, []Payload, error) {
	if s.Child != "" {
		return s, nil, directOpen(s.Child)
	}
	return s, nil, nil
}

// handOff has the conversation wait for a person; where nobody is there, in.acts says
// so, and it goes back to where it was (7.9).
func handOff(s State, in Input) (State, []Payload, error) {
	s, events, err := s.say(Acts{}, Queued, ResponderAgent)
	if err != nil || !in.nobody {
		return s, events, err
	}
	s, more, err := s.say(in.acts, settled(in), ResponderAgent)
	return s, append(events, more...), err
}

// act adds what the Company's side does, and settles its turn unless the acts say
// how it goes on.
func act(s State, in Input) (State, []Payload, error) {
	if in.acts.UserRequested != nil {
		switch {
		case s.Direct:
			return s, nil, problem.New(problem.Conflict, problem.FailedPrecondition, clauseDirect, "the user is talking in this conversation already")
		case s.Child != "":
			return s, nil, directOpen(s.Child)
		}
	}
	switch {
	case in.acts.Close:
		s, events, err := s.say(in.acts, s.Status, s.Responder)
		if err != nil {
			return s, nil, err
		}
		s, more, err := shut(s, in)
		return s, append(events, more...), err
	case in.acts.HandOff && s.Responder == ResponderAgent && s.Status != Queued:
		s, events, err := s.say(in.acts, s.Status, s.Responder)
		if err != nil {
			return s, nil, err
		}
		in.acts = in.nobodyActs
		s, more, err := handOff(s, in)
		return s, append(events, more...), err
	case s.Status == Working:
		return s.say(in.acts, settled(in), s.Responder)
	}
	// Unasked, late, or while a person is awaited: what was said still counts.
	return s.say(in.acts, s.Status, s.Responder)
}

// answer is act for the backend, which can't know that the User came while it was
// thinking, or may not look who is talking: a request for them is met then, and the
// rest still counts.
func answer(s State, in Input) (State, []Payload, error) {
	if s.Child != "" || s.Direct {
		in.acts.UserRequested = nil
	}
	return act(s, in)
}

// settle says that what was awaited didn't come, and goes back to idle: no answer of
// the backend (7.7#d25) or of the person who handles it, or nobody who joins (7.9).
func settle(s State, in Input) (State, []Payload, error) {
	return s.say(in.acts, settled(in), s.Responder)
}

// join has a person handle the conversation. Who takes over a turn owes its answer.
func join(s State, in Input) (State, []Payload, error) {
	status := Idle
	if s.Status == Working {
		status = Working
	}
	return s.say(in.acts, status, ResponderHuman)
}

// leave gives the conversation back to the Company Agent, with a turn where one is left open.
func leave(s State, in Input) (State, []Payload, error) {
	return s.say(in.acts, settled(in), ResponderAgent)
}

func requeue(s State, in Input) (State, []Payload, error) {
	return s.say(in.acts, Queued, ResponderAgent)
}

// openDirect judges the parent of a new Direct Conversation: not nested, then not a
// second one (7.10#d38).
func openDirect(s State, in Input) (State, []Payload, error) {
	switch {
	case s.Direct:
		return s, nil, NotFound(clauseNested)
	case s.Child != "":
		return s, nil, directOpen(s.Child)
	}
	s.Child = in.child
	return s, []Payload{DirectOpenedPayload{ConversationID: in.child}}, nil
}

func closeDirect(s State, in Input) (State, []Payload, error) {
	if s.Child == "" || s.Child != in.child {
		return s, nil, nil
	}
	s.Child = ""
	return s, []Payload{DirectClosedPayload{ConversationID: in.child}}, nil
}

// shut closes the conversation. Its open Direct Conversation, which the caller closes
// first, is over (7.10#d22); the responder stays who it was (7.7).
func shut(s State, _ Input) (State, []Payload, error) {
	var events []Payload
	if s.Child != "" {
		events = append(events, DirectClosedPayload{ConversationID: s.Child})
		s.Child = ""
	}
	s, more, err := s.say(Acts{}, Closed, s.Responder)
	return s, append(events, more...), err
}

func tooLate(s State, in Input) (State, []Payload, error) {
	if in.kind == directOpens && s.Direct {
		return s, nil, NotFound(clauseNested) // before closed: 7.10#d38
	}
	return s, nil, closed(clauseClosed)
}

func refuseLate(s State, _ Input) (State, []Payload, error) { return s, nil, closed(clauseLate) }

// superseded refuses what the backend says once a person handles the conversation:
// there is one owner at a time. Saying nothing is no offence.
func superseded(s State, in Input) (State, []Payload, error) {
	if in.acts.Empty() {
		return s, nil, nil
	}
	return s, nil, problem.New(problem.Conflict, problem.NotResponder, "", "a person handles the conversation")
}

func nobodyThere(s State, _ Input) (State, []Payload, error) {
	return s, nil, problem.New(problem.Conflict, problem.NotResponder, "", "no person handles the conversation: join it first")
}

// say adds acts and moves to status and responder, with a state event if either is a
// change (7.7).
func (s State) say(acts Acts, status Status, responder Responder) (State, []Payload, error) {
	events := make([]Payload, 0, len(acts.Messages)+3)
	for _, m := range acts.Messages {
		events = append(events, m)
	}
	if acts.Authorization != nil {
		events = append(events, *acts.Authorization)
	}
	if acts.UserRequested != nil {
		events = append(events, *acts.UserRequested)
	}
	if s.Status != status || s.Responder != responder {
		s.Status, s.Responder = status, responder
		events = append(events, StatePayload{Status: status, Responder: responder})
	}
	return s, events, nil
}

func settled(in Input) Status {
	if in.moreTurns {
		return Working
	}
	return Idle
}

func signInRequired() *problem.Error {
	return problem.New(problem.Forbidden, problem.SignInRequired, clauseSignedOut,
		"the conversation has used the user's account, and the token is not signed in to it")
}

func directOpen(child string) *problem.Error {
	return problem.New(problem.Conflict, problem.DirectConversationOpen, clauseDirect, "the conversation has an open Direct Conversation").
		WithExtra("conversation_id", child)
}
