package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	requestLifetime = 15 * time.Minute
	codeLifetime    = time.Minute
	tokenLifetime   = 5 * time.Minute
	sessionLifetime = 12 * time.Hour
	maxKept         = 10000 // of each kind
)

var (
	errUnknown = errors.New("unknown or expired")
	errSecret  = errors.New("unknown client or wrong secret")
)

// store is what the library asks of a storage, in memory: whoever is signing in when
// the demo is restarted starts again.
type store struct {
	accounts Accounts
	key      signingKey
	now      func() time.Time

	mu       sync.Mutex
	clients  map[string]Client
	requests map[string]*request
	codes    map[string]code
	tokens   map[string]token
	sessions map[string]session
}

type (
	code struct {
		request string
		created time.Time
	}
	token struct {
		client, account string
		scopes          []string
		created         time.Time
	}
	// session is a browser in which a customer is signed in.
	session struct {
		account string
		created time.Time
	}
)

var _ op.Storage = (*store)(nil)

func newStore(accounts Accounts, key signingKey, now func() time.Time) *store {
	return &store{
		accounts: accounts, key: key, now: now,
		clients: map[string]Client{}, requests: map[string]*request{}, codes: map[string]code{},
		tokens: map[string]token{}, sessions: map[string]session{},
	}
}

// forget drops what has expired. It is called before anything is added.
func (s *store) forget() {
	now := s.now()
	expire(s.requests, func(r *request) time.Time { return r.created.Add(requestLifetime) }, now)
	expire(s.codes, func(c code) time.Time { return c.created.Add(codeLifetime) }, now)
	expire(s.tokens, func(t token) time.Time { return t.created.Add(tokenLifetime) }, now)
	expire(s.sessions, func(v session) time.Time { return v.created.Add(sessionLifetime) }, now)
}

func expire[V any](m map[string]V, end func(V) time.Time, now time.Time) {
	for key, v := range m {
		if !now.Before(end(v)) {
			delete(m, key)
		}
	}
}

// browserKey is the context's key of the browser that a request came from.
type browserKey struct{}

func browserOf(ctx context.Context) string {
	browser, _ := ctx.Value(browserKey{}).(string)
	return browser
}

// CreateAuthRequest keeps a request that the library found to be sound. PKCE is asked
// of every client, also of those with a secret (RFC 9700 section 2.1.1).
func (s *store) CreateAuthRequest(ctx context.Context, asked *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	if asked.CodeChallenge == "" || asked.CodeChallengeMethod != oidc.CodeChallengeMethodS256 {
		return nil, oidc.ErrInvalidRequest().WithDescription("code_challenge with code_challenge_method S256 is required")
	}
	if !slices.Contains(asked.Scopes, oidc.ScopeOpenID) {
		return nil, oidc.ErrInvalidScope().WithDescription("the scope openid is required")
	}
	if slices.Contains(asked.Prompt, oidc.PromptNone) {
		// No answer without a page: what a frame of another site could read off is nothing at all.
		return nil, oidc.ErrLoginRequired()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	if len(s.requests) >= maxKept {
		return nil, oidc.ErrServerError().WithDescription("too many sign-ins at once")
	}
	r := &request{id: rand.Text(), browser: browserOf(ctx), csrf: rand.Text(), asked: *asked, created: s.now()}
	s.requests[r.id] = r
	c := *r
	return &c, nil
}

// AuthRequestByID is the request of this id in the browser that began it. Without the
// binding, whoever gets another to sign in at their request would end up in that account.
func (s *store) AuthRequestByID(ctx context.Context, id string) (op.AuthRequest, error) {
	r, ok := s.request(id, browserOf(ctx))
	if !ok {
		return nil, errUnknown
	}
	return r, nil
}

func (s *store) request(id, browser string) (*request, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	r, ok := s.requests[id]
	if !ok || browser == "" || same(r.browser, browser) != 1 {
		return nil, false
	}
	c := *r
	return &c, true
}

// complete says who signed in at a request, and when.
func (s *store) complete(id, account string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.requests[id]
	if ok {
		r.account, r.signedIn = account, at
	}
	return ok
}

// SaveAuthCode keeps a code of a request.
func (s *store) SaveAuthCode(_ context.Context, id, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[value] = code{request: id, created: s.now()}
	return nil
}

// AuthRequestByCode takes a code: it works once, whatever comes of the exchange.
func (s *store) AuthRequestByCode(_ context.Context, value string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	c, ok := s.codes[value]
	if !ok {
		return nil, errUnknown
	}
	delete(s.codes, value)
	r, ok := s.requests[c.request]
	if !ok {
		return nil, errUnknown
	}
	taken := *r
	return &taken, nil
}

// DeleteAuthRequest ends a request.
func (s *store) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.requests, id)
	return nil
}

