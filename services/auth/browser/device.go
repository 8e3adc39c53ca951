package browser

import (
	"net/http"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/signin"
	"github.com/poppyfield/poppyfield/web/pages"
)

// deviceForm asks for the user code. One that came with the link is filled in and looked
// up nowhere: opening the link does nothing (poppy-0.1/4.6#11).
func (s *Site) deviceForm(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	form, err := oauth.ParseForm([]byte(r.URL.RawQuery))
	if err != nil {
		s.fail(w, r, c, err)
		return
	}
	if !c.SignIn.Offers(directory.Device) {
		s.fail(w, r, c, problem.New(problem.NotFound, signin.NotOffered, signin.Offered, "this Company does not offer Device Sign-In"))
		return
	}
	cookie := readCookie(r, deviceCookie)
	if cookie == "" && r.Method != http.MethodHead {
		cookie = keys.RandomToken("pfd")
		setCookie(w, deviceCookie, cookie, signin.Lifetime)
	}
	code := form.Get("user_code")
	if len(code) > maxCode {
		code = ""
	}
	s.showDevice(w, r, c, http.StatusOK, cookie, pages.DeviceCode{UserCode: code}, form.Get("ui_locales"))
}

func (s *Site) showDevice(w http.ResponseWriter, r *http.Request, c *directory.Company, status int, cookie string, page pages.DeviceCode, locales string) {
	page.Form = pages.Form{Action: c.Issuer.VerificationURI(), Token: mac(cookie, deviceCookie)}
	s.write(w, r, c, status, s.language(r, locales), page, pages.Options{})
}

// deviceAnswer begins the sign-in of a user code.
func (s *Site) deviceAnswer(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	form, err := readAnswer(w, r, c)
	if err != nil {
		s.fail(w, r, c, err)
		return
	}
	cookie := readCookie(r, deviceCookie)
	if cookie == "" {
		s.fail(w, r, c, problem.New(problem.Forbidden, signin.OtherBrowser, "", "the browser has no cookie of the page"))
		return
	}
	if err := checkToken(form, mac(cookie, deviceCookie)); err != nil {
		s.fail(w, r, c, err)
		return
	}
	code := strings.TrimSpace(form.get("user_code"))
	page := pages.DeviceCode{UserCode: code, Problem: pages.UnknownUserCode}
	if code == "" || len(code) > maxCode {
		page.UserCode = ""
		s.showDevice(w, r, c, http.StatusUnprocessableEntity, cookie, page, "")
		return
	}
	started, secret, err := s.app.StartDevice(r.Context(), c, code, s.address(r), wishesOf("", r.Header.Get("Accept-Language")))
	switch {
	case problem.Is(err, problem.NotFoundReason):
		s.showDevice(w, r, c, http.StatusUnprocessableEntity, cookie, page, "")
	case problem.Is(err, problem.RateLimitedReason):
		s.logProblem(r, c, problem.As(err))
		retryAfter(w, problem.As(err).RetryAfter)
		page.Problem = pages.TooManyTries
		s.showDevice(w, r, c, http.StatusTooManyRequests, cookie, page, "")
	case err != nil:
		s.fail(w, r, c, err)
	default:
		s.keepCookie(w, started, secret)
		see(w, c.Issuer.SignInURL(started.ID))
	}
}
