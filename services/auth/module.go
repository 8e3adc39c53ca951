// Package auth is the service of authorization: the Company's OAuth endpoints and
// Mediated Sign-In. It establishes who a Personal Agent is, and has the Company
// establish who a User is. It keeps sign-ins under way and counts attempts.
//
// It must not know how Sessions, codes and tokens are kept: that is the sessions
// service's.
package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/agents"
	"github.com/poppyfield/poppyfield/services/auth/app"
	"github.com/poppyfield/poppyfield/services/auth/browser"
	"github.com/poppyfield/poppyfield/services/auth/clients"
	"github.com/poppyfield/poppyfield/services/auth/connect"
	"github.com/poppyfield/poppyfield/services/auth/credentials"
	"github.com/poppyfield/poppyfield/services/auth/rpc"
	"github.com/poppyfield/poppyfield/services/auth/signin"
	"github.com/poppyfield/poppyfield/services/auth/store/entstore"
	"github.com/poppyfield/poppyfield/services/auth/web"
)

const (
	defaultPerMinute  = 6000
	defaultPruneEvery = time.Hour
)

// Config of the service.
type Config struct {
	// TrustedProxies are believed about a client's address (X-Forwarded-For).
	TrustedProxies []netip.Prefix
	// RequestsPerMinute bounds the requests of one address to one Company's OAuth
	// endpoints; 0 is 6000, less than 0 is no bound.
	RequestsPerMinute int
	// Agents bounds what is remembered of agents; Now is filled in.
	Agents agents.Config
	// PruneEvery is how often rows that nobody needs are dropped; 0 is an hour.
	PruneEvery time.Duration
}

// Deps is what the service works with.
type Deps struct {
	DB          *db.DB
	Keys        *keys.Ring
	Sessions    sessionsv1.SessionsServiceClient
	SignIns     sessionsv1.SignInsServiceClient
	Connections sessionsv1.ConnectionsServiceClient
	Egress      relayv1.EgressServiceClient
	RelaySignIn relayv1.SignInServiceClient
	Directory   *directory.Client
	// Endpoints and Pages count the requests of addresses; nil for ones of this process alone.
	Endpoints, Pages *limit.Limiter
	Now              clock.Clock
	Log              *slog.Logger
}

func (d Deps) complete() bool {
	return d.DB != nil && d.Keys != nil && d.Sessions != nil && d.SignIns != nil && d.Connections != nil &&
		d.Egress != nil && d.RelaySignIn != nil && d.Directory != nil && d.Now != nil && d.Log != nil
}

// Service is the service of authorization.
type Service struct {
	endpoints  *web.Endpoints
	site       *browser.Site
	signIn     *signin.App
	companies  *directory.Client
	kept       Kept
	pruneEvery time.Duration
	now        clock.Clock
	log        *slog.Logger
	stop       context.CancelFunc
	background sync.WaitGroup
}

// New makes the service.
func New(cfg Config, d Deps) (*Service, error) {
	if !d.complete() {
		return nil, errors.New("auth: a dependency is missing")
	}
	if cfg.RequestsPerMinute == 0 {
		cfg.RequestsPerMinute = defaultPerMinute
	}
	if cfg.PruneEvery <= 0 {
		cfg.PruneEvery = defaultPruneEvery
	}
	cfg.Agents.Now = d.Now
	known, err := agents.New(cfg.Agents, rpc.Fetcher{Egress: d.Egress})
	if err != nil {
		return nil, err
	}
	kept := entstore.New(d.DB)
	accounts := connect.NewCredentials(d.RelaySignIn, d.Keys)
	checker := &credentials.Checker{Attempts: kept, SignIns: kept, Connect: accounts, Keys: d.Keys, Now: d.Now}
	book := &clients.Book{Documents: known, Kept: kept, Attempts: kept, Now: d.Now}
	a := &app.App{Agents: known, Clients: book, Sessions: d.Sessions, SignIns: d.SignIns, Pending: kept, Credentials: checker, Now: d.Now}
	endpoints := web.New(web.Config{TrustedProxies: cfg.TrustedProxies, PerMinute: cfg.RequestsPerMinute}, web.Deps{
		App: a, Sessions: d.Sessions, Asked: accounts, Clients: book, Limiter: d.Endpoints, Now: d.Now, Log: d.Log,
	})
	signIn := &signin.App{
		Agents: known, Clients: book, SignIns: kept, Attempts: kept, Sessions: d.SignIns, Connections: d.Connections,
		OIDC: connect.NewOIDC(d.RelaySignIn, d.Keys, d.Now), Credentials: checker, Keys: d.Keys, Now: d.Now,
	}
	site, err := browser.New(browser.Config{TrustedProxies: cfg.TrustedProxies, PerMinute: cfg.RequestsPerMinute}, browser.Deps{
		App: signIn, Form: accounts, Logos: rpc.Fetcher{Egress: d.Egress}, Joins: a, Limiter: d.Pages, Now: d.Now, Log: d.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Service{
		endpoints: endpoints, site: site, signIn: signIn, companies: d.Directory, kept: kept, pruneEvery: cfg.PruneEvery, now: d.Now, log: d.Log,
	}, nil
}

// Routes of the service.
func (s *Service) Routes() []publicweb.Route {
	return append(s.endpoints.Routes(), s.site.Routes()...)
}

// Register puts admin.v1.LoginService on r.
func (s *Service) Register(r grpc.ServiceRegistrar) { rpc.RegisterLogins(r, s.signIn, s.companies) }
