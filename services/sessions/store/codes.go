package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Code is an authorization code of Direct Sign-In (Poppy 4.5), and what the User approved.
type Code struct {
	Hash, ClientID, AgentName      string
	RedirectURI, Challenge         string
	Resource                       string // of a plain client's: the MCP server that it is for
	Scope, Account, AccountLabel   string
	CreatedAt, ExpiresAt, Consumed time.Time // Consumed is zero until the code is used up
	GrantID                        string    // what it gave
}

// Codes keeps authorization codes.
type Codes interface {
	SaveCode(ctx context.Context, scope tenancy.Scope, c Code) error
	// RedeemCode uses the code up and signs in as Grants.SignIn, both or neither. It
	// fails with ErrConsumed where the code was used up before.
	RedeemCode(ctx context.Context, scope tenancy.Scope, hash string, s SignedIn) error
}
