package browser

import (
	"html/template"
	"net/http"
	"net/url"

	"golang.org/x/text/language"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/signin"
	"github.com/poppyfield/poppyfield/services/auth/store"
	"github.com/poppyfield/poppyfield/web/pages"
)

// A visit is a request of the browser that began a sign-in.
type visit struct {
	company *directory.Company
	in      store.SignIn
	cookie  string
	lang    language.Tag
}

// visit finds the sign-in of the path for the browser that has its cookie, or shows why not.
func (s *Site) visit(w http.ResponseWriter, r *http.Request, c *directory.Company) (visit, bool) {
	id := r.PathValue("id")
	cookie := cookieOf(r, id)
	in, err := s.app.Find(r.Context(), c, id, cookie)
	v := visit{c, in, cookie, s.language(r, in.UILocale)}
	if err != nil {
		s.failWith(w, r, c, v.lang, err, pages.Failure{}, pages.Options{})
		return v, false
	}
	return v, true
}

func (v visit) url() string { return v.company.Issuer.SignInURL(v.in.ID) }

func (v visit) form() pages.Form {
	return pages.Form{Action: v.url(), Token: formToken(v.cookie, v.in)}
}

// mayLeave: the answer to a form may send the browser to the agent's site.
func (v visit) mayLeave() bool { return v.in.Kind == directory.Direct }

// options are those of the visit's pages.
func (v visit) options() pages.Options {
	return pages.Options{ToDevice: cimd.IsLoopbackURI(v.in.RedirectURI)}
}

// server is where a plain client gets access.
func (v visit) server() string {
	u, err := url.Parse(v.in.Resource)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func (v visit) agent() pages.Agent {
	a := pages.Agent{Name: v.in.AgentName, Host: hostOf(v.in.ClientID)}
	if v.in.Resource != "" { // it proves nothing by its client_id
		a.Host = cimd.RedirectHost(v.in.RedirectURI)
	}
	if v.in.AgentLogoURI != "" {
		a.LogoURL = v.url() + "/agent-logo"
	}
	return a
}

func hostOf(clientID string) string {
	id, err := cimd.ParseClientID(clientID)
	if err != nil {
		return ""
	}
	return id.Host()
}

// show shows the page of what comes next. It decides nothing, however often it is asked for.
func (s *Site) show(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	v, ok := s.visit(w, r, c)
	if !ok {
		return
	}
	asked, withheld := signin.Scopes(c, v.in)
	if len(asked) == 0 || c.SignIn.Method == directory.NoMethod {
		s.failWith(w, r, c, v.lang, problem.New(problem.NotFound, signin.NotOffered, signin.Offered, "this Company does not offer the sign-in any more"), pages.Failure{}, pages.Options{})
		return
	}
	switch v.in.Stage {
	case store.StageLogin:
		if signin.Leaves(c) {
			s.showLeave(w, r, v)
			return
		}
		s.showLogin(w, r, v, http.StatusOK, pages.NoProblem, nil)
	case store.StageCode:
		s.showCode(w, r, v, http.StatusOK, pages.NoProblem)
	case store.StageConsent:
		s.write(w, r, c, http.StatusOK, v.lang, pages.Consent{
			Agent: v.agent(), Form: v.form(), Account: v.in.AccountLabel, Scopes: scopesOf(v, asked),
			Withheld: scopeTexts(v.lang, c, withheld), UserCode: signin.UserCode(v.cookie), Server: v.server(), MayLeave: v.mayLeave(),
		}, v.options())
	case store.StageDone:
	}
}

func scopesOf(v visit, names []string) []pages.Scope {
	out := make([]pages.Scope, 0, len(names))
	for _, name := range names {
		out = append(out, pages.Scope{Name: name, Text: scopeText(v.lang, v.company, name), Ticked: true})
	}
	return out
}

func scopeTexts(lang language.Tag, c *directory.Company, names []string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, scopeText(lang, c, name))
	}
	return out
}

// scopeText says what a scope allows: in the Company's words, else in ours, else its name.
func scopeText(lang language.Tag, c *directory.Company, name string) string {
	if c.SignIn != nil {
		if text := pages.Text(lang, c.SignIn.ScopeTexts[name]); text != "" {
			return text
		}
	}
	if text := pages.ScopeText(lang, name); text != "" {
		return text
	}
	return name
}

func (s *Site) showLeave(w http.ResponseWriter, r *http.Request, v visit) {
	target := v.url()
	if r.Method != http.MethodHead { // nobody goes there from a HEAD, and the way back stays as it is
		var err error
		v.in, target, err = s.app.Leave(r.Context(), v.company, v.in)
		if err == nil {
			err = checkHTTPS(target)
		}
		if err != nil {
			s.loginFailed(w, r, v, err)
			return
		}
	}
	//nolint:gosec // checkHTTPS has seen it
	page := pages.Leave{Agent: v.agent(), Target: template.URL(target), Form: v.form(), MayLeave: v.mayLeave()}
	s.write(w, r, v.company, http.StatusOK, v.lang, page, v.options())
}

func checkHTTPS(target string) error {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the Company's login has no https address")
	}
	return nil
}

// loginFailed shows that the Company's login came to nothing, and lets the User try
// again or decline while the sign-in lasts.
func (s *Site) loginFailed(w http.ResponseWriter, r *http.Request, v visit, err error) {
	page := pages.Failure{}
	if problem.Is(err, signin.LoginFailed) || problem.Is(err, problem.TemporarilyUnavailable) {
		page = pages.Failure{Retry: v.url(), Form: v.form(), MayLeave: v.mayLeave()}
	}
	s.failWith(w, r, v.company, v.lang, err, page, v.options())
}

// showLogin shows our own form. typed is what the User wrote before; of secret fields it is not shown.
func (s *Site) showLogin(w http.ResponseWriter, r *http.Request, v visit, status int, trouble pages.Problem, typed map[string]string) {
	page := pages.Login{
		Agent: v.agent(), Form: v.form(), Problem: trouble, Welcome: pages.Text(v.lang, v.company.SignIn.Design.Welcome), MayLeave: v.mayLeave(),
	}
	for _, f := range s.form.Fields(v.company) {
		field := pages.Field{Name: f.Name, Label: f.Label, Secret: f.Secret}
		if !f.Secret {
			field.Value = typed[f.Name]
		}
		page.Fields = append(page.Fields, field)
	}
	users, err := s.form.TestUsers(v.company)
	if err != nil {
		s.loginFailed(w, r, v, signin.Upstream(err))
		return
	}
	for _, u := range users {
		page.Accounts = append(page.Accounts, pages.TestAccount{Username: u.Username, Label: u.Label})
	}
	s.write(w, r, v.company, status, v.lang, page, v.options())
}

func (s *Site) showCode(w http.ResponseWriter, r *http.Request, v visit, status int, trouble pages.Problem) {
	s.write(w, r, v.company, status, v.lang, pages.Code{
		Agent: v.agent(), Form: v.form(), SentTo: v.in.CodeSentTo, Problem: trouble, MayLeave: v.mayLeave(),
	}, v.options())
}
