package cimd

import (
	"slices"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/jsonx"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// RegistrationForm is the rule for what a client says of itself (RFC 7591 section 2).
const RegistrationForm clause.ID = "RFC7591/2"

// MaxRegistration is how large the request of a client that registers itself may be, in bytes.
const MaxRegistration = 16 << 10

const maxRedirectURIs = 10

// ParseRegistration checks the request of a client that registers itself (RFC 7591) and
// returns the document of it, without a client_id. Whatever method of authentication it
// wants, it gets none. It fails with INVALID_CLIENT_METADATA or INVALID_REDIRECT_URI.
func ParseRegistration(body []byte) (Document, error) {
	object, err := jsonx.ParseObject(body)
	if err != nil {
		return Document{}, badMetadata("the request is not a sound JSON object").WithCause(err)
	}
	d := Document{Public: true}
	for name, v, ok := object.Next(); ok; name, v, ok = object.Next() {
		switch string(name) {
		case "client_name":
			d.Name = cleanName(v.Text())
		case "redirect_uris":
			if d.RedirectURIs, err = registeredURIs(v); err != nil {
				return Document{}, err
			}
		case "grant_types":
			if !lists(v, "authorization_code") {
				return Document{}, badMetadata("grant_types has no authorization_code, the one grant to begin with here")
			}
		case "response_types":
			if !lists(v, "code") {
				return Document{}, badMetadata("response_types has no code, the one response type here")
			}
		}
	}
	if len(d.RedirectURIs) == 0 {
		return Document{}, badRedirectURI("redirect_uris is missing")
	}
	if d.Name == "" {
		d.Name = RedirectHost(d.RedirectURIs[0])
	}
	return d, nil
}

func registeredURIs(v jsonx.Value) ([]string, error) {
	var out []string
	list, ok := v.Array()
	if !ok {
		return nil, badRedirectURI("redirect_uris is not a list")
	}
	for v, ok := list.Next(); ok; v, ok = list.Next() {
		if fault := CheckRedirectURI(v.Text()); fault != "" {
			return nil, badRedirectURI("redirect_uris has a URL that is neither https nor http on 127.0.0.1 or localhost: " + fault)
		}
		if out = append(out, v.Text()); len(out) > maxRedirectURIs {
			return nil, badRedirectURI("redirect_uris has more than 10 URLs")
		}
	}
	return out, nil
}

// lists reports whether v is a list that has want.
func lists(v jsonx.Value, want string) bool {
	var all []string
	list, _ := v.Array()
	for v, ok := list.Next(); ok; v, ok = list.Next() {
		all = append(all, v.Text())
	}
	return slices.Contains(all, want)
}

func badMetadata(detail string) *problem.Error {
	return problem.New(problem.Invalid, problem.InvalidClientMetadata, RegistrationForm, "%s", detail)
}

func badRedirectURI(detail string) *problem.Error {
	return problem.New(problem.Invalid, problem.InvalidRedirectURI, RegistrationForm, "%s", detail)
}
