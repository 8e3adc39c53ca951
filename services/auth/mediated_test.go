package auth_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
)

const careful = "careful@example.com"

// withCode adds an account that needs a one-time code.
func (r *rig) withCode() {
	r.Accounts.Put(careful, fixture.Account{ID: "acc-9", Password: password, Code: "246810"})
}

// token starts a Session and returns its token and id.
func (r *rig) token(t testing.TB) (token, id string) {
	t.Helper()
	a := r.ok(t, r.start(t))
	return a.text("access_token"), a.text("session_id")
}

func TestMediated_Complete(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#2", "poppy-0.1/4.7#3", "poppy-0.1/4.7#4", "poppy-0.1/4.7#8", "poppy-0.1/4.7#9", "poppy-0.1/4.7#10", "poppy-0.1/4.7#11", "poppy-0.1/4.7#21", "poppy-0.1/4.7#24",
		"poppy-0.1/4.4#31", "poppy-0.1/4.4#34", "poppy-0.1/4.4#44", "poppy-0.1/4.4#45", "poppy-0.1/4.3#d28")
	eachSignIn(t, func(t *testing.T, r *rig) {
		token, id := r.token(t)
		a := r.status(t, r.credentials(t, token, "poppy:read", email, password), "complete")
		r.requireSignedIn(t, a, id, "poppy:read", "acc-1")
		require.Len(t, a.body, 9)
		require.False(t, r.caller(t, token).GetSignedIn())
		// The Account Token is like any other.
		r.requireRefreshed(t, r.ok(t, r.refresh(t, a.text("refresh_token"))), "poppy:read", "acc-1")
		// With the signed-in token, for the same account once more.
		again := r.status(t, r.credentials(t, a.text("access_token"), "addresses poppy:read", email, password), "complete")
		r.requireSignedIn(t, again, id, "addresses poppy:read", "acc-1")

		asked := r.Accounts.Asked()
		require.Len(t, asked, 2)
		require.Equal(t, r.company.Snapshot.SignIn.GetCredentialCheckUrl(), asked[0].GetUrl())
		require.Equal(t, map[string]string{"email": email, "password": password}, asked[0].GetCredentials().GetFields())
		subject := asked[0].GetSubject()
		require.Equal(t, r.agent.ClientID, subject.GetClientId())
		require.Equal(t, "Example Agent", subject.GetAgentName())
		require.Equal(t, user, subject.GetUserId())
		require.Equal(t, id, subject.GetSessionId())
		require.Equal(t, []string{"poppy:read"}, subject.GetScopes())
		require.Equal(t, "mediated", subject.GetSignIn())
		require.True(t, strings.HasPrefix(asked[0].GetId(), subject.GetSignInId()+"_"))
		require.NotEqual(t, asked[0].GetId(), asked[1].GetId())
	})
}

func TestMediated_WrongCredentials(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#21", "poppy-0.1/4.7#d32", "poppy-0.1/4.7#24", "poppy-0.1/4.4#30")
	clausetest.Refuses(t, "poppy-0.1/4.7#11", "poppy-0.1/4.7#21")
	eachSignIn(t, func(t *testing.T, r *rig) {
		token, id := r.token(t)
		before := r.signedIn(t, id, both, "acc-1")
		for _, m := range []*mediated{
			r.credentials(t, token, "poppy:read", email, "wrong"),
			r.credentials(t, token, "poppy:read", "nobody@example.com", password),
		} {
			require.Equal(t, `{"status":"failed"}`, r.status(t, m, "failed").raw)
		}
		require.True(t, r.caller(t, before.text("access_token")).GetSignedIn(), "what there was before is as it was")
		r.ok(t, r.refresh(t, before.text("refresh_token")))
	})
}

