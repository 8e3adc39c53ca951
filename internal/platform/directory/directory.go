// Package directory is every service's view of the Companies: a small cache in
// front of the DirectoryService of discovery. An answer is at most MaxAge old, and
// younger where the bus said that the Company changed.
package directory

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
)

// MaxAge bounds how long a change of a Company may go unseen when the bus is away.
const MaxAge = time.Second

// loadTime bounds one call of the service.
const loadTime = 5 * time.Second

// maxEntries bounds the memory that unknown hosts can take.
const maxEntries = 20000

// Company is what a request needs to know of its Company. Issuer and everything
// made from it come from configuration, never from the request.
type Company struct {
	Scope                    tenancy.Scope
	Slug                     string
	DisplayName              string
	Issuer                   discovery.Issuer
	Active                   bool
	MCPURLs                  []string
	Resources                []string
	ConversationsResource    string
	ConversationsEnabled     bool
	CustomScopes             []string
	SessionTokenLifetime     time.Duration
	SessionIdleLifetime      time.Duration
	EventRetention           time.Duration
	ConversationIdleLifetime time.Duration
	AnswerDeadline           time.Duration
	SessionStartsPerMinute   int
	RequestsPerMinute        int
	// RequiredExtensions are those that an agent has to list to have a conversation (Poppy 3.3).
	RequiredExtensions []string
	// SignIn is nil where the Company offers no sign-in.
	SignIn *SignIn
	// Test: the Company is for trying things out only.
	Test bool
	// APIs finds the listed API that a request is for (Poppy 6).
	APIs *access.Table
	// Browser is nil where we take no browsers into the Company's Sessions (Poppy 5).
	Browser *BrowserSession
	// RegistersClients: MCP clients that know nothing of Poppy may register themselves.
	RegistersClients bool
	// Domains that the Company has verified.
	Domains []string
	Version int64
}

// Client looks Companies up.
type Client struct {
	api    directoryv1.DirectoryServiceClient
	now    clock.Clock
	flight singleflight.Group

	mu      sync.RWMutex
	entries map[key]entry
	epoch   uint64 // grows with Forget: an answer fetched before isn't kept
}

// key is a host or a Company's id, whichever is set.
type key struct{ host, company string }

type entry struct {
	companies []*Company
	at        time.Time
}

// New makes a client on top of the service.
func New(api directoryv1.DirectoryServiceClient, now clock.Clock) *Client {
	return &Client{api: api, now: now, entries: map[key]entry{}}
}

// Resolve finds the Company of a public request. host is normalised and without
// port; unknown, unpublished and disabled Companies are all not found.
func (c *Client) Resolve(ctx context.Context, host, path string) (*Company, error) {
	on, err := c.get(ctx, key{host: host})
	if err != nil {
		return nil, err
	}
	if best := choose(on, host, path); best != nil {
		return best, nil
	}
	return nil, errNotFound
}

// Get returns the Company of scope in any state.
func (c *Client) Get(ctx context.Context, scope tenancy.Scope) (*Company, error) {
	got, err := c.get(ctx, key{company: scope.CompanyID()})
	if err != nil {
		return nil, err
	}
	if len(got) == 0 {
		return nil, errNotFound
	}
	return got[0], nil
}

// Forget drops everything cached: some Company changed.
func (c *Client) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.entries)
}

var errNotFound = problem.New(problem.NotFound, problem.NotFoundReason, "", "not found")

// choose returns the Company whose issuer is on the host and has the longest path that
// leads to path. A proxy may have taken the issuer's path off, which is no matter while
// the host has a single issuer. A host without an issuer is that of browser session
// endpoints.
func choose(on []*Company, host, path string) *Company {
	path = strings.TrimPrefix(path, discovery.WellKnownResource) // of a place on the host
	var best, last *Company
	issuers := 0
	for _, c := range on {
		if c.Issuer.Hostname() != host {
			continue
		}
		issuers, last = issuers+1, c
		p := c.Issuer.Path()
		leads := p == "" || path == p || strings.HasPrefix(path, p+"/") ||
			strings.HasPrefix(path, "/.well-known/") && strings.HasSuffix(path, p)
		if leads && (best == nil || len(p) > len(best.Issuer.Path())) {
			best = c
		}
	}
	switch {
	case issuers == 0:
		return joining(on, host, path)
	case best == nil && issuers == 1:
		return last
	}
	return best
}

func (c *Client) get(ctx context.Context, k key) ([]*Company, error) {
	for {
		now := c.now()
		c.mu.RLock()
		e, ok := c.entries[k]
		epoch := c.epoch
		c.mu.RUnlock()
		if !ok || now.Sub(e.at) >= MaxAge {
			var err error
			if e, err = c.ask(ctx, k, epoch, now); err != nil {
				return nil, err
			}
		}
		if now.Sub(e.at) < MaxAge {
			return e.companies, nil
		}
		// It joined a question that had been under way for too long already.
	}
}

