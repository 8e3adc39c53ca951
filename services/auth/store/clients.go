package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// RegisteredClient is an MCP client that registered itself at a Company (RFC 7591).
type RegisteredClient struct {
	ID, Name             string
	RedirectURIs         []string
	CreatedAt, ExpiresAt time.Time
}

// Clients keeps registered clients.
type Clients interface {
	// Register adds c, or fails with ErrFull where the Company has most of them already.
	Register(ctx context.Context, scope tenancy.Scope, c RegisteredClient, most int) error
	// Client returns a client, also one that has expired; ErrNotFound once it is pruned.
	Client(ctx context.Context, scope tenancy.Scope, id string) (RegisteredClient, error)
	// KeepClient has a client expire at until, unless that is sooner than it does.
	KeepClient(ctx context.Context, scope tenancy.Scope, id string, until time.Time) error
	// PruneClients drops clients of all Companies that expired before, at most limit of them.
	PruneClients(ctx context.Context, before time.Time, limit int) (int, error)
}