func TestMediated_Refused(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#d32", "poppy-0.1/4.4#24", "poppy-0.1/4.4#25", "poppy-0.1/4.4#26", "poppy-0.1/4.7#24")
	clausetest.Refuses(t, "poppy-0.1/4.7#4", "poppy-0.1/4.7#8", "poppy-0.1/4.7#9", "poppy-0.1/4.7#10", "poppy-0.1/4.7#d32", "poppy-0.1/4.4#22", "poppy-0.1/4.4#23", "poppy-0.1/4.4#24", "poppy-0.1/4.4#25",
		"poppy-0.1/4.4#26", "poppy-0.1/4.3#d28", "poppy-0.1/4.3#d26", "poppy-0.1/4.3#45", "poppy-0.1/4.7#24")
	eachSignIn(t, func(t *testing.T, r *rig) {
		token, _ := r.token(t)
		endpoint := r.company.Issuer.SignInEndpoint()
		full := `"credentials":{"email":"` + email + `","password":"` + password + `"}`
		for name, c := range map[string]struct {
			change func(*mediated)
			status int
			code   string
		}{
			"no token":      {func(m *mediated) { m.authorization = nil }, unauthorized, "invalid_token"},
			"unknown token": {func(m *mediated) { m.authorization = []string{"DPoP pst_unknown"} }, unauthorized, "invalid_token"},
			"as Bearer":     {func(m *mediated) { m.authorization = []string{"Bearer " + token} }, unauthorized, "invalid_token"},
			"two tokens":    {func(m *mediated) { m.authorization = append(m.authorization, m.authorization[0]) }, bad, "invalid_request"},
			"no proof":      {func(m *mediated) { m.proofs = nil }, unauthorized, "invalid_dpop_proof"},
			"proof of another key": {func(m *mediated) {
				m.proofs = []string{fixture.Proof(t, fixture.NewKey(t), http.MethodPost, endpoint, token, r.now())}
			}, unauthorized, "invalid_dpop_proof"},
			"proof of another URL": {func(m *mediated) {
				m.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, endpoint+"/", token, r.now())}
			}, unauthorized, "invalid_dpop_proof"},
			"proof without a hash": {func(m *mediated) {
				m.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, endpoint, "", r.now())}
			}, unauthorized, "invalid_dpop_proof"},
			"token in the query": {func(m *mediated) { m.url += "?access_token=" + token }, bad, "invalid_request"},
			"no body":            {func(m *mediated) { m.body = "" }, bad, "invalid_request"},
			"a form":             {func(m *mediated) { m.body = "scope=poppy:read&email=m&password=" + password }, bad, "invalid_request"},
			"no credentials":     {func(m *mediated) { m.body = `{"scope":"poppy:read"}` }, bad, "invalid_request"},
			"a field missing":    {func(m *mediated) { m.body = `{"scope":"poppy:read","credentials":{"email":"m"}}` }, bad, "invalid_request"},
			"an unknown field": {func(m *mediated) {
				m.body = `{"scope":"poppy:read","credentials":{"email":"m","password":"p","pin":"` + password + `"}}`
			}, bad, "invalid_request"},
			"a field twice": {func(m *mediated) {
				m.body = `{"scope":"poppy:read","credentials":{"email":"m","password":"p","password":"` + password + `"}}`
			}, bad, "invalid_request"},
			"too large":              {func(m *mediated) { m.body = strings.Repeat(" ", 64<<10) + m.body }, http.StatusRequestEntityTooLarge, "request_too_large"},
			"SC-03 no scope":         {func(m *mediated) { m.body = `{` + full + `}` }, bad, "invalid_scope"},
			"SC-03 empty":            {func(m *mediated) { m.body = `{"scope":"",` + full + `}` }, bad, "invalid_scope"},
			"SC-03 a list":           {func(m *mediated) { m.body = `{"scope":["poppy:read"],` + full + `}` }, bad, "invalid_scope"},
			"SC-03 unknown":          {func(m *mediated) { m.body = `{"scope":"poppy:read foo",` + full + `}` }, bad, "invalid_scope"},
			"SC-03 reserved unknown": {func(m *mediated) { m.body = `{"scope":"poppy:admin",` + full + `}` }, bad, "invalid_scope"},
			"SC-03 another type's":   {func(m *mediated) { m.body = `{"scope":"poppy:write",` + full + `}` }, bad, "invalid_scope"},
			"SC-03 two spaces":       {func(m *mediated) { m.body = `{"scope":"poppy:read  addresses",` + full + `}` }, bad, "invalid_scope"},
			"SC-03 twice":            {func(m *mediated) { m.body = `{"scope":"poppy:read poppy:read",` + full + `}` }, bad, "invalid_scope"},
		} {
			t.Run(name, func(t *testing.T) {
				m := r.credentials(t, token, "poppy:read", email, password)
				c.change(m)
				a := r.refusedMediated(t, m, c.status, c.code)
				if c.status == unauthorized {
					require.Contains(t, a.header.Get("WWW-Authenticate"), "DPoP")
				}
			})
		}
		require.Empty(t, r.Accounts.Asked(), "the Company isn't asked for any of these")
		// A member that nobody knows is no reason to refuse.
		m := r.credentials(t, token, "poppy:read", email, password)
		m.body = `{"future":[1],"scope":"poppy:read",` + full + `}`
		r.status(t, m, "complete")
	})
}

