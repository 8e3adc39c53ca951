package browser

import (
	"context"
	"net/http"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/app"
	"github.com/poppyfield/poppyfield/web/pages"
)

// Joins takes Personal Agents' browsers into Sessions.
type Joins interface {
	JoinBrowser(ctx context.Context, company *directory.Company, f oauth.Form) (app.Joined, error)
}

// join takes the form that a Personal Agent has its browser post (Poppy 5). It comes from
// a page of the agent, so that it is cross-site by nature: the signed assertion is all
// that counts.
func (s *Site) join(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	if c.Browser == nil {
		httpx.WriteNotFound(w)
		return
	}
	form, err := readJoin(w, r)
	if err != nil {
		s.notJoined(w, r, c, err)
		return
	}
	joined, err := s.joins.JoinBrowser(r.Context(), c, form)
	if err != nil {
		s.notJoined(w, r, c, err)
		return
	}
	// Lax: with Strict the browser would not send it when it follows the redirect.
	http.SetCookie(w, &http.Cookie{
		Name: c.Browser.CookieName, Value: joined.Cookie, Path: "/", Domain: c.Browser.CookieDomain, MaxAge: int(joined.Lifetime / time.Second),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	see(w, joined.ReturnTo)
}

func readJoin(w http.ResponseWriter, r *http.Request) (oauth.Form, error) {
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

// notJoined shows why at the Company's own origin, where our styles are not.
func (s *Site) notJoined(w http.ResponseWriter, r *http.Request, c *directory.Company, err error) {
	s.failWith(w, r, c, s.language(r, ""), asPage(err), pages.Failure{}, pages.Options{AssetOrigin: "https://" + c.Issuer.Host()})
}

// asPage makes every failed check the 400 page of Poppy 5, whatever the same failure is at
// an OAuth endpoint. What is ours to mend, and a limit, stay what they are.
func asPage(err error) error {
	p := *problem.As(err)
	switch p.Kind {
	case problem.Internal, problem.Unavailable, problem.RateLimited:
	case problem.Invalid, problem.Unauthenticated, problem.Forbidden, problem.NotFound, problem.Conflict, problem.Gone, problem.TooLarge:
		p.Kind, p.Reason = problem.Invalid, problem.InvalidRequest
	}
	return &p
}
