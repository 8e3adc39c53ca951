package httpx

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of every server. There is no WriteTimeout, since an answer may be held for
// as long as a poll waits, and streams set a deadline for each write themselves.
// Nor is there a ReadTimeout: net/http would end the context of a request that
// waits past it. LimitBody bounds the time of a body instead.
const (
	ReadHeaderTimeout = 10 * time.Second
	IdleTimeout       = 2 * time.Minute
	MaxHeaderBytes    = 32 << 10
)

// Config is a server's.
type Config struct {
	Handler http.Handler
	Log     *slog.Logger // nil: nothing is logged
	TLS     *tls.Config  // nil: plain HTTP, behind a proxy
	Drainer *Drainer     // nil: one of its own
	// MaxHeaderBytes replaces the package's limit where it is above 0.
	MaxHeaderBytes int
	// DrainDelay is how long the server goes on answering after its readiness turned
	// false, so that load balancers notice before the listener closes.
	DrainDelay time.Duration
}

// Server is an HTTP server that drains.
type Server struct {
	http    *http.Server
	drainer *Drainer
	delay   time.Duration
}

// NewServer makes a server; ctx gives the values of every request's context, and
// its end does not end requests.
func NewServer(ctx context.Context, cfg Config) *Server {
	if cfg.Drainer == nil {
		cfg.Drainer = NewDrainer()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxHeaderBytes <= 0 {
		cfg.MaxHeaderBytes = MaxHeaderBytes
	}
	base := context.WithValue(context.WithoutCancel(ctx), drainKey{}, cfg.Drainer)
	return &Server{
		drainer: cfg.Drainer,
		delay:   cfg.DrainDelay,
		http: &http.Server{
			Handler:           lastAnswers(cfg.Drainer, cfg.Handler),
			TLSConfig:         cfg.TLS,
			ReadHeaderTimeout: ReadHeaderTimeout,
			IdleTimeout:       IdleTimeout,
			MaxHeaderBytes:    cfg.MaxHeaderBytes,
			BaseContext:       func(net.Listener) context.Context { return base },
			// Foreign clients cause these lines: failed handshakes, broken requests.
			ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		},
	}
}

// Serve answers on l until Shutdown, and closes l. It returns nil after a Shutdown.
func (s *Server) Serve(l net.Listener) error {
	var err error
	if s.http.TLSConfig != nil {
		err = s.http.ServeTLS(l, "", "")
	} else {
		err = s.http.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("httpx: serving on %s: %w", l.Addr(), err)
}

// Shutdown begins the drain (readiness false, waiting polls answer), goes on
// answering for the drain delay, closes the listener and waits for the requests
// under way. At the end of ctx it cuts what is left and returns its error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drainer.Begin()
	if s.delay > 0 {
		t := time.NewTimer(s.delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // what is left has had its time
		return fmt.Errorf("httpx: shutting down: %w", err)
	}
	return nil
}
