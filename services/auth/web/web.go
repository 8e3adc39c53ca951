// Package web is the HTTP of the OAuth endpoints: forms in, JSON out, nothing
// cached, nothing redirected. What a request gets is decided in package app.
package web

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
	"github.com/poppyfield/poppyfield/internal/platform/publicweb"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth/app"
)

// Config of the endpoints.
type Config struct {
	// TrustedProxies are believed about the client's address.
	TrustedProxies []netip.Prefix
	// PerMinute bounds the requests of one client address to one Company, before
	// anything costly is done for them; 0 or less is no bound.
	PerMinute int
}

// Endpoints answers requests to the OAuth endpoints.
type Endpoints struct {
	cfg   Config
	app   *app.App
	flood *limit.Limiter
	now   clock.Clock
	log   *slog.Logger
}

// New makes the endpoints on top of a.
func New(cfg Config, a *app.App, now clock.Clock, log *slog.Logger) *Endpoints {
	return &Endpoints{cfg: cfg, app: a, flood: limit.New(0), now: now, log: log}
}

// Routes of the endpoints.
func (e *Endpoints) Routes() []publicweb.Route {
	return []publicweb.Route{
		{Method: http.MethodPost, Path: "/oauth/token", Handler: e.token, Caller: publicweb.Client},
		{Method: http.MethodPost, Path: "/oauth/revoke", Handler: e.revoke, Caller: publicweb.Client},
	}
}

// tokenResponse is the body of Poppy 4.2; no member is ever left out.
type tokenResponse struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"` // seconds
	Scope       string `json:"scope"`
	SessionID   string `json:"session_id"`
	SignedIn    bool   `json:"signed_in"`
}

func (e *Endpoints) token(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	form, err := e.form(w, r, c)
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	opened, err := e.app.Token(r.Context(), c, form, r.Method, r.Header.Values("DPoP"))
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	body, err := encode(opened)
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	httpx.SetDPoPNonce(w, opened.GetDpopNonce())
	uncacheable(w)
	httpx.WriteJSON(w, http.StatusOK, body)
}

func encode(o *sessionsv1.IssuedTokens) ([]byte, error) {
	return json.Marshal(tokenResponse{
		AccessToken: o.GetAccessToken(), TokenType: o.GetTokenType(), ExpiresIn: int64(o.GetExpiresIn().AsDuration().Seconds()),
		Scope: o.GetScope(), SessionID: o.GetSessionId(), SignedIn: o.GetSignedIn(),
	})
}

// revoke ignores the DPoP header: no proof is needed here (decision 28).
func (e *Endpoints) revoke(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	form, err := e.form(w, r, c)
	if err == nil {
		err = e.app.Revoke(r.Context(), c, form)
	}
	if err != nil {
		e.refuse(w, r, c, err)
		return
	}
	uncacheable(w)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}

// form reads the request's form. Everything in it is cheap; what isn't comes after
// the client's address was counted.
func (e *Endpoints) form(w http.ResponseWriter, r *http.Request, c *directory.Company) (oauth.Form, error) {
	addr := limit.Key(limit.ClientAddr(r, e.cfg.TrustedProxies))
	if ok, wait := e.flood.Allow(c.Scope.CompanyID()+"\x00"+addr, e.cfg.PerMinute, e.now()); !ok {
		return oauth.Form{}, problem.New(problem.RateLimited, problem.RateLimitedReason, "poppy-0.1/4.3#46", "too many requests from this address").WithRetryAfter(wait)
	}
	if err := oauth.CheckNoTokenInQuery(r.URL.RawQuery); err != nil {
		return oauth.Form{}, err
	}
	if err := oauth.CheckFormContentType(r.Header.Get("Content-Type")); err != nil {
		return oauth.Form{}, err
	}
	body, err := httpx.ReadBody(w, r, oauth.MaxForm)
	if err != nil {
		return oauth.Form{}, err
	}
	return oauth.ParseForm(body)
}

func (e *Endpoints) refuse(w http.ResponseWriter, r *http.Request, c *directory.Company, err error) {
	p := problem.As(err)
	e.log.InfoContext(r.Context(), "oauth request refused", "route", r.Pattern, "company", c.Scope, "reason", string(p.Reason), "clause", string(p.Clause), "detail", p.Detail)
	httpx.WriteOAuthError(w, r, p, httpx.TokenEndpoint)
}

// uncacheable says so to caches of every age (RFC 6749 section 5.1).
func uncacheable(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
}
