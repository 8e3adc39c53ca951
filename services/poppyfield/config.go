package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	discovery "github.com/poppyfield/poppyfield/services/discovery/app"
)

// The services, in the order in which they start.
const (
	relayName         = "relay"
	discoveryName     = "discovery"
	sessionsName      = "sessions"
	authName          = "auth"
	conversationsName = "conversations"
	adminName         = "admin"
)

func allServices() []string {
	return []string{relayName, discoveryName, sessionsName, authName, conversationsName, adminName}
}

// Config is the configuration of a process, as written in its YAML file. The zero
// value of every field is safe; secrets are named by file and never written here.
type Config struct {
	Services []string `yaml:"services"`

	Database struct {
		// DSN is a postgres:// URL (or sqlite:PATH in dev); DSNFile holds one.
		DSN      string `yaml:"dsn"`
		DSNFile  string `yaml:"dsn_file"`
		MaxConns int    `yaml:"max_conns"`
	} `yaml:"database"`

	NATS struct {
		URL             string `yaml:"url"`
		CredentialsFile string `yaml:"credentials_file"`
		CAFile          string `yaml:"ca_file"`
		// Replicas of the replay memory: 3 in a cluster of three.
		Replicas int `yaml:"replicas"`
		storeDir string
	} `yaml:"nats"`

	// KeysFile has the root keys, a line "version:base64" each.
	KeysFile string `yaml:"keys_file"`

	Internal struct {
		// Listen is where the other processes reach this one's services; empty when there are none.
		Listen string `yaml:"listen"`
		// Targets says where services of other processes are: service name to host:port.
		Targets    map[string]string `yaml:"targets"`
		SecretFile string            `yaml:"secret_file"`
		CertFile   string            `yaml:"cert_file"`
		KeyFile    string            `yaml:"key_file"`
		CAFile     string            `yaml:"ca_file"`
		secret     string
	} `yaml:"internal"`

	Public Listener `yaml:"public"`
	Admin  struct {
		Listener `yaml:",inline"`
		// GRPC is the address of the public gRPC API.
		GRPC string `yaml:"grpc"`
	} `yaml:"admin"`
	// Metrics is the address of /metrics, /livez and /readyz; keep it off the Internet.
	Metrics string `yaml:"metrics"`

	// HostedDomain is where issuers are made when a Company names none: https://{slug}.{hosted_domain}.
	HostedDomain   string         `yaml:"hosted_domain"`
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
	// TrustCA are PEM files of CAs to trust beside the system's when reaching out.
	TrustCA []string `yaml:"trust_ca"`
	// Egress is published, so that Companies can let our requests in.
	Egress struct {
		// Addresses that requests to Companies come from, as prefixes.
		Addresses []netip.Prefix `yaml:"addresses"`
	} `yaml:"egress"`
	DrainDelay time.Duration `yaml:"drain_delay"`
	// MaxReaders is how many reads of conversations may wait at once; 0 is nine tenths of the files that may be open.
	MaxReaders int `yaml:"max_readers"`
	// RequestsPerAddress is what one client address may ask of one Company in a minute, at all public endpoints together; 0 is 60,000, less is no limit.
	RequestsPerAddress int    `yaml:"requests_per_address"`
	LogFormat          string `yaml:"log_format"`
	LogLevel           string `yaml:"log_level"`
	// OTLPEndpoint is a collector's URL; empty exports nothing.
	OTLPEndpoint string `yaml:"otlp_endpoint"`

	// Bounds are what Companies get by default and how far they may go; fields left out keep the product's own.
	Bounds discovery.Bounds `yaml:"bounds"`
}

// Listener is an HTTP listener; without a certificate it speaks plain HTTP behind a proxy.
type Listener struct {
	Listen   string `yaml:"listen"`
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// tls loads the listener's certificate; nil where it has none.
func (l Listener) tls() (*tls.Config, error) {
	if l.CertFile == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", l.Listen, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, nil
}

func loadConfig(path string) (Config, error) {
	cfg := Config{Bounds: discovery.DefaultBounds()}
	raw, err := os.ReadFile(path)
	if err != nil {
		return cfg, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&cfg); err != nil && !errors.Is(err, io.EOF) {
		return cfg, fmt.Errorf("%s: %w", path, err)
	}
	return cfg, nil
}

// complete reads the secrets and refuses what can't work.
func (c *Config) complete() error {
	if len(c.Services) == 0 || slices.Equal(c.Services, []string{"all"}) {
		c.Services = allServices()
	}
	for _, s := range c.Services {
		if !slices.Contains(allServices(), s) {
			return fmt.Errorf("no service %q; there are %s", s, strings.Join(allServices(), ", "))
		}
	}
	if err := fromFile(&c.Database.DSN, c.Database.DSNFile, "database.dsn"); err != nil {
		return err
	}
	if err := fromFile(&c.Internal.secret, c.Internal.SecretFile, "internal.secret_file"); err != nil {
		return err
	}
	if c.KeysFile == "" {
		return errors.New("keys_file is required")
	}
	if c.HostedDomain == "" {
		return errors.New("hosted_domain is required")
	}
	for _, s := range []string{relayName, discoveryName, sessionsName, conversationsName} { // the services that are called
		if !c.has(s) && c.Internal.Targets[s] == "" {
			return fmt.Errorf("%s runs elsewhere: internal.targets.%s is required", s, s)
		}
	}
	if c.servesPublic() && c.Public.Listen == "" {
		return errors.New("public.listen is required")
	}
	if c.has(adminName) && c.Admin.Listen == "" {
		return errors.New("admin.listen is required")
	}
	if err := c.Bounds.Sound(); err != nil {
		return fmt.Errorf("bounds: %w", err)
	}
	return nil
}

// servesPublic reports whether a service of this process has public endpoints.
func (c *Config) servesPublic() bool {
	return c.has(discoveryName) || c.has(authName) || c.has(conversationsName)
}

func fromFile(to *string, path, name string) error {
	if path != "" {
		raw, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*to = strings.TrimSpace(string(raw))
	}
	if *to == "" {
		return fmt.Errorf("%s is required", name)
	}
	return nil
}

func (c *Config) has(service string) bool { return slices.Contains(c.Services, service) }
