package browser_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// link has the Company ask for a link to the connected agents of an account.
func (r *rig) link(t testing.TB, account string, embed bool, locale string) string {
	t.Helper()
	got, err := r.logins.CreateConnectedAgentsLink(r.company.Ctx(t.Context()), &adminv1.CreateConnectedAgentsLinkRequest{
		Parent: r.company.Scope.Name(), Account: account, Embed: embed, UiLocale: locale,
	})
	require.NoError(t, err)
	require.Equal(t, r.now().Add(15*time.Minute), got.GetExpireTime().AsTime())
	require.True(t, strings.HasPrefix(got.GetUrl(), r.company.Issuer.ConnectedAgentsURL()+"?link="))
	return got.GetUrl()
}

// connect signs the agent in to the User's account.
func (r *rig) connect(t testing.TB, scopes ...string) map[string]any {
	t.Helper()
	b, p := r.atConsent(t)
	return r.exchange(t, r.returned(t, b.post(p, "approve", ticked(scopes...))).Get("code"))
}

var grantOf = regexp.MustCompile(`name="grant" value="([^"]+)"`)

func (p page) grants() []string {
	var out []string
	for _, m := range grantOf.FindAllStringSubmatch(p.body, -1) {
		out = append(out, m[1])
	}
	return out
}

func (b *browser) disconnect(p page, grant string) page {
	b.t.Helper()
	return b.submit(p, "", url.Values{"grant": {grant}})
}

func (r *rig) refresh(t testing.TB, tokens map[string]any) map[string]any {
	t.Helper()
	token, _ := tokens["refresh_token"].(string)
	return r.token(t, r.agent.RefreshForm(t, token, r.company.Issuer.TokenEndpoint(), r.now()))
}

func TestConnectedAgents_DisconnectOneOrAll(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#17", "poppy-0.1/4.9#18", "poppy-0.1/4.9#19", "poppy-0.1/4.9#d13")
	each(t, func(t *testing.T, r *rig) {
		first := r.connect(t, "poppy:read")
		r.Clock.Advance(time.Minute)
		again := r.connect(t, "poppy:write")
		one, two := r.agent, fixture.NewAgent(t, "second.example")
		r.agent = two
		r.publish(map[string]any{"client_name": "Second Agent"})
		r.Clock.Advance(time.Minute)
		second := r.connect(t, "poppy:read")
		r.Accounts.Put(email, fixture.Account{ID: "acc-2", Password: password})
		other := r.connect(t, "poppy:write")

		b := r.browser(t)
		p := b.get(r.link(t, account, false, ""))
		require.Equal(t, http.StatusOK, p.status, p.body)
		requireSafe(t, p, false)
		require.Empty(t, b.cookies)
		grants := p.grants()
		require.Len(t, grants, 3) // the newest agent first, then the other one, then all of them
		require.Equal(t, "*", grants[2])
		for _, shown := range []string{"Example Agent", "agent.example", "Second Agent", "second.example", "See your orders & invoices", "Make changes in your account"} {
			require.Contains(t, p.text(), shown)
		}
		require.NotContains(t, p.body, account)

		p = b.disconnect(p, grants[1])
		require.Equal(t, http.StatusOK, p.status, p.body)
		require.Contains(t, p.text(), "</bdi> agent was disconnected")
		r.agent = one
		for _, tokens := range []map[string]any{first, again} {
			require.Equal(t, "invalid_grant", r.refresh(t, tokens)["error"])
			require.False(t, r.caller(t, tokens["access_token"]).GetSignedIn())
		}
		require.True(t, r.caller(t, second["access_token"]).GetSignedIn())
		require.Equal(t, http.StatusOK, b.disconnect(p, grants[1]).status) // what has ended is no error

		p = b.disconnect(p, "*")
		require.Equal(t, http.StatusOK, p.status, p.body)
		require.Contains(t, p.text(), "</bdi> agent was disconnected")
		require.False(t, r.caller(t, second["access_token"]).GetSignedIn())
		require.Empty(t, b.get(r.link(t, account, false, "")).grants())
		r.agent = two
		require.Equal(t, "invalid_grant", r.refresh(t, second)["error"])

		// Another account's agents stay, whatever the form says.
		require.Equal(t, true, r.refresh(t, other)["signed_in"])
		foreign := b.get(r.link(t, "acc-2", false, "")).grants()
		require.NotEmpty(t, foreign)
		form := url.Values{"link": {linkIn(t, r.link(t, account, false, ""))}, "grant": {foreign[0]}}
		require.Equal(t, http.StatusOK, b.send(r.company.Issuer.ConnectedAgentsURL(), form, nil).status)
		require.Equal(t, true, r.refresh(t, other)["signed_in"])
	})
}

