package conversation

// Input is something that happens to a conversation. Its constructors are the
// complete list.
type Input struct {
	kind       inputKind
	acts       Acts
	nobodyActs Acts   // what is said where a handoff finds nobody
	nobody     bool   // the handoff finds nobody
	child      string // the Direct Conversation
	turn       bool   // the agent's message asks for an answer
	signedIn   bool
	moreTurns  bool
}

// inputKind is a row of the transition table.
type inputKind uint8

const (
	agentMessage   inputKind = iota + 1
	agentHandoff             // the Personal Agent asks for a person
	companyActs              // by the API: unasked, or after a 202
	backendAnswer            // to a turn
	answerDeadline           // of the backend, or of the person who handles it
	queueDeadline            // nobody joined
	personJoins
	personActs
	personLeaves
	personRequeues
	directOpens
	directCloses
	closeByAgent
	closeByCompany
	inputs
)

// Acts are what the Company's side does at once: they become events in this order,
// followed by what HandOff or Close means.
type Acts struct {
	Messages      []MessagePayload
	Authorization *AuthorizationPayload // asks for a sign-in (7.11)
	UserRequested *UserRequestedPayload // asks for the User (7.10)
	HandOff       bool                  // asks for a person (7.9); without effect while one is awaited or there
	Close         bool                  // for good (7.12); goes before HandOff
}

// Empty reports whether nothing is done.
func (a Acts) Empty() bool {
	return len(a.Messages) == 0 && a.Authorization == nil && a.UserRequested == nil && !a.HandOff && !a.Close
}

// Staffing is what a handoff finds. Its zero value is a queue that somebody looks after.
type Staffing struct {
	Nobody bool
	Notice MessagePayload // says so; for Nobody only
}

func (f Staffing) acts() Acts {
	if !f.Nobody {
		return Acts{}
	}
	return Acts{Messages: []MessagePayload{f.Notice}}
}

// AgentSays is an accepted message of the Personal Agent; signedIn tells whether
// its token was signed in to the account.
func AgentSays(m Message, signedIn bool) Input {
	return Input{kind: agentMessage, acts: Acts{Messages: []MessagePayload{m.Payload()}}, turn: m.StartsTurn(), signedIn: signedIn}
}

// AgentAsksForPerson is a handoff asked for by the Personal Agent (7.9). moreTurns says
// whether a turn is open that goes on where nobody is there.
func AgentAsksForPerson(f Staffing, moreTurns bool) Input {
	return Input{kind: agentHandoff, acts: f.acts(), nobody: f.Nobody, moreTurns: moreTurns}
}

// CompanyActs is what the Company's agent does by the admin API. In the inputs that
// end a turn, moreTurns says that another turn of the conversation still waits for
// the backend, which keeps it working. f is needed for HandOff alone.
func CompanyActs(a Acts, f Staffing, moreTurns bool) Input {
	return Input{kind: companyActs, acts: a, nobodyActs: f.acts(), nobody: f.Nobody, moreTurns: moreTurns}
}

// BackendAnswers is the backend's answer to one turn; empty acts are a backend that has nothing to say (7.7#d45).
func BackendAnswers(a Acts, f Staffing, moreTurns bool) Input {
	return Input{kind: backendAnswer, acts: a, nobodyActs: f.acts(), nobody: f.Nobody, moreTurns: moreTurns}
}

// DeadlinePassed is a turn that the backend, or the person who handles the
// conversation, did not answer in time; notice is the message that tells the agent so.
func DeadlinePassed(notice MessagePayload, moreTurns bool) Input {
	return Input{kind: answerDeadline, acts: Acts{Messages: []MessagePayload{notice}}, moreTurns: moreTurns}
}

// NobodyJoined is the end of the wait for a person; notice says so (7.9).
func NobodyJoined(notice MessagePayload) Input {
	return Input{kind: queueDeadline, acts: Acts{Messages: []MessagePayload{notice}}}
}

// PersonJoins is a person at the Company who takes the conversation over.
func PersonJoins() Input { return Input{kind: personJoins} }

// PersonActs is what the person who handles the conversation does. HandOff is PersonRequeues.
func PersonActs(a Acts) Input {
	a.HandOff = false
	return Input{kind: personActs, acts: a}
}

// PersonLeaves gives the conversation back to the Company Agent. turn says that it owes
// an answer; notice, if any, are messages for the agent.
func PersonLeaves(turn bool, notice ...MessagePayload) Input {
	return Input{kind: personLeaves, acts: Acts{Messages: notice}, moreTurns: turn}
}

// PersonRequeues has the conversation wait for another person.
func PersonRequeues() Input { return Input{kind: personRequeues} }

// DirectOpens is a Direct Conversation that is started below this one.
func DirectOpens(id string) Input { return Input{kind: directOpens, child: id} }

// DirectCloses is the close of the Direct Conversation below this one.
func DirectCloses(id string) Input { return Input{kind: directCloses, child: id} }

// AgentCloses is a close asked for by the Personal Agent.
func AgentCloses() Input { return Input{kind: closeByAgent} }

// CompanyCloses is a close by the Company, by a person, for inactivity, or with the
// parent of a Direct Conversation.
func CompanyCloses() Input { return Input{kind: closeByCompany} }
