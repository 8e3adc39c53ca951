package auth_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestCode_Exchange(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4#26", "poppy-0.1/4.4#1", "poppy-0.1/4.4#21", "poppy-0.1/4.4#22", "poppy-0.1/4.4#30", "poppy-0.1/4.4#31", "poppy-0.1/4.4#32", "poppy-0.1/4.4#34", "poppy-0.1/4.4#35", "poppy-0.1/4.4#36",
		"poppy-0.1/4.4#44", "poppy-0.1/4.4#45", "poppy-0.1/4.4#d13", "poppy-0.1/4.5#1", "poppy-0.1/4.5#2", "poppy-0.1/4.5#18", "poppy-0.1/4.5#19", "poppy-0.1/4.5#20", "poppy-0.1/4.5#21",
		"poppy-0.1/4.5#22", "poppy-0.1/4.5#23", "poppy-0.1/4.5#24", "poppy-0.1/4.5#d30")
	eachSignIn(t, func(t *testing.T, r *rig) {
		first := r.ok(t, r.start(t))
		id := first.text("session_id")
		a := r.signedIn(t, id, both, "acc-1")
		r.requireSignedIn(t, a, id, both, "acc-1")
		require.Len(t, a.body, 8)
		// A token from before stays what it was.
		require.False(t, r.caller(t, first.text("access_token")).GetSignedIn())
		// The User may approve less than was asked for.
		other := r.session(t)
		r.requireSignedIn(t, r.signedIn(t, other, "addresses", "acc-2"), other, "addresses", "acc-2")
		// A second sign-in of the Session, with more, to the account it has.
		r.requireSignedIn(t, r.signedIn(t, other, both+" addresses", "acc-2"), other, both+" addresses", "acc-2")
		// An Account Token without an end says none.
		r.company.Snapshot.SignIn.AccountTokenLifetime = nil
		r.Changed(r.company)
		endless := r.signedIn(t, r.session(t), both, "acc-1")
		require.NotContains(t, endless.body, "refresh_token_expires_in")
		require.NotEmpty(t, endless.text("refresh_token"))
	})
}