func TestMediated_NonceWhereAskedFor(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#9")
	clausetest.Refuses(t, "poppy-0.1/4.7#9")
	eachSignIn(t, func(t *testing.T, r *rig) {
		token, _ := r.token(t)
		r.policy(t, open, true)
		m := r.credentials(t, token, "poppy:read", email, password)
		a := r.refusedMediated(t, m, unauthorized, "use_dpop_nonce")
		m.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, m.url, token, r.now(), fixture.Claim("nonce", a.header.Get("DPoP-Nonce")))}
		require.NotEmpty(t, r.status(t, m, "complete").header.Get("DPoP-Nonce"))
	})
}

func TestMediated_AnotherAccount(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#41")
	clausetest.Refuses(t, "poppy-0.1/4.4#40", "poppy-0.1/4.4#41")
	eachSignIn(t, func(t *testing.T, r *rig) {
		token, id := r.token(t)
		r.signedIn(t, id, both, "acc-2")
		r.refusedMediated(t, r.credentials(t, token, "poppy:read", email, password), bad, "account_mismatch")
	})
}

func TestMediated_OneTimeCode(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4#28", "poppy-0.1/4.7#12", "poppy-0.1/4.7#13", "poppy-0.1/4.7#14", "poppy-0.1/4.7#15", "poppy-0.1/4.7#16", "poppy-0.1/4.7#17", "poppy-0.1/4.7#18", "poppy-0.1/4.7#24", "poppy-0.1/4.4#30")
	clausetest.Refuses(t, "poppy-0.1/4.7#17", "poppy-0.1/4.7#18")
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.withCode()
		token, id := r.token(t)
		a := r.status(t, r.credentials(t, token, "poppy:read", careful, password), "code_required")
		require.Len(t, a.body, 4)
		require.Regexp(t, `^sgn_[0-9a-z]{26}$`, a.text("sign_in_id"))
		require.Equal(t, map[string]any{"sent_to": "Text to the phone number ending in 71"}, a.body["code"])
		expires, err := time.Parse(time.RFC3339, a.text("expires_at"))
		require.NoError(t, err)
		require.True(t, expires.Equal(r.now().Add(5*time.Minute)))
		require.False(t, r.caller(t, token).GetSignedIn())

		signIn := a.text("sign_in_id")
		wrong := r.status(t, r.oneTimeCode(t, token, signIn, "000000"), "code_required")
		require.Equal(t, a.raw, wrong.raw)
		// Any token of the Session will do, in any process.
		renewed := r.ok(t, r.renew(t, id)).text("access_token")
		right := r.oneTimeCode(t, renewed, signIn, "246810")
		right.replica = true
		r.requireSignedIn(t, r.status(t, right, "complete"), id, "poppy:read", "acc-9")
		// It was good once.
		r.refusedMediated(t, r.oneTimeCode(t, token, signIn, "246810"), http.StatusNotFound, "sign_in_not_found")

		asked := r.Accounts.Asked()
		require.Equal(t, "246810", asked[len(asked)-1].GetCode().GetCode())
		require.Equal(t, signIn, asked[len(asked)-1].GetSubject().GetSignInId())
		require.Nil(t, asked[len(asked)-1].GetCredentials())
	})
}

