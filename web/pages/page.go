package pages

import (
	"html/template"
	"time"
)

// A Page is one of the pages below. Texts in them are plain; they are escaped when
// they are written.
type Page interface{ name() string }

// Brand is whose page it is.
type Brand struct {
	Company string
	// Base is the issuer: where links to our own files begin.
	Base        string
	LogoURL     string // empty: the name alone
	AccentColor string // "#rrggbb"; empty means ours
	SupportURL  string
	PrivacyURL  string
	TermsURL    string
	Test        bool // marks every page as one for trying out
}

// Agent is the Personal Agent that asks. Name and logo are its own words; Host is
// the host of its client_id, which is what it has proved. Of a client that is no agent it
// is where the answer goes.
type Agent struct{ Name, Host, LogoURL string }

// Form is where a page's answer goes, and what proves that it is the answer to it.
type Form struct {
	Action string
	Token  string // hidden field csrf
}

// Field is an input of a login form. Its name in the form is "field." + Name.
type Field struct {
	Name, Label string
	Secret      bool
	Value       string // kept after a failed try; never of a secret field
}

// Problem is a message above a form.
type Problem string

// The problems of a form, each a text in every language.
const (
	NoProblem         Problem = ""
	WrongCredentials  Problem = "wrong_credentials"
	WrongCode         Problem = "wrong_code"
	TooManyTries      Problem = "too_many_tries"
	LoginUnavailable  Problem = "login_unavailable" // the Company's system did not answer
	UnknownUserCode   Problem = "unknown_user_code"
	CodeExpired       Problem = "code_expired"
	MissingCredential Problem = "missing_credential"
)

// Login asks for credentials on our own form. Its buttons send action=login or action=decline.
type Login struct {
	Agent   Agent
	Form    Form
	Fields  []Field
	Welcome string // the Company's own sentence, or empty
	Problem Problem
	// Accounts are shown with their user names where accounts are made up for trying out.
	Accounts []TestAccount
	// MayLeave: a declined sign-in's redirect leads to the agent's own site.
	MayLeave bool
}

// TestAccount is a made-up account.
type TestAccount struct{ Username, Label string }

// Code asks for the one-time code. Its field is "code", its buttons send action=code or action=decline.
type Code struct {
	Agent   Agent
	Form    Form
	SentTo  string
	Problem Problem
	// MayLeave: a declined sign-in's redirect leads to the agent's own site.
	MayLeave bool
}

// Leave sends the browser to the Company's own login at once, and has a link to it.
type Leave struct {
	Agent  Agent
	Target template.URL // checked by the caller: https
	Form   Form         // decline
	// MayLeave: a declined sign-in's redirect leads to the agent's own site.
	MayLeave bool
}

// Scope is one thing to approve: a tick box named "scope" with the value Name.
type Scope struct {
	Name, Text string
	Ticked     bool
}

// Consent asks what the agent may do. Its buttons send action=approve, action=decline or
// action=restart (sign in as somebody else).
type Consent struct {
	Agent    Agent
	Form     Form
	Account  string // what the User knows the account by; may be empty
	Scopes   []Scope
	Withheld []string // texts of what it does not ask for and won't be able to do
	UserCode string   // Device Sign-In: the code to compare; empty otherwise
	// Server is the host of the one MCP server that a client which is no Personal Agent
	// signs in for; empty for an agent.
	Server string
	// MayLeave: the answer's redirect leads to the agent's own site.
	MayLeave bool
}

// DeviceCode asks for the user code (RFC 8628 3.3). Its field is "user_code".
type DeviceCode struct {
	Form     Form
	UserCode string // from the link, to be confirmed
	Problem  Problem
}

// Done says how it ended where no redirect follows.
type Done struct {
	Agent    Agent
	Approved bool
}

// Failure is a page for what can't go on. Reason is one of the failures below.
type Failure struct {
	Reason FailureReason
	// Detail is a sentence in English for who builds the agent; empty for none.
	Detail string
	// ID finds the log line; empty for none.
	ID string
	// Retry is a path or URL of ours where the User may try again; empty for none.
	Retry string
	// Form is where the User may decline instead; without an Action there is no button.
	Form Form
	// MayLeave: a declined sign-in's redirect leads to the agent's own site.
	MayLeave bool
}

// FailureReason says in every language what went wrong.
type FailureReason string

// The failures.
const (
	BadRequest   FailureReason = "bad_request"   // the link is broken
	UnknownAgent FailureReason = "unknown_agent" // the agent's document can't be had or is refused
	AgentRefused FailureReason = "agent_refused" // the Company doesn't let it in
	Expired      FailureReason = "expired"       // took too long, or was finished before
	OtherBrowser FailureReason = "other_browser" // the cookie is missing
	NotOffered   FailureReason = "not_offered"   // the Company has no such sign-in
	TooMany      FailureReason = "too_many"      // rate limit
	Unavailable  FailureReason = "unavailable"   // ours or the Company's systems
	LoginFailed  FailureReason = "login_failed"  // the Company's login sent back an error
	LinkExpired  FailureReason = "link_expired"  // of connected agents
	NotFound     FailureReason = "not_found"     // nothing here
	CrossSite    FailureReason = "cross_site"    // a form of another site
)

// ConnectedAgents shows the User what is connected to their account (Poppy 4.9). Each
// row's button sends grant=ID; the one below all sends grant=*.
type ConnectedAgents struct {
	Form    Form // Token here is the link's own token, in the hidden field "link"
	Account string
	Agents  []ConnectedAgent
	Ended   int // how many the last answer disconnected
}

// ConnectedAgent is one row. Its times are written in the page's language and in UTC,
// as the page can't know the User's zone.
type ConnectedAgent struct {
	ID, Name, Host string
	Scopes         []string // texts
	Connected      time.Time
	LastUsed       time.Time // zero: not yet
	Expires        time.Time // zero: no end
}

func (Login) name() string           { return "login" }
func (Code) name() string            { return "code" }
func (Leave) name() string           { return "leave" }
func (Consent) name() string         { return "consent" }
func (DeviceCode) name() string      { return "device" }
func (Done) name() string            { return "done" }
func (Failure) name() string         { return "failure" }
func (ConnectedAgents) name() string { return "agents" }
