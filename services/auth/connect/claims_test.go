package connect_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/services/auth/connect"
)

func TestFinish_AccountClaim(t *testing.T) {
	r := newRig(t)
	r.company.SignIn.OIDC.AccountClaim = "customer"
	for _, c := range []struct {
		value any
		want  string // empty: refused
	}{
		{"c-1", "c-1"},
		{" ", " "},
		{42, "42"},
		{-7, "-7"},
		{json.Number("12345678901234567890123"), "12345678901234567890123"},
		{nil, ""},
		{"", ""},
		{true, ""},
		{[]string{"c-1"}, ""},
		{map[string]any{"id": "c-1"}, ""},
		{1.5, ""},
		{json.Number("1e3"), ""},
		{json.Number("1.0"), ""},
		{strings.Repeat("9", 256), ""},
		{"a\u0000b", ""},
		{"a\u0085", ""},
		{json.RawMessage(`null`), ""},
	} {
		got, err := r.login(t, map[string]any{"customer": c.value})
		if c.want == "" {
			require.Error(t, err, "%v", c.value)
			continue
		}
		require.NoError(t, err, "%v", c.value)
		require.Equal(t, c.want, got.ID)
	}
}

func TestFinish_LabelClaim(t *testing.T) {
	r := newRig(t)
	all := map[string]any{"nick": "Mia", "email": "mia@example.com", "preferred_username": "mia", "name": "Mia Marsh"}
	for _, c := range []struct {
		configured string
		without    []string
		want       string
	}{
		{"nick", nil, "Mia"},
		{"", nil, "mia@example.com"},
		{"other", nil, "mia@example.com"},
		{"", []string{"email"}, "mia"},
		{"", []string{"email", "preferred_username"}, "Mia Marsh"},
		{"", []string{"email", "preferred_username", "name"}, ""},
	} {
		r.company.SignIn.OIDC.LabelClaim = c.configured
		claims := map[string]any{}
		for name, value := range all {
			claims[name] = value
		}
		for _, name := range c.without {
			claims[name] = nil
		}
		got, err := r.login(t, claims)
		require.NoError(t, err)
		require.Equal(t, connect.Account{ID: "mia-1", Label: c.want}, got)
	}
	r.company.SignIn.OIDC.LabelClaim = ""
	got, err := r.login(t, map[string]any{"email": "a\u202e\n", "preferred_username": 5, "name": strings.Repeat("é", 255)})
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("é", 255), got.Label, "what can't be shown is no label")
}

func TestFinish_EmailAsAccount(t *testing.T) {
	r := newRig(t)
	r.company.SignIn.OIDC.AccountClaim = "email"
	for _, c := range []struct {
		verified any
		ok       bool
	}{{nil, true}, {true, true}, {"true", true}, {false, false}, {"false", false}, {0, false}} {
		got, err := r.login(t, map[string]any{"email_verified": c.verified})
		if !c.ok {
			requireRefused(t, err, "")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "mia@example.com", got.ID)
	}
}

func TestFinish_ClaimsOfUserinfo(t *testing.T) {
	r := newRig(t)
	r.company.SignIn.OIDC.Scopes = []string{"email"}
	r.idp.userinfo = map[string]any{"sub": "mia-1", "email": "mia@userinfo.example", "customer": 42, "iss": "canary"}
	less := map[string]any{"email": nil}

	got, err := r.login(t, less)
	require.NoError(t, err)
	require.Equal(t, connect.Account{ID: "mia-1", Label: "mia@userinfo.example"}, got)
	require.Equal(t, "Bearer canary-access", r.idp.last(t, "/userinfo").authorization)

	r.company.SignIn.OIDC.AccountClaim = "customer"
	got, err = r.login(t, nil)
	require.NoError(t, err)
	require.Equal(t, connect.Account{ID: "42", Label: "mia@example.com"}, got, "what the ID token says counts first")

	r.idp.userinfo["sub"] = "noah-1"
	_, err = r.login(t, nil)
	requireRefused(t, err, "")
	delete(r.idp.userinfo, "sub")
	_, err = r.login(t, nil)
	requireRefused(t, err, "")
	for _, status := range []int{401, 500} {
		r.idp.fails("/userinfo", status, "application/json", `{"sub":"mia-1","customer":"canary"}`)
		_, err = r.login(t, nil)
		requireUnavailable(t, err)
	}
	r.idp.fails("/userinfo", 200, "application/jwt", `canary`)
	_, err = r.login(t, nil)
	requireUnavailable(t, err)

	// The label alone is not worth a failed login.
	r.company.SignIn.OIDC.AccountClaim = ""
	got, err = r.login(t, less)
	require.NoError(t, err)
	require.Equal(t, connect.Account{ID: "mia-1"}, got)
}