func TestMediated_CodeRefused(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#19", "poppy-0.1/4.7#20", "poppy-0.1/4.7#22", "poppy-0.1/4.7#d32")
	clausetest.Refuses(t, "poppy-0.1/4.7#14", "poppy-0.1/4.7#15", "poppy-0.1/4.7#16", "poppy-0.1/4.7#19", "poppy-0.1/4.7#20", "poppy-0.1/4.7#22", "poppy-0.1/4.7#d32", "poppy-0.1/4.7#9", "poppy-0.1/4#d40")
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.withCode()
		token, _ := r.token(t)
		begin := func() string {
			return r.status(t, r.credentials(t, token, "poppy:read", careful, password), "code_required").text("sign_in_id")
		}
		signIn := begin()
		// Somebody else's, and one that never was: the same bytes.
		other, _ := r.token(t)
		want := r.refusedMediated(t, r.oneTimeCode(t, token, "sgn_unknown", "246810"), http.StatusNotFound, "sign_in_not_found")
		require.Equal(t, want.raw, r.refusedMediated(t, r.oneTimeCode(t, other, signIn, "246810"), http.StatusNotFound, "sign_in_not_found").raw)
		for name, body := range map[string]string{"no body": "", "no code": "{}", "a number": `{"code":246810}`, "credentials": `{"credentials":{"password":"` + password + `"}}`, "empty": `{"code":""}`} {
			t.Run(name, func(t *testing.T) {
				r.refusedMediated(t, r.mediatedAt(t, token, signIn, body), bad, "invalid_request")
			})
		}
		noProof := r.oneTimeCode(t, token, signIn, "246810")
		noProof.proofs = nil
		r.refusedMediated(t, noProof, unauthorized, "invalid_dpop_proof")
		forTheStart := r.oneTimeCode(t, token, signIn, "246810")
		forTheStart.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, r.company.Issuer.SignInEndpoint(), token, r.now())}
		r.refusedMediated(t, forTheStart, unauthorized, "invalid_dpop_proof")
		// None of these counted.
		for range 4 {
			r.status(t, r.oneTimeCode(t, token, signIn, "000000"), "code_required")
		}
		require.Equal(t, `{"status":"failed"}`, r.status(t, r.oneTimeCode(t, token, signIn, "000000"), "failed").raw)
		r.status(t, r.oneTimeCode(t, token, signIn, "246810"), "failed")
		r.refusedMediated(t, r.oneTimeCode(t, other, signIn, "246810"), http.StatusNotFound, "sign_in_not_found")

		late := begin()
		r.Clock.Advance(5*time.Minute - time.Second)
		r.status(t, r.oneTimeCode(t, token, late, "000000"), "code_required")
		r.Clock.Advance(time.Second)
		require.Equal(t, `{"status":"expired"}`, r.status(t, r.oneTimeCode(t, token, late, "246810"), "expired").raw)
		require.False(t, r.caller(t, token).GetSignedIn())

		// Another Company's is unknown.
		b := r.NewCompany(t)
		b.Snapshot.SignIn = fixture.SignIn()
		r.Changed(b)
		pending := begin()
		at := r.ok(t, r.startAt(t, b, r.agent, user)).text("access_token")
		elsewhere := r.oneTimeCode(t, at, pending, "246810")
		elsewhere.url = b.Issuer.SignInEndpoint() + "/" + pending
		elsewhere.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, elsewhere.url, at, r.now())}
		require.Equal(t, want.raw, r.refusedMediated(t, elsewhere, http.StatusNotFound, "sign_in_not_found").raw)
	})
}

// Twenty wrong codes at once, in two processes: five reach the Company.
func TestMediated_ParallelWrongCodesNeverExceedTheLimit(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#19", "poppy-0.1/4.7#23")
	clausetest.Refuses(t, "poppy-0.1/4.7#19", "poppy-0.1/4.7#23")
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.withCode()
		token, _ := r.token(t)
		signIn := r.status(t, r.credentials(t, token, "poppy:read", careful, password), "code_required").text("sign_in_id")
		const n = 20
		requests, answers := make([]*mediated, n), make([]answer, n)
		for i := range requests {
			requests[i] = r.oneTimeCode(t, token, signIn, fmt.Sprintf("%06d", i))
			requests[i].replica = i%2 == 1
		}
		var wait sync.WaitGroup
		for i, m := range requests {
			wait.Go(func() { answers[i] = r.sendMediated(t, m) })
		}
		wait.Wait()
		for _, a := range answers {
			require.Equal(t, http.StatusOK, a.status, a.raw)
			require.Contains(t, []string{"code_required", "failed"}, a.text("status"))
		}
		require.Len(t, r.Accounts.Asked(), 1+5)
		r.status(t, r.oneTimeCode(t, token, signIn, "246810"), "failed")
	})
}

