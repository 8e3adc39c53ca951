package app_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

const idp = "https://id.noodle.example"

func to[T any](v T) *T { return &v }

// byOIDC signs in at a provider with a client secret.
func byOIDC() app.ConnectionChange {
	return app.ConnectionChange{
		Method: to(app.OIDC), OIDC: &app.Provider{Issuer: idp, ClientID: "poppy", Scopes: []string{"email"}}, Secret: keys.NewSecret("s3cret-of-the-client"),
	}
}

// byWebhook asks for an email and a PIN.
func byWebhook() app.ConnectionChange {
	return app.ConnectionChange{Method: to(app.CheckByWebhook), CredentialCheck: &app.CredentialCheck{
		URL: "https://noodle.example/poppy/credentials", Fields: []discovery.MediatedField{{Name: "email", Label: "Email"}, {Name: "pin", Label: "PIN", Secret: true}},
	}}
}

// mia is a test account with a one-time code.
func mia() app.NewTestAccount {
	return app.NewTestAccount{
		TestAccount: app.TestAccount{Account: "acc-1", Label: "mia@example.com", Username: "mia", AsksForCode: true},
		Password:    keys.NewSecret("noodles!"), OneTimeCode: keys.NewSecret("123456"),
	}
}

func TestUpdateConnection_ClientSecret(t *testing.T) {
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	opened := func(conn app.Connection) string {
		if len(conn.SealedSecret) == 0 {
			return ""
		}
		raw, err := r.ring.Open(c.ID, "oidc client secret", "oidc", conn.SealedSecret)
		require.NoError(t, err)
		return string(raw)
	}
	r.told()
	require.Equal(t, "s3cret-of-the-client", opened(r.connect(t, scope, byOIDC())))
	require.Equal(t, []string{c.ID}, r.told())
	provider := func(issuer, client, secret string) app.ConnectionChange {
		return app.ConnectionChange{OIDC: &app.Provider{Issuer: issuer, ClientID: client}, Secret: keys.NewSecret(secret)}
	}
	for _, step := range []struct{ what, issuer, client, secret, want string }{
		{"empty keeps it", idp, "poppy", "", "s3cret-of-the-client"},
		{"another one replaces it", idp, "poppy", "second", "second"},
		{"another client has none", idp, "other", "", ""},
		{"set again", idp, "other", "third", "third"},
		{"another issuer never gets it", "https://id.evil.example", "other", "", ""},
		{"another issuer with its own", "https://id2.noodle.example", "other", "fourth", "fourth"},
		{"a trailing slash is another issuer", "https://id2.noodle.example/", "other", "", ""},
	} {
		require.Equal(t, step.want, opened(r.connect(t, scope, provider(step.issuer, step.client, step.secret))), step.what)
	}
	// Leaving the provider out of the change leaves its secret alone.
	r.connect(t, scope, provider(idp, "poppy", "fifth"))
	require.Equal(t, "fifth", opened(r.connect(t, scope, app.ConnectionChange{EndSessions: to(true)})))
	_, err := r.UpdateConnection(t.Context(), scope, provider("", "", "sixth"))
	requireReason(t, err, problem.InvalidRequest, "sign_in_connection.oidc.client_id")
}

