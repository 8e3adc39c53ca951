package browser

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/signin"
	"github.com/poppyfield/poppyfield/web/pages"
)

// CrossSite is the reason of a form that doesn't come from our page.
const CrossSite problem.Reason = "CROSS_SITE"

// failures are the pages of the problems that have one of their own.
func failures() map[problem.Reason]pages.FailureReason {
	return map[problem.Reason]pages.FailureReason{
		problem.InvalidRequest:         pages.BadRequest,
		problem.RequestTooLarge:        pages.BadRequest,
		problem.UnsupportedMediaType:   pages.BadRequest,
		problem.RateLimitedReason:      pages.TooMany,
		problem.NotFoundReason:         pages.NotFound,
		problem.TemporarilyUnavailable: pages.Unavailable,
		signin.UnknownAgent:            pages.UnknownAgent,
		signin.AgentRefused:            pages.AgentRefused,
		signin.Expired:                 pages.Expired,
		signin.OtherBrowser:            pages.OtherBrowser,
		signin.NotOffered:              pages.NotOffered,
		signin.LoginFailed:             pages.LoginFailed,
		signin.LinkExpired:             pages.LinkExpired,
		CrossSite:                      pages.CrossSite,
	}
}

// statusOf is the status of a problem's page: a page has no challenge, so there is no 401.
func statusOf(p *problem.Error) int {
	if p.Kind == problem.Unauthenticated {
		return http.StatusForbidden
	}
	return httpx.Status(p)
}

// fail shows the page of what can't go on.
func (s *Site) fail(w http.ResponseWriter, r *http.Request, c *directory.Company, err error) {
	s.failWith(w, r, c, s.language(r, ""), err, pages.Failure{}, pages.Options{})
}

// failWith is fail with what page has beside the reason.
func (s *Site) failWith(w http.ResponseWriter, r *http.Request, c *directory.Company, lang language.Tag, err error, page pages.Failure, o pages.Options) {
	p := problem.As(err)
	reason, known := failures()[p.Reason]
	if !known {
		reason = pages.Unavailable
	}
	page.Reason = reason
	// The others are the User's business, who has no use for a sentence in English.
	if reason == pages.BadRequest || reason == pages.UnknownAgent || reason == pages.AgentRefused {
		page.Detail = p.Detail
	}
	page.ID = httpx.RequestIDFrom(r.Context())
	s.logProblem(r, c, p)
	retryAfter(w, p.RetryAfter)
	s.write(w, r, c, statusOf(p), lang, page, o)
}

func (s *Site) logProblem(r *http.Request, c *directory.Company, p *problem.Error) {
	attrs := []any{"route", r.Pattern, "company", c.Scope, "reason", string(p.Reason), "clause", string(p.Clause), "detail", p.Detail}
	if cause := p.Unwrap(); cause != nil {
		attrs = append(attrs, "cause", cause.Error())
	}
	if p.Kind == problem.Internal {
		s.log.ErrorContext(r.Context(), "sign-in page failed", attrs...)
		return
	}
	s.log.InfoContext(r.Context(), "sign-in refused", attrs...)
}

func retryAfter(w http.ResponseWriter, d time.Duration) {
	if d > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10))
	}
}

func (s *Site) write(w http.ResponseWriter, r *http.Request, c *directory.Company, status int, lang language.Tag, page pages.Page, o pages.Options) {
	if err := s.pages.Write(w, status, lang, brandOf(c), page, o); err != nil {
		// A browser that has gone is the usual reason; a page that can't be written is a fault of ours.
		s.log.WarnContext(r.Context(), "sign-in page not written", "route", r.Pattern, "company", c.Scope, "error", err)
	}
}

func brandOf(c *directory.Company) pages.Brand {
	b := pages.Brand{Company: c.DisplayName, Base: c.Issuer.String(), Test: c.Test}
	if c.SignIn == nil {
		return b
	}
	d := c.SignIn.Design
	b.AccentColor, b.SupportURL, b.PrivacyURL, b.TermsURL = d.AccentColor, d.SupportURL, d.PrivacyURL, d.TermsURL
	if d.LogoVersion != "" {
		b.LogoURL = c.Issuer.LogoURL() + "?v=" + d.LogoVersion
	}
	return b
}

// see sends the browser on with a GET, whatever its request was.
func see(w http.ResponseWriter, location string) {
	h := w.Header()
	h.Set("Location", location)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusSeeOther)
}

// language is what the page is written in: what the sign-in was asked to be in, else
// what the browser prefers.
func (s *Site) language(r *http.Request, wishes string) language.Tag {
	return pages.Match(wishes, r.Header.Get("Accept-Language"))
}

// Longer wishes are not kept.
const (
	maxWishes = 10
	maxTag    = 35 // RFC 5646 section 4.4.1
)

// wishesOf is what is kept of the User's languages: the readable tags of ui_locales, else
// the first one of the browser's.
func wishesOf(uiLocales, acceptLanguage string) string {
	var out []string
	for _, s := range strings.Fields(uiLocales) {
		if tag, err := language.Parse(s); err == nil && len(tag.String()) <= maxTag && len(out) < maxWishes {
			out = append(out, tag.String())
		}
	}
	if len(out) > 0 || len(acceptLanguage) > 1000 {
		return strings.Join(out, " ")
	}
	tags, _, err := language.ParseAcceptLanguage(acceptLanguage)
	if err != nil || len(tags) == 0 || tags[0] == language.Und || len(tags[0].String()) > maxTag {
		return ""
	}
	return tags[0].String()
}