// Several right codes at once sign in once.
func TestMediated_ParallelRightCodesHaveOneWinner(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#17")
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.withCode()
		token, _ := r.token(t)
		signIn := r.status(t, r.credentials(t, token, "poppy:read", careful, password), "code_required").text("sign_in_id")
		const n = 5
		requests, answers := make([]*mediated, n), make([]answer, n)
		for i := range requests {
			requests[i] = r.oneTimeCode(t, token, signIn, "246810")
			requests[i].replica = i%2 == 1
		}
		var wait sync.WaitGroup
		for i, m := range requests {
			wait.Go(func() { answers[i] = r.sendMediated(t, m) })
		}
		wait.Wait()
		won := 0
		for _, a := range answers {
			if a.text("status") == "complete" {
				won++
			}
		}
		require.Equal(t, 1, won)
	})
}

func TestMediated_AttemptsAreLimited(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#23", "poppy-0.1/4.7#d32")
	clausetest.Refuses(t, "poppy-0.1/4.7#23")
	eachSignIn(t, func(t *testing.T, r *rig) {
		token, _ := r.token(t)
		limited := func(m *mediated) {
			t.Helper()
			before := len(r.Accounts.Asked())
			a := r.refusedMediated(t, m, http.StatusTooManyRequests, "rate_limited")
			require.NotEmpty(t, a.header.Get("Retry-After"))
			require.Len(t, r.Accounts.Asked(), before)
		}
		tokenOf := func(user string) string {
			return r.ok(t, r.startAt(t, r.company, r.agent, user)).text("access_token")
		}
		// Per User, whatever the account and the address.
		for i := range 10 {
			m := r.credentials(t, token, "poppy:read", fmt.Sprintf("nobody%d@example.com", i), "wrong")
			m.address = fmt.Sprintf("192.0.2.%d:4000", i)
			r.status(t, m, "failed")
		}
		limited(r.credentials(t, token, "poppy:read", email, password))
		// Per account, however it is spelt, whatever the User.
		for i := range 10 {
			m := r.credentials(t, tokenOf(fmt.Sprintf("usr_%d", i)), "poppy:read", []string{"Mia@Example.com", " mia@example.com", "ｍia@example.com"}[i%3], "wrong")
			m.address = fmt.Sprintf("198.51.100.%d:4000", i)
			m.replica = i%2 == 1
			r.status(t, m, "failed")
		}
		limited(r.credentials(t, tokenOf("usr_fresh"), "poppy:read", email, password))
		// Per address: an IPv6 network is one.
		for i := range 30 {
			m := r.credentials(t, tokenOf(fmt.Sprintf("usr_b%d", i)), "poppy:read", fmt.Sprintf("b%d@example.com", i), "wrong")
			m.address = fmt.Sprintf("[2001:db8::%x]:4000", i+1)
			r.status(t, m, "failed")
		}
		m := r.credentials(t, tokenOf("usr_c"), "poppy:read", "c@example.com", "wrong")
		m.address = "[2001:db8::ffff]:4000"
		limited(m)
		m = r.credentials(t, tokenOf("usr_c"), "poppy:read", "c@example.com", "wrong")
		m.address = "[2001:db8:0:1::1]:4000"
		r.status(t, m, "failed")

		r.Clock.Advance(15*time.Minute + time.Second)
		fresh := r.ok(t, r.start(t)).text("access_token")
		r.status(t, r.credentials(t, fresh, "poppy:read", email, password), "complete")
	})
}

// Who gets it right is not locked out, with a code or without.
func TestMediated_SuccessCountsForNothing(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#23")
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.withCode()
		for range 12 {
			token, _ := r.token(t)
			r.status(t, r.credentials(t, token, "poppy:read", email, password), "complete")
			signIn := r.status(t, r.credentials(t, r.ok(t, r.start(t)).text("access_token"), "poppy:read", email, password), "complete")
			require.NotEmpty(t, signIn.text("access_token"))
		}
		for range 12 {
			token, _ := r.token(t)
			id := r.status(t, r.credentials(t, token, "poppy:read", careful, password), "code_required").text("sign_in_id")
			r.status(t, r.oneTimeCode(t, token, id, "246810"), "complete")
		}
		// Codes that are asked for and never given do count.
		token, _ := r.token(t)
		for range 10 {
			r.status(t, r.credentials(t, token, "poppy:read", careful, password), "code_required")
		}
		r.refusedMediated(t, r.credentials(t, token, "poppy:read", careful, password), http.StatusTooManyRequests, "rate_limited")
	})
}

