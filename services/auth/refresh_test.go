package auth_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// requireRefreshed checks that a is the answer to a use of an Account Token.
func (r *rig) requireRefreshed(t *testing.T, a answer, scope, account string) {
	t.Helper()
	require.Equal(t, "DPoP", a.text("token_type"))
	require.Equal(t, true, a.body["signed_in"])
	require.Equal(t, scope, a.text("scope"))
	require.NotContains(t, a.body, "refresh_token")
	require.NotContains(t, a.body, "refresh_token_expires_in")
	require.Len(t, a.body, 6)
	c := r.caller(t, a.text("access_token"))
	require.True(t, c.GetSignedIn())
	require.Equal(t, account, c.GetAccount())
	require.Equal(t, a.text("session_id"), c.GetSessionId())
}

func TestRefresh_AccountToken(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#1", "poppy-0.1/4.8#2", "poppy-0.1/4.8#3", "poppy-0.1/4.8#4", "poppy-0.1/4.8#5", "poppy-0.1/4.8#6", "poppy-0.1/4.8#7", "poppy-0.1/4.8#10",
		"poppy-0.1/4.8#11", "poppy-0.1/4.8#d14", "poppy-0.1/4.9#16", "poppy-0.1/4.4#12", "poppy-0.1/4#8", "poppy-0.1/4#21", "poppy-0.1/4#29")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id := r.session(t)
		token := r.signedIn(t, id, both, "acc-1").text("refresh_token")
		// Without a Session a new one begins, signed in.
		a := r.ok(t, r.refresh(t, token))
		r.requireRefreshed(t, a, both, "acc-1")
		require.NotEqual(t, id, a.text("session_id"))
		// The Session it came from, another signed-out one, and one it has signed in.
		out := r.session(t)
		for _, session := range []string{id, out, out, a.text("session_id")} {
			again := r.ok(t, r.refresh(t, token).set("session_id", session))
			r.requireRefreshed(t, again, both, "acc-1")
			require.Equal(t, session, again.text("session_id"))
		}
		// A resource, and a Bearer token for MCP.
		shop := r.company.Snapshot.GetResources()[0]
		require.Equal(t, "DPoP", r.ok(t, r.refresh(t, token).set("resource", shop)).text("token_type"))
		q := r.refresh(t, token).set("resource", r.company.Snapshot.GetMcpUrls()[0])
		q.proofs = nil
		bearer := r.ok(t, q)
		require.Equal(t, "Bearer", bearer.text("token_type"))
		require.Equal(t, true, bearer.body["signed_in"])
		q = r.refresh(t, token)
		q.proofs = nil
		r.refused(t, q, bad, "invalid_request")
	})
}

func TestRT06_ScopeNarrowsAndNeverWidens(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#14")
	clausetest.Refuses(t, "poppy-0.1/4.8#14", "poppy-0.1/4.8#15")
	eachSignIn(t, func(t *testing.T, r *rig) {
		token := r.signedIn(t, r.session(t), both, "acc-1").text("refresh_token")
		narrow := r.ok(t, r.refresh(t, token).set("scope", "poppy:read"))
		r.requireRefreshed(t, narrow, "poppy:read", "acc-1")
		require.Equal(t, []string{"poppy:read"}, r.caller(t, narrow.text("access_token")).GetScopes())
		full := r.refresh(t, token)
		full.extra = "&scope="
		r.requireRefreshed(t, r.ok(t, full), both, "acc-1")
		for _, scope := range []string{both + " addresses", "addresses", "unknown", "poppy:read poppy:read", "poppy:read  poppy:write", " poppy:read", "POPPY:READ"} {
			r.refused(t, r.refresh(t, token).set("scope", scope), bad, "invalid_scope")
		}
		// The narrowed token stays narrow.
		require.Equal(t, []string{"poppy:read"}, r.caller(t, narrow.text("access_token")).GetScopes())
	})
}