// Everything that is wrong with an exchange; none of it uses the code up.
func TestCode_ExchangeRefused(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#d15", "poppy-0.1/4.5#d30", "poppy-0.1/4.4#41")
	clausetest.Refuses(t, "poppy-0.1/4.2#52", "poppy-0.1/4.2#56", "poppy-0.1/4.5#1", "poppy-0.1/4.5#2", "poppy-0.1/4.5#18", "poppy-0.1/4.5#19", "poppy-0.1/4.5#20", "poppy-0.1/4.5#21", "poppy-0.1/4.5#22", "poppy-0.1/4.5#23",
		"poppy-0.1/4.5#d15", "poppy-0.1/4.5#d30", "poppy-0.1/4.4#40", "poppy-0.1/4.4#41", "poppy-0.1/4.4#43", "poppy-0.1/4#d40")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id, taken := r.session(t), r.session(t)
		r.signedIn(t, taken, both, "acc-2")
		code := r.approve(t, r.agent, both, "acc-1")
		other := fixture.NewAgent(t, "other.example")
		r.Web.Publish(other)
		te := r.company.Issuer.TokenEndpoint()
		foreign := r.ok(t, r.startAt(t, r.company, other, user)).text("session_id")
		otherUser := r.ok(t, r.startAt(t, r.company, r.agent, "usr_other")).text("session_id")
		for name, c := range map[string]struct {
			change func(*request)
			status int
			code   string
		}{
			"unknown code":               {func(q *request) { q.set("code", "poc_unknown") }, bad, "invalid_grant"},
			"no code":                    {func(q *request) { q.set("code", "") }, bad, "invalid_request"},
			"wrong verifier":             {func(q *request) { q.set("code_verifier", strings.Repeat("x", 43)) }, bad, "invalid_grant"},
			"challenge as verifier":      {func(q *request) { q.set("code_verifier", fixture.Challenge(fixture.Verifier)) }, bad, "invalid_grant"},
			"no verifier":                {func(q *request) { q.set("code_verifier", "") }, bad, "invalid_request"},
			"RU-03 no redirect_uri":      {func(q *request) { q.set("redirect_uri", "") }, bad, "invalid_grant"},
			"RU-03 other redirect_uri":   {func(q *request) { q.set("redirect_uri", r.agent.RedirectURI()+"2") }, bad, "invalid_grant"},
			"RU-03 redirect_uri/":        {func(q *request) { q.set("redirect_uri", r.agent.RedirectURI()+"/") }, bad, "invalid_grant"},
			"no session":                 {func(q *request) { q.set("session_id", "") }, bad, "invalid_request"},
			"unknown session":            {func(q *request) { q.set("session_id", "ses_unknown") }, bad, "invalid_session"},
			"another agent's session":    {func(q *request) { q.set("session_id", foreign) }, bad, "invalid_session"},
			"session of another account": {func(q *request) { q.set("session_id", taken) }, bad, "account_mismatch"},
			"no client assertion":        {func(q *request) { q.set("client_assertion", "") }, unauthorized, "invalid_client"},
			"assertion for elsewhere": {func(q *request) {
				q.set("client_assertion", r.agent.ClientAssertion(t, "https://evil.example/", r.now()))
			}, unauthorized, "invalid_client"},
			"another agent": {func(q *request) {
				q.set("client_id", other.ClientID).set("client_assertion", other.ClientAssertion(t, te, r.now())).set("session_id", foreign)
			}, bad, "invalid_grant"},
			"no proof":   {func(q *request) { q.proofs = nil }, bad, "invalid_request"},
			"two proofs": {func(q *request) { q.proofs = append(q.proofs, q.proofs[0]) }, bad, "invalid_request"},
			"proof for another URL": {func(q *request) {
				q.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, te+"/", "", r.now())}
			}, bad, "invalid_dpop_proof"},
			"GW-08 two codes":   {func(q *request) { q.extra = "&code=" + code }, bad, "invalid_request"},
			"unlisted resource": {func(q *request) { q.set("resource", "https://evil.example/") }, bad, "invalid_target"},
			"code in the device": {func(q *request) {
				q.set("grant_type", "urn:ietf:params:oauth:grant-type:device_code").set("device_code", code)
			}, bad, "invalid_grant"},
			"code as refresh": {func(q *request) { q.set("grant_type", "refresh_token").set("refresh_token", code) }, bad, "invalid_grant"},
		} {
			t.Run(name, func(t *testing.T) {
				q := r.exchange(t, code, id)
				c.change(q)
				r.refused(t, q, c.status, c.code)
			})
		}
		// At another Company it is unknown.
		b := r.NewCompany(t)
		b.Snapshot.SignIn = fixture.SignIn()
		r.Changed(b)
		at := b.Issuer.TokenEndpoint()
		elsewhere := r.ok(t, r.startAt(t, b, r.agent, user)).text("session_id")
		q := &request{url: at, contentType: formType, form: r.agent.CodeForm(t, code, elsewhere, at, r.now())}
		q.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, at, "", r.now())}
		r.refused(t, q, bad, "invalid_grant")
		// And after all that it is as good as new, also for another of the agent's Users: the code names none.
		a := r.ok(t, r.exchange(t, code, otherUser).set("scope", "not  looked at"))
		r.requireSignedIn(t, a, otherUser, both, "acc-1")
	})
}

func TestCode_ReuseRevokes(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#25", "poppy-0.1/4.5#d15")
	clausetest.Refuses(t, "poppy-0.1/4.5#25", "poppy-0.1/4.5#d15")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id := r.session(t)
		code := r.approve(t, r.agent, both, "acc-1")
		a := r.ok(t, r.exchange(t, code, id))
		r.refused(t, r.exchange(t, code, id), bad, "invalid_grant")
		require.False(t, r.caller(t, a.text("access_token")).GetSignedIn())
		r.refused(t, r.refresh(t, a.text("refresh_token")), bad, "invalid_grant")
		r.ok(t, r.renew(t, id))
	})
}

func TestCode_Expires(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.5#25", "poppy-0.1/4.5#20")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id := r.session(t)
		code := r.approve(t, r.agent, both, "acc-1")
		r.Clock.Advance(61 * time.Second)
		r.refused(t, r.exchange(t, code, id), bad, "invalid_grant")
	})
}

// Twenty exchanges of one code at once, in two processes: one wins, and reuse revokes.
func TestCode_ParallelExchangesHaveOneWinner(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#d15")
	clausetest.Refuses(t, "poppy-0.1/4.5#25")
	eachSignIn(t, func(t *testing.T, r *rig) {
		const n = 20
		id := r.session(t)
		code := r.approve(t, r.agent, both, "acc-1")
		answers, requests := make([]answer, n), make([]*request, n)
		for i := range requests {
			requests[i] = r.exchange(t, code, id)
		}
		var wait sync.WaitGroup
		for i, q := range requests {
			wait.Go(func() { answers[i] = r.sendTo(t, []http.Handler{r.web, r.replica}[i%2], q) })
		}
		wait.Wait()
		var won []answer
		for _, a := range answers {
			if a.status == http.StatusOK {
				won = append(won, a)
				continue
			}
			require.Equal(t, "invalid_grant", a.text("error"), a.raw)
		}
		require.Len(t, won, 1)
		require.False(t, r.caller(t, won[0].text("access_token")).GetSignedIn())
		r.refused(t, r.refresh(t, won[0].text("refresh_token")), bad, "invalid_grant")
	})
}

