package demo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
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
	// BackendURL is where webhooks are to be sent; empty means https://{Domain}/agent.
	BackendURL string
	// Listener takes plain TCP connections for Domain; the shop closes it.
	Listener net.Listener
	// TLS has the certificate for Domain.
	TLS *tls.Config

	// DataDir keeps the backend secret and the API key.
	DataDir string
	Now     func() time.Time
	Log     *slog.Logger
}

// A Shop is the running demo: website and agent backend on one listener.
type Shop struct {
	server *http.Server
	failed chan error
	result Result
}

// Start serves the website and the agent backend, then onboards the Company, and
// returns when it can be talked to. Shutdown ends it.
func Start(ctx context.Context, cfg Config) (*Shop, error) {
	if cfg.BackendURL == "" {
		cfg.BackendURL = "https://" + cfg.Domain + "/agent"
	}
	site, err := NewWebsite(cfg.Domain, cfg.Now)
	if err != nil {
		return nil, err
	}
	agent := NewBackend(cfg.Now, cfg.Log)
	mux := http.NewServeMux()
	site.Mount(mux)
	mux.Handle("/agent", agent)
	s := &Shop{
		failed: make(chan error, 1),
		server: &http.Server{
			Handler:           mux,
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
	s.result, err = Setup(ctx, cfg, site.SetTarget, agent.SetSecret)
	if err != nil {
		return nil, errors.Join(err, s.server.Close())
	}
	cfg.Log.InfoContext(ctx, "demo Company is ready", "company", s.result.Company, "domain", s.result.Domain, "issuer", s.result.Issuer)
	return s, nil
}

// Result is what the setup arrived at.
func (s *Shop) Result() Result { return s.result }

// Shutdown stops serving; requests under way may finish while ctx lasts.
func (s *Shop) Shutdown(ctx context.Context) error {
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