func TestRT07_OtherAgentUserOrAccount(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#12", "poppy-0.1/4.8#13", "poppy-0.1/4.8#d33", "poppy-0.1/4.9#d33", "poppy-0.1/4.4#43")
	clausetest.Refuses(t, "poppy-0.1/4.8#8", "poppy-0.1/4.8#9", "poppy-0.1/4.8#10", "poppy-0.1/4.8#11", "poppy-0.1/4.8#12", "poppy-0.1/4.8#13", "poppy-0.1/4.8#d33", "poppy-0.1/4.9#d33",
		"poppy-0.1/4.8#2", "poppy-0.1/4.8#3", "poppy-0.1/4.8#6", "poppy-0.1/4.4#43", "poppy-0.1/4#d40")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id, taken := r.session(t), r.session(t)
		token := r.signedIn(t, id, both, "acc-1").text("refresh_token")
		second := r.signedIn(t, taken, both, "acc-2").text("refresh_token")
		other := fixture.NewAgent(t, "other.example")
		r.Web.Publish(other)
		te := r.company.Issuer.TokenEndpoint()
		asOther := func(q *request) {
			q.set("client_id", other.ClientID).set("client_assertion", other.ClientAssertion(t, te, r.now()))
		}
		foreign := r.ok(t, r.startAt(t, r.company, other, user)).text("session_id")
		otherUser := r.ok(t, r.startAt(t, r.company, r.agent, "usr_other")).text("session_id")
		for name, c := range map[string]struct {
			change func(*request)
			status int
			code   string
		}{
			"RT-07 another agent":            {asOther, bad, "invalid_grant"},
			"RT-07 another agent's session":  {func(q *request) { q.set("session_id", foreign) }, bad, "invalid_session"},
			"RT-07 another User's session":   {func(q *request) { q.set("session_id", otherUser) }, bad, "invalid_session"},
			"unknown session":                {func(q *request) { q.set("session_id", "ses_unknown") }, bad, "invalid_session"},
			"RT-07 another account's":        {func(q *request) { q.set("session_id", taken) }, bad, "account_mismatch"},
			"unknown token":                  {func(q *request) { q.set("refresh_token", "pat_unknown") }, bad, "invalid_grant"},
			"Session Token":                  {func(q *request) { q.set("refresh_token", r.ok(t, r.start(t)).text("access_token")) }, bad, "invalid_grant"},
			"no token":                       {func(q *request) { q.set("refresh_token", "") }, bad, "invalid_request"},
			"no client assertion":            {func(q *request) { q.set("client_assertion", "") }, unauthorized, "invalid_client"},
			"public client":                  {func(q *request) { q.set("client_assertion", "").set("client_assertion_type", "") }, unauthorized, "invalid_client"},
			"broken proof":                   {func(q *request) { q.proofs = []string{"x"} }, bad, "invalid_dpop_proof"},
			"unlisted resource":              {func(q *request) { q.set("resource", "https://evil.example/") }, bad, "invalid_target"},
			"LG-03 refresh_token in a query": {func(q *request) { q.url += "?refresh_token=" + token }, bad, "invalid_request"},
		} {
			t.Run(name, func(t *testing.T) {
				q := r.refresh(t, token)
				c.change(q)
				require.NotContains(t, r.refused(t, q, c.status, c.code).raw, token)
			})
		}
		// It isn't accepted anywhere else.
		requireReason(t, r.use(t, token, r.key), problem.InvalidToken)
		a := r.refusedMediated(t, r.credentials(t, token, "poppy:read", email, password), unauthorized, "invalid_token")
		require.Contains(t, a.header.Get("WWW-Authenticate"), "DPoP")
		// Another agent's revocation is answered like its own, and does nothing.
		foreignRevocation := r.revocation(t, token)
		asOther(foreignRevocation)
		require.Empty(t, r.ok(t, foreignRevocation).raw)
		// Nor at another Company.
		b := r.NewCompany(t)
		b.Snapshot.SignIn = fixture.SignIn()
		r.Changed(b)
		at := b.Issuer.TokenEndpoint()
		q := &request{url: at, contentType: formType, form: r.agent.RefreshForm(t, token, at, r.now())}
		q.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, at, "", r.now())}
		r.refused(t, q, bad, "invalid_grant")

		r.requireRefreshed(t, r.ok(t, r.refresh(t, token).set("session_id", id)), both, "acc-1")
		r.requireRefreshed(t, r.ok(t, r.refresh(t, second).set("session_id", taken)), both, "acc-2")
	})
}

