package pages

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/language"
)

// view is what a template sees.
type view struct {
	Lang    language.Tag
	Brand   Brand
	Page    Page
	Version string
	texts   catalog
	values  map[string]string // of the placeholders in texts
}

func newView(version string, lang language.Tag, b Brand, p Page) (view, error) {
	v := view{Lang: lang, Brand: b, Page: p, Version: version, texts: catalogOf(lang)}
	v.values = map[string]string{"company": b.Company}
	switch p := p.(type) {
	case Consent:
		v.values["account"], v.values["server"] = p.Account, p.Server
	case ConnectedAgents:
		v.values["account"] = p.Account
		v.values["count"] = strconv.Itoa(p.Ended)
	case Login, Code, Leave, DeviceCode, Done, Failure:
	default:
		return view{}, fmt.Errorf("page %T is not one of ours; is it a pointer?", p)
	}
	if a := v.Agent(); a != nil {
		v.values["agent"] = v.AgentName()
		v.values["host"] = a.Host
	}
	return v, nil
}

// T is a text as parts, those that others have named told apart.
func (v view) T(key string) ([]part, error) { return v.texts.fill(key, v.values) }

// Plain is a text for where no markup can be, such as a title. Names in it are between
// characters that keep their direction to themselves.
func (v view) Plain(key string) (string, error) {
	parts, err := v.T(key)
	if err != nil {
		return "", err
	}
	const firstStrongIsolate, popDirectionalIsolate = "\u2068", "\u2069"
	var b strings.Builder
	for _, p := range parts {
		if p.Foreign {
			b.WriteString(firstStrongIsolate + p.Text + popDirectionalIsolate)
		} else {
			b.WriteString(p.Text)
		}
	}
	return b.String(), nil
}

// Accent is the Company's colour as six hex digits, or empty for ours.
func (v view) Accent() string {
	if _, err := parseColor(v.Brand.AccentColor); err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(v.Brand.AccentColor, "#"))
}

// Agent is who asks, or nil on pages without one.
func (v view) Agent() *Agent {
	switch p := v.Page.(type) {
	case Login:
		return &p.Agent
	case Code:
		return &p.Agent
	case Leave:
		return &p.Agent
	case Consent:
		return &p.Agent
	case Done:
		return &p.Agent
	default:
		return nil
	}
}

// AgentName is what the agent calls itself; its host where it says nothing.
func (v view) AgentName() string {
	a := v.Agent()
	if name := strings.TrimSpace(a.Name); name != "" {
		return name
	}
	return a.Host
}

// Initial stands where an agent has no logo.
func (v view) Initial() string {
	for _, r := range v.AgentName() {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return string(unicode.ToUpper(r))
		}
	}
	return "·"
}

// Problem is that of the page's form.
func (v view) Problem() Problem {
	switch p := v.Page.(type) {
	case Login:
		return p.Problem
	case Code:
		return p.Problem
	case DeviceCode:
		return p.Problem
	default:
		return NoProblem
	}
}

// ProblemText says it.
func (v view) ProblemText() ([]part, error) { return v.T("problem." + string(v.Problem())) }

// Culprit is the id of the input to mend, or empty where none is at fault.
func (v view) Culprit() string {
	switch v.Problem() {
	case WrongCredentials, MissingCredential:
		return "field-0"
	case WrongCode:
		return "code"
	case UnknownUserCode:
		return "user-code"
	default:
		return ""
	}
}

// FailureText is a failure's title, text or action.
func (v view) FailureText(which string) ([]part, error) {
	f, _ := v.Page.(Failure)
	return v.T("failure." + string(f.Reason) + "." + which)
}

// FailureTitle is its title without markup.
func (v view) FailureTitle() (string, error) {
	f, _ := v.Page.(Failure)
	return v.Plain("failure." + string(f.Reason) + ".title")
}

// link is one of the Company's own pages.
type link struct{ URL, Text string }

// Links are those of the Company's pages that there are.
func (v view) Links() ([]link, error) {
	var links []link
	for _, l := range []link{
		{v.Brand.SupportURL, "footer.support"},
		{v.Brand.PrivacyURL, "footer.privacy"},
		{v.Brand.TermsURL, "footer.terms"},
	} {
		if l.URL == "" {
			continue
		}
		text, err := v.Plain(l.Text)
		if err != nil {
			return nil, err
		}
		links = append(links, link{URL: l.URL, Text: text})
	}
	return links, nil
}
