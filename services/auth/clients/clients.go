package clients

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/agents"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Registered is the rule that a client without a document registers itself.
const Registered clause.ID = "RFC7591/3"

const (
	// unusedLifetime is how long a registration waits for its first sign-in, and
	// lifetime how long it lasts after its last use.
	unusedLifetime = 24 * time.Hour
	lifetime       = 90 * 24 * time.Hour
	// maxClients is how many registrations a Company has at most, perAddress how many come
	// from one address in a day.
	maxClients = 10_000
	perAddress = 20
	day        = 24 * time.Hour
)

// Documents finds clients by the document behind their client_id.
type Documents interface {
	Client(ctx context.Context, clientID string) (agents.Agent, error)
}

// Book finds clients and adds to them. It is safe for concurrent use.
type Book struct {
	Documents Documents
	Kept      store.Clients
	Attempts  store.Attempts
	Now       clock.Clock
}

// Find returns a client of any kind: a Personal Agent, too, whose document is not Public.
// Whatever is wrong with it is INVALID_CLIENT, as at agents.Directory.
func (b *Book) Find(ctx context.Context, company *directory.Company, clientID string) (agents.Agent, error) {
	if !strings.HasPrefix(clientID, ids.MCPClient+"_") {
		return b.Documents.Client(ctx, clientID)
	}
	c, err := b.Kept.Client(ctx, company.Scope, clientID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return agents.Agent{}, err
	}
	if err != nil || !company.RegistersClients || !b.Now().Before(c.ExpiresAt) {
		return agents.Agent{}, problem.New(problem.Unauthenticated, problem.InvalidClient, Registered, "the client is not registered here, or not any more")
	}
	return agents.Agent{Document: cimd.Document{ClientID: c.ID, Name: c.Name, RedirectURIs: c.RedirectURIs, Public: true}}, nil
}

// Register adds the client that body describes, at the request of address.
func (b *Book) Register(ctx context.Context, company *directory.Company, address string, body []byte) (store.RegisteredClient, error) {
	d, err := cimd.ParseRegistration(body)
	if err != nil {
		return store.RegisteredClient{}, err
	}
	now := b.Now()
	wait, err := b.Attempts.Take(ctx, company.Scope, now, store.Key{Kind: "registration", Value: address, Limit: perAddress, Window: day})
	if err != nil {
		return store.RegisteredClient{}, err
	}
	if wait > 0 {
		return store.RegisteredClient{}, tooMany("too many registrations from this address", wait)
	}
	c := store.RegisteredClient{
		ID: ids.New(ids.MCPClient), Name: d.Name, RedirectURIs: d.RedirectURIs, CreatedAt: now, ExpiresAt: now.Add(unusedLifetime),
	}
	err = b.Kept.Register(ctx, company.Scope, c, maxClients)
	if errors.Is(err, store.ErrFull) {
		return store.RegisteredClient{}, tooMany("this Company has too many registered clients", time.Hour)
	}
	return c, err
}

// Used notes that a client got a token, which keeps its registration. A document needs none.
func (b *Book) Used(ctx context.Context, company *directory.Company, clientID string) error {
	if !strings.HasPrefix(clientID, ids.MCPClient+"_") {
		return nil
	}
	return b.Kept.KeepClient(ctx, company.Scope, clientID, b.Now().Add(lifetime))
}

func tooMany(detail string, wait time.Duration) error {
	return problem.New(problem.RateLimited, problem.RateLimitedReason, Registered, "%s", detail).WithRetryAfter(wait)
}
