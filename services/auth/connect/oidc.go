package connect

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

// What a Company's client secret is sealed for.
const (
	secretPurpose = "oidc client secret"
	secretID      = "oidc"
)

// maxCode bounds an authorization code, in bytes.
const maxCode = 4096

// OIDC signs Users in at their Company's own OpenID Connect provider, by the code flow
// with PKCE. It is safe for concurrent use.
type OIDC struct {
	http      transport
	keys      *keys.Ring
	now       clock.Clock
	providers *providers
}

// NewOIDC makes an OIDC that reaches providers by send.
func NewOIDC(send relayv1.SignInServiceClient, ring *keys.Ring, now clock.Clock) *OIDC {
	out := transport{send}
	return &OIDC{
		http: out, keys: ring, now: now,
		providers: &providers{http: out, now: now, entries: map[providerKey]providerEntry{}},
	}
}

// Begin returns the URL at the Company's provider to send the browser to, and what
// Finish needs to know again. With force the provider asks who it is even if it knows.
func (o *OIDC) Begin(ctx context.Context, company *directory.Company, force bool) (string, Upstream, error) {
	ctx = tenancy.Into(ctx, company.Scope)
	p, cfg, err := o.config(ctx, company)
	if err != nil {
		return "", Upstream{}, err
	}
	up := Upstream{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	opts := []oauth2.AuthCodeOption{oidc.Nonce(up.Nonce), oauth2.S256ChallengeOption(up.Verifier)}
	if force {
		opts = append(opts, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	cfg.Endpoint.AuthURL = p.AuthorizationEndpoint
	return cfg.AuthCodeURL(up.State, opts...), up, nil
}

// Finish takes what the browser came back with and returns the account: of an ID token
// that the provider gave for the code, and whose every claim was checked.
func (o *OIDC) Finish(ctx context.Context, company *directory.Company, up Upstream, query url.Values) (Account, error) {
	ctx = tenancy.Into(ctx, company.Scope)
	for _, name := range []string{"state", "iss", "error", "code"} {
		if len(query[name]) > 1 {
			return Account{}, refused("the answer has " + name + " twice")
		}
	}
	if up.State == "" || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(up.State)) != 1 {
		return Account{}, refused("the answer's state is another one") // RFC6749/10.12
	}
	p, cfg, err := o.config(ctx, company)
	if err != nil {
		return Account{}, err
	}
	// Before anything else of the answer counts, its error included: RFC9207/2.4.
	if query.Has("iss") && query.Get("iss") != p.Issuer || !query.Has("iss") && p.IssParameter {
		return Account{}, refused("the answer's iss is not the provider's issuer")
	}
	if code := query.Get("error"); code != "" {
		return Account{}, refusedWith(code, "the provider answered with an error")
	}
	code := query.Get("code")
	if code == "" || len(code) > maxCode {
		return Account{}, refused("the answer has no usable code")
	}
	token, err := o.exchange(ctx, cfg, code, up.Verifier)
	if err != nil {
		return Account{}, err
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return Account{}, refused("the provider gave no ID token")
	}
	c, err := p.checkIDToken(ctx, raw, cfg.ClientID, up.Nonce, o.now())
	if err != nil {
		return Account{}, err
	}
	return o.account(ctx, company.SignIn.OIDC, p, c, token.AccessToken)
}

// config returns the Company's provider and our client at it.
func (o *OIDC) config(ctx context.Context, company *directory.Company) (*provider, *oauth2.Config, error) {
	if company.SignIn == nil || company.SignIn.Method != directory.OIDC {
		return nil, nil, unavailable("settings", "the company has no identity provider")
	}
	set := company.SignIn.OIDC
	secret := ""
	if len(set.SealedSecret) > 0 {
		plain, err := o.keys.Open(company.Scope.CompanyID(), secretPurpose, secretID, set.SealedSecret)
		if err != nil {
			return nil, nil, unavailable("settings", "the client secret does not open")
		}
		secret = string(plain)
	}
	p, err := o.providers.get(ctx, company.Scope, set.Issuer)
	if err != nil {
		return nil, nil, err
	}
	style, ok := p.authStyle(secret)
	if !ok {
		return nil, nil, unavailable("metadata", "the token endpoint takes neither client_secret_basic nor client_secret_post")
	}
	cfg := &oauth2.Config{
		ClientID: set.ClientID, ClientSecret: secret, RedirectURL: company.Issuer.CallbackURL(), Scopes: []string{oidc.ScopeOpenID},
		Endpoint: oauth2.Endpoint{TokenURL: p.TokenEndpoint, AuthStyle: style},
	}
	for _, s := range set.Scopes {
		if !slices.Contains(cfg.Scopes, s) {
			cfg.Scopes = append(cfg.Scopes, s)
		}
	}
	return p, cfg, nil
}

func (o *OIDC) exchange(ctx context.Context, cfg *oauth2.Config, code, verifier string) (*oauth2.Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, o.http.client())
	token, err := cfg.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err == nil {
		return token, nil
	}
	var answered *oauth2.RetrieveError
	if !errors.As(err, &answered) {
		var outside *outsideError
		if errors.As(err, &outside) || ctx.Err() != nil {
			return nil, unreachable("token endpoint", err)
		}
		return nil, unavailable("token endpoint", "no tokens, or no answer that can be read")
	}
	status := answered.Response.StatusCode
	if answered.ErrorCode == "" || status >= http.StatusInternalServerError || status == http.StatusTooManyRequests {
		return nil, unavailable("token endpoint", "the answer is "+strconv.Itoa(status)+" instead of 200")
	}
	return nil, refusedWith(answered.ErrorCode, "the token endpoint answered with an error")
}