func TestUpdateConnection_NamesTheFieldAtFault(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.7#4", "poppy-0.1/4.7#5")
	fields := func(f ...discovery.MediatedField) app.ConnectionChange {
		return app.ConnectionChange{CredentialCheck: &app.CredentialCheck{URL: "https://noodle.example/c", Fields: f}}
	}
	email := discovery.MediatedField{Name: "email", Label: "Email"}
	provider := func(p app.Provider) app.ConnectionChange { return app.ConnectionChange{OIDC: &p} }
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	r.told()
	for name, c := range map[string]struct {
		change app.ConnectionChange
		field  string
	}{
		"OIDC without provider":       {app.ConnectionChange{Method: to(app.OIDC)}, "oidc.issuer"},
		"handoff without URL":         {app.ConnectionChange{Method: to(app.LoginHandoff)}, "login_handoff.login_url"},
		"check without URL":           {app.ConnectionChange{Method: to(app.CheckByWebhook)}, "credential_check.url"},
		"issuer is http":              {provider(app.Provider{Issuer: "http://id.example", ClientID: "c"}), "oidc.issuer"},
		"issuer with user":            {provider(app.Provider{Issuer: "https://u:p@id.example", ClientID: "c"}), "oidc.issuer"},
		"issuer with fragment":        {provider(app.Provider{Issuer: "https://id.example#x", ClientID: "c"}), "oidc.issuer"},
		"issuer with query":           {provider(app.Provider{Issuer: "https://id.example?x=1", ClientID: "c"}), "oidc.issuer"},
		"issuer missing":              {provider(app.Provider{ClientID: "c"}), "oidc.issuer"},
		"client missing":              {provider(app.Provider{Issuer: idp}), "oidc.client_id"},
		"client with NUL":             {provider(app.Provider{Issuer: idp, ClientID: "a\x00b"}), "oidc.client_id"},
		"claim with newline":          {provider(app.Provider{Issuer: idp, ClientID: "c", AccountClaim: "a\nb"}), "oidc.account_claim"},
		"scope with space":            {provider(app.Provider{Issuer: idp, ClientID: "c", Scopes: []string{"email profile"}}), "oidc.scopes[0]"},
		"scope openid":                {provider(app.Provider{Issuer: idp, ClientID: "c", Scopes: []string{"email", "openid"}}), "oidc.scopes[1]"},
		"scope twice":                 {provider(app.Provider{Issuer: idp, ClientID: "c", Scopes: []string{"email", "email"}}), "oidc.scopes[1]"},
		"login is http":               {app.ConnectionChange{LoginURL: to("http://noodle.example/login")}, "login_handoff.login_url"},
		"login is script":             {app.ConnectionChange{LoginURL: to("javascript:alert(1)")}, "login_handoff.login_url"},
		"login with user":             {app.ConnectionChange{LoginURL: to("https://a@noodle.example/login")}, "login_handoff.login_url"},
		"login has a challenge":       {app.ConnectionChange{LoginURL: to("https://noodle.example/login?login_challenge=1")}, "login_handoff.login_url"},
		"login with quote":            {app.ConnectionChange{LoginURL: to(`https://noodle.example/"`)}, "login_handoff.login_url"},
		"check is http":               {app.ConnectionChange{CredentialCheck: &app.CredentialCheck{URL: "http://a.example", Fields: []discovery.MediatedField{email}}}, "credential_check.url"},
		"fields without URL":          {app.ConnectionChange{CredentialCheck: &app.CredentialCheck{Fields: []discovery.MediatedField{email}}}, "credential_check.url"},
		"URL without fields":          {fields(), "credential_check.fields"},
		"field twice":                 {fields(email, email), "credential_check.fields[1].name"},
		"field without label":         {fields(email, discovery.MediatedField{Name: "pin"}), "credential_check.fields[1].label"},
		"field with a space":          {fields(discovery.MediatedField{Name: "e mail", Label: "Email"}), "credential_check.fields[0].name"},
		"field with a bracket":        {fields(discovery.MediatedField{Name: "a[b]", Label: "A"}), "credential_check.fields[0].name"},
		"label with control":          {fields(discovery.MediatedField{Name: "a", Label: "A\x1b[31m"}), "credential_check.fields[0].label"},
		"nothing names the account":   {fields(discovery.MediatedField{Name: "pin", Label: "PIN", Secret: true}), "credential_check.fields"},
		"lifetime too short":          {app.ConnectionChange{AccountTokenLifetime: to(time.Minute - 1)}, "account_token_lifetime"},
		"lifetime too long":           {app.ConnectionChange{AccountTokenLifetime: to(3650*24*time.Hour + 1)}, "account_token_lifetime"},
		"negative lifetime":           {app.ConnectionChange{AccountTokenLifetime: to(-time.Hour)}, "account_token_lifetime"},
		"eleven fields":               {fields(many(11)...), "credential_check.fields"},
		"a URL of another kind, long": {app.ConnectionChange{LoginURL: to("https://noodle.example/" + strings.Repeat("x", 2048))}, "login_handoff.login_url"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, validateOnly := range []bool{true, false} {
				c.change.ValidateOnly = validateOnly
				_, err := r.UpdateConnection(t.Context(), scope, c.change)
				requireReason(t, err, problem.InvalidRequest, "sign_in_connection."+c.field)
			}
			require.Zero(t, r.connection(t, scope))
			require.Empty(t, r.told())
		})
	}
}

