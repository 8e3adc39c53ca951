package httpx

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
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
	// Stall is how long the client of a held answer may take over 32 KiB; 0: 10 s.
	Stall time.Duration
}

type serverKey struct{}

// stallOf returns the Stall of the server that answers.
func stallOf(ctx context.Context) time.Duration {
	if s, ok := ctx.Value(serverKey{}).(*Server); ok {
		return s.stall
	}
	return stallTimeout
}

// Server is an HTTP server that drains.
type Server struct {
	http    *http.Server
	drainer *Drainer
	delay   time.Duration
	stall   time.Duration
	lot     *lot // nil with TLS: nothing is parked
	serve   sync.Once
	loops   sync.WaitGroup
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
	if cfg.Stall <= 0 {
		cfg.Stall = stallTimeout
	}
	s := &Server{drainer: cfg.Drainer, delay: cfg.DrainDelay, stall: cfg.Stall}
	base := context.WithValue(context.WithoutCancel(ctx), drainKey{}, cfg.Drainer)
	base = context.WithValue(base, serverKey{}, s)
	if cfg.TLS == nil {
		s.lot = newLot(base, cfg.Log, cfg.Drainer, cfg.Stall)
	}
	s.http = &http.Server{
		Handler:           lastAnswers(cfg.Drainer, cfg.Handler),
		TLSConfig:         cfg.TLS,
		ReadHeaderTimeout: ReadHeaderTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    cfg.MaxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		// Foreign clients cause these lines: failed handshakes, broken requests.
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve answers on l until Shutdown, and closes l. It returns nil after a Shutdown.
func (s *Server) Serve(l net.Listener) error {
	var err error
	if s.lot == nil {
		err = s.http.ServeTLS(l, "", "")
	} else {
		s.serve.Do(func() {
			s.loops.Go(s.lot.wakeOnDrain)
			s.loops.Go(func() { _ = s.http.Serve(s.lot) }) // ends with the server
		})
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
	if s.lot != nil {
		s.lot.dismiss()
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close() // what is left has had its time
	}
	if s.lot != nil {
		err = errors.Join(err, s.lot.wait(ctx))
		_ = s.lot.Close() // it always works
		s.loops.Wait()
	}
	if err != nil {
		return fmt.Errorf("httpx: shutting down: %w", err)
	}
	return nil
}