// Thirty attempts at once, in two processes: ten reach the Company.
func TestMediated_ParallelAttemptsNeverExceedTheLimit(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.7#23")
	eachSignIn(t, func(t *testing.T, r *rig) {
		const n = 30
		requests, answers := make([]*mediated, n), make([]answer, n)
		for i := range requests {
			token := r.ok(t, r.startAt(t, r.company, r.agent, fmt.Sprintf("usr_%d", i))).text("access_token")
			requests[i] = r.credentials(t, token, "poppy:read", email, fmt.Sprintf("guess %d", i))
			requests[i].replica = i%2 == 1
		}
		var wait sync.WaitGroup
		for i, m := range requests {
			wait.Go(func() { answers[i] = r.sendMediated(t, m) })
		}
		wait.Wait()
		count := map[int]int{}
		for _, a := range answers {
			count[a.status]++
		}
		require.Equal(t, map[int]int{http.StatusOK: 10, http.StatusTooManyRequests: 20}, count)
		require.Len(t, r.Accounts.Asked(), 10)
	})
}

func TestMediated_CompanyUnreachable(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#30")
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.withCode()
		token, _ := r.token(t)
		signIn := r.status(t, r.credentials(t, token, "poppy:read", careful, password), "code_required").text("sign_in_id")
		r.Accounts.Down(true)
		a := r.refusedMediated(t, r.credentials(t, token, "poppy:read", email, password), http.StatusServiceUnavailable, "temporarily_unavailable")
		require.NotEmpty(t, a.header.Get("Retry-After"))
		r.refusedMediated(t, r.oneTimeCode(t, token, signIn, "246810"), http.StatusServiceUnavailable, "temporarily_unavailable")
		r.Accounts.Down(false)
		r.status(t, r.oneTimeCode(t, token, signIn, "246810"), "complete")
	})
}

// What nobody needs any more is dropped.
func TestPrune_SignInsAndAttempts(t *testing.T) {
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.withCode()
		token, id := r.token(t)
		signIn := r.status(t, r.credentials(t, token, "poppy:read", careful, password), "code_required").text("sign_in_id")
		r.Clock.Advance(24*time.Hour + 4*time.Minute)
		require.NoError(t, r.service.Prune(t.Context()))
		token = r.ok(t, r.renew(t, id)).text("access_token")
		r.status(t, r.oneTimeCode(t, token, signIn, "246810"), "expired")
		r.Clock.Advance(2 * time.Minute)
		require.NoError(t, r.service.Prune(t.Context()))
		token = r.ok(t, r.renew(t, id)).text("access_token")
		r.refusedMediated(t, r.oneTimeCode(t, token, signIn, "246810"), http.StatusNotFound, "sign_in_not_found")
	})
}

func TestService_StopEndsWhatStartBegan(t *testing.T) {
	r := newSignInRig(t, dbtest.SQLite(t))
	require.NoError(t, r.service.Stop(t.Context()), "nothing has begun")
	require.NoError(t, r.service.Start(t.Context()))
	for range 2 {
		require.NoError(t, r.service.Stop(t.Context()))
	}
}

// DP-04: an issuer with a path, whether or not a proxy takes the path off.
func TestDP04_SignInAtAnIssuerWithAPath(t *testing.T) {
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.company = r.NewCompanyAt(t, "/t/acme")
		r.company.Snapshot.SignIn = fixture.SignIn()
		r.Changed(r.company)
		r.withCode()
		require.Equal(t, r.company.Issuer.String()+"/device", r.ok(t, r.device(t, both)).text("verification_uri"))
		token, id := r.token(t)
		m := r.credentials(t, token, "poppy:read", careful, password)
		m.url = strings.Replace(m.url, "/t/acme", "", 1)
		signIn := r.status(t, m, "code_required").text("sign_in_id")
		r.requireSignedIn(t, r.status(t, r.oneTimeCode(t, token, signIn, "246810"), "complete"), id, "poppy:read", "acc-9")
		inner := r.credentials(t, token, "poppy:read", email, password)
		inner.url = strings.Replace(inner.url, "/t/acme", "", 1)
		inner.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, inner.url, token, r.now())}
		r.refusedMediated(t, inner, unauthorized, "invalid_dpop_proof")
	})
}