func many(n int) []discovery.MediatedField {
	var out []discovery.MediatedField
	for i := range n {
		out = append(out, discovery.MediatedField{Name: fmt.Sprintf("f%d", i), Label: "F"})
	}
	return out
}

func TestUpdateConnection_MethodKeepsItsPart(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	r.connect(t, scope, byOIDC())
	_, err := r.UpdateConnection(t.Context(), scope, app.ConnectionChange{OIDC: &app.Provider{}})
	requireReason(t, err, problem.InvalidRequest, "sign_in_connection.oidc.issuer")
	require.NotEmpty(t, r.connection(t, scope).SealedSecret)
	got := r.connect(t, scope, app.ConnectionChange{Method: to(app.NoMethod), OIDC: &app.Provider{}})
	require.Zero(t, got.OIDC)
	require.Empty(t, got.SealedSecret)
}

func TestUpdateConnection_ETagAndValidateOnly(t *testing.T) {
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	change := byOIDC()
	change.ValidateOnly, change.ETag = true, resource.ETag(0)
	got, err := r.UpdateConnection(t.Context(), scope, change)
	require.NoError(t, err)
	require.Equal(t, app.OIDC, got.Method)
	require.Zero(t, r.connection(t, scope))
	change.ValidateOnly = false
	got = r.connect(t, scope, change)
	require.Equal(t, int64(1), got.Version)
	require.Equal(t, c.Version+1, r.state(t, scope).Version, "documents are made anew")
	_, err = r.UpdateConnection(t.Context(), scope, change)
	requireReason(t, err, problem.EtagMismatch)
	change.ETag = resource.ETag(1)
	require.Equal(t, int64(2), r.connect(t, scope, change).Version)
}

func TestUpdateConnection_LifetimeDefaultsTo90Days(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	require.Equal(t, 90*24*time.Hour, r.connection(t, scope).Lifetime())
	require.Equal(t, time.Minute, r.connect(t, scope, app.ConnectionChange{AccountTokenLifetime: to(time.Minute)}).Lifetime())
	require.Equal(t, 3650*24*time.Hour, r.connect(t, scope, app.ConnectionChange{AccountTokenLifetime: to(3650 * 24 * time.Hour)}).Lifetime())
	require.Equal(t, 90*24*time.Hour, r.connect(t, scope, app.ConnectionChange{AccountTokenLifetime: to(time.Duration(0))}).Lifetime())
}

func TestTestAccounts_OnlyAtTestCompanies(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	accounts := []app.NewTestAccount{mia()}
	_, err := r.UpdateConnection(t.Context(), scope, app.ConnectionChange{TestAccounts: &accounts})
	requireReason(t, err, problem.FailedPrecondition, "sign_in_connection.test_accounts")
	_, err = r.UpdateConnection(t.Context(), scope, app.ConnectionChange{Method: to(app.TestAccounts)})
	requireReason(t, err, problem.FailedPrecondition, "sign_in_connection.method")
	require.Zero(t, r.connection(t, scope))
	// None is what a live Company has anyway.
	r.connect(t, scope, app.ConnectionChange{TestAccounts: to([]app.NewTestAccount{})})

	scope, _ = r.companyOfKind(t, "trial", app.Test)
	_, err = r.UpdateConnection(t.Context(), scope, app.ConnectionChange{Method: to(app.TestAccounts)})
	requireReason(t, err, problem.InvalidRequest, "sign_in_connection.test_accounts")
	require.Equal(t, app.TestAccounts, r.connect(t, scope, app.ConnectionChange{Method: to(app.TestAccounts), TestAccounts: &accounts}).Method)
}

