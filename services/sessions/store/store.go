// Package store says what the service of Sessions keeps and what it asks of the
// place where it is kept. Every call but those of Pruning is confined to the
// Company of its scope; what is another Company's is not found.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// What the stores refuse with; compare with errors.Is.
var (
	ErrNotFound = errors.New("not found")
	// ErrEnded: the Session ended between being judged and being written.
	ErrEnded = errors.New("session has ended")
	// ErrAccount: the Session is signed in to another account.
	ErrAccount = errors.New("session of another account")
	// ErrConsumed: what is good once was used before.
	ErrConsumed = errors.New("used before")
	// ErrOver: the Grant has ended or expired.
	ErrOver = errors.New("grant is over")
	// ErrTaken: another row has the value that has to be unique.
	ErrTaken = errors.New("taken")
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
	// Account that the Session was ever signed in to: it never takes another (Poppy 4.4).
	Account string
	GrantID string // of the Grant that last signed it in
	// Extensions are those that the agent's document listed when the Session last got a token (Poppy 3.3).
	Extensions []string
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
	GrantID         string // of the Grant that a signed-in token is judged by
	CreatedAt       time.Time
	ExpiresAt       time.Time
	RevokedAt       time.Time // zero: not revoked
}

// Standing is what admission is decided from. Rule is nil where none names the agent.
type Standing struct {
	Admission Admission
	Rule      *Rule
}

// Asked is what a token request names. Secrets are named by their hashes; what is
// empty isn't looked for.
type Asked struct {
	ClientID, SessionID        string
	Code, Device, AccountToken string
	Successors                 []string // hashes that the Account Token's successor may have
	OfGrant                    bool     // the Session is the one that the Account Token's Grant last signed in
}

// Opening is what a token request is judged by, as of one moment. What was not asked
// for, or isn't there, is nil.
type Opening struct {
	Standing
	Session *Session
	Code    *Code
	Device  *Device
	// AccountToken and its Grant come together.
	AccountToken *AccountToken
	Grant        *Grant
}

// Credential is what a request with a token is judged by, as of one moment. Token
// and Session are nil when the token is unknown, Grant when none signed the token in.
type Credential struct {
	Standing
	Token   *Token
	Session *Session
	Grant   *Grant
}

// Tokens opens and renews Sessions and finds tokens.
type Tokens interface {
	Opening(ctx context.Context, scope tenancy.Scope, asked Asked) (Opening, error)
	// Issue adds t. With create it adds s too; otherwise it marks s as used and fails
	// with ErrEnded if s has ended.
	Issue(ctx context.Context, scope tenancy.Scope, s Session, create bool, t Token) error
	Credential(ctx context.Context, scope tenancy.Scope, hash string) (Credential, error)
	// Revoke ends a Session Token of clientID alone, or the Grant of an Account Token.
	// Any other token, and one that has ended before, changes nothing.
	Revoke(ctx context.Context, scope tenancy.Scope, hash, clientID string, how Ending) (Ended, error)
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
	DeleteRule(ctx context.Context, scope tenancy.Scope, id string, at time.Time) error
}

// Place is where a page of a list begins: after this one, towards older ones.
type Place struct {
	CreatedAt time.Time
	ID        string // empty: at the newest
}

// SessionView is a Session and the Grant that last signed it in, nil where none did.
type SessionView struct {
	Session
	Grant *Grant
}

// Sessions shows Sessions to their Company.
type Sessions interface {
	Session(ctx context.Context, scope tenancy.Scope, id string) (SessionView, error)
	Sessions(ctx context.Context, scope tenancy.Scope, after Place, limit int) ([]SessionView, error)
	// End ends the Session, and tells whether it was this call that did.
	End(ctx context.Context, scope tenancy.Scope, id string, at time.Time) (SessionView, bool, error)
	// EndIdle ends at most limit Sessions that were last used before a time, and returns how many.
	EndIdle(ctx context.Context, scope tenancy.Scope, usedBefore, at time.Time, limit int) (int, error)
}

// Change says that what is known of a Session's tokens has to be forgotten.
type Change struct {
	ID        uuid.UUID
	CompanyID string
	SessionID string // empty: of all of the Company's Sessions
}

// Changes finds what changed. Every write that changes what a token is worth leaves one, in its own unit of work.
type Changes interface {
	// Changes returns at most limit changes of all Companies that were made after a time, in no order.
	Changes(ctx context.Context, after time.Time, limit int) ([]Change, error)
	// PruneChanges drops at most limit changes that were made before a time, and returns how many.
	PruneChanges(ctx context.Context, before time.Time, limit int) (int, error)
}

// Pruning drops rows that nobody needs any more, at most limit at a time, and
// returns how many.
type Pruning interface {
	// PruneTokens drops tokens of all Companies that expired before.
	PruneTokens(ctx context.Context, before time.Time, limit int) (int, error)
	// Unused names the Companies that have Sessions last used before.
	Unused(ctx context.Context, before time.Time) ([]tenancy.Scope, error)
	// PruneSessions drops Sessions, with their tokens and cookies, that ended before endedBefore or were last used before usedBefore.
	PruneSessions(ctx context.Context, scope tenancy.Scope, endedBefore, usedBefore time.Time, limit int) (int, error)
}
