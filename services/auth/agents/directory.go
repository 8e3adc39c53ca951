package agents

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

const (
	defaultEntries = 10_000
	defaultBytes   = 64 << 20
	defaultTimeout = 5 * time.Second
	defaultFlights = 128

	// entryOverhead is what an entry costs in memory beside the texts it was read from.
	entryOverhead = 1 << 10
	// failureLifetime is how long a refused document is remembered: long enough to shield
	// its server and ours, short enough for an agent that has just mended it.
	failureLifetime = 30 * time.Second
	// refreshEvery is how often an unknown kid may cause a fetch (decision 9).
	refreshEvery = 30 * time.Second
)

// Config bounds the directory. Zero values mean the defaults given.
type Config struct {
	Now        func() time.Time // required
	MaxEntries int              // agents kept, and as many failures; 10,000
	MaxBytes   int64            // of the texts kept, about; 64 MiB
	Timeout    time.Duration    // of one fetch, an agent needing two; 5 s
	MaxFlights int              // fetches under way at once; 128
}

// Agent is a Personal Agent, or a public client, as its own server describes it. Both parts are shared with
// other callers and must not be changed.
type Agent struct {
	Document cimd.Document
	Keys     jose.KeySet
}

// Directory finds Personal Agents. It is safe for concurrent use.
type Directory struct {
	cfg     Config
	fetcher Fetcher
	flights singleflight.Group
	slots   chan struct{}

	mu sync.Mutex
	// Failures have a cache of their own, so that made-up client_ids cannot drive out
	// the agents that are in use.
	found  *cache[entry]
	failed *cache[failure]
}

type entry struct {
	agent               Agent
	docUntil, keysUntil time.Time
	docSize, keysSize   int64
	refreshed           time.Time // when an unknown kid last caused a fetch
}

type failure struct {
	err   *problem.Error
	until time.Time
}

