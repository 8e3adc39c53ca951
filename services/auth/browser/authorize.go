package browser

import (
	"errors"
	"net/http"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/services/auth/signin"
)

// authorize is the authorization endpoint (Poppy 4.5).
func (s *Site) authorize(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	request, err := s.app.CheckAuthorization(r.Context(), c, r.URL.RawQuery)
	if err != nil {
		s.endWith(w, r, c, err)
		return
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		return
	}
	started, cookie, err := s.app.StartDirect(r.Context(), c, request, wishesOf(request.UILocales, r.Header.Get("Accept-Language")))
	if err != nil {
		s.fail(w, r, c, err)
		return
	}
	s.keepCookie(w, started, cookie)
	see(w, c.Issuer.SignInURL(started.ID))
}

// endWith tells the agent by redirect where that may be, else the User by a page.
func (s *Site) endWith(w http.ResponseWriter, r *http.Request, c *directory.Company, err error) {
	var back *signin.ReturnError
	if errors.As(err, &back) {
		s.logProblem(r, c, back.Cause)
		see(w, back.Location)
		return
	}
	s.fail(w, r, c, err)
}