// ask puts the question to the service, once for everybody who has it in this epoch.
func (c *Client) ask(ctx context.Context, k key, epoch uint64, now time.Time) (entry, error) {
	// The epoch is part of the name: an answer to a question from before a change isn't shared with callers after it.
	flight := c.flight.DoChan(k.host+"\x00"+k.company+"\x00"+strconv.FormatUint(epoch, 10), func() (any, error) {
		// The answer is as old as the question: now is the time of the caller that asked.
		at := now
		// One caller's cancellation must not fail the others.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTime)
		defer cancel()
		snaps, err := c.load(ctx, k)
		if problem.Is(err, problem.NotFoundReason) {
			c.keep(k, epoch, entry{nil, at})
			return entry{nil, at}, nil
		}
		if err != nil {
			return nil, err
		}
		companies := make([]*Company, 0, len(snaps))
		for _, s := range snaps {
			one, err := fromSnapshot(s)
			if err != nil {
				return nil, err
			}
			companies = append(companies, one)
		}
		c.keep(k, epoch, entry{companies, at})
		return entry{companies, at}, nil
	})
	var got singleflight.Result
	select {
	case got = <-flight:
	case <-ctx.Done():
		return entry{}, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the request was given up").WithCause(ctx.Err())
	}
	e, _ := got.Val.(entry)
	return e, got.Err
}

func (c *Client) load(ctx context.Context, k key) ([]*directoryv1.CompanySnapshot, error) {
	if k.host != "" {
		got, err := c.api.ResolveHost(ctx, &directoryv1.ResolveHostRequest{Host: k.host})
		return got.GetCompanies(), err
	}
	scope, err := tenancy.For(k.company)
	if err != nil {
		return nil, err
	}
	snap, err := c.api.GetCompanySnapshot(tenancy.Into(ctx, scope), &directoryv1.GetCompanySnapshotRequest{})
	return []*directoryv1.CompanySnapshot{snap}, err
}

// keep remembers e unless the epoch it is of has ended.
func (c *Client) keep(k key, epoch uint64, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != epoch {
		return
	}
	if len(c.entries) >= maxEntries {
		clear(c.entries)
	}
	c.entries[k] = e
}

func fromSnapshot(s *directoryv1.CompanySnapshot) (*Company, error) {
	scope, err := tenancy.For(s.GetCompanyId())
	if err != nil {
		return nil, err
	}
	issuer, err := discovery.ParseIssuer(s.GetIssuer())
	if err != nil {
		return nil, err
	}
	return &Company{
		Scope: scope, Slug: s.GetSlug(), DisplayName: s.GetDisplayName(), Issuer: issuer, Active: s.GetActive(),
		Browser: browserFrom(s.GetBrowserSession()),
		MCPURLs: s.GetMcpUrls(), Resources: s.GetResources(), ConversationsResource: s.GetConversationsResource(),
		ConversationsEnabled: s.GetConversationsEnabled(), CustomScopes: s.GetCustomScopes(),
		SessionTokenLifetime: s.GetSessionTokenLifetime().AsDuration(), SessionIdleLifetime: s.GetSessionIdleLifetime().AsDuration(),
		EventRetention: s.GetEventRetention().AsDuration(), ConversationIdleLifetime: s.GetConversationIdleLifetime().AsDuration(),
		AnswerDeadline: s.GetAnswerDeadline().AsDuration(), SessionStartsPerMinute: int(s.GetSessionStartsPerMinute()),
		RequestsPerMinute: int(s.GetRequestsPerMinute()), SignIn: signInFrom(s.GetSignIn()), Test: s.GetTest(), Domains: s.GetDomains(),
		RequiredExtensions: s.GetRequiredExtensions(), Version: s.GetVersion(),
		APIs: access.NewTable(apisFrom(issuer, s.GetApis())), RegistersClients: s.GetMcpRegistration(),
	}, nil
}

func apisFrom(issuer discovery.Issuer, in []*directoryv1.Api) []access.API {
	out := make([]access.API, len(in))
	for i, a := range in {
		out[i] = access.API{URL: a.GetUrl(), MCP: a.GetMcp(), Resource: a.GetResource(), Bases: a.GetBaseUrls()}
		if a.GetMcp() {
			out[i].Metadata = issuer.ResourceMetadataURL(a.GetUrl())
		}
		for _, r := range a.GetRules() {
			out[i].Rules = append(out[i].Rules, access.Rule{Methods: r.GetMethods(), Path: r.GetPath(), SignIn: r.GetSignIn(), Scopes: r.GetScopes()})
		}
	}
	return out
}
