package conversation

import (
	"time"
)

// Limits of messages and reads; the protocol leaves them to the Company (7.4, 7.5).
const (
	MaxBody   = 256 << 10        // bytes of a request body
	MaxText   = 32_000           // characters of text
	MaxObject = 64 << 10         // bytes of data or context as JSON, and of the merged context
	MaxDepth  = 16               // nesting inside data or context, the object itself counted
	MaxID     = 256              // characters of an id
	MaxWait   = 30 * time.Second // a longer wait is cut to it
	MaxPage   = 100              // events in one read
)

// Sender says whether a person or an AI wrote a message (7.8).
type Sender string

// The senders.
const (
	SenderAgent Sender = "agent"
	SenderHuman Sender = "human"
)

// Role is the side a message comes from, as seen by the Personal Agent.
type Role string

// The roles.
const (
	RoleUser    Role = "user"    // the Personal Agent's side
	RoleCompany Role = "company" // the Company's side, a person or its agent
)

// Status is the state of a conversation as the protocol names it (7.7).
type Status string

// The statuses.
const (
	Working Status = "working" // the Company prepares a reply
	Idle    Status = "idle"    // the agent's next message is awaited
	Queued  Status = "queued"  // a person at the Company is awaited
	Closed  Status = "closed"  // no more messages are taken
)

// Responder is who handles the Company's side (7.7).
type Responder string

// The responders.
const (
	ResponderAgent Responder = "agent"
	ResponderHuman Responder = "human"
)

// CheckID reports an id that breaks 7.2: 1 to 256 characters of letters, digits,
// "-" and "_". path names the field in the error.
func CheckID(path, id string) error {
	if len(id) == 0 || len(id) > MaxID {
		return invalid(clauseID, path, "has not 1 to %d characters", MaxID)
	}
	for i := range len(id) {
		c := id[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' {
			return invalid(clauseID, path, "has a character other than letters, digits, - and _")
		}
	}
	return nil
}

// Owner names whose a conversation is, or who asks for it. AccountID is empty for
// a signed-out caller, and for a conversation that has not used an account yet.
type Owner struct{ ClientID, UserID, AccountID string }

// CheckOwner decides whether caller may go on with, or read, a conversation of
// owner (7.2, 7.11). A foreign caller gets the answer of an id that never was;
// the owner's User without the account gets sign_in_required.
func CheckOwner(owner, caller Owner) error {
	if owner.ClientID != caller.ClientID || owner.UserID != caller.UserID {
		return NotFound(clauseOwner)
	}
	switch {
	case owner.AccountID == "" || owner.AccountID == caller.AccountID:
		return nil
	case caller.AccountID == "":
		return signInRequired()
	default:
		return NotFound(clauseForeign)
	}
}
