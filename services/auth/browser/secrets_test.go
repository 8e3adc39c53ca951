package browser_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// What a sign-in's secrets are in: cookies, queries and forms. None is in a log line, on
// a page that isn't about it, or in the database as it is.
func TestPages_SecretsStayWhereTheyBelong(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#24")
	each(t, func(t *testing.T, r *rig) {
		r.Accounts.Put(email, fixture.Account{ID: account, Password: password, Code: oneTime})
		secrets := []string{password, oneTime, fixture.Verifier, upstreamCode, "canary-upstream-token", "canary-client-secret"}
		logged := []string{state} // the agent's, which the database has
		var failed []page
		note := func(p page) page {
			failed = append(failed, p)
			return p
		}
		cookies := func(b *browser) {
			for _, value := range b.cookies {
				secrets = append(secrets, value)
			}
		}

		// Our own form, with everything that can go wrong on it.
		b, p := r.begun(t)
		cookies(b)
		note(b.submit(p, "login", credentials(password+"x")))
		r.Accounts.Down(true)
		note(b.submit(p, "login", credentials(password)))
		r.Accounts.Down(false)
		note(b.submit(p, "login", url.Values{"field.email": {""}, "field.password": {password}}))
		note(b.send(p.action(), url.Values{"action": {"login"}, "field.password": {password}}, nil))
		p = b.submit(p, "login", credentials(password))
		note(b.submit(p, "code", url.Values{"code": {oneTime + "x"}}))
		p = b.submit(p, "code", url.Values{"code": {oneTime}})
		code := r.returned(t, b.post(p, "approve", ticked("poppy:read"))).Get("code")
		secrets = append(secrets, code)
		note(b.submit(p, "approve", ticked("poppy:read")))
		note(r.browser(t).get(r.authorizeURL(r.with("redirect_uri", "https://evil.example/"))))
		r.refusedByAgent(t, r.browser(t).once(r.authorizeURL(r.with("scope", "x"))), "invalid_scope")

		_, userCode := r.device(t, both)
		b = r.browser(t)
		p = r.enter(b, userCode)
		cookies(b)
		secrets = append(secrets, userCode)
		r.block(t)
		note(b.submit(p, "login", credentials(password)))
		note(r.browser(t).get(p.url))

		link := linkIn(t, r.link(t, account, false, ""))
		secrets = append(secrets, link)
		require.Equal(t, http.StatusOK, b.get(r.company.Issuer.ConnectedAgentsURL()+"?link="+link).status)
		note(b.get(r.company.Issuer.ConnectedAgentsURL() + "?link=" + link + "x"))

		// Logins elsewhere, for an agent that isn't blocked.
		r.agent = fixture.NewAgent(t, "second.example")
		r.publish(nil)
		r.byOIDC(t)
		b, p = r.begun(t)
		cookies(b)
		to := p.target(t)
		secrets = append(secrets, to.Query().Get("state"), to.Query().Get("nonce"))
		back := r.provider.login(t, to, "mia-1")
		note(r.browser(t).get(back))
		require.NotEmpty(t, b.get(back).scopes())
		note(b.get(back))
		r.byHandoff()
		b, p = r.begun(t)
		cookies(b)
		name := r.challenge(t, p)
		to = p.target(t)
		secrets = append(secrets, to.Query().Get("login_challenge"))
		back, err := r.accept(t, name, account)
		require.NoError(t, err)
		verifier, err := url.Parse(back)
		require.NoError(t, err)
		secrets = append(secrets, verifier.Query().Get("login_verifier"))
		note(r.browser(t).get(back))
		require.NotEmpty(t, b.get(back).scopes())
		note(b.get(back))

		lines, rows := r.Logged.String(), r.rows(t)
		require.Contains(t, lines, "sign-in refused")
		require.Contains(t, rows, r.agent.ClientID)
		for _, secret := range secrets {
			require.NotEmpty(t, secret)
			require.NotContains(t, rows, secret)
		}
		for _, secret := range slices.Concat(secrets, logged) {
			require.NotContains(t, lines, secret)
			for _, p := range failed {
				require.NotContains(t, p.body, secret, p.url)
			}
		}
	})
}

// rows is everything that the database has of sign-ins.
func (r *rig) rows(t testing.TB) string {
	t.Helper()
	var out []byte
	require.NoError(t, r.DB.SystemRead(t.Context(), db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		signIns, err := tx.SignIn.Query().All(ctx)
		if err != nil {
			return err
		}
		for _, row := range signIns {
			one, err := json.Marshal(row)
			if err != nil {
				return err
			}
			out = append(append(out, one...), row.Sealed...)
		}
		attempts, err := tx.SignInAttempt.Query().All(ctx)
		if err != nil {
			return err
		}
		codes, err := tx.AuthorizationCode.Query().All(ctx)
		if err != nil {
			return err
		}
		devices, err := tx.DeviceAuthorization.Query().All(ctx)
		if err != nil {
			return err
		}
		more, err := json.Marshal([]any{attempts, codes, devices})
		out = append(out, more...)
		return err
	}))
	return string(out)
}
