package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/poppyfield/poppyfield/services/demo/identity"
)

const (
	visitLifetime  = 12 * time.Hour
	signInLifetime = 15 * time.Minute
	keptVisits     = 10000

	visitCookie  = "__Host-noodle-bar-visit"   // who is signed in at the website
	signInCookie = "__Host-noodle-bar-sign-in" // which browser began a sign-in

	callbackPath = "/account/callback"
)

// agentsLink makes a link to the page where the owner of an account sees and
// disconnects personal agents.
type agentsLink func(ctx context.Context, account string) (string, error)

// account is the signed-in part of the website: a relying party of the shop's own
// identity provider, with the connected agents among its settings.
type account struct {
	site   *Website
	issuer string
	config oauth2.Config
	http   *http.Client
	log    *slog.Logger
	link   atomic.Pointer[agentsLink]

	mu       sync.Mutex
	provider *oidc.Provider
	begun    *recent[begun] // by state
	visits   *recent[visit] // by cookie
}

// begun is a sign-in that waits for the browser to come back.
type begun struct {
	browser, nonce, verifier string
	at                       time.Time
}

type visit struct {
	account, name, email string
	at                   time.Time
}

func newAccount(site *Website, issuer string, client identity.Client, h *http.Client, log *slog.Logger) *account {
	return &account{
		site: site, issuer: issuer, http: h, log: log,
		config: oauth2.Config{
			ClientID: client.ID, ClientSecret: client.Secret, RedirectURL: client.RedirectURIs[0],
			Scopes: []string{oidc.ScopeOpenID, "profile", "email"},
		},
		begun: newRecent[begun](keptVisits), visits: newRecent[visit](keptVisits),
	}
}

// setLink is called once there is a Company to ask for links.
func (a *account) setLink(link agentsLink) { a.link.Store(&link) }

// mount adds the routes to mux.
func (a *account) mount(mux *http.ServeMux) {
	mux.HandleFunc("GET /account", a.show)
	mux.HandleFunc("GET /account/sign-in", a.begin)
	mux.HandleFunc("GET "+callbackPath, a.finish)
	mux.HandleFunc("POST /account/sign-out", a.signOut)
}

// accountView is the account page's content.
type accountView struct {
	Name, Email, Address string
	Orders               []Order
	Agents               string // link to the page of connected agents; empty when there is none now
}

func (a *account) show(w http.ResponseWriter, r *http.Request) {
	v, ok := a.visit(r)
	if !ok {
		a.site.write(w, http.StatusOK, "account.html", view{}, "")
		return
	}
	shop := a.site.shop
	page := &accountView{Name: v.name, Email: v.email, Address: shop.address(v.account), Orders: a.site.local(shop.ordersOf(v.account, a.site.now()))}
	frame := ""
	if link := a.link.Load(); link != nil {
		at, err := (*link)(r.Context(), v.account)
		if u, bad := url.Parse(at); err == nil && bad == nil && u.Scheme == "https" {
			page.Agents, frame = at, "https://"+u.Host
		} else {
			a.log.WarnContext(r.Context(), "no link to the connected agents", "error", errors.Join(err, bad))
		}
	}
	a.site.write(w, http.StatusOK, "account.html", view{Account: page}, frame)
}

// begin sends the browser to the identity provider.
func (a *account) begin(w http.ResponseWriter, r *http.Request) {
	config, _, err := a.discover(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	state := rand.Text()
	b := begun{browser: rand.Text(), nonce: rand.Text(), verifier: oauth2.GenerateVerifier(), at: a.site.now()}
	a.mu.Lock()
	a.begun.put(state, b)
	a.mu.Unlock()
	setCookie(w, signInCookie, b.browser, signInLifetime)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, config.AuthCodeURL(state, oidc.Nonce(b.nonce), oauth2.S256ChallengeOption(b.verifier)), http.StatusSeeOther)
}

