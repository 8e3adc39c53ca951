package pages_test

import (
	"html/template"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/language"

	"github.com/poppyfield/poppyfield/web/pages"
)

// canary would run, end a tag or break out of an attribute if it were not escaped.
const canary = `"'><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}{agent}` + "\u202e"

func hostile() (pages.Brand, []pages.Page) {
	const bad = "javascript:alert(1)//" + canary
	agent := pages.Agent{Name: canary, Host: canary, LogoURL: bad}
	form := pages.Form{Action: bad, Token: canary}
	brand := pages.Brand{
		Company: canary, Base: base, LogoURL: bad, AccentColor: "#fff;}" + canary,
		SupportURL: bad, PrivacyURL: bad, TermsURL: bad, Test: true,
	}
	return brand, []pages.Page{
		pages.Login{
			Agent: agent, Form: form, Welcome: canary, Problem: pages.WrongCredentials,
			Fields:   []pages.Field{{Name: canary, Label: canary, Value: canary}, {Name: canary, Label: canary, Secret: true, Value: canary}},
			Accounts: []pages.TestAccount{{Username: canary, Label: canary}},
		},
		pages.Code{Agent: agent, Form: form, SentTo: canary, Problem: pages.WrongCode},
		pages.Leave{Agent: agent, Form: form, Target: template.URL("https://login.example/?" + canary)},
		pages.Consent{
			Agent: agent, Form: form, Account: canary, UserCode: canary, Withheld: []string{canary},
			Scopes: []pages.Scope{{Name: canary, Text: canary}},
		},
		pages.DeviceCode{Form: form, UserCode: canary, Problem: pages.UnknownUserCode},
		pages.Done{Agent: agent, Approved: true},
		pages.Done{Agent: agent},
		pages.Failure{Reason: pages.Unavailable, Detail: canary, ID: canary, Retry: bad, Form: form},
		pages.ConnectedAgents{
			Form: form, Account: canary, Ended: 1,
			Agents: []pages.ConnectedAgent{{ID: canary, Name: canary, Host: canary, Scopes: []string{canary}}},
		},
	}
}

func TestWrite_WhatOthersNamedIsEscaped(t *testing.T) {
	r := newRenderer(t)
	brand, hostilePages := hostile()
	for _, p := range hostilePages {
		for _, lang := range languages() {
			w, root := write(t, r, lang, brand, p)
			require.Empty(t, all(root, "script"), "%T", p)
			for _, n := range all(root) {
				require.False(t, has(n, "onerror"), "%T: %s", p, n.Data)
				for _, name := range []string{"href", "src", "action", "content"} {
					require.NotContains(t, attr(n, name), "javascript:", "%T: %s of %s", p, name, n.Data)
				}
			}
			require.NotContains(t, w.Body.String(), "brand.css", "a colour that is none")
			// What is set apart may turn its own direction only.
			for n := range root.Descendants() {
				if strings.Contains(n.Data, "\u202e") && n.Parent != nil && n.Parent.Data != "title" {
					require.Contains(t, []string{"bdi", "code"}, n.Parent.Data, "%T: %s", p, n.Data)
				}
			}
		}
	}
}

func TestWrite_SecretsAreNotRepeated(t *testing.T) {
	w, _ := write(t, newRenderer(t), language.English, pages.Brand{Base: base}, pages.Login{
		Problem: pages.WrongCredentials,
		Fields:  []pages.Field{{Name: "password", Label: "Password", Secret: true, Value: "hunter-2-secret"}, {Name: "otp", Label: "Code", Value: "123456"}},
	})
	require.NotContains(t, w.Body.String(), "hunter-2-secret")
	require.NotContains(t, w.Body.String(), "123456")
}

func TestWrite_Headers(t *testing.T) {
	r := newRenderer(t)
	for name, c := range map[string]struct {
		page    pages.Page
		options pages.Options
		policy  string
		frame   string
	}{
		"stays":              {pages.Login{}, pages.Options{}, "form-action 'self'; base-uri 'none'; frame-ancestors 'none'", "DENY"},
		"login":              {pages.Login{MayLeave: true}, pages.Options{}, "form-action 'self' https:; base-uri 'none'; frame-ancestors 'none'", "DENY"},
		"code":               {pages.Code{MayLeave: true}, pages.Options{}, "form-action 'self' https:; base-uri 'none'; frame-ancestors 'none'", "DENY"},
		"leave":              {pages.Leave{MayLeave: true}, pages.Options{}, "form-action 'self' https:; base-uri 'none'; frame-ancestors 'none'", "DENY"},
		"consent":            {pages.Consent{MayLeave: true}, pages.Options{}, "form-action 'self' https:; base-uri 'none'; frame-ancestors 'none'", "DENY"},
		"failure":            {pages.Failure{Reason: pages.LoginFailed, MayLeave: true}, pages.Options{}, "form-action 'self' https:; base-uri 'none'; frame-ancestors 'none'", "DENY"},
		"to a device":        {pages.Consent{MayLeave: true}, pages.Options{ToDevice: true}, "form-action 'self' https: http://127.0.0.1:* http://localhost:*; base-uri 'none'; frame-ancestors 'none'", "DENY"},
		"stays, on a device": {pages.Login{}, pages.Options{ToDevice: true}, "form-action 'self'; base-uri 'none'; frame-ancestors 'none'", "DENY"},
		"device":             {pages.Consent{}, pages.Options{}, "form-action 'self'; base-uri 'none'; frame-ancestors 'none'", "DENY"},
		"not embeded":        {pages.ConnectedAgents{}, pages.Options{}, "form-action 'self'; base-uri 'none'; frame-ancestors 'none'", "DENY"},
		"embedded": {
			pages.ConnectedAgents{},
			pages.Options{FrameAncestors: []string{"https://company.example", "https://*.company.example"}},
			"form-action 'self'; base-uri 'none'; frame-ancestors https://company.example https://*.company.example", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			// As set by what is around every handler.
			w.Header().Set("X-Frame-Options", "DENY")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
			require.NoError(t, r.Write(w, http.StatusBadRequest, language.German, pages.Brand{Base: base}, c.page, c.options))
			h := w.Header()
			require.Equal(t, http.StatusBadRequest, w.Code)
			require.Equal(t, "default-src 'none'; style-src 'self'; img-src 'self'; "+c.policy, h.Get("Content-Security-Policy"))
			require.Equal(t, c.frame, h.Get("X-Frame-Options"))
			require.Equal(t, "text/html; charset=utf-8", h.Get("Content-Type"))
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
			require.Equal(t, "no-store", h.Get("Cache-Control"))
			require.Empty(t, h.Get("Cross-Origin-Opener-Policy"), "agents may open pages in popups")
			require.NotEmpty(t, h.Get("Permissions-Policy"))
			require.Equal(t, "de", h.Get("Content-Language"))
		})
	}
}

func TestWrite_FrameAncestorThatWouldEndThePolicy(t *testing.T) {
	r := newRenderer(t)
	for _, bad := range []string{"", "https://a.example; script-src *", "https://a.example https://b.example", "https://a.example\r\nX: y"} {
		w := httptest.NewRecorder()
		require.Error(t, r.Write(w, http.StatusOK, language.English, pages.Brand{Base: base}, pages.ConnectedAgents{}, pages.Options{FrameAncestors: []string{bad}}))
		if bad != "" {
			require.Error(t, r.Write(w, http.StatusOK, language.English, pages.Brand{Base: base}, pages.Failure{Reason: pages.BadRequest}, pages.Options{AssetOrigin: bad}))
		}
		require.Empty(t, w.Body.String())
	}
}
