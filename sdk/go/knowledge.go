package poppy

import (
	"context"
	"sync"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

const (
	// maxAge is how old what is known may be: then a change may be there that was not told.
	maxAge        = time.Second
	defaultTokens = 100_000
	askTime       = 5 * time.Second
)

// standing is what a token is worth.
type standing struct {
	session *Session
	token   access.Token
	until   time.Time // it has to be asked for again
}

// ruleSet is what requests are judged by.
type ruleSet struct {
	apis              *access.Table
	requestsPerMinute int
	nonceRequired     bool
}

// knowledge is what is known as long as a watch says that nothing of it has changed.
type knowledge struct {
	max int

	mu        sync.RWMutex
	checked   time.Time // by our clock: every change before it was told
	rules     *ruleSet
	tokens    map[string]standing            // by TokenHash
	bySession map[string]map[string]struct{} // token hashes by the Session's name
	asking    map[string]*question           // by TokenHash
	// askingRules is the question for the rules; nil while nobody asks.
	askingRules *question
}

// question is one that is under way: what changed meanwhile decides whether its answer may be kept.
type question struct {
	all      bool
	sessions map[string]struct{}
}

func newKnowledge(most int) *knowledge {
	if most <= 0 {
		most = defaultTokens
	}
	k := &knowledge{max: most, asking: map[string]*question{}}
	k.clear()
	return k
}

func (k *knowledge) clear() {
	k.rules, k.tokens, k.bySession = nil, map[string]standing{}, map[string]map[string]struct{}{}
}

// current reports whether what is known is kept true. A clock that was set back makes nothing younger.
func (k *knowledge) current(now time.Time) bool {
	age := now.Sub(k.checked)
	return age >= 0 && age <= maxAge
}

func (k *knowledge) table(now time.Time) (*ruleSet, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.rules, k.rules != nil && k.current(now)
}

func (k *knowledge) standing(hash string, now time.Time) (standing, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	s, ok := k.tokens[hash]
	return s, ok && now.Before(s.until) && k.current(now)
}

// check notes that every change before at was told.
func (k *knowledge) check(at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checked = at
}

// forgetAll forgets everything, and what is being asked for.
func (k *knowledge) forgetAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clear()
	for _, q := range k.asking {
		q.all = true
	}
	if k.askingRules != nil {
		k.askingRules.all = true
	}
}

// lose forgets everything, and trusts nothing until the next check.
func (k *knowledge) lose() {
	k.forgetAll()
	k.check(time.Time{})
}

// forget forgets the tokens of one Session.
func (k *knowledge) forget(session string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for hash := range k.bySession[session] {
		delete(k.tokens, hash)
	}
	delete(k.bySession, session)
	for _, q := range k.asking {
		q.sessions[session] = struct{}{}
	}
}

// ask begins a question about a token; nil where one is under way, or nothing is kept true.
func (k *knowledge) ask(hash string, now time.Time) *question {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asking[hash] != nil || !k.current(now) {
		return nil
	}
	q := &question{sessions: map[string]struct{}{}}
	k.asking[hash] = q
	return q
}

// answered ends a question about a token, and keeps the answer unless it may be out of date.
func (k *knowledge) answered(hash string, q *question, s *standing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.asking, hash)
	if s == nil || q.all {
		return
	}
	if _, changed := q.sessions[s.session.Name]; changed {
		return
	}
	if len(k.tokens) >= k.max {
		k.tokens, k.bySession = map[string]standing{}, map[string]map[string]struct{}{}
	}
	k.tokens[hash] = *s
	if k.bySession[s.session.Name] == nil {
		k.bySession[s.session.Name] = map[string]struct{}{}
	}
	k.bySession[s.session.Name][hash] = struct{}{}
}

func (k *knowledge) askRules(now time.Time) *question {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rules != nil || k.askingRules != nil || !k.current(now) {
		return nil
	}
	k.askingRules = &question{}
	return k.askingRules
}

func (k *knowledge) answeredRules(q *question, r *ruleSet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.askingRules = nil
	if r != nil && !q.all {
		k.rules = r
	}
}

// learn asks for what is missing to judge requests with a token.
func (k *knowledge) learn(ctx context.Context, api adminv1.AccessServiceClient, cfg Config, token string) {
	// Others judge by the answer, too: the end of one request must not be its end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	if q := k.askRules(cfg.Now()); q != nil {
		k.answeredRules(q, readRules(ctx, api, cfg))
	}
	hash := dpop.TokenHash(token)
	now := cfg.Now()
	if q := k.ask(hash, now); q != nil {
		k.answered(hash, q, readStanding(ctx, api, cfg, token, now))
	}
}

// readStanding returns nil where the token is no good, or nobody could say.
func readStanding(ctx context.Context, api adminv1.AccessServiceClient, cfg Config, token string, asked time.Time) *standing {
	got, err := api.IntrospectToken(ctx, &adminv1.IntrospectTokenRequest{Parent: cfg.Company, Token: token})
	if err != nil {
		cfg.Log.WarnContext(ctx, "token not asked about", "error", err)
		return nil
	}
	if !got.GetActive() {
		return nil
	}
	return &standing{
		session: sessionOf(got.GetSession()), token: access.Token{JKT: got.GetJkt(), Resource: got.GetResource()},
		until: asked.Add(got.GetKeepFor().AsDuration()),
	}
}

func readRules(ctx context.Context, api adminv1.AccessServiceClient, cfg Config) *ruleSet {
	got, err := api.GetAccessTable(ctx, &adminv1.GetAccessTableRequest{Name: cfg.Company + "/accessTable"})
	if err != nil {
		cfg.Log.WarnContext(ctx, "rules of the APIs not read", "error", err)
		return nil
	}
	apis := make([]access.API, 0, len(got.GetApis()))
	for _, a := range got.GetApis() {
		api := access.API{URL: a.GetUrl(), MCP: a.GetMcp(), Resource: a.GetResource(), Bases: a.GetBaseUrls(), Metadata: a.GetResourceMetadata()}
		for _, r := range a.GetRules() {
			api.Rules = append(api.Rules, access.Rule{Methods: r.GetMethods(), Path: r.GetPath(), SignIn: r.GetSignIn(), Scopes: r.GetScopes()})
		}
		apis = append(apis, api)
	}
	return &ruleSet{apis: access.NewTable(apis), requestsPerMinute: int(got.GetRequestsPerMinute()), nonceRequired: got.GetNonceRequired()}
}