// New makes an empty directory that fetches by f.
func New(cfg Config, f Fetcher) (*Directory, error) {
	switch {
	case cfg.Now == nil:
		return nil, errors.New("agents: no clock")
	case f == nil:
		return nil, errors.New("agents: no fetcher")
	}
	if cfg.MaxEntries == 0 {
		cfg.MaxEntries = defaultEntries
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultBytes
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.MaxFlights == 0 {
		cfg.MaxFlights = defaultFlights
	}
	return &Directory{
		cfg:     cfg,
		fetcher: f,
		slots:   make(chan struct{}, cfg.MaxFlights),
		found:   newCache[entry](cfg.MaxEntries, cfg.MaxBytes),
		failed:  newCache[failure](cfg.MaxEntries, cfg.MaxBytes),
	}, nil
}

// Agent returns the agent named clientID, fetching what is not kept or no longer
// fresh. Whatever is wrong with the client_id, the document, the key set or the way
// to them is INVALID_CLIENT with a detail that says which; TEMPORARILY_UNAVAILABLE
// means that ctx ended first or too many fetches are under way.
func (d *Directory) Agent(ctx context.Context, clientID string) (Agent, error) {
	a, err := d.Client(ctx, clientID)
	if err == nil {
		err = a.Document.CheckAgent()
	}
	if err != nil {
		return Agent{}, err
	}
	return a, nil
}

// Client is Agent for public clients, too, who are no Personal Agents and have no keys.
func (d *Directory) Client(ctx context.Context, clientID string) (Agent, error) {
	id, err := cimd.ParseClientID(clientID)
	if err != nil {
		return Agent{}, err
	}
	if a, done, err := d.kept(clientID); done {
		return a, err
	}
	return d.fly(ctx, clientID, func(ctx context.Context) (Agent, error) { return d.load(ctx, id) })
}

// RefreshKeys is for a token whose kid the agent's key set lacks: it returns the agent
// with a key set fetched anew. Within 30 s of the last time for this agent it fetches
// nothing and returns what is kept. When the server cannot be reached the keys kept
// stay valid for as long as they were.
func (d *Directory) RefreshKeys(ctx context.Context, clientID string) (Agent, error) {
	a, err := d.Agent(ctx, clientID)
	if err != nil {
		return Agent{}, err
	}
	d.mu.Lock()
	e, ok := d.found.get(clientID)
	d.mu.Unlock()
	if !ok || !d.mayRefresh(e) {
		return a, nil
	}
	return d.fly(ctx, "keys "+clientID, func(ctx context.Context) (Agent, error) { return d.reload(ctx, clientID, a) })
}

func (d *Directory) mayRefresh(e entry) bool {
	return e.refreshed.IsZero() || d.cfg.Now().Sub(e.refreshed) >= refreshEvery
}

// kept returns what is known of an agent without a fetch, and whether that is anything.
func (d *Directory) kept(clientID string) (Agent, bool, error) {
	now := d.cfg.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.found.get(clientID); ok && now.Before(e.docUntil) && now.Before(e.keysUntil) {
		return e.agent, true, nil
	}
	if f, ok := d.failed.get(clientID); ok {
		if now.Before(f.until) {
			return Agent{}, true, f.err
		}
		d.failed.remove(clientID)
	}
	return Agent{}, false, nil
}

// fly runs work once for all callers that ask for key meanwhile. The work does not end
// with the caller that happened to come first; each caller waits as long as its own
// ctx allows.
func (d *Directory) fly(ctx context.Context, key string, work func(context.Context) (Agent, error)) (Agent, error) {
	result := d.flights.DoChan(key, func() (any, error) {
		// Two fetches and a little for what lies between.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*d.cfg.Timeout+time.Second)
		defer cancel()
		select {
		case d.slots <- struct{}{}:
			defer func() { <-d.slots }()
		default:
			return nil, unavailable(errors.New("agents: all fetches are taken"))
		}
		return work(ctx)
	})
	select {
	case <-ctx.Done():
		return Agent{}, unavailable(ctx.Err())
	case r := <-result:
		if r.Err != nil {
			return Agent{}, r.Err
		}
		return r.Val.(Agent), nil //nolint:forcetypeassert // work returns an Agent
	}
}

func unavailable(cause error) *problem.Error {
	return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the client document could not be fetched in time").
		WithRetryAfter(time.Second).WithCause(cause)
}

// load fetches what is missing or stale of an agent and keeps the outcome.
func (d *Directory) load(ctx context.Context, id cimd.ClientID) (Agent, error) {
	// Another flight may have landed between the look into the cache and this one.
	if a, done, err := d.kept(id.String()); done {
		return a, err
	}
	d.mu.Lock()
	old, ok := d.found.get(id.String())
	d.mu.Unlock()
	now := d.cfg.Now()
	e := old
	if !ok || !now.Before(old.docUntil) {
		doc, f, blame, failure := d.fetchDocument(ctx, id)
		if failure != nil {
			return Agent{}, d.fail(id.String(), blame, failure)
		}
		e.agent.Document, e.docUntil, e.docSize = doc, now.Add(f.lifetime), int64(len(f.body))
	}
	now = d.cfg.Now()
	if e.agent.Document.Public {
		e.agent.Keys, e.keysUntil, e.keysSize = jose.KeySet{}, e.docUntil, 0
		d.keep(id.String(), e)
		return e.agent, nil
	}
	if !ok || !now.Before(old.keysUntil) || e.agent.Document.JWKSURI != old.agent.Document.JWKSURI {
		keys, f, blame, failure := d.fetchKeys(ctx, e.agent.Document)
		if failure != nil {
			return Agent{}, d.fail(id.String(), blame, failure)
		}
		e.agent.Keys, e.keysUntil, e.keysSize = keys, now.Add(f.lifetime), int64(len(f.body))
	}
	d.keep(id.String(), e)
	return e.agent, nil
}

// reload fetches the key set of an agent that is kept.
func (d *Directory) reload(ctx context.Context, clientID string, a Agent) (Agent, error) {
	now := d.cfg.Now()
	d.mu.Lock()
	e, ok := d.found.get(clientID)
	if !ok {
		d.mu.Unlock()
		return a, nil
	}
	if !d.mayRefresh(e) {
		d.mu.Unlock()
		return e.agent, nil
	}
	// Marked before the fetch: a server that never answers uses up the turn too.
	e.refreshed = now
	d.found.put(clientID, e, e.cost())
	d.mu.Unlock()
	keys, f, blame, failure := d.fetchKeys(ctx, e.agent.Document)
	switch {
	case failure == nil:
		e.agent.Keys, e.keysUntil, e.keysSize = keys, now.Add(f.lifetime), int64(len(f.body))
		return d.keepKeys(clientID, e), nil
	case f.lifetime > 0:
		// A key set came and is bad, for example by telling a private key: what it
		// replaces is not to be trusted any longer.
		return Agent{}, d.fail(clientID, blame, failure)
	default:
		return e.agent, nil
	}
}

func (e entry) cost() int64 { return 2*(e.docSize+e.keysSize) + entryOverhead }

func (d *Directory) keep(clientID string, e entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now, ok := d.found.get(clientID); ok && now.refreshed.After(e.refreshed) {
		e.refreshed = now.refreshed
	}
	d.failed.remove(clientID)
	d.found.put(clientID, e, e.cost())
}

// keepKeys stores the key set of e beside the document that is kept by now: a load of
// the same agent may have landed during the fetch. Keys from a jwks_uri that the
// document no longer names are dropped.
func (d *Directory) keepKeys(clientID string, e entry) Agent {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, ok := d.found.get(clientID)
	if !ok {
		return e.agent
	}
	if now.agent.Document.JWKSURI == e.agent.Document.JWKSURI {
		now.agent.Keys, now.keysUntil, now.keysSize = e.agent.Keys, e.keysUntil, e.keysSize
		d.found.put(clientID, now, now.cost())
	}
	return now.agent
}

// fail forgets the agent and, when the fault is its own, remembers the failure.
func (d *Directory) fail(clientID string, blame bool, err *problem.Error) error {
	until := d.cfg.Now().Add(failureLifetime)
	d.mu.Lock()
	defer d.mu.Unlock()
	if blame {
		d.found.remove(clientID)
		d.failed.put(clientID, failure{err: err, until: until}, entryOverhead)
	}
	return err
}
