package browser_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/test/fixture"
)

const joinAt = "https://shop.example/poppy/browser-session"

// joinable gives the Company a browser session endpoint, and the agent a Session.
func (r *rig) joinable(t testing.TB) (session string) {
	t.Helper()
	r.company.Snapshot.BrowserSession = &directoryv1.BrowserSession{Endpoint: joinAt, CookieName: "__Host-poppy"}
	r.company.Snapshot.Domains = []string{"shop.example"}
	r.Changed(r.company)
	te := r.company.Issuer.TokenEndpoint()
	opened, err := r.sessions.OpenSession(r.company.Ctx(t.Context()), &sessionsv1.OpenSessionRequest{
		ClientId: r.agent.ClientID, AgentName: "Agent", UserId: user,
		Proof: &sessionsv1.ProofOfRequest{Method: http.MethodPost, Url: te, Proofs: []string{fixture.Proof(t, r.key, http.MethodPost, te, "", r.now())}},
	})
	require.NoError(t, err)
	return opened.GetTokens().GetSessionId()
}

func (r *rig) join(t testing.TB, session string, changes ...fixture.Change) page {
	t.Helper()
	assertion := r.agent.BrowserAssertion(t, user, session, joinAt, "https://shop.example/orders", r.now(), changes...)
	// As a proxy that says the issuer's Host.
	at := r.company.Issuer.BrowserSessionEndpoint()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader(url.Values{"assertion": {assertion}}.Encode()))
	req.Header.Set("Content-Type", formType)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	r.web.ServeHTTP(w, req)
	return page{url: at, status: w.Code, header: w.Header(), body: w.Body.String()}
}

// requireSafeJoin is requireSafe for a page at the Company's own origin, with our styles.
func requireSafeJoin(t testing.TB, r *rig, p page) {
	t.Helper()
	csp := p.header.Get("Content-Security-Policy")
	require.Contains(t, csp, "style-src 'self' https://"+r.company.Issuer.Host()+";")
	p.header.Set("Content-Security-Policy", strings.ReplaceAll(csp, "'self' https://"+r.company.Issuer.Host(), "'self'"))
	requireSafe(t, p, false)
}

func TestJoin_PageOfARefusalIsSafe(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/5#33")
	each(t, func(t *testing.T, r *rig) {
		session := r.joinable(t)
		joined := r.join(t, session)
		require.Equal(t, http.StatusSeeOther, joined.status, joined.body)
		require.Contains(t, joined.header.Get("Set-Cookie"), "__Host-poppy=pbc_")
		require.Equal(t, "no-referrer", joined.header.Get("Referrer-Policy"))

		refused := r.join(t, session, fixture.Claim("return_to", "https://evil.example/<b>"))
		require.Equal(t, http.StatusBadRequest, refused.status)
		require.Contains(t, refused.body, "return_to")
		require.NotContains(t, refused.body, "evil.example")
		require.Empty(t, refused.header.Get("Set-Cookie"))
		requireSafeJoin(t, r, refused)
		require.NotContains(t, r.Logged.String(), "eyJ")
		require.NotContains(t, r.Logged.String(), "pbc_")
	})
}

// What is not the browser's fault is no refusal: the agent may post the same assertion again.
func TestJoin_NothingIsLetThroughWhileNobodyCanTell(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/5#d7")
	each(t, func(t *testing.T, r *rig) {
		session := r.joinable(t)
		r.Web.Down(true)
		p := r.join(t, session)
		require.Equal(t, http.StatusServiceUnavailable, p.status, p.body)
		r.Web.Down(false)
		require.Equal(t, http.StatusSeeOther, r.join(t, session).status)
		r.Bus.Close()
		p = r.join(t, session)
		require.Equal(t, http.StatusServiceUnavailable, p.status, p.body)
		require.Empty(t, p.header.Get("Set-Cookie"))
		requireSafeJoin(t, r, p)
	})
}

// A key that the agent has published since is fetched once.
func TestJoin_NewKeyOfTheAgent(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		session := r.joinable(t)
		require.Equal(t, http.StatusSeeOther, r.join(t, session).status)
		r.Clock.Advance(time.Minute)
		r.agent.KID, r.agent.Signer = "k2", fixture.NewKey(t)
		require.Equal(t, http.StatusBadRequest, r.join(t, session, fixture.SignedBy(fixture.NewKey(t))).status)
		r.publish(nil)
		r.Clock.Advance(time.Minute)
		require.Equal(t, http.StatusSeeOther, r.join(t, session).status)
	})
}

func TestJoin_FloodsAreHeldBack(t *testing.T) {
	r := newRig(t, dbtest.SQLite(t), auth.Config{RequestsPerMinute: 2})
	session := r.joinable(t)
	for range 2 {
		require.Equal(t, http.StatusSeeOther, r.join(t, session).status)
	}
	p := r.join(t, session)
	p.shows(t, http.StatusTooManyRequests, "Too many tries")
	require.NotEmpty(t, p.header.Get("Retry-After"))
}

func TestJoin_NotOfferedIsNotThere(t *testing.T) {
	r := newRig(t, dbtest.SQLite(t), auth.Config{RequestsPerMinute: -1})
	require.Equal(t, http.StatusNotFound, r.join(t, "ses_1").status)
}