func TestToken_GrantsFollowWhatIsOffered(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#3", "poppy-0.1/4.4#4")
	clausetest.Refuses(t, "poppy-0.1/4.4#3", "poppy-0.1/4.4#4", "poppy-0.1/4.2#65")
	eachSignIn(t, func(t *testing.T, r *rig) {
		s := r.company.Snapshot.GetSignIn()
		id := r.session(t)
		try := func(direct, device, refresh string) {
			t.Helper()
			r.Changed(r.company)
			r.refused(t, r.exchange(t, "poc_unknown", id), bad, direct)
			r.refused(t, r.poll(t, "pdc_unknown", id), bad, device)
			r.refused(t, r.refresh(t, "pat_unknown"), bad, refresh)
		}
		const no, yes = "unsupported_grant_type", "invalid_grant"
		try(yes, yes, yes)
		direct, device := s.GetDirectScopes(), s.GetDeviceScopes()
		s.DirectScopes = nil
		try(no, yes, yes)
		s.DirectScopes, s.DeviceScopes = direct, nil
		try(yes, no, yes)
		s.DirectScopes = nil
		try(no, no, yes) // Mediated Sign-In gives Account Tokens too
		s.MediatedScopes = nil
		try(no, no, no)
		s.DirectScopes, s.DeviceScopes = direct, device
		r.company.Snapshot.SignIn = nil
		try(no, no, no)
		r.ok(t, r.renew(t, id))
	})
}

// Every grant asks for a nonce where the Company does, and uses nothing up without one.
func TestDP25_NonceAtEveryGrant(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#18", "poppy-0.1/4.6#13", "poppy-0.1/4.8#3")
	clausetest.Refuses(t, "poppy-0.1/4.5#18", "poppy-0.1/4.6#13", "poppy-0.1/4.8#3")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id, second := r.session(t), r.session(t)
		account := r.signedIn(t, id, both, "acc-1").text("refresh_token")
		code := r.approve(t, r.agent, both, "acc-1")
		started := r.ok(t, r.device(t, both))
		r.decide(t, started.text("user_code"), both, "acc-1")
		r.policy(t, open, true)
		for name, ask := range map[string]func() *request{
			"code":    func() *request { return r.exchange(t, code, id) },
			"device":  func() *request { return r.poll(t, started.text("device_code"), second) },
			"refresh": func() *request { return r.refresh(t, account) },
		} {
			t.Run(name, func(t *testing.T) {
				q := ask()
				a := r.refused(t, q, bad, "use_dpop_nonce")
				nonce := a.header.Get("DPoP-Nonce")
				require.NotEmpty(t, nonce)
				require.Contains(t, a.header.Get("WWW-Authenticate"), "DPoP")
				// The client assertion wasn't used up either.
				q.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, q.url, "", r.now(), fixture.Claim("nonce", nonce))}
				require.NotEmpty(t, r.ok(t, q).header.Get("DPoP-Nonce"))
			})
		}
		// No proof, no nonce: a device authorization request is as it was.
		require.Empty(t, r.ok(t, r.device(t, both)).header.Get("DPoP-Nonce"))
	})
}

// A blocked agent gets nothing for what it was given before.
func TestCode_BlockedAgent(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#20", "poppy-0.1/4.5#22")
	clausetest.Covers(t, "poppy-0.1/4.4#7")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id := r.session(t)
		token := r.signedIn(t, id, both, "acc-1").text("refresh_token")
		code := r.approve(t, r.agent, both, "acc-1")
		r.rule(t, r.company, r.agent.ClientID, block)
		r.refused(t, r.exchange(t, code, id), unauthorized, "invalid_client")
		r.refused(t, r.refresh(t, token), unauthorized, "invalid_client")
		r.refused(t, r.device(t, both), unauthorized, "invalid_client")
		_, err := r.signIns.CheckAgent(r.company.Ctx(t.Context()), &sessionsv1.CheckAgentRequest{ClientId: r.agent.ClientID})
		requireReason(t, err, problem.InvalidClient)
	})
}
