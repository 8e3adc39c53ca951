package browser

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/httpx"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

const (
	maxForm    = 64 << 10
	scopeField = "scope" // the one field that a form may have several of
)

// An answer is a form that came from a page of ours, as far as the browser tells.
type answer struct{ values url.Values }

func (a answer) get(name string) string { return a.values.Get(name) }

// readAnswer reads the form of a POST. A browser says where a form comes from; one that
// comes from elsewhere is refused before it is read, and so before its cookie counts.
func readAnswer(w http.ResponseWriter, r *http.Request, c *directory.Company) (answer, error) {
	if err := checkSameSite(r, c); err != nil {
		return answer{}, err
	}
	if err := oauth.CheckFormContentType(r.Header.Get("Content-Type")); err != nil {
		return answer{}, err
	}
	body, err := httpx.ReadBody(w, r, maxForm)
	if err != nil {
		return answer{}, err
	}
	bad := problem.New(problem.Invalid, problem.InvalidRequest, "", "the form is not properly encoded text")
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return answer{}, bad
	}
	for name, list := range values {
		if len(list) > 1 && name != scopeField {
			return answer{}, problem.New(problem.Invalid, problem.InvalidRequest, oauth.NoRepeats, "a field occurs more than once")
		}
		for _, v := range append(list, name) {
			if strings.IndexByte(v, 0) >= 0 || !utf8.ValidString(v) {
				return answer{}, bad
			}
		}
	}
	return answer{values}, nil
}

// checkSameSite refuses a POST that another site caused (RFC 6749 section 10.12), by what
// the browser itself says of it. Old browsers don't say, and send "null" as origin from
// pages with our Referrer-Policy; they have the form's token and the SameSite cookie.
func checkSameSite(r *http.Request, c *directory.Company) error {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "same-origin", "none":
		return nil
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" || origin == "null" || origin == "https://"+c.Issuer.Host() {
			return nil
		}
	}
	return crossSite("the form was sent by another site")
}

func crossSite(detail string) error {
	return problem.New(problem.Forbidden, CrossSite, "RFC6749/10.12", "%s", detail)
}

// formToken is what a page of the sign-in has in its form: only who has the cookie can
// make it. It is of the account too, so that a page left open can't approve for another
// account than the one it shows.
func formToken(cookie string, s store.SignIn) string { return mac(cookie, s.ID, s.Account) }

func mac(secret string, parts ...string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(strings.Join(parts, "\x00")))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func checkToken(a answer, want string) error {
	if subtle.ConstantTimeCompare([]byte(a.get("csrf")), []byte(want)) != 1 {
		return crossSite("the form is not of the page that was shown")
	}
	return nil
}
