package demo

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/services/demo/identity"
)

const (
	backendPath     = "/agent"
	credentialsPath = "/agent/credentials"
)

// Config is what the shop is run with.
type Config struct {
	// APIOrigin is the admin REST API, an https origin.
	APIOrigin string
	// OperatorKey may create Companies there.
	OperatorKey string
	// Roots are the CAs to trust; nil means the system's.
	Roots *x509.CertPool
	// Hosts maps host names to "ip:port", for names that no DNS knows.
	Hosts map[string]string

	// Domain is the shop's own, without port.
	Domain string
	// AccountsDomain is the name of the shop's identity provider, without port.
	AccountsDomain string
	// BackendURL is where webhooks are to be sent; empty means https://{Domain}/agent.
	BackendURL string
	// StreamAddress is the admin API's gRPC address. With one the backend opens a stream to
	// it and takes its deliveries there; without one it takes webhooks.
	StreamAddress string
	// Listener takes plain TCP connections for both names; the shop closes it.
	Listener net.Listener
	// TLS has certificates for both names.
	TLS *tls.Config

	// DataDir keeps the backend secret, the API key, and the identity provider's key and client.
	DataDir string
	Now     func() time.Time
	Log     *slog.Logger
}

// A Shop is the running demo: website, agent backend and identity provider on one listener.
type Shop struct {
	server *http.Server
	failed chan error
	result Result
	parts  *parts
}

// parts are what the shop serves.
type parts struct {
	mail     *mailbox
	site     *Website
	agent    *Backend
	check    *CredentialCheck
	accounts *identity.Provider
	account  *account
	visits   *visits
	mcp      *mcpServer
	// upstream is the client that Poppyfield signs customers in as.
	upstream identity.Client
}

func newParts(cfg Config) (*parts, error) {
	issuer := cfg.origin(cfg.AccountsDomain)
	customers := identity.Demo()
	accounts, err := identity.New(identity.Config{Issuer: issuer, Accounts: customers, Keep: cfg.keep, Now: cfg.Now})
	if err != nil {
		return nil, err
	}
	upstream, err := accounts.Client("poppyfield")
	if err != nil {
		return nil, err
	}
	shop := newShop()
	site, err := newWebsite(cfg.Domain, shop, cfg.Now)
	if err != nil {
		return nil, err
	}
	// Both ends of this client are in this process.
	own := identity.Client{ID: "website", Secret: rand.Text(), RedirectURIs: []string{cfg.origin(cfg.Domain) + callbackPath}}
	accounts.Register(own)
	mail := &mailbox{now: cfg.Now, log: cfg.Log}
	return &parts{
		mail: mail, site: site, agent: newBackend(mail, shop), check: newCredentialCheck(mail, customers),
		accounts: accounts, account: newAccount(site, issuer, own, newHTTPClient(cfg.Roots, cfg.Hosts), cfg.Log), upstream: upstream,
		visits: newVisits(site, cfg.Log),
		mcp:    newMCPServer(shop, cfg.Now),
	}, nil
}

// handler serves the identity provider on its own name and the website on any other.
func (p *parts) handler(cfg Config) http.Handler {
	mux := http.NewServeMux()
	p.site.Mount(mux)
	p.account.mount(mux)
	p.visits.mount(mux)
	mux.Handle(backendPath, p.agent)
	mux.Handle(credentialsPath, p.check)
	mux.Handle(mcpPath, p.mcp)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			name = r.Host
		}
		if strings.EqualFold(name, cfg.AccountsDomain) {
			p.accounts.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// origin is where browsers reach a name of the shop.
func (cfg Config) origin(name string) string {
	_, port, err := net.SplitHostPort(cfg.Listener.Addr().String())
	if err != nil || port == "443" {
		return "https://" + name
	}
	return "https://" + net.JoinHostPort(name, port)
}

// Start serves the website, the agent backend and the identity provider, then onboards
// the Company, and returns when it can be talked to. Shutdown ends it.
func Start(ctx context.Context, cfg Config) (*Shop, error) {
	if cfg.BackendURL == "" {
		cfg.BackendURL = "https://" + cfg.Domain + backendPath
	}
	p, err := newParts(cfg)
	if err != nil {
		return nil, errors.Join(err, cfg.Listener.Close())
	}
	s := &Shop{
		failed: make(chan error, 1),
		parts:  p,
		server: &http.Server{
			Handler:           p.handler(cfg),
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       15 * time.Second,
			WriteTimeout:      15 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    32 << 10,
			ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		},
	}
	go func() {
		err := s.server.Serve(tls.NewListener(cfg.Listener, cfg.TLS))
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		s.failed <- err
	}()
	s.result, err = setup(ctx, cfg, p)
	if err != nil {
		p.agent.desk.close()
		return nil, errors.Join(err, s.server.Close())
	}
	p.account.setLink(agentsLinks(cfg, s.result))
	open, err := doorOf(cfg, s.result)
	if err != nil {
		p.agent.desk.close()
		return nil, errors.Join(err, s.server.Close())
	}
	p.visits.open(open)
	p.mcp.guard.Store(&guard{
		api:     &adminClient{origin: strings.TrimSuffix(cfg.APIOrigin, "/"), key: s.result.APIKey, http: newHTTPClient(cfg.Roots, cfg.Hosts)},
		company: s.result.Company, url: cfg.origin(cfg.Domain) + mcpPath,
	})
	if cfg.StreamAddress != "" {
		streams := &streamer{cfg: cfg, backend: p.agent, company: s.result.Company, key: s.result.APIKey}
		p.agent.desk.busy.Go(func() { streams.run(p.agent.desk.ctx) })
	}
	cfg.Log.InfoContext(ctx, "demo Company is ready", "company", s.result.Company, "domain", s.result.Domain, "issuer", s.result.Issuer)
	return s, nil
}

// Result is what the setup arrived at.
func (s *Shop) Result() Result { return s.result }

// Shutdown stops serving; requests under way may finish while ctx lasts.
func (s *Shop) Shutdown(ctx context.Context) error {
	defer s.parts.agent.desk.close()
	if err := s.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("demo: %w", err), s.server.Close())
	}
	return <-s.failed
}

// Run is Start, then serving until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	s, err := Start(ctx, cfg)
	if err != nil {
		return err
	}
	select {
	case err := <-s.failed:
		return fmt.Errorf("demo: %w", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return s.Shutdown(end)
}
