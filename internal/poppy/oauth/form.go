package oauth

import (
	"strings"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Limits of a form: its size in bytes before decoding, and its number of parameters.
const (
	MaxForm       = 64 << 10
	maxParameters = 100
)

// The clauses of forms and token requests.
const (
	FormBody         clause.ID = "poppy-0.1/4.2#9"   // a form, POSTed
	NoRepeats        clause.ID = "poppy-0.1/4.2#d26" // no parameter twice
	OneResource      clause.ID = "poppy-0.1/4.2#60"  // one resource at most
	Required         clause.ID = "poppy-0.1/4.2#66"  // nothing missing
	GrantOffered     clause.ID = "poppy-0.1/4.2#65"  // a grant type of the protocol
	ClientAuthorized clause.ID = "poppy-0.1/4.2#13"  // client_id, client_assertion_type, client_assertion
	NoTokenInURL     clause.ID = "poppy-0.1/4.3#45"  // no token from a URL
)

// CheckFormContentType refuses a request body that is not declared as a form.
// Parameters such as charset don't count.
func CheckFormContentType(contentType string) error {
	essence, _, _ := strings.Cut(contentType, ";")
	if strings.EqualFold(strings.TrimSpace(essence), "application/x-www-form-urlencoded") {
		return nil
	}
	return problem.New(problem.Invalid, problem.InvalidRequest, FormBody, "the request body must be application/x-www-form-urlencoded")
}

// A Form is a set of parameters in which no name occurs twice.
type Form struct{ values map[string]string }

// ParseForm decodes a form body, or the query of an authorization request. A repeated
// parameter, a known one or not, is INVALID_REQUEST, except that several resources
// are INVALID_TARGET (RFC 8707 §2); so are broken escapes, NUL and invalid UTF-8.
func ParseForm(body []byte) (Form, error) {
	if len(body) > MaxForm {
		return Form{}, problem.New(problem.TooLarge, problem.InvalidRequest, FormBody, "the form is larger than 64 KiB")
	}
	f := Form{values: make(map[string]string, 8)}
	several := false
	for pair := range strings.SplitSeq(string(body), "&") {
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, okName := unescape(rawName)
		value, okValue := unescape(rawValue)
		if !okName || !okValue {
			return Form{}, problem.New(problem.Invalid, problem.InvalidRequest, FormBody, "the form is not properly encoded text")
		}
		if _, seen := f.values[name]; seen {
			// Any other fault of the form comes first: it says more than the target does.
			if name != "resource" {
				return Form{}, problem.New(problem.Invalid, problem.InvalidRequest, NoRepeats, "a parameter occurs more than once").
					WithField(name, "occurs more than once")
			}
			several = true
		}
		f.values[name] = value
		if len(f.values) > maxParameters {
			return Form{}, problem.New(problem.Invalid, problem.InvalidRequest, FormBody, "the form has more than 100 parameters")
		}
	}
	if several {
		return Form{}, problem.New(problem.Invalid, problem.InvalidTarget, OneResource, "resource occurs more than once")
	}
	return f, nil
}

// Get returns a parameter's value. One sent without a value counts as left out
// (RFC 6749 §3.1), so both give "".
func (f Form) Get(name string) string { return f.values[name] }

// Has reports whether the parameter was sent with a value.
func (f Form) Has(name string) bool { return f.values[name] != "" }

// require returns the value of name, or INVALID_REQUEST.
func (f Form) require(name string) (string, error) {
	v := f.values[name]
	if v == "" {
		return "", problem.New(problem.Invalid, problem.InvalidRequest, Required, "%s is missing", name)
	}
	return v, nil
}

// unescape decodes one name or value of a form, strictly.
func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '%') >= 0 || strings.IndexByte(s, '+') >= 0 {
		var b strings.Builder
		b.Grow(len(s))
		for i := 0; i < len(s); i++ {
			switch c := s[i]; c {
			case '+':
				b.WriteByte(' ')
			case '%':
				if i+2 >= len(s) {
					return "", false
				}
				high, low := unhex(s[i+1]), unhex(s[i+2])
				if high > 15 || low > 15 {
					return "", false
				}
				b.WriteByte(high<<4 | low)
				i += 2
			default:
				b.WriteByte(c)
			}
		}
		s = b.String()
	}
	return s, strings.IndexByte(s, 0) < 0 && utf8.ValidString(s)
}

// unhex returns the value of a hexadecimal digit, or something above 15.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0xFF
}

// CheckNoTokenInQuery refuses a URL query that carries a credential, for every
// endpoint that takes one elsewhere. Its values stay out of the error.
func CheckNoTokenInQuery(rawQuery string) error {
	for pair := range strings.SplitSeq(rawQuery, "&") {
		raw, _, _ := strings.Cut(pair, "=")
		name, ok := unescape(raw)
		if !ok {
			continue // whether the query is sound is for the endpoint to judge
		}
		switch strings.ToLower(name) {
		case "access_token", "refresh_token", "token", "assertion", "client_assertion", "client_secret", "dpop", "authorization":
			return problem.New(problem.Invalid, problem.InvalidRequest, NoTokenInURL, "tokens, proofs and assertions are not accepted in a URL")
		}
	}
	return nil
}
