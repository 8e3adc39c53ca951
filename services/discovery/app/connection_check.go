package app

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
)

// loginChallenge is what the Company's login page gets.
const loginChallenge = "login_challenge"

// checkConnection applies the rules of each part, and asks for the part that the method needs.
func checkConnection(c Company, conn Connection) error {
	if conn.Method == TestAccounts && c.Kind != Test {
		return onlyForTests("sign_in_connection.method")
	}
	if err := checkProvider(conn.OIDC); err != nil {
		return err
	}
	if conn.LoginURL != "" {
		if err := checkLoginURL(conn.LoginURL); err != nil {
			return err
		}
	}
	if err := checkCredentialCheck(conn.CredentialCheck); err != nil {
		return err
	}
	if d := conn.AccountTokenLifetime; d != 0 && (d < minLifetime || d > maxLifetime) {
		return resource.Invalid("sign_in_connection.account_token_lifetime", "must be between 1 minute and 10 years")
	}
	for method, need := range map[Method]struct {
		field string
		there bool
	}{
		OIDC:           {"oidc.issuer", conn.OIDC.Issuer != ""},
		LoginHandoff:   {"login_handoff.login_url", conn.LoginURL != ""},
		CheckByWebhook: {"credential_check.url", conn.CredentialCheck.URL != ""},
		TestAccounts:   {"test_accounts", len(conn.SealedAccounts) > 0},
	} {
		if conn.Method == method && !need.there {
			return resource.Invalid("sign_in_connection."+need.field, "required by the method")
		}
	}
	return nil
}

func checkProvider(p Provider) error {
	if p.isZero() {
		return nil
	}
	const at = "sign_in_connection.oidc."
	if p.Issuer == "" {
		return resource.Invalid(at+"issuer", "required")
	}
	if err := checkURL(p.Issuer); err != nil {
		return resource.Invalid(at+"issuer", err.Error())
	}
	if strings.Contains(p.Issuer, "?") { // OpenID Connect Discovery 1.0, section 3
		return resource.Invalid(at+"issuer", "an issuer has no query")
	}
	for _, text := range []struct {
		field, value string
		required     bool
	}{{"client_id", p.ClientID, true}, {"account_claim", p.AccountClaim, false}, {"label_claim", p.LabelClaim, false}} {
		if text.value == "" && !text.required {
			continue
		}
		if err := checkText(text.value, 500); err != nil {
			return resource.Invalid(at+text.field, err.Error())
		}
	}
	for i, s := range p.Scopes {
		field := fmt.Sprintf("%sscopes[%d]", at, i)
		if !isScope(s) {
			return resource.Invalid(field, "is no OAuth scope name")
		}
		if s == "openid" || slices.Contains(p.Scopes[:i], s) {
			return resource.Invalid(field, "is asked for already")
		}
	}
	return nil
}

func checkLoginURL(raw string) error {
	const field = "sign_in_connection.login_handoff.login_url"
	if err := checkURL(raw); err != nil {
		return resource.Invalid(field, err.Error())
	}
	u, err := url.Parse(raw)
	if err != nil {
		return resource.Invalid(field, "not a URL")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || query.Has(loginChallenge) {
		return resource.Invalid(field, "has to take the parameter login_challenge")
	}
	return nil
}

// fieldName is what the key of a credential may look like: it is a member of JSON and a name in a form.
var fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,99}$`)

func checkCredentialCheck(check CredentialCheck) error {
	if check.URL == "" && len(check.Fields) == 0 {
		return nil
	}
	const at = "sign_in_connection.credential_check"
	if err := checkURL(check.URL); err != nil {
		return resource.Invalid(at+".url", err.Error())
	}
	if err := discovery.CheckFields(check.Fields); err != nil {
		return within(at, err)
	}
	if len(check.Fields) > 10 {
		return resource.Invalid(at+".fields", "has more than 10 entries")
	}
	for i, f := range check.Fields {
		if !fieldName.MatchString(f.Name) {
			return resource.Invalid(fmt.Sprintf("%s.fields[%d].name", at, i), "has to begin with a letter, with letters, digits and _.- after it")
		}
	}
	// How often an account may be tried is counted by what isn't secret.
	if !slices.ContainsFunc(check.Fields, func(f discovery.MediatedField) bool { return !f.Secret }) {
		return resource.Invalid(at+".fields", "needs one that isn't secret and says which account it is")
	}
	return nil
}

func checkAccount(at string, t TestAccount) error {
	for _, text := range []struct {
		field, value string
		limit        int
		required     bool
	}{{"account", t.Account, 255, true}, {"label", t.Label, 200, false}, {"username", t.Username, 200, true}} {
		if text.value == "" && !text.required {
			continue
		}
		if err := checkText(text.value, text.limit); err != nil {
			return resource.Invalid(at+"."+text.field, err.Error())
		}
	}
	return nil
}

// What is wrong with a value, in words that complete its field's name.
var (
	errMissing    = errors.New("required")
	errNotShown   = errors.New("has characters that can't be shown")
	errNotEscaped = errors.New("has characters that a URL has to escape")
)

// checkURL asks for an https URL that can stand in a link and in a header as it is.
func checkURL(raw string) error {
	if raw == "" {
		return errMissing
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }) {
		return errNotEscaped
	}
	return discovery.CheckURL(raw)
}

// checkText asks for 1 to limit characters that can be shown.
func checkText(text string, limit int) error {
	switch {
	case strings.TrimSpace(text) == "":
		return errMissing
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return errNotShown
	case utf8.RuneCountInString(text) > limit:
		return fmt.Errorf("has more than %d characters", limit)
	default:
		return nil
	}
}

func isScope(name string) bool {
	scope, err := oauth.ParseScope(name)
	return err == nil && len(scope) == 1
}
