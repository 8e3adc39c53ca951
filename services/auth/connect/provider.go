package connect

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

const (
	// metadataTime is how long a provider's metadata and keys are good.
	metadataTime = 5 * time.Minute
	// failureTime is how long a provider that gave no metadata is left alone.
	failureTime = 3 * time.Second
	// maxProviders bounds the memory that they can take.
	maxProviders = 2000
	// loadTime bounds the look at one provider, for everybody who waits for it.
	loadTime = 10 * time.Second
)

// metadata is what counts of OpenID Connect Discovery 1.0 section 3, RFC 8414 and RFC 9207.
type metadata struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	UserinfoEndpoint      string   `json:"userinfo_endpoint"`
	JWKSURI               string   `json:"jwks_uri"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported"`
	IssParameter          bool     `json:"authorization_response_iss_parameter_supported"`
}

// provider is a Company's identity provider as its metadata describe it.
type provider struct {
	metadata
	keys *keySet
}

// parseProvider reads the metadata of issuer.
func parseProvider(issuer string, body []byte) (*provider, error) {
	p := &provider{}
	if err := json.Unmarshal(body, &p.metadata); err != nil {
		return nil, unavailable("metadata", "the answer is no JSON object of metadata")
	}
	switch {
	case p.Issuer != issuer: // OIDC-Discovery-1.0/4.3: identical, byte for byte
		return nil, unavailable("metadata", "they are of another issuer")
	case !isHTTPS(p.AuthorizationEndpoint):
		return nil, unavailable("metadata", "authorization_endpoint is no https URL")
	case !isHTTPS(p.TokenEndpoint):
		return nil, unavailable("metadata", "token_endpoint is no https URL")
	case !isHTTPS(p.JWKSURI):
		return nil, unavailable("metadata", "jwks_uri is no https URL")
	}
	return p, nil
}

// isHTTPS reports whether a browser may be sent to raw.
func isHTTPS(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && !strings.Contains(raw, "#")
}

// authStyle says how a client with a secret proves itself at the token endpoint; false
// where the provider takes none of the ways we know.
func (p *provider) authStyle(secret string) (oauth2.AuthStyle, bool) {
	switch {
	case secret == "": // a public client, whose code PKCE protects
		return oauth2.AuthStyleInParams, true
	case len(p.AuthMethods) == 0, slices.Contains(p.AuthMethods, "client_secret_basic"): // the default of OIDC-Discovery-1.0/3
		return oauth2.AuthStyleInHeader, true
	case slices.Contains(p.AuthMethods, "client_secret_post"):
		return oauth2.AuthStyleInParams, true
	default:
		return 0, false
	}
}

// providers keeps what was read of identity providers, each Company's apart: what one
// Company's requests bring about is never seen by another.
type providers struct {
	http   transport
	now    clock.Clock
	flight singleflight.Group

	mu      sync.Mutex
	entries map[providerKey]providerEntry
}

type providerKey struct{ company, issuer string }

type providerEntry struct {
	provider *provider
	err      error
	until    time.Time
}

// get returns a provider of the Company. ctx carries the scope.
func (c *providers) get(ctx context.Context, scope tenancy.Scope, issuer string) (*provider, error) {
	key := providerKey{scope.CompanyID(), issuer}
	c.mu.Lock()
	e, ok := c.entries[key]
	c.mu.Unlock()
	if ok && c.now().Before(e.until) {
		return e.provider, e.err
	}
	flight := c.flight.DoChan(key.company+"\x00"+issuer, func() (any, error) {
		// One caller's cancellation must not fail the others.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTime)
		defer cancel()
		p, err := c.load(ctx, issuer)
		c.keep(key, p, err)
		return p, err
	})
	select {
	case got := <-flight:
		p, _ := got.Val.(*provider)
		return p, got.Err
	case <-ctx.Done():
		return nil, unreachable("metadata", ctx.Err())
	}
}

func (c *providers) load(ctx context.Context, issuer string) (*provider, error) {
	body, err := c.http.get(ctx, "metadata", strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration", "")
	if err != nil {
		return nil, err
	}
	p, err := parseProvider(issuer, body)
	if err != nil {
		return nil, err
	}
	p.keys = &keySet{url: p.JWKSURI, http: c.http, now: c.now}
	return p, nil
}

func (c *providers) keep(key providerKey, p *provider, err error) {
	until := c.now().Add(metadataTime)
	if err != nil {
		until = c.now().Add(failureTime)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= maxProviders {
		clear(c.entries)
	}
	c.entries[key] = providerEntry{p, err, until}
}
