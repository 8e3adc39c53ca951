package browser

import (
	"errors"
	"net/http"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/signin"
	"github.com/poppyfield/poppyfield/services/auth/store"
	"github.com/poppyfield/poppyfield/web/pages"
)

const maxCode = 100 // characters of a one-time code, or of a user code as it is typed

// answer takes the form of a sign-in's page. Which button was pressed is in action.
func (s *Site) answer(w http.ResponseWriter, r *http.Request, c *directory.Company) {
	form, err := readAnswer(w, r, c)
	if err != nil {
		s.fail(w, r, c, err)
		return
	}
	v, ok := s.visit(w, r, c)
	if !ok {
		return
	}
	if err := checkToken(form, formToken(v.cookie, v.in)); err != nil {
		s.failWith(w, r, c, v.lang, err, pages.Failure{}, pages.Options{})
		return
	}
	action := form.get("action")
	stage, known := stageOf(action)
	switch {
	case !known:
		s.failWith(w, r, c, v.lang, problem.New(problem.Invalid, problem.InvalidRequest, "", "the form has no known action"), pages.Failure{}, pages.Options{})
	case stage != "" && stage != v.in.Stage: // a page left open, or a button pressed twice
		see(w, v.url())
	case action == "login":
		s.login(w, r, v, form)
	case action == "code":
		s.code(w, r, v, form)
	case action == "approve":
		ending, err := s.app.Approve(r.Context(), c, v.in, form.values[scopeField])
		s.end(w, r, v, ending, err)
	case action == "decline":
		ending, err := s.app.Decline(r.Context(), c, v.in)
		s.end(w, r, v, ending, err)
	case action == "restart":
		if err := s.app.Restart(r.Context(), c, v.in); err != nil {
			s.failWith(w, r, c, v.lang, err, pages.Failure{}, pages.Options{})
			return
		}
		see(w, v.url())
	}
}

// stageOf is the stage that an action belongs to, "" for one that fits several.
func stageOf(action string) (store.Stage, bool) {
	switch action {
	case "login":
		return store.StageLogin, true
	case "code":
		return store.StageCode, true
	case "approve":
		return store.StageConsent, true
	case "decline", "restart":
		return "", true
	}
	return "", false
}

// login checks what the User typed. It is passed on once and shown nowhere.
func (s *Site) login(w http.ResponseWriter, r *http.Request, v visit, form answer) {
	typed := map[string]string{}
	for _, f := range s.form.Fields(v.company) {
		typed[f.Name] = form.get("field." + f.Name)
	}
	for _, value := range typed {
		if value == "" {
			s.showLogin(w, r, v, http.StatusUnprocessableEntity, pages.MissingCredential, typed)
			return
		}
	}
	right, err := s.app.Login(r.Context(), v.company, v.in, s.address(r), typed)
	switch {
	case problem.Is(err, problem.RateLimitedReason):
		s.logProblem(r, v.company, problem.As(err))
		retryAfter(w, problem.As(err).RetryAfter)
		s.showLogin(w, r, v, http.StatusTooManyRequests, pages.TooManyTries, typed)
	case problem.Is(err, problem.TemporarilyUnavailable):
		s.logProblem(r, v.company, problem.As(err))
		s.showLogin(w, r, v, http.StatusServiceUnavailable, pages.LoginUnavailable, typed)
	case err != nil:
		s.goOn(w, r, v, err)
	case !right:
		s.showLogin(w, r, v, http.StatusUnprocessableEntity, pages.WrongCredentials, typed)
	default:
		see(w, v.url())
	}
}

func (s *Site) code(w http.ResponseWriter, r *http.Request, v visit, form answer) {
	code := strings.TrimSpace(form.get("code"))
	if code == "" || len(code) > maxCode {
		s.showCode(w, r, v, http.StatusUnprocessableEntity, pages.MissingCredential)
		return
	}
	right, err := s.app.Code(r.Context(), v.company, v.in, code)
	switch {
	case problem.Is(err, problem.TemporarilyUnavailable):
		s.logProblem(r, v.company, problem.As(err))
		s.showCode(w, r, v, http.StatusServiceUnavailable, pages.LoginUnavailable)
	case problem.Is(err, signin.CodeExpired):
		s.logProblem(r, v.company, problem.As(err))
		s.showLogin(w, r, v, http.StatusUnprocessableEntity, pages.CodeExpired, nil)
	case problem.Is(err, signin.LoginFailed), problem.Is(err, signin.AccessDenied): // no try is left
		dropCookie(w, v.in.ID)
		s.outOfTries(w, r, v, err)
	case err != nil:
		s.goOn(w, r, v, err)
	case !right:
		s.showCode(w, r, v, http.StatusUnprocessableEntity, pages.WrongCode)
	default:
		see(w, v.url())
	}
}

// goOn shows what the sign-in has become where another request of the same browser was
// first, and the failure otherwise.
func (s *Site) goOn(w http.ResponseWriter, r *http.Request, v visit, err error) {
	if problem.Is(err, signin.Expired) {
		see(w, v.url())
		return
	}
	s.failWith(w, r, v.company, v.lang, err, pages.Failure{}, pages.Options{})
}

// outOfTries ends the sign-in for the browser. A user code may be entered again.
func (s *Site) outOfTries(w http.ResponseWriter, r *http.Request, v visit, err error) {
	var back *signin.ReturnError
	if errors.As(err, &back) {
		s.logProblem(r, v.company, back.Cause)
		see(w, back.Location)
		return
	}
	page := pages.Failure{}
	if v.in.Kind == directory.Device {
		page.Retry = v.company.Issuer.VerificationURI()
	}
	s.failWith(w, r, v.company, v.lang, err, page, pages.Options{})
}

// end lets the browser go: to the agent, or to a page that says how it ended.
func (s *Site) end(w http.ResponseWriter, r *http.Request, v visit, ending signin.Ending, err error) {
	if err != nil {
		s.failWith(w, r, v.company, v.lang, err, pages.Failure{}, pages.Options{})
		return
	}
	dropCookie(w, v.in.ID)
	if ending.Location != "" {
		see(w, ending.Location)
		return
	}
	agent := v.agent()
	agent.LogoURL = "" // it is served for as long as the sign-in lasts
	s.write(w, r, v.company, http.StatusOK, v.lang, pages.Done{Agent: agent, Approved: ending.Approved}, pages.Options{})
}
