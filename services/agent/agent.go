package agent

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"strings"
	"time"
)

// Config is what an Agent is made of.
type Config struct {
	// Dir holds the agent's identity, its cache and what it keeps of each Company.
	Dir string
	// User tells apart the people who share Dir; it never leaves the machine.
	User string
	// Identity may be zero for an agent that only discovers.
	Identity Identity
	// Roots are the CAs to trust; nil means the system's.
	Roots *x509.CertPool
	// Resolve maps host names, lower case, to "IP:PORT" or "IP".
	Resolve map[string]string
	// Reporter is told every step.
	Reporter Reporter
	// Clock is the agent's time.
	Clock Clock
	// ShowSecrets leaves tokens, proofs and assertions in reported exchanges. The
	// User's credentials are never in them.
	ShowSecrets bool
	// Callback opens the TLS listener that the identity's first redirect URI leads to.
	// Without one the User brings back the address they were sent to.
	Callback func(ctx context.Context) (net.Listener, error)
}

// An Agent acts for one User. It is used by one goroutine at a time.
type Agent struct {
	dir      string
	user     string
	identity Identity
	http     *http.Client
	reporter Reporter
	clock    Clock
	redact   redactor
	cache    documentCache
	nonces   map[string]string // newest DPoP nonce by origin (RFC 9449 section 8)
	callback func(ctx context.Context) (net.Listener, error)
	steps    int
}

// New makes an Agent; it does no I/O but reading its cache.
func New(cfg Config) (*Agent, error) {
	if err := checkUser(cfg.User); err != nil {
		return nil, err
	}
	resolve := make(map[string]string, len(cfg.Resolve))
	for name, to := range cfg.Resolve {
		resolve[strings.ToLower(name)] = to
	}
	return &Agent{
		dir:      cfg.Dir,
		user:     cfg.User,
		identity: cfg.Identity,
		http:     newHTTPClient(cfg.Roots, resolve),
		reporter: cfg.Reporter,
		clock:    cfg.Clock,
		redact:   newRedactor(cfg.ShowSecrets),
		cache:    loadCache(cfg.Dir, cfg.Clock.Now()),
		nonces:   map[string]string{},
		callback: cfg.Callback,
	}, nil
}

// Close ends idle connections.
func (a *Agent) Close() { a.http.CloseIdleConnections() }

func (a *Agent) report(s Step) {
	a.steps++
	s.Number = a.steps
	a.reporter.Report(s)
}

// expiryMargin is how long before its end a token is renewed: it has to last for one long read.
const expiryMargin = 45 * time.Second