// finish takes the identity provider's answer.
func (a *account) finish(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	a.mu.Lock()
	b, ok := a.begun.get(query.Get("state"))
	if ok {
		a.begun.put(query.Get("state"), begun{}) // an answer is taken once
	}
	a.mu.Unlock()
	c, err := r.Cookie(signInCookie)
	if !ok || err != nil || b.browser == "" || c.Value != b.browser || a.site.now().Sub(b.at) > signInLifetime {
		a.fail(w, r, errors.New("no sign-in waits for this answer"))
		return
	}
	setCookie(w, signInCookie, "", -time.Second)
	if code := query.Get("error"); code != "" {
		a.fail(w, r, errors.New("the identity provider refused"))
		return
	}
	v, err := a.exchange(r.Context(), query.Get("code"), b)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	id := rand.Text()
	a.mu.Lock()
	a.visits.put(id, v)
	a.mu.Unlock()
	setCookie(w, visitCookie, id, visitLifetime)
	http.Redirect(w, r, "/account", http.StatusSeeOther)
}

func (a *account) exchange(ctx context.Context, code string, b begun) (visit, error) {
	config, provider, err := a.discover(ctx)
	if err != nil {
		return visit{}, err
	}
	token, err := config.Exchange(oidc.ClientContext(ctx, a.http), code, oauth2.VerifierOption(b.verifier))
	if err != nil {
		return visit{}, fmt.Errorf("exchanging the code: %w", err)
	}
	raw, _ := token.Extra("id_token").(string)
	verified, err := provider.Verifier(&oidc.Config{ClientID: config.ClientID, Now: a.site.now}).Verify(oidc.ClientContext(ctx, a.http), raw)
	if err != nil {
		return visit{}, fmt.Errorf("checking the ID Token: %w", err)
	}
	if verified.Nonce != b.nonce {
		return visit{}, errors.New("the ID Token is for another sign-in")
	}
	var claims struct {
		Name  string `json:"name"`
		Email string `json:"email"`
	}
	if err := verified.Claims(&claims); err != nil {
		return visit{}, fmt.Errorf("reading the ID Token: %w", err)
	}
	return visit{account: verified.Subject, name: claims.Name, email: claims.Email, at: a.site.now()}, nil
}

func (a *account) signOut(w http.ResponseWriter, r *http.Request) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		http.Error(w, "this form is sent from its own page only", http.StatusForbidden)
		return
	}
	if c, err := r.Cookie(visitCookie); err == nil {
		a.mu.Lock()
		if _, ok := a.visits.get(c.Value); ok {
			a.visits.put(c.Value, visit{})
		}
		a.mu.Unlock()
	}
	setCookie(w, visitCookie, "", -time.Second)
	http.Redirect(w, r, "/account", http.StatusSeeOther)
}

func (a *account) visit(r *http.Request) (visit, bool) {
	c, err := r.Cookie(visitCookie)
	if err != nil {
		return visit{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	v, ok := a.visits.get(c.Value)
	return v, ok && v.account != "" && a.site.now().Sub(v.at) < visitLifetime
}

// discover reads the provider's metadata at the first sign-in: at the start it may not be served yet.
func (a *account) discover(ctx context.Context) (oauth2.Config, *oidc.Provider, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.provider == nil {
		// The provider keeps its context for fetching keys, which outlasts this request.
		found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), a.http), a.issuer)
		if err != nil {
			return oauth2.Config{}, nil, fmt.Errorf("finding the identity provider: %w", err)
		}
		a.provider = found
	}
	config := a.config
	config.Endpoint = a.provider.Endpoint()
	return config, a.provider, nil
}

func (a *account) fail(w http.ResponseWriter, r *http.Request, err error) {
	a.log.WarnContext(r.Context(), "sign-in at the website failed", "error", err)
	a.site.write(w, http.StatusBadRequest, "account.html", view{Failed: true}, "")
}

// setCookie sets a cookie of this origin alone; a negative life takes it away.
func setCookie(w http.ResponseWriter, name, value string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(life / time.Second),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}