// CreateAccessToken makes a token for the userinfo endpoint.
func (s *store) CreateAccessToken(_ context.Context, of op.TokenRequest) (string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	if len(s.tokens) >= maxKept {
		return "", time.Time{}, oidc.ErrServerError().WithDescription("too many tokens at once")
	}
	id, now := rand.Text(), s.now()
	t := token{account: of.GetSubject(), scopes: of.GetScopes(), created: now}
	if audience := of.GetAudience(); len(audience) > 0 {
		t.client = audience[0]
	}
	s.tokens[id] = t
	return id, now.Add(tokenLifetime), nil
}

// CreateAccessAndRefreshTokens refuses: no client is registered for refresh tokens.
func (s *store) CreateAccessAndRefreshTokens(context.Context, op.TokenRequest, string) (string, string, time.Time, error) {
	return "", "", time.Time{}, oidc.ErrUnsupportedGrantType()
}

// TokenRequestByRefreshToken knows none.
func (s *store) TokenRequestByRefreshToken(context.Context, string) (op.RefreshTokenRequest, error) {
	return nil, op.ErrInvalidRefreshToken
}

// GetRefreshTokenInfo knows none.
func (s *store) GetRefreshTokenInfo(context.Context, string, string) (string, string, error) {
	return "", "", op.ErrInvalidRefreshToken
}

// TerminateSession signs a customer out of every browser.
func (s *store) TerminateSession(_ context.Context, account, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, v := range s.sessions {
		if account != "" && v.account == account {
			delete(s.sessions, id)
		}
	}
	return nil
}

// RevokeToken ends an access token of the client.
func (s *store) RevokeToken(_ context.Context, id, _, client string) *oidc.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.tokens[id]; ok && t.client == client {
		delete(s.tokens, id)
	}
	return nil
}

// GetClientByClientID finds a registered application.
func (s *store) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.clients[id]
	if !ok {
		return nil, errUnknown
	}
	return registered{c}, nil
}

// AuthorizeClientIDSecret checks an application's secret.
func (s *store) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.clients[id]; !ok || same(c.Secret, secret) != 1 {
		return errSecret
	}
	return nil
}

// SetUserinfoFromScopes sets the claims of an ID Token.
func (s *store) SetUserinfoFromScopes(_ context.Context, info *oidc.UserInfo, account, _ string, scopes []string) error {
	a, ok := s.accounts.ByID(account)
	if !ok {
		return errUnknown
	}
	info.Subject = a.ID
	if slices.Contains(scopes, oidc.ScopeEmail) {
		info.Email, info.EmailVerified = a.Email, true
	}
	if slices.Contains(scopes, oidc.ScopeProfile) {
		info.Name = a.Name
	}
	return nil
}

// SetUserinfoFromToken sets the claims that the userinfo endpoint tells.
func (s *store) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, id, account, _ string) error {
	t, ok := s.token(id)
	if !ok || t.account != account {
		return errUnknown
	}
	return s.SetUserinfoFromScopes(ctx, info, t.account, t.client, t.scopes)
}

// SetIntrospectionFromToken tells a client about its own token.
func (s *store) SetIntrospectionFromToken(_ context.Context, answer *oidc.IntrospectionResponse, id, account, client string) error {
	t, ok := s.token(id)
	if !ok || t.account != account || t.client != client {
		return errUnknown
	}
	answer.Active, answer.Subject, answer.Scope, answer.ClientID = true, t.account, t.scopes, t.client
	return nil
}

func (s *store) token(id string) (token, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	t, ok := s.tokens[id]
	return t, ok
}

// GetPrivateClaimsFromScopes adds none: access tokens are opaque.
func (s *store) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return map[string]any{}, nil
}

// GetKeyByIDAndClientID knows none: clients have secrets.
func (s *store) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey, error) {
	return nil, errUnknown
}

// ValidateJWTProfileScopes allows none.
func (s *store) ValidateJWTProfileScopes(context.Context, string, []string) ([]string, error) {
	return nil, oidc.ErrUnsupportedGrantType()
}

// Health has nothing that could be down.
func (s *store) Health(context.Context) error { return nil }

// SigningKey is the key that signs ID Tokens.
func (s *store) SigningKey(context.Context) (op.SigningKey, error) { return s.key, nil }

// SignatureAlgorithms are those of the key.
func (s *store) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{s.key.SignatureAlgorithm()}, nil
}

// KeySet is what the keys endpoint publishes.
func (s *store) KeySet(context.Context) ([]op.Key, error) {
	return []op.Key{publicKey{s.key}}, nil
}

// startSession signs an account in at a browser and returns the browser's cookie.
func (s *store) startSession(account string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	id := rand.Text()
	if len(s.sessions) < maxKept {
		s.sessions[id] = session{account: account, created: s.now()}
	}
	return id
}

func (s *store) session(id string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	v, ok := s.sessions[id]
	return v, ok
}
