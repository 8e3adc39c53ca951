// Package web serves the published documents of Companies from memory: poppy.json
// of each verified domain (Poppy 3), the OAuth metadata (RFC 8414), that of MCP servers
// (RFC 9728) and the public keys of webhook signatures. Beside them it serves the logo of the sign-in pages.
package web

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// maxAge is how long agents may keep a document: a removed domain is gone from caches after it.
const maxAge = 5 * time.Minute

// keysAge is how long the webhook keys are kept in memory here.
const keysAge = 10 * time.Second

// Documents serves the documents.
type Documents struct {
	build func(context.Context, tenancy.Scope) (app.Documents, error)
	keys  func(context.Context, tenancy.Scope) ([]byte, error)
	logos func(context.Context, tenancy.Scope) (app.Logo, error)
	from  document // the addresses that we send from
	now   clock.Clock

	mu       sync.RWMutex
	byScope  map[tenancy.Scope]*published
	keysByCo map[tenancy.Scope]keysEntry
}

type published struct {
	version  int64
	metadata document
	byDomain map[string]document
	// byKey and byURL have the metadata of MCP servers.
	byKey, byURL map[string]document
}

type document struct {
	body []byte
	etag []string // as header values, so that serving allocates nothing
	size []string
}

type keysEntry struct {
	doc document
	at  time.Time
}

// maxCompanies bounds the memory; beyond it documents are built anew.
const maxCompanies = 50000

// Sources are where a Company's documents come from.
type Sources struct {
	Documents   func(context.Context, tenancy.Scope) (app.Documents, error)
	WebhookKeys func(context.Context, tenancy.Scope) ([]byte, error)
	Logo        func(context.Context, tenancy.Scope) (app.Logo, error)
	// EgressAddresses are those that requests to Companies come from.
	EgressAddresses []netip.Prefix
}

// New makes the handlers.
func New(from Sources, now clock.Clock) *Documents {
	return &Documents{build: from.Documents, keys: from.WebhookKeys, logos: from.Logo, from: addresses(from.EgressAddresses), now: now, byScope: map[tenancy.Scope]*published{}, keysByCo: map[tenancy.Scope]keysEntry{}}
}

// Routes returns the public endpoints.
func (d *Documents) Routes() []publicweb.Route {
	return []publicweb.Route{
		{Method: http.MethodGet, Path: "/poppy/{domain}/poppy.json", Handler: d.poppy, Caller: publicweb.Anyone},
		{Method: http.MethodGet, Path: "/.well-known/oauth-authorization-server", Handler: d.metadata, Caller: publicweb.Anyone, WellKnown: true},
		{Method: http.MethodGet, Path: "/poppy/resources/{key}.json", Handler: d.resource, Caller: publicweb.Anyone},
		{Method: http.MethodGet, Path: discovery.WellKnownResource, Handler: d.resourceOfHost, Caller: publicweb.Anyone, OfHost: true},
		{Method: http.MethodGet, Path: discovery.WellKnownResource + "/{path...}", Handler: d.resourceOfHost, Caller: publicweb.Anyone, OfHost: true},
		{Method: http.MethodGet, Path: "/poppy/webhook-keys.json", Handler: d.webhookKeys, Caller: publicweb.Anyone},
		{Method: http.MethodGet, Path: "/poppy/egress-addresses.json", Handler: d.egressAddresses, Caller: publicweb.Anyone},
		{Method: http.MethodGet, Path: "/poppy/logo", Handler: d.logo, Caller: publicweb.Anyone},
	}
}

func (d *Documents) poppy(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	p, err := d.of(r.Context(), c)
	if err != nil {
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
		return
	}
	doc, ok := p.byDomain[r.PathValue("domain")]
	if !ok {
		httpx.WriteNotFound(w)
		return
	}
	serve(w, r, doc)
}

func (d *Documents) metadata(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	p, err := d.of(r.Context(), c)
	if err != nil {
		httpx.WriteOAuthError(w, r, err, httpx.Resource)
		return
	}
	serve(w, r, p.metadata)
}

func (d *Documents) webhookKeys(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	now := d.now()
	d.mu.RLock()
	e, ok := d.keysByCo[c.Scope]
	d.mu.RUnlock()
	if !ok || now.Sub(e.at) > keysAge {
		body, err := d.keys(r.Context(), c.Scope)
		if err != nil {
			httpx.WriteOAuthError(w, r, err, httpx.Resource)
			return
		}
		e = keysEntry{newDocument(body), now}
		d.mu.Lock()
		if len(d.keysByCo) >= maxCompanies {
			clear(d.keysByCo)
		}
		d.keysByCo[c.Scope] = e
		d.mu.Unlock()
	}
	serve(w, r, e.doc)
}

func (d *Documents) egressAddresses(w http.ResponseWriter, r *http.Request, _ *directory.Company) {
	serve(w, r, d.from)
}

// addresses makes the list of prefixes that our requests come from. An empty one says nothing: they may come from anywhere.
func addresses(prefixes []netip.Prefix) document {
	body := []byte(`{"addresses":[`)
	for i, p := range prefixes {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendQuote(body, p.Masked().String()) // digits, dots and colons
	}
	return newDocument(append(body, "]}"...))
}

// of returns the documents of the Company's present version, built once.
func (d *Documents) of(ctx context.Context, c *directory.Company) (*published, error) {
	d.mu.RLock()
	p, ok := d.byScope[c.Scope]
	d.mu.RUnlock()
	if ok && p.version >= c.Version {
		return p, nil
	}
	docs, err := d.build(ctx, c.Scope)
	if err != nil {
		return nil, err
	}
	p = &published{version: docs.Version, metadata: newDocument(docs.Metadata), byDomain: make(map[string]document, len(docs.ByDomain))}
	for name, body := range docs.ByDomain {
		p.byDomain[name] = newDocument(body)
	}
	p.byKey, p.byURL = map[string]document{}, map[string]document{}
	for url, body := range docs.ByResource {
		doc := newDocument(body)
		p.byKey[discovery.ResourceKey(url)], p.byURL[url] = doc, doc
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if old, ok := d.byScope[c.Scope]; ok && old.version > p.version {
		return old, nil
	}
	if len(d.byScope) >= maxCompanies {
		clear(d.byScope)
	}
	d.byScope[c.Scope] = p
	return p, nil
}

func newDocument(body []byte) document {
	sum := sha256.Sum256(body)
	return document{
		body: body,
		etag: []string{`"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`},
		size: []string{strconv.Itoa(len(body))},
	}
}

var (
	contentType  = []string{"application/json"}
	cacheControl = []string{"public, max-age=" + strconv.Itoa(int(maxAge/time.Second))}
	anyOrigin    = []string{"*"}
	exposed      = []string{"ETag"}
)

func serve(w http.ResponseWriter, r *http.Request, doc document) {
	h := w.Header()
	h["Etag"] = doc.etag
	h["Cache-Control"] = cacheControl
	h["Access-Control-Allow-Origin"] = anyOrigin
	h["Access-Control-Expose-Headers"] = exposed
	if matches(r.Header.Values("If-None-Match"), doc.etag[0]) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h["Content-Type"] = contentType
	h["Content-Length"] = doc.size
	if r.Method == http.MethodHead {
		return
	}
	// The client went away: nothing to be done about it.
	_, _ = w.Write(doc.body)
}

// matches reports whether one of the If-None-Match values names etag (RFC 9110 13.1.2, weak comparison).
func matches(values []string, etag string) bool {
	for _, v := range values {
		for _, one := range strings.Split(v, ",") {
			one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
			if one == etag || one == "*" {
				return true
			}
		}
	}
	return false
}
