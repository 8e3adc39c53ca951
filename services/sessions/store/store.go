// Package store says what the service of Sessions keeps and what it asks of the
// place where it is kept. Every call but those of Pruning is confined to the
// Company of its scope; what is another Company's is not found.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// What the stores refuse with; compare with errors.Is.
var (
	ErrNotFound = errors.New("not found")
	// ErrEnded: the Session ended between being judged and being written.
	ErrEnded = errors.New("session has ended")
	// ErrStale: somebody else changed the row since the version that the caller saw.
	ErrStale = errors.New("changed meanwhile")
)

// Mode says who is let in when no rule names an agent.
type Mode string

// The modes.
const (
	ModeOpen         Mode = "open"
	ModeAllowlist    Mode = "allowlist"
	ModeBlocklist    Mode = "blocklist"
	ModeRegistration Mode = "registration_required"
)

// Effect is what a rule decides about its agent.
type Effect string

// The effects.
const (
	EffectAllow    Effect = "allow"
	EffectBlock    Effect = "block"
	EffectRegister Effect = "register"
)

// Admission is a Company's policy for Personal Agents. A Company that never
// changed it has the zero version and ModeOpen.
type Admission struct {
	Mode         Mode
	RequireNonce bool
	UpdatedAt    time.Time // zero before the first change
	Version      int64
}

// Rule is what a Company decided about one Personal Agent.
type Rule struct {
	ID, ClientID string
	Effect       Effect
	Reason       string
	ExpiresAt    time.Time // zero: never
	CreatedAt    time.Time
}

// Session is one User, at one Company, through one Personal Agent.
type Session struct {
	ID, ClientID, AgentName, UserID string
	// Account that the Session is signed in to, empty while it is signed out.
	Account    string
	CreatedAt  time.Time
	LastUsedAt time.Time // to the minute
	EndedAt    time.Time // zero: not ended; idleness is judged by the reader
}

// Token is an issued Session Token; the token itself is nowhere.
type Token struct {
	Hash, SessionID string
	JKT             string // thumbprint of the bound key, empty for a Bearer token
	Resource        string // the only service it is for, empty for all that insist on none
	Scope           string
	SignedIn        bool
	CreatedAt       time.Time
	ExpiresAt       time.Time
	RevokedAt       time.Time // zero: not revoked
}

// Standing is what admission is decided from. Rule is nil where none names the agent.
type Standing struct {
	Admission Admission
	Rule      *Rule
}

// Opening is what a token request is judged by. Session is nil when there is no
// Session of the id that was asked for.
type Opening struct {
	Standing
	Session *Session
}

// Credential is what a request with a token is judged by, as of one moment. Token
// and Session are nil when the token is unknown.
type Credential struct {
	Standing
	Token   *Token
	Session *Session
}

// Tokens opens and renews Sessions and finds tokens.
type Tokens interface {
	Opening(ctx context.Context, scope tenancy.Scope, clientID, sessionID string) (Opening, error)
	// Issue adds t. With create it adds s too; otherwise it marks s as used and fails
	// with ErrEnded if s has ended.
	Issue(ctx context.Context, scope tenancy.Scope, s Session, create bool, t Token) error
	Credential(ctx context.Context, scope tenancy.Scope, hash string) (Credential, error)
	// Revoke ends the token if it is one of clientID's Sessions and returns the
	// Session's id; otherwise, and when it was revoked before, it returns "".
	Revoke(ctx context.Context, scope tenancy.Scope, hash, clientID string, at time.Time) (string, error)
	// Touch notes that a Session was used; one that ended or was used later stays as it is.
	Touch(ctx context.Context, scope tenancy.Scope, sessionID string, at time.Time) error
}

// Admissions keeps the policy and its rules.
type Admissions interface {
	Admission(ctx context.Context, scope tenancy.Scope) (Admission, error)
	// SaveAdmission replaces the policy of version a.Version, else it fails with ErrStale.
	SaveAdmission(ctx context.Context, scope tenancy.Scope, a Admission) (Admission, error)
	// Rules returns at most limit rules with ids above after, oldest first.
	Rules(ctx context.Context, scope tenancy.Scope, after string, limit int) ([]Rule, error)
	// PutRule adds the rule, or gives the rule that the agent has effect, reason and expiry of r.
	PutRule(ctx context.Context, scope tenancy.Scope, r Rule) (Rule, error)
	DeleteRule(ctx context.Context, scope tenancy.Scope, id string) error
}

// Place is where a page of Sessions begins: after this one, towards older ones.
type Place struct {
	CreatedAt time.Time
	ID        string // empty: at the newest
}

// Sessions shows Sessions to their Company.
type Sessions interface {
	Session(ctx context.Context, scope tenancy.Scope, id string) (Session, error)
	Sessions(ctx context.Context, scope tenancy.Scope, after Place, limit int) ([]Session, error)
	// End ends the Session, and tells whether it was this call that did.
	End(ctx context.Context, scope tenancy.Scope, id string, at time.Time) (Session, bool, error)
}

// Pruning drops rows that nobody needs any more, at most limit at a time, and
// returns how many.
type Pruning interface {
	// PruneTokens drops tokens of all Companies that expired before.
	PruneTokens(ctx context.Context, before time.Time, limit int) (int, error)
	// Unused names the Companies that have Sessions last used before.
	Unused(ctx context.Context, before time.Time) ([]tenancy.Scope, error)
	// PruneSessions drops Sessions, and their tokens, that ended before endedBefore or were last used before usedBefore.
	PruneSessions(ctx context.Context, scope tenancy.Scope, endedBefore, usedBefore time.Time, limit int) (int, error)
}
