package identity

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/text/language"
)

//go:embed pages
var pages embed.FS

// Config is what the provider is run with.
type Config struct {
	// Issuer is the https origin that it is served at.
	Issuer   string
	Accounts Accounts
	// Keep returns what is kept under a name, of what fresh made where nothing is yet.
	Keep func(name string, fresh func() (string, error)) (string, error)
	Now  func() time.Time
}

// A Provider is an OpenID Connect provider with its login page.
type Provider struct {
	cfg   Config
	store *store
	op    *op.Provider
	mux   *http.ServeMux
	login *template.Template
}

// New makes a provider that knows no client yet.
func New(cfg Config) (*Provider, error) {
	kept, err := cfg.Keep("signing-key", freshKey)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(kept)
	if err != nil {
		return nil, err
	}
	view, err := template.ParseFS(pages, "pages/login.html")
	if err != nil {
		return nil, fmt.Errorf("login template: %w", err)
	}
	p := &Provider{cfg: cfg, store: newStore(cfg.Accounts, key, cfg.Now), mux: http.NewServeMux(), login: view}
	conf := &op.Config{
		CodeMethodS256:     true,
		SupportedScopes:    []string{oidc.ScopeOpenID, oidc.ScopeProfile, oidc.ScopeEmail},
		SupportedClaims:    []string{"sub", "aud", "exp", "iat", "iss", "auth_time", "nonce", "amr", "name", "email", "email_verified"},
		SupportedUILocales: []language.Tag{language.English},
	}
	// Opaque tokens and codes don't outlive the process, nor do the records they name.
	if _, err := rand.Read(conf.CryptoKey[:]); err != nil {
		return nil, err
	}
	// No other site's script has business here: the library's CORS would let every origin in, with cookies.
	if p.op, err = op.NewProvider(conf, p.store, op.StaticIssuer(cfg.Issuer), op.WithCORSOptions(nil)); err != nil {
		return nil, fmt.Errorf("OpenID Connect provider: %w", err)
	}
	return p, p.mount()
}

// Client returns the client that is kept under a name, with no redirect URI registered.
// Its id and its secret are made together, so that another id says that the secret is
// another one too.
func (p *Provider) Client(name string) (Client, error) {
	kept, err := p.cfg.Keep("client-"+name, func() (string, error) {
		return name + "-" + strings.ToLower(rand.Text()[:8]) + " " + rand.Text() + rand.Text(), nil
	})
	if err != nil {
		return Client{}, err
	}
	id, secret, ok := strings.Cut(kept, " ")
	if !ok || id == "" || secret == "" {
		return Client{}, errors.New("what is kept of the client is not an id and a secret")
	}
	return Client{ID: id, Secret: secret}, nil
}

// Register lets a client sign customers in, or changes its redirect URIs.
func (p *Provider) Register(c Client) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	p.store.clients[c.ID] = c
}

// ServeHTTP serves the provider's origin.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

func (p *Provider) mount() error {
	style, err := pages.ReadFile("pages/login.css")
	if err != nil {
		return fmt.Errorf("login style: %w", err)
	}
	p.mux.HandleFunc("GET "+stylePath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		w.Header().Set("Cache-Control", "max-age=300")
		_, _ = w.Write(style)
	})
	p.mux.HandleFunc("GET "+loginPath, p.showLogin)
	p.mux.HandleFunc("POST "+loginPath, p.takeLogin)
	p.mux.HandleFunc("/", p.protocol)
	return nil
}

// protocol serves what the library does, with the browser bound to its request.
func (p *Provider) protocol(w http.ResponseWriter, r *http.Request) {
	browser, authorize := cookie(r, browserCookie), p.op.AuthorizationEndpoint().Relative()
	switch r.URL.Path {
	case authorize:
		if browser == "" {
			browser = rand.Text()
			setCookie(w, browserCookie, browser, 0)
		}
	case authorize + callbackSuffix:
		// Browsers get here by Back, too.
		id := r.URL.Query().Get("id")
		if asked, ok := p.store.request(id, browser); !ok {
			p.gone(w)
			return
		} else if !asked.Done() {
			http.Redirect(w, r, registered{}.LoginURL(asked.id), http.StatusSeeOther)
			return
		}
	}
	w.Header().Set("Referrer-Policy", "no-referrer") // the callback's URL leads back into a request
	w.Header().Set("X-Content-Type-Options", "nosniff")
	p.op.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), browserKey{}, browser)))
}
