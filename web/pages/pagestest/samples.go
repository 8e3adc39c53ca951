// Package pagestest has every page in every state that Users meet, for tests that look
// at all of them.
package pagestest

import (
	"html/template"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/web/pages"
)

// Sample is a page in one state.
type Sample struct {
	Name  string
	Brand pages.Brand
	Page  pages.Page
}

// Upstream is where the sample of Leave sends the browser.
const Upstream = "https://login.company.example/start?challenge=c-1&lang=en"

// Samples are all pages in all states, with links that begin with base.
func Samples(base string) []Sample {
	var all []Sample
	add := func(name string, b pages.Brand, p pages.Page) {
		all = append(all, Sample{Name: name, Brand: b, Page: p})
	}
	plain, full, test := brands(base)
	agent := pages.Agent{Name: "Example Agent", Host: "agent.example", LogoURL: base + "/sign-in/sgn_1/agent-logo"}
	noLogo := pages.Agent{Name: "Example Agent", Host: "agent.example"}
	form := pages.Form{Action: base + "/sign-in/sgn_1", Token: "csrf-token"}

	login := pages.Login{Agent: agent, Form: form, Fields: fields(""), MayLeave: true}
	add("login", full, login)
	login.Agent, login.Welcome = noLogo, "Use the account you shop with."
	login.Problem, login.Fields = pages.WrongCredentials, fields("mia@example.com")
	add("login-wrong", plain, login)
	login.Problem, login.Fields = pages.LoginUnavailable, fields("")
	login.Accounts = []pages.TestAccount{{Username: "mia", Label: "Mia, asks for no code"}, {Username: "omar"}}
	add("login-test", test, login)

	code := pages.Code{Agent: agent, Form: form, SentTo: "Text to the phone number ending in 71", MayLeave: true}
	add("code", full, code)
	code.Problem, code.SentTo = pages.WrongCode, ""
	add("code-wrong", plain, code)

	add("leave", full, pages.Leave{Agent: agent, Target: template.URL(Upstream), Form: form, MayLeave: true})

	addConsent(add, full, plain, test, agent, noLogo, form)

	device := pages.DeviceCode{Form: pages.Form{Action: base + "/device", Token: "csrf-token"}}
	add("device", full, device)
	device.UserCode = "WDJB-MJHT"
	add("device-link", full, device)
	device.Problem = pages.UnknownUserCode
	add("device-unknown", plain, device)

	add("done-approved", full, pages.Done{Agent: agent, Approved: true})
	add("done-declined", full, pages.Done{Agent: agent})

	for _, reason := range []pages.FailureReason{
		pages.BadRequest, pages.UnknownAgent, pages.AgentRefused, pages.Expired, pages.OtherBrowser, pages.NotOffered,
		pages.TooMany, pages.Unavailable, pages.LoginFailed, pages.LinkExpired, pages.NotFound, pages.CrossSite,
	} {
		f := pages.Failure{Reason: reason}
		switch reason {
		case pages.UnknownAgent:
			f.Detail = "The document at https://agent.example/agent.json answers with status 404."
		case pages.Unavailable:
			f.ID = "req_06c1m2k3n4p5q6r7s8t9"
		case pages.LoginFailed:
			f.Retry, f.Form, f.MayLeave = base+"/sign-in/sgn_1", form, true
		default:
		}
		add("failure-"+string(reason), full, f)
	}
	addAgents(add, full, plain, pages.Form{Action: base + "/account/agents", Token: "link-token"})
	return all
}

func fields(email string) []pages.Field {
	return []pages.Field{{Name: "email", Label: "Email", Value: email}, {Name: "password", Label: "Password", Secret: true}}
}

func brands(base string) (plain, full, test pages.Brand) {
	plain = pages.Brand{Company: "Example Company", Base: base}
	full = plain
	full.LogoURL = base + "/poppy/logo"
	full.SupportURL = "https://company.example/help"
	full.PrivacyURL = "https://company.example/privacy"
	full.TermsURL = "https://company.example/terms"
	test = full
	test.Test = true
	return plain, full, test
}

func addConsent(add func(string, pages.Brand, pages.Page), full, plain, test pages.Brand, agent, noLogo pages.Agent, form pages.Form) {
	consent := pages.Consent{
		Agent: agent, Form: form, Account: "mia@example.com", MayLeave: true,
		Scopes: []pages.Scope{
			{Name: "poppy:read", Text: "See the information in your account", Ticked: true},
			{Name: "addresses", Text: "See and use your delivery addresses", Ticked: true},
		},
		Withheld: []string{"Make changes in your account and act for you"},
	}
	add("consent", full, consent)
	consent.Agent = noLogo
	add("consent-test", test, consent)
	consent.Scopes = []pages.Scope{{Name: "poppy:read", Text: "See the information in your account"}, {Name: "addresses", Text: "See and use your delivery addresses"}}
	add("consent-unticked", plain, consent)
	device := consent
	device.UserCode, device.Account, device.MayLeave = "WDJB-MJHT", "", false
	add("consent-device", plain, device)

	tool := consent
	tool.Server = "mcp.company.example"
	add("consent-plain", full, tool)

	long := plain
	long.Company = "The " + strings.Repeat("Very ", 12) + "Long Company of " + strings.Repeat("a", 60)
	add("consent-long", long, pages.Consent{
		Agent: pages.Agent{Name: strings.Repeat("LongAgentName", 15), Host: strings.Repeat("long.", 40) + "example"}, Form: form,
		Account: strings.Repeat("mia", 30) + "@example.com",
		Scopes:  []pages.Scope{{Name: "poppy:read", Text: strings.Repeat("See everything ", 20) + strings.Repeat("x", 80), Ticked: true}},
	})
}

func addAgents(add func(string, pages.Brand, pages.Page), full, plain pages.Brand, form pages.Form) {
	at := time.Date(2026, time.October, 2, 16, 5, 0, 0, time.UTC)
	one := pages.ConnectedAgent{
		ID: "grt_1", Name: "Example Agent", Host: "agent.example", Connected: at, LastUsed: at.AddDate(0, 0, 3), Expires: at.AddDate(0, 3, 0),
		Scopes: []string{"See the information in your account", "Make changes in your account and act for you"},
	}
	two := pages.ConnectedAgent{ID: "grt_2", Name: "Other Agent", Host: "other.example", Connected: at, Scopes: []string{"See the information in your account"}}
	add("agents", full, pages.ConnectedAgents{Form: form, Account: "mia@example.com", Agents: []pages.ConnectedAgent{one, two}})
	add("agents-ended", plain, pages.ConnectedAgents{Form: form, Account: "mia@example.com", Agents: []pages.ConnectedAgent{two}, Ended: 1})
	add("agents-none", full, pages.ConnectedAgents{Form: form, Ended: 2})
}
