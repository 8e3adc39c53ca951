package app

import (
	"context"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// keepStanding bounds how long somebody may go by what they were told of a token. Then
// they ask for a request again, which is how the Session's use is noted.
const keepStanding = 30 * time.Second

// AccessTable is what requests to a Company's APIs are judged by.
type AccessTable struct {
	Issuer            string
	APIs              []access.API
	RequestsPerMinute int
	NonceRequired     bool
}

// AccessTable returns that of the Company.
func (a *App) AccessTable(ctx context.Context, scope tenancy.Scope) (AccessTable, error) {
	company, err := a.company(ctx, scope)
	if err != nil {
		return AccessTable{}, err
	}
	admission, err := a.Store.Admission(ctx, scope)
	if err != nil {
		return AccessTable{}, err
	}
	return AccessTable{
		Issuer: company.Issuer.String(), APIs: company.APIs.All(), RequestsPerMinute: company.RequestsPerMinute, NonceRequired: admission.RequireNonce,
	}, nil
}

// keepFor is how long what a token stands for holds, as long as nobody changes anything.
func keepFor(company *directory.Company, c store.Credential, until, now time.Time) time.Duration {
	end := now.Add(keepStanding)
	ends := []time.Time{until}
	if c.Rule != nil {
		ends = append(ends, c.Rule.ExpiresAt)
	}
	if idle := company.SessionIdleLifetime; idle > 0 {
		ends = append(ends, c.Session.LastUsedAt.Add(idle+touchEvery))
	}
	for _, e := range ends {
		if !e.IsZero() && e.After(now) && e.Before(end) {
			end = e
		}
	}
	return end.Sub(now)
}

// Settings is what of a Company's settings decides about tokens: whoever watches is told when it changes.
type Settings struct {
	issuer            string
	idle              time.Duration
	requestsPerMinute int
	mcp, resources    []string
	apis              []access.API
}

// Settings returns those of the Company, which must be open for business.
func (a *App) Settings(ctx context.Context, scope tenancy.Scope) (Settings, error) {
	c, err := a.company(ctx, scope)
	if err != nil {
		return Settings{}, err
	}
	return Settings{c.Issuer.String(), c.SessionIdleLifetime, c.RequestsPerMinute, c.MCPURLs, c.Resources, c.APIs.All()}, nil
}

// Equal reports whether both decide alike.
func (s Settings) Equal(o Settings) bool {
	return s.issuer == o.issuer && s.idle == o.idle && s.requestsPerMinute == o.requestsPerMinute && slices.Equal(s.mcp, o.mcp) &&
		slices.Equal(s.resources, o.resources) && slices.EqualFunc(s.apis, o.apis, access.API.Equal)
}
