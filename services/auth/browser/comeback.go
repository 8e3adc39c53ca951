package browser

import (
	"net/http"
	"net/url"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/web/pages"
)

// callback is where the Company's identity provider sends the browser back to.
func (s *Site) callback(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	// Read strictly once, so that no part of ours takes another of two states for the right one.
	form, err := oauth.ParseForm([]byte(r.URL.RawQuery))
	if err != nil {
		s.fail(w, r, c, err)
		return
	}
	in, err := s.app.AwaitsState(r.Context(), c, form.Get("state"), func(id string) string { return cookieOf(r, id) })
	if err != nil {
		s.fail(w, r, c, err)
		return
	}
	v := visit{c, in, cookieOf(r, in.ID), s.language(r, in.UILocale)}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || r.Method == http.MethodHead {
		see(w, v.url())
		return
	}
	v.in, err = s.app.Callback(r.Context(), c, in, query)
	s.cameBack(w, r, v, err)
}

// resume is where the Company's own login page sends the browser back to.
func (s *Site) resume(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	v, ok := s.visit(w, r, c)
	if !ok {
		return
	}
	form, err := oauth.ParseForm([]byte(r.URL.RawQuery))
	if err != nil {
		s.failWith(w, r, c, v.lang, err, pages.Failure{}, pages.Options{})
		return
	}
	if r.Method == http.MethodHead {
		see(w, v.url())
		return
	}
	v.in, err = s.app.Resume(r.Context(), c, v.in, form.Get("login_verifier"))
	s.cameBack(w, r, v, err)
}

func (s *Site) cameBack(w http.ResponseWriter, r *http.Request, v visit, err error) {
	if err != nil {
		s.loginFailed(w, r, v, err)
		return
	}
	see(w, v.url())
}