func TestRefresh_LifetimeIsNotExtended(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4#16", "poppy-0.1/4.8#16", "poppy-0.1/4.8#19", "poppy-0.1/4.8#20", "poppy-0.1/4.4#36", "poppy-0.1/4.4#37", "poppy-0.1/4.9#d13")
	clausetest.Refuses(t, "poppy-0.1/4.8#16", "poppy-0.1/4.8#19", "poppy-0.1/4.4#37", "poppy-0.1/4.9#d13")
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.SessionIdleLifetime = nil
		r.Changed(r.company)
		id := r.session(t)
		token := r.signedIn(t, id, both, "acc-1").text("refresh_token")
		r.Clock.Advance(days30*time.Second - 30*time.Minute)
		last := r.ok(t, r.refresh(t, token).set("session_id", id)).text("access_token")
		require.True(t, r.caller(t, last).GetSignedIn())
		r.Clock.Advance(30 * time.Minute)
		r.refused(t, r.refresh(t, token), bad, "invalid_grant")
		r.refused(t, r.refresh(t, token).set("session_id", id), bad, "invalid_grant")
		require.False(t, r.caller(t, last).GetSignedIn(), "a token is no better than its sign-in")
		require.Equal(t, false, r.ok(t, r.renew(t, id)).body["signed_in"])
	})
}

func TestRT01_ParallelRefreshesSignNobodyOut(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#1", "poppy-0.1/4.8#17", "poppy-0.1/4.8#d14")
	eachSignIn(t, func(t *testing.T, r *rig) {
		for _, rotate := range []bool{false, true} {
			r.company.Snapshot.SignIn.RotateAccountTokens = rotate
			r.Changed(r.company)
			const n = 20
			token := r.signedIn(t, r.session(t), both, "acc-1").text("refresh_token")
			answers, requests := make([]answer, n), make([]*request, n)
			for i := range requests {
				requests[i] = r.refresh(t, token)
			}
			var wait sync.WaitGroup
			for i, q := range requests {
				wait.Go(func() { answers[i] = r.sendTo(t, []http.Handler{r.web, r.replica}[i%2], q) })
			}
			wait.Wait()
			for _, a := range answers {
				require.Equal(t, http.StatusOK, a.status, a.raw)
				require.Equal(t, answers[0].text("refresh_token"), a.text("refresh_token"), "everybody gets the same successor")
				require.True(t, r.caller(t, a.text("access_token")).GetSignedIn())
			}
			if !rotate {
				require.Empty(t, answers[0].text("refresh_token"))
				continue
			}
			successor := answers[0].text("refresh_token")
			require.NotEqual(t, token, successor)
			require.Contains(t, answers[0].body, "refresh_token_expires_in")
			r.ok(t, r.refresh(t, successor))
		}
	})
}

func TestRefresh_RotationAndReuse(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#17", "poppy-0.1/4.8#16", "poppy-0.1/4.8#d14")
	clausetest.Refuses(t, "poppy-0.1/4.8#d14", "poppy-0.1/4.8#19")
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.SignIn.RotateAccountTokens = true
		r.Changed(r.company)
		first := r.signedIn(t, r.session(t), both, "acc-1").text("refresh_token")
		r.Clock.Advance(time.Hour)
		a := r.ok(t, r.refresh(t, first))
		second := a.text("refresh_token")
		require.InDelta(t, days30-3600, a.body["refresh_token_expires_in"], 1, "the sign-in ends when it would have")
		r.Clock.Advance(59 * time.Second)
		again := r.ok(t, r.refresh(t, first))
		require.Equal(t, second, again.text("refresh_token"))
		r.Clock.Advance(2 * time.Second)
		r.refused(t, r.refresh(t, first), bad, "invalid_grant")
		r.refused(t, r.refresh(t, second), bad, "invalid_grant")
		require.False(t, r.caller(t, again.text("access_token")).GetSignedIn())
	})
}

