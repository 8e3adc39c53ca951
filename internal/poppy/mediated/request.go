package mediated

import (
	"errors"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// Limits of a request: the body in bytes, a credential and a code in characters.
const (
	MaxBody  = 64 << 10
	maxValue = 4096
	maxCode  = 64
)

// The clauses of the requests.
const (
	JSONBody   clause.ID = "poppy-0.1/4.7#10"  // {"scope": string, "credentials": object}
	AllFields  clause.ID = "poppy-0.1/4.7#8"   // every field of auth.mediated.fields
	KnownField clause.ID = "poppy-0.1/4.7#d32" // and no other
	CodeBody   clause.ID = "poppy-0.1/4.7#14"  // {"code": string}
)

// Request is the body that starts a Mediated Sign-In. Only ParseRequest makes one.
type Request struct {
	scope  string
	fields map[string]string
}

// Scope returns the scope parameter as it came, "" where it was left out. It is not
// judged: that needs the scopes of the Company.
func (r Request) Scope() string { return r.scope }

// Credentials returns the value of each field. They are for one check, and nothing else.
func (r Request) Credentials() map[string]string { return r.fields }

// ParseRequest reads the body of POST {endpoint} of a Company that asks for the named
// fields: a string for each of them and for nothing else, or INVALID_REQUEST. Members
// beside scope and credentials are ignored (poppy-0.1/3.3#11). A scope that is no string
// is INVALID_SCOPE.
func ParseRequest(body []byte, names []string) (Request, error) {
	top, err := parseBody(body, JSONBody)
	if err != nil {
		return Request{}, err
	}
	var r Request
	scope, credentials := member(top, "scope"), member(top, "credentials")
	obj, ok := credentials.Object()
	if !ok {
		return Request{}, invalid(JSONBody, "credentials", "is missing or no object")
	}
	if r.fields, err = parseFields(obj, names); err != nil {
		return Request{}, err
	}
	switch scope.Kind() {
	case jsonx.Missing, jsonx.Null:
	case jsonx.String:
		r.scope = scope.Text()
	case jsonx.Bool, jsonx.Number, jsonx.ArrayKind, jsonx.ObjectKind:
		return Request{}, problem.New(problem.Invalid, problem.InvalidScope, oauth.ScopeSyntax, "scope is no string")
	}
	return r, nil
}

func parseFields(obj jsonx.Object, names []string) (map[string]string, error) {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	out := make(map[string]string, len(names))
	for raw, value, ok := obj.Next(); ok; raw, value, ok = obj.Next() {
		name := string(raw)
		if !wanted[name] {
			// Its name isn't repeated: what is misplaced may be a secret itself.
			return nil, invalid(KnownField, "credentials", "has a field that this Company does not ask for")
		}
		text := value.Text()
		if value.Kind() != jsonx.String || text == "" || utf8.RuneCountInString(text) > maxValue {
			return nil, invalid(AllFields, "credentials."+name, "is no text of 1 to %d characters", maxValue)
		}
		out[name] = text
	}
	for _, name := range names {
		if _, ok := out[name]; !ok {
			return nil, invalid(AllFields, "credentials."+name, "is missing")
		}
	}
	return out, nil
}

// ParseCode reads the body of POST {endpoint}/{sign_in_id}: the one-time code as the
// User typed it. Other members are ignored, credentials among them.
func ParseCode(body []byte) (string, error) {
	top, err := parseBody(body, CodeBody)
	if err != nil {
		return "", err
	}
	v := member(top, "code")
	code := v.Text()
	if v.Kind() != jsonx.String || code == "" || utf8.RuneCountInString(code) > maxCode {
		return "", invalid(CodeBody, "code", "is no text of 1 to %d characters", maxCode)
	}
	return code, nil
}

func parseBody(body []byte, id clause.ID) (jsonx.Object, error) {
	if len(body) > MaxBody {
		return jsonx.Object{}, problem.New(problem.TooLarge, problem.RequestTooLarge, id, "the body has more than %d bytes", MaxBody)
	}
	obj, err := jsonx.ParseObject(body)
	if err == nil {
		return obj, nil
	}
	detail := "is no sound JSON object"
	var e *jsonx.Error
	if errors.As(err, &e) {
		detail += ": " + e.Fault.String()
	}
	return jsonx.Object{}, invalid(id, "body", "%s", detail)
}

// member returns one member of an object, in which no name occurs twice.
func member(obj jsonx.Object, name string) jsonx.Value {
	for n, v, ok := obj.Next(); ok; n, v, ok = obj.Next() {
		if string(n) == name {
			return v
		}
	}
	return jsonx.Value{}
}
