// Package connect reaches the Company's own accounts: its identity provider, its
// credential check, or made-up accounts. It decides nothing about sign-ins, counts no
// attempts, and keeps no credentials.
package connect

import (
	"errors"
	"time"
)

// Account is who the User turned out to be.
type Account struct {
	ID    string // stable, the Company's own
	Label string // what the User knows it by; may be empty
}

// Outcome is what a check of credentials, or of a one-time code, found.
type Outcome uint8

// The outcomes.
const (
	Complete     Outcome = iota + 1 // Account is set
	CodeRequired                    // a code is needed, or the one given is wrong and another try is allowed
	Failed                          // wrong, for good
)

// Verdict is the Company's answer.
type Verdict struct {
	Outcome Outcome
	Account Account
	// CodeRequired: where the code went in the Company's words, the Company's own state
	// for the next check, and how long the code is good; zero where it doesn't say.
	SentTo   string
	State    string
	Lifetime time.Duration
}

// What goes wrong on the way.
var (
	// ErrUnavailable: the Company's system gave no usable answer. Its text may be logged.
	ErrUnavailable = errors.New("the company's sign-in system is unavailable")
	// ErrRefused: the identity provider said no, such as access_denied, or what it said
	// does not hold. Its text may be logged and holds no token.
	ErrRefused = errors.New("the company's sign-in system refused")
)

// Subject is what a check is about; the Company gets to see it.
type Subject struct {
	SignInID, ClientID, AgentName string
	UserID, SessionID             string // Mediated Sign-In only
	Scopes                        []string
	SignIn                        string // "direct", "device" or "mediated"
}

// Upstream is what has to come back from an OIDC login. It is sealed with the sign-in.
type Upstream struct {
	State, Nonce, Verifier string
}