func TestTestAccounts_SecretsAreKept(t *testing.T) {
	r := newRig(t)
	scope, c := r.companyOfKind(t, "trial", app.Test)
	type sealed struct {
		Account      string `json:"account"`
		Label        string `json:"label"`
		Username     string `json:"username"`
		PasswordHash string `json:"password_hash"`
		OneTimeCode  string `json:"code_hash"`
	}
	put := func(accounts ...app.NewTestAccount) []sealed {
		conn := r.connect(t, scope, app.ConnectionChange{TestAccounts: &accounts})
		if len(accounts) == 0 {
			require.Empty(t, conn.SealedAccounts)
			return nil
		}
		raw, err := r.ring.Open(c.ID, "test accounts", "accounts", conn.SealedAccounts)
		require.NoError(t, err)
		var out []sealed
		require.NoError(t, json.Unmarshal(raw, &out))
		for _, text := range []string{"noodles!", "123456"} {
			require.NotContains(t, string(raw), text)
		}
		return out
	}
	hash := func(s string) string { return keys.HashToken(c.ID, s) }
	require.Equal(t, []sealed{{"acc-1", "mia@example.com", "mia", hash("noodles!"), hash("123456")}}, put(mia()))
	shown, err := r.TestAccounts(c.ID, r.connection(t, scope))
	require.NoError(t, err)
	require.Equal(t, []app.TestAccount{mia().TestAccount}, shown)

	same := mia()
	same.Password, same.OneTimeCode, same.Label = keys.Secret{}, keys.Secret{}, "Mia"
	require.Equal(t, []sealed{{"acc-1", "Mia", "mia", hash("noodles!"), hash("123456")}}, put(same))
	same.Username = "mia2"
	same.AsksForCode = false
	require.Equal(t, []sealed{{"acc-1", "Mia", "mia2", hash("noodles!"), ""}}, put(same), "the code is taken away")
	same.AsksForCode = true
	_, err = r.UpdateConnection(t.Context(), scope, app.ConnectionChange{TestAccounts: &[]app.NewTestAccount{same}})
	requireReason(t, err, problem.InvalidRequest, "sign_in_connection.test_accounts[0].one_time_code")
	// A password belongs to its account: another account doesn't get it.
	same.Account, same.AsksForCode = "acc-2", false
	_, err = r.UpdateConnection(t.Context(), scope, app.ConnectionChange{TestAccounts: &[]app.NewTestAccount{same}})
	requireReason(t, err, problem.InvalidRequest, "sign_in_connection.test_accounts[0].password")
	require.Nil(t, put())
	same.Account = "acc-1"
	_, err = r.UpdateConnection(t.Context(), scope, app.ConnectionChange{TestAccounts: &[]app.NewTestAccount{same}})
	requireReason(t, err, problem.InvalidRequest, "sign_in_connection.test_accounts[0].password")
}

func TestTestAccounts_Refused(t *testing.T) {
	r := newRig(t)
	scope, _ := r.companyOfKind(t, "trial", app.Test)
	for name, c := range map[string]struct {
		spoil func(*app.NewTestAccount)
		field string
	}{
		"account twice":      {func(n *app.NewTestAccount) { n.Username = "other" }, "account"},
		"user name twice":    {func(n *app.NewTestAccount) { n.Account = "acc-2" }, "username"},
		"no account":         {func(n *app.NewTestAccount) { n.Account = "" }, "account"},
		"long account":       {func(n *app.NewTestAccount) { n.Account = strings.Repeat("x", 256) }, "account"},
		"no user name":       {func(n *app.NewTestAccount) { n.Account, n.Username = "acc-2", " " }, "username"},
		"label with control": {func(n *app.NewTestAccount) { n.Account, n.Username, n.Label = "acc-2", "other", "a\x00" }, "label"},
		"no password":        {func(n *app.NewTestAccount) { n.Account, n.Username, n.Password = "acc-2", "other", keys.Secret{} }, "password"},
	} {
		t.Run(name, func(t *testing.T) {
			second := mia()
			c.spoil(&second)
			_, err := r.UpdateConnection(t.Context(), scope, app.ConnectionChange{TestAccounts: &[]app.NewTestAccount{mia(), second}})
			requireReason(t, err, problem.InvalidRequest, "sign_in_connection.test_accounts[1]."+c.field)
		})
	}
}
