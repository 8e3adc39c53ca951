package identity

import (
	"bytes"
	"net/http"
	"net/url"
	"time"
)

const (
	loginPath = "/login"
	stylePath = "/login.css"
	maxForm   = 8 << 10

	callbackSuffix = "/callback" // of the authorization endpoint: where the library goes on

	browserCookie = "__Host-noodle-browser" // whom a request belongs to
	sessionCookie = "__Host-noodle-account" // who is signed in
)

// loginView is the login page's content.
type loginView struct {
	Request  string
	CSRF     string
	Email    string
	Wrong    bool
	Gone     bool // no request to go on with
	Accounts Accounts
}

// showLogin shows the form, or goes on where the customer is signed in already.
func (p *Provider) showLogin(w http.ResponseWriter, r *http.Request) {
	asked, ok := p.store.request(r.URL.Query().Get("id"), cookie(r, browserCookie))
	if !ok {
		p.gone(w)
		return
	}
	if s, ok := p.store.session(cookie(r, sessionCookie)); ok && asked.takes(s.created, p.cfg.Now()) {
		p.goOn(w, r, asked.id, s.account, s.created)
		return
	}
	p.page(w, http.StatusOK, asked, loginView{Email: asked.asked.LoginHint})
}

// takeLogin checks what was typed.
func (p *Provider) takeLogin(w http.ResponseWriter, r *http.Request) {
	// The browser says where a form was sent from; the token is for the browsers that don't.
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		http.Error(w, "this form is sent from its own page only", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form could not be read", http.StatusBadRequest)
		return
	}
	asked, ok := p.store.request(r.PostForm.Get("id"), cookie(r, browserCookie))
	if !ok {
		p.gone(w)
		return
	}
	if same(r.PostForm.Get("csrf"), asked.csrf) != 1 {
		http.Error(w, "this form is sent from its own page only", http.StatusForbidden)
		return
	}
	email := r.PostForm.Get("email")
	account, ok := p.cfg.Accounts.Check(email, r.PostForm.Get("password"))
	if !ok {
		p.page(w, http.StatusUnprocessableEntity, asked, loginView{Email: email, Wrong: true})
		return
	}
	// A new cookie at every sign-in: one that was planted before leads nowhere.
	setCookie(w, sessionCookie, p.store.startSession(account.ID), sessionLifetime)
	p.goOn(w, r, asked.id, account.ID, p.cfg.Now())
}

// goOn hands the request back to the library, which sends the browser to the client.
func (p *Provider) goOn(w http.ResponseWriter, r *http.Request, id, account string, at time.Time) {
	if !p.store.complete(id, account, at) {
		p.gone(w)
		return
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, p.op.AuthorizationEndpoint().Relative()+callbackSuffix+"?id="+url.QueryEscape(id), http.StatusSeeOther)
}

func (p *Provider) gone(w http.ResponseWriter) {
	p.write(w, http.StatusBadRequest, "", loginView{Gone: true})
}

func (p *Provider) page(w http.ResponseWriter, status int, asked *request, v loginView) {
	v.Request, v.CSRF, v.Accounts = asked.id, asked.csrf, p.cfg.Accounts
	// Browsers follow a form's redirects only to where form-action allows.
	back := ""
	if u, err := url.Parse(asked.asked.RedirectURI); err == nil {
		back = " " + u.Scheme + "://" + u.Host
	}
	p.write(w, status, back, v)
}

func (p *Provider) write(w http.ResponseWriter, status int, formTargets string, v loginView) {
	var out bytes.Buffer
	if err := p.login.Execute(&out, v); err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"+formTargets)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}

func cookie(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie sets a cookie of this origin alone; life 0 means until the browser is closed.
// Lax, since customers come here by links of other sites.
func setCookie(w http.ResponseWriter, name, value string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(life / time.Second),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}
