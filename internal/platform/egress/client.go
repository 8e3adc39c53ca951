package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Config is what a [Client] needs beside its guard.
type Config struct {
	UserAgent string // sent with every request; required
	// Roots are the trusted certificate authorities; nil means the system's.
	Roots *x509.CertPool
	// Now is the clock that timings are taken from; required.
	Now func() time.Time
	// Resolver looks names up; nil means the system's name servers.
	Resolver Resolver
	// DialTimeout bounds look-up and connecting together, and the TLS handshake once
	// more; zero means 5 s. The timeout of a request bounds all of it anyway.
	DialTimeout time.Duration
	// TracerProvider and MeterProvider may be nil: nothing is recorded then.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

const (
	defaultDialTimeout = 5 * time.Second
	maxHeaderBytes     = 32 << 10
	idleTimeout        = 60 * time.Second
	maxIdle            = 256
	maxIdlePerHost     = 64 // one Company's webhooks in flight: a new TLS connection costs more than the webhook
)

// Client makes requests to foreign URLs. It keeps connections open and uses them
// again, never follows a redirect by itself, and is safe for concurrent use.
type Client struct {
	guard     *Guard
	dialer    *dialer
	transport *http.Transport
	showing   certified
	agent     string
	now       func() time.Time
	telemetry telemetry
}

// New makes a Client that reaches what guard allows.
func New(cfg Config, guard *Guard) (*Client, error) {
	switch {
	case guard == nil:
		return nil, errors.New("egress: no guard")
	case cfg.UserAgent == "":
		return nil, errors.New("egress: no user agent")
	case cfg.Now == nil:
		return nil, errors.New("egress: no clock")
	}
	if cfg.Resolver == nil {
		cfg.Resolver = &net.Resolver{PreferGo: true}
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = defaultDialTimeout
	}
	tel, err := newTelemetry(cfg.TracerProvider, cfg.MeterProvider)
	if err != nil {
		return nil, err
	}
	d := &dialer{guard: guard, resolver: cfg.Resolver, timeout: cfg.DialTimeout, connect: connectTCP}
	c := &Client{guard: guard, dialer: d, agent: cfg.UserAgent, now: cfg.Now, telemetry: tel}
	c.transport = &http.Transport{
		// Proxy stays nil: a proxy of the environment would make the connection in our
		// place, past the guard.
		DialContext:            d.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.Roots},
		TLSHandshakeTimeout:    cfg.DialTimeout,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		HTTP2: &http.HTTP2Config{
			// What a server may send ahead of our reading is memory it can make us hold.
			MaxReceiveBufferPerStream:     256 << 10,
			MaxReceiveBufferPerConnection: 1 << 20,
			// A connection whose peer went away without a word is found before it is used again for long.
			SendPingTimeout: 15 * time.Second,
			PingTimeout:     5 * time.Second,
		},
	}
	return c, nil
}

// Guard returns the guard that the client asks.
func (c *Client) Guard() *Guard { return c.guard }

// Close closes the connections that are idle; requests under way are not touched.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	c.showing.close()
}

// LoadRoots returns the system's certificate authorities with those of PEM files added.
func LoadRoots(files []string) (*x509.CertPool, error) {
	pems := make([][]byte, 0, len(files))
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("trusted CA: %w", err)
		}
		pems = append(pems, b)
	}
	return LoadRootsPEM(pems...)
}

// LoadRootsPEM returns the system's certificate authorities with those of PEM texts
// added. A text without any certificate is an error.
func LoadRootsPEM(pems ...[]byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("system certificate authorities: %w", err)
	}
	for i, b := range pems {
		if !pool.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("trusted CA %d: no certificate in PEM form", i+1)
		}
	}
	return pool, nil
}
