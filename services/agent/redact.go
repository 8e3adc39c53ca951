package agent

import (
	"net/http"
	"regexp"
	"strings"
)

const redacted = "[redacted]"

// A redactor replaces credentials in what is shown of an exchange. A proof or an
// assertion can be used by whoever reads it within its minute, a token for an hour.
type redactor struct {
	form, json *regexp.Regexp
	show       bool
}

func newRedactor(show bool) redactor {
	return redactor{
		form: regexp.MustCompile(`(^|&)(assertion|client_assertion|refresh_token|token|code|code_verifier|device_code)=[^&]*`),
		json: regexp.MustCompile(`("(?:access_token|refresh_token|device_code)"\s*:\s*)"(?:[^"\\]|\\.)*"`),
		show: show,
	}
}

// headers returns a copy of h that is safe to show.
func (r redactor) headers(h http.Header) http.Header {
	out := h.Clone()
	if r.show {
		return out
	}
	if v := out.Get("Authorization"); v != "" {
		scheme, _, _ := strings.Cut(v, " ")
		out.Set("Authorization", scheme+" "+redacted)
	}
	for _, name := range []string{"Dpop", "Set-Cookie", "Cookie"} {
		if out.Get(name) != "" {
			out.Set(name, redacted)
		}
	}
	return out
}

// body returns body without credentials; known are values that must not be shown
// wherever they stand, as when a server repeats the token it was sent.
func (r redactor) body(contentType, body string, known []string) string {
	if r.show || body == "" {
		return body
	}
	if strings.HasPrefix(contentType, formType) {
		body = r.form.ReplaceAllString(body, "$1$2="+redacted)
	} else {
		body = r.json.ReplaceAllString(body, `$1"`+redacted+`"`)
	}
	for _, secret := range known {
		if len(secret) >= 8 {
			body = strings.ReplaceAll(body, secret, redacted)
		}
	}
	return body
}
