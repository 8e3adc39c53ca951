package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// EndReason is why a Grant ended.
type EndReason string

// The reasons.
const (
	SignedOut           EndReason = "signed_out"   // by the agent (Poppy 4.9)
	Disconnected        EndReason = "disconnected" // by the User or the Company
	ReplacedTokenReused EndReason = "replaced_token_reused"
	CodeReused          EndReason = "code_reused"
	AgentRevoked        EndReason = "agent_revoked"
)

// Grant is what a User granted a Personal Agent by one sign-in.
type Grant struct {
	ID, ClientID, AgentName, UserID string
	Account, AccountLabel           string
	Scope                           string
	SignIn                          directory.SignInType
	Resource                        string // the one MCP server that a plain client's is good for; empty for an agent's
	CreatedAt                       time.Time
	ExpiresAt                       time.Time // zero: it has no end
	LastUsedAt                      time.Time // to the minute
	EndedAt                         time.Time // zero: nobody ended it
	EndReason                       EndReason
}

// InForce reports whether the Grant gives access at now; nil gives none.
func (g *Grant) InForce(now time.Time) bool {
	return g != nil && g.EndedAt.IsZero() && (g.ExpiresAt.IsZero() || now.Before(g.ExpiresAt))
}

// AccountToken is an issued Account Token; the token itself is nowhere.
type AccountToken struct {
	Hash, GrantID string
	CreatedAt     time.Time
	ReplacedAt    time.Time // zero: it is the latest of its Grant
	Successor     string    // hash; empty where none of those asked for exists
}

// SignedIn is what a sign-in gives: a Grant with its Account Token, the Grant's
// account for the Session of Token, and Token.
type SignedIn struct {
	Grant        Grant
	AccountToken string // hash
	Token        Token
	Extensions   []string // of the agent, for the Session
	Create       bool     // the Session is new
}

// Renewal is a Session Token by an Account Token.
type Renewal struct {
	Session Session // with account and Grant
	Create  bool
	Token   Token
	// Replaced is the hash of an Account Token that Successor takes the place of; both are empty where none does.
	Replaced, Successor string
}

// Grants signs Sessions in. A call that fails has changed nothing; it fails with
// ErrEnded or ErrAccount where the Session has ended or is another account's.
type Grants interface {
	SignIn(ctx context.Context, scope tenancy.Scope, s SignedIn) error
	// Renew fails with ErrOver where the Grant is no longer in force.
	Renew(ctx context.Context, scope tenancy.Scope, r Renewal) error
	// EndGrants ends the Grants in force that which selects.
	EndGrants(ctx context.Context, scope tenancy.Scope, which Selection, how Ending) (Ended, error)
}

// Selection selects Grants that have everything that is set in it. An empty one selects none.
type Selection struct{ ID, Account, ClientID string }

// Ending is how Grants end. Their Sessions go on signed out, unless EndSessions.
type Ending struct {
	At          time.Time
	Reason      EndReason
	EndSessions bool
}

// Ended is what one call ended, and the Sessions whose tokens mean something else since.
type Ended struct {
	Grants   int
	Sessions []string
}

// GrantFilter selects Grants to show; what is empty selects all.
type GrantFilter struct {
	Account, ClientID string
	InForceAt         time.Time // zero: those that are over, too
}

// Connections shows Grants, and shuts agents out.
type Connections interface {
	Grant(ctx context.Context, scope tenancy.Scope, id string) (Grant, error)
	// Grants returns at most limit Grants, the newest first.
	Grants(ctx context.Context, scope tenancy.Scope, f GrantFilter, after Place, limit int) ([]Grant, error)
	// RevokeAgent puts the rule, and ends all Grants and Sessions of its client. Sessions of the answer are those that it ended.
	RevokeAgent(ctx context.Context, scope tenancy.Scope, r Rule, how Ending) (Ended, error)
}
