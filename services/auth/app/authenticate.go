// Package app is the order of checks at the OAuth endpoints and at Mediated Sign-In: who
// the agent is, and what it asks for. Cryptography is internal/poppy's, Sessions, codes
// and tokens are the sessions service's, whether credentials are right package
// credentials finds out; all of them pass through and are never logged.
package app

import (
	"context"
	"errors"
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/agents"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Directory finds Personal Agents by their client_id.
type Directory interface {
	Agent(ctx context.Context, clientID string) (agents.Agent, error)
	// RefreshKeys returns the agent with newer keys, where they may be had.
	RefreshKeys(ctx context.Context, clientID string) (agents.Agent, error)
}

// App holds the use cases. It is safe for concurrent use.
type App struct {
	Agents   Directory
	Clients  Clients
	Sessions sessionsv1.SessionsServiceClient
	SignIns  sessionsv1.SignInsServiceClient
	// Pending keeps Mediated Sign-Ins that wait for a one-time code.
	Pending     store.SignIns
	Credentials Credentials
	Now         clock.Clock
}

// A client is an agent that passed every check of Poppy 4.1 except replay.
type client struct {
	agent     agents.Agent
	id        string
	assertion string // raw, to be compared with others
	once      *sessionsv1.OnceKey
}

// extensions are the names that the agent's document lists (Poppy 3.3).
func (c client) extensions() []string { return slices.Sorted(maps.Keys(c.agent.Document.Extensions)) }

// authenticate establishes who sent the form to endpoint (Poppy 4.1). The jti is not
// claimed yet: that comes after every other check (decision 7).
func (a *App) authenticate(ctx context.Context, company *directory.Company, f oauth.Form, endpoint string) (client, error) {
	credentials, err := f.ClientCredentials()
	if err != nil {
		return client{}, err
	}
	agent, err := a.Agents.Agent(ctx, credentials.ClientID)
	if err != nil {
		return client{}, oursFirst(err)
	}
	c := client{agent: agent, id: credentials.ClientID, assertion: credentials.Assertion}
	audiences := []string{company.Issuer.TokenEndpoint(), endpoint, company.Issuer.String()} // decision 4
	checked, err := withKeys(ctx, a, &c, func(keys jose.KeySet) (oauth.ClientAssertion, error) {
		return oauth.CheckClientAssertion(credentials.Assertion, keys, credentials.ClientID, audiences, a.Now())
	})
	if err != nil {
		return client{}, err
	}
	c.once = &sessionsv1.OnceKey{
		Kind: replay.KindClientAssertion, Owner: checked.ClientID(), Jti: checked.JTI(),
		IssueTime: timestamppb.New(checked.IssuedAt()), Until: timestamppb.New(checked.ReplayUntil()),
	}
	return c, nil
}

// withKeys runs check with c's keys, and once more with newer ones when the first
// set lacked the kid (decision 9).
func withKeys[T any](ctx context.Context, a *App, c *client, check func(jose.KeySet) (T, error)) (T, error) {
	checked, err := check(c.agent.Keys)
	if !errors.Is(err, jose.ErrUnknownKID) {
		return checked, err
	}
	agent, refreshErr := a.Agents.RefreshKeys(ctx, c.id)
	if refreshErr != nil {
		return checked, oursFirst(refreshErr)
	}
	c.agent = agent
	return check(agent.Keys)
}

// oursFirst turns a document that could not be fetched because a part of ours is
// down into exactly that: the agent may try again, and is not to blame.
func oursFirst(err error) error {
	var inner *problem.Error
	if errors.As(problem.As(err).Unwrap(), &inner) && inner.Kind == problem.Unavailable {
		return inner
	}
	return err
}
