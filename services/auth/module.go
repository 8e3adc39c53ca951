// Package auth is the service of authorization: the Company's OAuth endpoints. It
// establishes who a Personal Agent is and passes on what it asks for.
//
// It must not know how Sessions and tokens are kept, and has no database.
package auth

import (
	"errors"
	"log/slog"
	"net/netip"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/agents"
	"github.com/poppyfield/poppyfield/services/auth/app"
	"github.com/poppyfield/poppyfield/services/auth/rpc"
	"github.com/poppyfield/poppyfield/services/auth/web"
)

const defaultPerMinute = 6000

// Config of the service.
type Config struct {
	// TrustedProxies are believed about a client's address (X-Forwarded-For).
	TrustedProxies []netip.Prefix
	// RequestsPerMinute bounds the requests of one address to one Company's OAuth
	// endpoints; 0 is 6000, less than 0 is no bound.
	RequestsPerMinute int
	// Agents bounds what is remembered of agents; Now is filled in.
	Agents agents.Config
}

// Deps is what the service works with.
type Deps struct {
	Sessions sessionsv1.SessionsServiceClient
	Egress   relayv1.EgressServiceClient
	Now      clock.Clock
	Log      *slog.Logger
}

// Service is the service of authorization.
type Service struct{ endpoints *web.Endpoints }

// New makes the service.
func New(cfg Config, d Deps) (*Service, error) {
	if d.Sessions == nil || d.Egress == nil || d.Now == nil || d.Log == nil {
		return nil, errors.New("auth: a dependency is missing")
	}
	if cfg.RequestsPerMinute == 0 {
		cfg.RequestsPerMinute = defaultPerMinute
	}
	cfg.Agents.Now = d.Now
	known, err := agents.New(cfg.Agents, rpc.Fetcher{Egress: d.Egress})
	if err != nil {
		return nil, err
	}
	a := &app.App{Agents: known, Sessions: d.Sessions, Now: d.Now}
	return &Service{web.New(web.Config{TrustedProxies: cfg.TrustedProxies, PerMinute: cfg.RequestsPerMinute}, a, d.Now, d.Log)}, nil
}

// Routes of the service.
func (s *Service) Routes() []publicweb.Route { return s.endpoints.Routes() }
