package signin

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/agents"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Lifetime is how long a User has from the agent's link to the decision.
const Lifetime = 15 * time.Minute

// Directory finds Personal Agents by their client_id.
type Directory interface {
	Agent(ctx context.Context, clientID string) (agents.Agent, error)
}

// Clients finds agents and plain clients, whose documents are Public.
type Clients interface {
	Find(ctx context.Context, company *directory.Company, clientID string) (agents.Agent, error)
}

// OIDC is a login at the Company's own identity provider.
type OIDC interface {
	// Begin returns where the browser goes; force has the User prove anew who they are.
	Begin(ctx context.Context, company *directory.Company, force bool) (string, connect.Upstream, error)
	// Finish judges what the browser came back with.
	Finish(ctx context.Context, company *directory.Company, up connect.Upstream, query url.Values) (connect.Account, error)
}

// Credentials checks what a User typed; see package credentials.
type Credentials interface {
	Start(ctx context.Context, company *directory.Company, s store.SignIn, address string, fields map[string]string) (store.SignIn, connect.Verdict, error)
	Code(ctx context.Context, company *directory.Company, signInID, code string) (store.SignIn, connect.Verdict, error)
}

// App holds the use cases of the sign-in pages. It is safe for concurrent use.
type App struct {
	Agents      Directory
	Clients     Clients
	SignIns     store.SignIns
	Attempts    store.Attempts
	Sessions    sessionsv1.SignInsServiceClient
	Connections sessionsv1.ConnectionsServiceClient
	OIDC        OIDC
	Credentials Credentials
	Keys        *keys.Ring
	Now         clock.Clock
}

// find finds the agent that signs in or, where that is for an MCP server's resource, the
// plain client.
func (a *App) find(ctx context.Context, company *directory.Company, clientID, resource string) (agents.Agent, error) {
	if resource == "" {
		return a.Agents.Agent(ctx, clientID)
	}
	found, err := a.Clients.Find(ctx, company, clientID)
	if err == nil && !found.Document.Public {
		return found, problem.New(problem.Unauthenticated, problem.InvalidClient, Plain, "the client has become a Personal Agent meanwhile")
	}
	return found, err
}

// agent is find for one that the Company lets in.
func (a *App) agent(ctx context.Context, company *directory.Company, clientID, resource string) (agents.Agent, error) {
	found, err := a.find(ctx, company, clientID, resource)
	if err != nil {
		return found, unknownAgent(err)
	}
	return found, a.admitted(ctx, company, clientID)
}

// admitted fails unless the Company lets the client in.
func (a *App) admitted(ctx context.Context, company *directory.Company, clientID string) error {
	_, err := a.Sessions.CheckAgent(tenancy.Into(ctx, company.Scope), &sessionsv1.CheckAgentRequest{ClientId: clientID})
	if problem.Is(err, problem.InvalidClient) {
		p := problem.As(err)
		return problem.New(problem.Forbidden, AgentRefused, p.Clause, "%s", p.Detail)
	}
	return err
}

// unknownAgent tells an agent that is at fault from a part of ours that is down.
func unknownAgent(err error) error {
	p := problem.As(err)
	var inner *problem.Error
	if errors.As(p.Unwrap(), &inner) && inner.Kind == problem.Unavailable {
		return inner
	}
	if p.Reason != problem.InvalidClient {
		return p
	}
	return problem.New(problem.Invalid, UnknownAgent, p.Clause, "%s", p.Detail).WithCause(err)
}

// recheck repeats what may have changed since the sign-in began, and returns what may
// still be granted of what was asked for.
func (a *App) recheck(ctx context.Context, company *directory.Company, s store.SignIn) (agents.Agent, oauth.Scope, error) {
	asked, _ := Scopes(company, s)
	if len(asked) == 0 {
		return agents.Agent{}, nil, notOffered()
	}
	if s.Resource != "" && !slices.Contains(company.MCPURLs, s.Resource) {
		return agents.Agent{}, nil, notOffered()
	}
	found, err := a.agent(ctx, company, s.ClientID, s.Resource)
	return found, asked, err
}

// Scopes returns what may be granted to the sign-in: the scopes asked for that its type
// may grant now (poppy-0.1/4.4#22). withheld are those the type may grant beside them.
func Scopes(company *directory.Company, s store.SignIn) (asked, withheld oauth.Scope) {
	requested, err := oauth.ParseScope(s.Scope)
	if err != nil {
		return nil, nil
	}
	offered := company.SignIn.Scopes(s.Kind)
	for _, name := range requested {
		if offered.Contains(name) {
			asked = append(asked, name)
		}
	}
	for _, name := range offered {
		if !requested.Contains(name) {
			withheld = append(withheld, name)
		}
	}
	return asked, withheld
}