func TestSC05_ScopeIsInTheAnswerOfEveryGrant(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#37", "poppy-0.1/4.4#32")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id := r.session(t)
		a := r.signedIn(t, id, "poppy:write", "acc-1")
		started := r.ok(t, r.device(t, both))
		r.decide(t, started.text("user_code"), "poppy:read", "acc-1")
		r.Accounts.Put("nia@example.com", fixture.Account{ID: "acc-1", Password: password})
		token := r.ok(t, r.renew(t, id)).text("access_token")
		for scope, a := range map[string]answer{
			"":            r.ok(t, r.renew(t, id)),
			"poppy:write": r.ok(t, r.refresh(t, a.text("refresh_token"))),
			"poppy:read":  r.ok(t, r.poll(t, started.text("device_code"), id)),
			"addresses":   r.status(t, r.credentials(t, token, "addresses", "nia@example.com", password), "complete"),
		} {
			require.Contains(t, a.body, "scope")
			require.Equal(t, scope, a.text("scope"))
		}
		require.Equal(t, "poppy:write", a.text("scope"))
	})
}

func TestSignOut_ActsAtOnce(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#1", "poppy-0.1/4.9#2", "poppy-0.1/4.9#4", "poppy-0.1/4.9#5", "poppy-0.1/4.9#6", "poppy-0.1/4.9#7", "poppy-0.1/4.9#8", "poppy-0.1/4.9#12", "poppy-0.1/4.9#13",
		"poppy-0.1/4.9#d13", "poppy-0.1/4.8#20", "poppy-0.1/4.8#19", "poppy-0.1/4.4#d13")
	clausetest.Refuses(t, "poppy-0.1/4.9#1", "poppy-0.1/4.9#5", "poppy-0.1/4.9#6", "poppy-0.1/4.9#13", "poppy-0.1/4.9#d13", "poppy-0.1/4.8#19")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id := r.session(t)
		a := r.signedIn(t, id, both, "acc-1")
		account := a.text("refresh_token")
		elsewhere := r.ok(t, r.refresh(t, account))
		kept := r.signedIn(t, r.session(t), both, "acc-1")
		for range 2 { // RV-01: again, and nothing tells
			b := r.ok(t, r.revocation(t, account).set("token_type_hint", "access_token"))
			require.Empty(t, b.raw)
			require.Equal(t, "no-store", b.header.Get("Cache-Control"))
		}
		for _, token := range []string{a.text("access_token"), elsewhere.text("access_token")} {
			require.False(t, r.caller(t, token).GetSignedIn())
		}
		require.True(t, r.caller(t, kept.text("access_token")).GetSignedIn(), "another sign-in's tokens go on")
		r.refused(t, r.refresh(t, account), bad, "invalid_grant")
		// The Session goes on signed out, and old tokens don't come back to life with it.
		require.Equal(t, false, r.ok(t, r.renew(t, id)).body["signed_in"])
		r.signedIn(t, id, both, "acc-1")
		require.False(t, r.caller(t, a.text("access_token")).GetSignedIn())
	})
}

func TestSignOut_MayEndSessions(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#9", "poppy-0.1/4.9#10")
	clausetest.Refuses(t, "poppy-0.1/4.9#9", "poppy-0.1/4.9#10")
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.SignIn.EndSessionsAtSignOut = true
		r.Changed(r.company)
		id, other := r.session(t), r.session(t)
		a := r.signedIn(t, id, both, "acc-1")
		r.ok(t, r.revocation(t, a.text("refresh_token")))
		requireReason(t, r.use(t, a.text("access_token"), r.key), problem.InvalidToken)
		r.refused(t, r.renew(t, id), bad, "invalid_session")
		r.ok(t, r.renew(t, other))
	})
}

func TestRV07_DisconnectIsTheAccounts(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#18", "poppy-0.1/4.9#19")
	clausetest.Refuses(t, "poppy-0.1/4.9#18", "poppy-0.1/4.9#19")
	eachSignIn(t, func(t *testing.T, r *rig) {
		first, again := r.signedIn(t, r.session(t), both, "acc-1"), r.signedIn(t, r.session(t), both, "acc-1")
		other := r.signedIn(t, r.session(t), both, "acc-2")
		_, err := r.connected.Disconnect(r.company.Ctx(t.Context()), &sessionsv1.DisconnectRequest{AccountId: "acc-1"})
		require.NoError(t, err)
		for _, a := range []answer{first, again} {
			r.refused(t, r.refresh(t, a.text("refresh_token")), bad, "invalid_grant")
			require.False(t, r.caller(t, a.text("access_token")).GetSignedIn())
		}
		r.ok(t, r.refresh(t, other.text("refresh_token")))
		require.True(t, r.caller(t, other.text("access_token")).GetSignedIn())
	})
}