func linkIn(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	return u.Query().Get("link")
}

func TestConnectedAgents_LinksThatAreNoGood(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.9#17", "poppy-0.1/4.9#18")
	each(t, func(t *testing.T, r *rig) {
		tokens := r.connect(t, "poppy:read")
		b := r.browser(t)
		good := r.link(t, account, false, "")
		raw := linkIn(t, good)
		at := r.company.Issuer.ConnectedAgentsURL()
		sealed, err := base64.RawURLEncoding.DecodeString(raw)
		require.NoError(t, err)
		forged := append([]byte(nil), sealed...)
		forged[len(forged)-1] ^= 1
		purpose, err := r.Keys.Seal(r.company.Scope.CompanyID(), "sign-in", "", []byte(`{"account":"acc-1","expires":"2099-01-01T00:00:00Z"}`))
		require.NoError(t, err)
		nobody, err := r.Keys.Seal(r.company.Scope.CompanyID(), "connected agents link", "", []byte(`{"expires":"2099-01-01T00:00:00Z"}`))
		require.NoError(t, err)
		encode := base64.RawURLEncoding.EncodeToString
		const title = "This link has expired"
		for _, bad := range []string{"", "x", raw[:20], raw + "A", raw + "=", encode(forged), encode(purpose), encode(nobody), strings.Repeat("A", 5000), "é"} {
			b.get(at+"?"+url.Values{"link": {bad}}.Encode()).shows(t, http.StatusForbidden, title)
			b.send(at, url.Values{"link": {bad}, "grant": {"*"}}, nil).shows(t, http.StatusForbidden, title)
		}
		form := url.Values{"link": {raw}, "grant": {"*"}}
		b.send(at, form, http.Header{"Sec-Fetch-Site": {"cross-site"}}).shows(t, http.StatusForbidden, "This request came from another site")
		b.send(at, url.Values{"link": {raw}}, nil).shows(t, http.StatusBadRequest, "This link doesn’t work")
		b.get(good+"&link="+raw).shows(t, http.StatusBadRequest, "This link doesn’t work")

		mine := r.company
		r.company = r.NewCompany(t)
		r.setUp(nil)
		b.get(r.company.Issuer.ConnectedAgentsURL()+"?link="+raw).shows(t, http.StatusForbidden, title)
		b.send(r.company.Issuer.ConnectedAgentsURL(), form, nil).shows(t, http.StatusForbidden, title)
		r.company = mine

		for range 3 { // opening it does nothing
			require.Equal(t, http.StatusOK, b.head(good).status)
		}
		require.True(t, r.caller(t, tokens["access_token"]).GetSignedIn())
		r.Clock.Advance(15 * time.Minute)
		b.get(good).shows(t, http.StatusForbidden, title)
		b.send(at, form, nil).shows(t, http.StatusForbidden, title)
		require.True(t, r.caller(t, tokens["access_token"]).GetSignedIn())
	})
}

func TestConnectedAgents_Embedded(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.Domains = []string{"shop.example", "shop.test"}
		r.Changed(r.company)
		b := r.browser(t)
		p := b.get(r.link(t, account, true, "ja"))
		require.Equal(t, "ja", p.header.Get("Content-Language"))
		require.Contains(t, p.header.Get("Content-Security-Policy"), "frame-ancestors https://shop.example:* https://*.shop.example:* https://shop.test:* https://*.shop.test:*")
		require.Empty(t, p.header.Get("X-Frame-Options"))
		requireSafe(t, b.get(r.link(t, account, false, "")), false)

		// The frame can tell the User that the link is too old.
		old := r.link(t, account, true, "")
		r.Clock.Advance(time.Hour)
		p = b.get(old)
		p.shows(t, http.StatusForbidden, "This link has expired")
		require.Contains(t, p.header.Get("Content-Security-Policy"), "frame-ancestors https://shop.example")

		r.company.Snapshot.Domains = nil
		r.Changed(r.company)
		requireSafe(t, b.get(r.link(t, account, true, "")), false)
	})
}

func TestConnectedAgents_LinkOfAnotherCompany(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		_, err := r.logins.CreateConnectedAgentsLink(r.company.Ctx(t.Context()), &adminv1.CreateConnectedAgentsLinkRequest{
			Parent: r.NewCompany(t).Scope.Name(), Account: account,
		})
		require.True(t, problem.Is(err, problem.NotFoundReason), err)
	})
}
