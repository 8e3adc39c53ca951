package sessions_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestExchange_CodeSignsTheSessionIn(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#1", "poppy-0.1/4.4#31", "poppy-0.1/4.4#32", "poppy-0.1/4.4#34", "poppy-0.1/4.4#35", "poppy-0.1/4.4#36", "poppy-0.1/4.4#38", "poppy-0.1/4.4#39",
		"poppy-0.1/4.5#1", "poppy-0.1/4.5#2", "poppy-0.1/4.5#18", "poppy-0.1/4.5#19", "poppy-0.1/4.5#20", "poppy-0.1/4.5#21", "poppy-0.1/4.5#23", "poppy-0.1/4.5#24", "poppy-0.1/4.5#d30")
	eachOffering(t, func(t *testing.T, r *rig) {
		r.offer(func(s *directoryv1.SignIn) { s.AccountTokenLifetime = durationpb.New(30 * 24 * time.Hour) })
		opened := r.open(t, nil)
		r.requireSignedOut(t, opened.GetAccessToken())
		got, err := r.exchange(t, opened.GetSessionId(), byCode(r.code(t, nil)), nil)
		require.NoError(t, err)
		require.Equal(t, opened.GetSessionId(), got.GetSessionId())
		require.Equal(t, "DPoP", got.GetTokenType())
		require.Equal(t, time.Hour, got.GetExpiresIn().AsDuration())
		require.Equal(t, readWrite, got.GetScope())
		require.True(t, got.GetSignedIn())
		require.False(t, got.GetCreated())
		require.Regexp(t, `^pat_[A-Za-z0-9_-]{43}$`, got.GetRefreshToken())
		require.Equal(t, 30*24*time.Hour, got.GetRefreshTokenExpiresIn().AsDuration())
		r.requireSignedIn(t, got.GetAccessToken(), mia, readWrite)
		require.NotContains(t, r.Logged.String(), got.GetRefreshToken())
		require.NotContains(t, r.Logged.String(), mia)

		c := r.connections(t)
		require.Len(t, c, 1)
		require.Equal(t, clientID, c[0].GetClientId())
		require.Equal(t, userID, c[0].GetUser())
		require.Equal(t, mia, c[0].GetAccount())
		require.Equal(t, "mia@example.com", c[0].GetAccountLabel())
		require.Equal(t, strings.Fields(readWrite), c[0].GetScopes())
		require.Equal(t, "direct", c[0].GetSignIn())
		require.Equal(t, r.Clock.Now().Add(30*24*time.Hour), c[0].GetExpireTime().AsTime())
		s, err := r.admin.GetSession(r.company.Ctx(t.Context()), &adminv1.GetSessionRequest{Name: r.sessionName(got.GetSessionId())})
		require.NoError(t, err)
		require.True(t, s.GetSignedIn())
		require.Equal(t, mia, s.GetAccount())

		// Without a lifetime there is none to tell.
		r.offer(nil)
		require.Nil(t, r.signIn(t, nil).GetRefreshTokenExpiresIn())
		require.Nil(t, r.connections(t)[0].GetExpireTime())
	})
}

// A signed-out token stays so when its Session signs in, and renewal gives signed-out ones.
func TestExchange_OtherTokensOfTheSession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#44", "poppy-0.1/4.4#45", "poppy-0.1/4.4#d13", "poppy-0.1/4.4#30")
	clausetest.Refuses(t, "poppy-0.1/4.4#45", "poppy-0.1/4.4#d13")
	eachOffering(t, func(t *testing.T, r *rig) {
		before := r.open(t, nil)
		in := r.signSessionIn(t, before.GetSessionId(), nil)
		r.requireSignedOut(t, before.GetAccessToken())
		renewed := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.SessionId = before.GetSessionId() })
		require.False(t, renewed.GetSignedIn())
		require.Empty(t, renewed.GetScope())
		require.Empty(t, renewed.GetRefreshToken())
		r.requireSignedOut(t, renewed.GetAccessToken())
		r.requireSignedIn(t, in.GetAccessToken(), mia, readWrite)

		// Another sign-in that isn't finished, and one that fails, change nothing.
		code := r.code(t, toAccount(ben))
		r.requireSignedIn(t, in.GetAccessToken(), mia, readWrite)
		_, err := r.exchange(t, in.GetSessionId(), byCode(code), nil)
		requireReason(t, err, problem.AccountMismatch)
		r.requireSignedIn(t, in.GetAccessToken(), mia, readWrite)
		_, err = r.refresh(t, in.GetRefreshToken())
		require.NoError(t, err)
	})
}

func TestExchange_RefusedCodeIsNotConsumed(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#d15", "poppy-0.1/4.5#d30")
	clausetest.Refuses(t, "poppy-0.1/4.5#2", "poppy-0.1/4.5#18", "poppy-0.1/4.5#19", "poppy-0.1/4.5#20", "poppy-0.1/4.5#21", "poppy-0.1/4.5#22", "poppy-0.1/4.5#23", "poppy-0.1/4.5#d30", "poppy-0.1/4.4#41", "poppy-0.1/4.4#40")
	eachOffering(t, func(t *testing.T, r *rig) {
		code := r.code(t, nil)
		session := r.open(t, nil).GetSessionId()
		ended := r.open(t, nil).GetSessionId()
		_, err := r.admin.EndSession(r.company.Ctx(t.Context()), &adminv1.EndSessionRequest{Name: r.sessionName(ended)})
		require.NoError(t, err)
		foreign := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.ClientId = otherClient }).GetSessionId()
		bens := r.signIn(t, toAccount(ben)).GetSessionId()
		grant := func(change func(*sessionsv1.CodeGrant)) func(*sessionsv1.ExchangeRequest) {
			return func(q *sessionsv1.ExchangeRequest) { change(q.GetCode()) }
		}
		onSession := func(id string) func(*sessionsv1.ExchangeRequest) {
			return func(q *sessionsv1.ExchangeRequest) { q.SessionId = id }
		}
		seen := r.once(replay.KindClientAssertion)
		_, err = r.api.ClaimOnce(r.company.Ctx(t.Context()), &sessionsv1.ClaimOnceRequest{Once: []*sessionsv1.OnceKey{seen}})
		require.NoError(t, err)
		for name, c := range map[string]struct {
			change func(*sessionsv1.ExchangeRequest)
			reason problem.Reason
		}{
			"unknown code":             {grant(func(g *sessionsv1.CodeGrant) { g.Code += "x" }), problem.InvalidGrant},
			"empty code":               {grant(func(g *sessionsv1.CodeGrant) { g.Code = "" }), problem.InvalidGrant},
			"another client's":         {asOther, problem.InvalidGrant},
			"RU-03 no redirect_uri":    {grant(func(g *sessionsv1.CodeGrant) { g.RedirectUri = "" }), problem.InvalidGrant},
			"RU-03 another":            {grant(func(g *sessionsv1.CodeGrant) { g.RedirectUri = "https://agent.example/other" }), problem.InvalidGrant},
			"RU-03 slash added":        {grant(func(g *sessionsv1.CodeGrant) { g.RedirectUri += "/" }), problem.InvalidGrant},
			"RU-03 other case":         {grant(func(g *sessionsv1.CodeGrant) { g.RedirectUri = "https://AGENT.example/callback" }), problem.InvalidGrant},
			"no verifier":              {grant(func(g *sessionsv1.CodeGrant) { g.CodeVerifier = "" }), problem.InvalidGrant},
			"another verifier":         {grant(func(g *sessionsv1.CodeGrant) { g.CodeVerifier = strings.Repeat("a", 43) }), problem.InvalidGrant},
			"the challenge itself":     {grant(func(g *sessionsv1.CodeGrant) { g.CodeVerifier = fixture.Challenge(verifier) }), problem.InvalidGrant},
			"verifier in other case":   {grant(func(g *sessionsv1.CodeGrant) { g.CodeVerifier = strings.ToLower(verifier) }), problem.InvalidGrant},
			"verifier with more":       {grant(func(g *sessionsv1.CodeGrant) { g.CodeVerifier += " " }), problem.InvalidGrant},
			"no session":               {onSession(""), problem.InvalidRequest},
			"unknown session":          {onSession(ids.New(ids.Session)), problem.InvalidSession},
			"ended session":            {onSession(ended), problem.InvalidSession},
			"another client's session": {onSession(foreign), problem.InvalidSession},
			"session of Ben":           {onSession(bens), problem.AccountMismatch},
			"no proof":                 {func(q *sessionsv1.ExchangeRequest) { q.Proof.Proofs = nil }, problem.InvalidRequest},
			"bad proof":                {func(q *sessionsv1.ExchangeRequest) { q.Proof.Proofs = []string{"x"} }, problem.InvalidDPoPProof},
			"proof of elsewhere":       {func(q *sessionsv1.ExchangeRequest) { q.Proof.Url += "x" }, problem.InvalidDPoPProof},
			"unknown resource":         {func(q *sessionsv1.ExchangeRequest) { q.Resource = "https://elsewhere.example/" }, problem.InvalidTarget},
			"bearer elsewhere": {func(q *sessionsv1.ExchangeRequest) {
				q.Proof.Proofs, q.Resource = nil, r.company.Snapshot.GetResources()[0]
			}, problem.InvalidTarget},
			"assertion seen before": {func(q *sessionsv1.ExchangeRequest) { q.Once = []*sessionsv1.OnceKey{seen} }, problem.InvalidClient},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := r.exchange(t, session, byCode(code), c.change)
				requireReason(t, err, c.reason)
			})
		}
		got, err := r.exchange(t, session, byCode(code), nil)
		require.NoError(t, err)
		r.requireSignedIn(t, got.GetAccessToken(), mia, readWrite)
	})
}

// The form of a verifier is judged even where its hash fits.
func TestExchange_VerifierForm(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#21")
	clausetest.Refuses(t, "poppy-0.1/4.5#21")
	eachOffering(t, func(t *testing.T, r *rig) {
		for v, ok := range map[string]bool{
			strings.Repeat("a", 42): false, strings.Repeat("a", 43): true, strings.Repeat("~", 128): true, strings.Repeat("a", 129): false,
			strings.Repeat("a", 43) + "=": false, strings.Repeat("a", 43) + "é": false, strings.Repeat("-._~", 11): true,
		} {
			code := r.code(t, func(q *sessionsv1.IssueCodeRequest) { q.CodeChallenge = fixture.Challenge(v) })
			_, err := r.exchange(t, r.open(t, nil).GetSessionId(), byCode(code), func(q *sessionsv1.ExchangeRequest) { q.GetCode().CodeVerifier = v })
			if ok {
				require.NoError(t, err, v)
				continue
			}
			requireReason(t, err, problem.InvalidGrant)
		}
	})
}

func TestExchange_CodeLivesAMinute(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#25", "poppy-0.1/4.5#11")
	clausetest.Refuses(t, "poppy-0.1/4.5#25")
	eachOffering(t, func(t *testing.T, r *rig) {
		session := r.open(t, nil).GetSessionId()
		late, just := r.code(t, nil), r.code(t, nil)
		r.Clock.Advance(time.Minute - time.Microsecond)
		_, err := r.exchange(t, session, byCode(just), nil)
		require.NoError(t, err)
		r.Clock.Advance(time.Microsecond)
		_, err = r.exchange(t, session, byCode(late), nil)
		requireReason(t, err, problem.InvalidGrant)
	})
}

func TestExchange_CodeReuseEndsWhatItGave(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#d15")
	clausetest.Refuses(t, "poppy-0.1/4.5#25", "poppy-0.1/4.5#d15", "poppy-0.1/4.5#11")
	eachOffering(t, func(t *testing.T, r *rig) {
		code := r.code(t, nil)
		in, err := r.exchange(t, r.open(t, nil).GetSessionId(), byCode(code), nil)
		require.NoError(t, err)
		other := r.signIn(t, nil)

		// Another client's code is none of its business; and a request that is itself a repeat ends nothing.
		_, err = r.exchange(t, in.GetSessionId(), byCode(code), asOther)
		requireReason(t, err, problem.InvalidGrant)
		seen := r.once(replay.KindClientAssertion)
		_, err = r.api.ClaimOnce(r.company.Ctx(t.Context()), &sessionsv1.ClaimOnceRequest{Once: []*sessionsv1.OnceKey{seen}})
		require.NoError(t, err)
		_, err = r.exchange(t, in.GetSessionId(), byCode(code), func(q *sessionsv1.ExchangeRequest) { q.Once = []*sessionsv1.OnceKey{seen} })
		requireReason(t, err, problem.InvalidClient)
		_, err = r.exchange(t, in.GetSessionId(), byCode(code), func(q *sessionsv1.ExchangeRequest) { q.Proof.Proofs = []string{"x"} })
		requireReason(t, err, problem.InvalidDPoPProof)
		r.requireSignedIn(t, in.GetAccessToken(), mia, readWrite)

		r.Clock.Advance(time.Hour - time.Minute)
		_, err = r.exchange(t, in.GetSessionId(), byCode(code), nil)
		requireReason(t, err, problem.InvalidGrant)
		r.requireSignedOut(t, in.GetAccessToken())
		_, err = r.refresh(t, in.GetRefreshToken())
		requireReason(t, err, problem.InvalidGrant)
		ended := r.connections(t)[1]
		require.Equal(t, adminv1.ConnectionState_CONNECTION_STATE_ENDED, ended.GetState())
		require.Equal(t, "code_reused", ended.GetEndReason())
		_, err = r.exchange(t, in.GetSessionId(), byCode(code), nil)
		requireReason(t, err, problem.InvalidGrant)
		r.requireSignedIn(t, other.GetAccessToken(), mia, readWrite)
	})
}

func TestExchange_TwentyExchangesOfOneCodeAtOnce(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.5#d15")
	clausetest.Refuses(t, "poppy-0.1/4.5#d15")
	eachOffering(t, func(t *testing.T, r *rig) {
		second := r.replica(t)
		code, session := r.code(t, nil), r.open(t, nil).GetSessionId()
		tokens := make([]*sessionsv1.IssuedTokens, 20)
		requireOneWinner(t, atOnce(len(tokens), func(i int) error {
			var err error
			tokens[i], err = []*rig{r, second}[i%2].exchange(t, session, byCode(code), nil)
			return err
		}), problem.InvalidGrant)
		require.Len(t, r.connections(t), 1)
		require.Equal(t, "code_reused", r.connections(t)[0].GetEndReason())
		for _, in := range tokens {
			if in != nil {
				r.requireSignedOut(t, in.GetAccessToken())
				_, err := r.refresh(t, in.GetRefreshToken())
				requireReason(t, err, problem.InvalidGrant)
			}
		}
	})
}

// Two accounts at once for one Session: one gets it, the other's code stays good.
func TestExchange_TwoAccountsRaceForASession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#40", "poppy-0.1/4.4#43")
	clausetest.Refuses(t, "poppy-0.1/4.4#40", "poppy-0.1/4.4#41")
	eachOffering(t, func(t *testing.T, r *rig) {
		session := r.open(t, nil).GetSessionId()
		codes := []string{r.code(t, toAccount(mia)), r.code(t, toAccount(ben))}
		errs := atOnce(2, func(i int) error {
			_, err := r.exchange(t, session, byCode(codes[i]), nil)
			return err
		})
		requireOneWinner(t, errs, problem.AccountMismatch)
		for i, err := range errs {
			if err != nil {
				_, err := r.exchange(t, r.open(t, nil).GetSessionId(), byCode(codes[i]), nil)
				require.NoError(t, err)
			}
		}
		require.Len(t, r.connections(t), 2)
	})
}

func TestExchange_BearerForAnMCPServer(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#d34")
	eachOffering(t, func(t *testing.T, r *rig) {
		mcp := r.company.Snapshot.GetMcpUrls()[0]
		session := r.open(t, nil).GetSessionId()
		plain := func(q *sessionsv1.ExchangeRequest) { q.Proof.Proofs, q.Resource = nil, mcp }
		in, err := r.exchange(t, session, byCode(r.code(t, nil)), plain)
		require.NoError(t, err)
		require.Equal(t, "Bearer", in.GetTokenType())
		again, err := r.exchange(t, "", byAccountToken(in.GetRefreshToken(), ""), plain)
		require.NoError(t, err)
		for _, token := range []string{in.GetAccessToken(), again.GetAccessToken()} {
			got, err := r.verify(t, token, func(u *use) {
				u.authorization, u.resource, u.proofs = []string{"Bearer " + token}, mcp, []string{}
			})
			require.NoError(t, err)
			require.Equal(t, mia, got.GetAccount())
			require.Empty(t, got.GetJkt())
		}
		_, err = r.exchange(t, "", byAccountToken(in.GetRefreshToken(), ""), func(q *sessionsv1.ExchangeRequest) { q.Proof.Proofs = nil })
		requireReason(t, err, problem.InvalidRequest)
	})
}

func TestExchange_AdmissionNonceAndLimit(t *testing.T) {
	eachOffering(t, func(t *testing.T, r *rig) {
		ctx := r.company.Ctx(t.Context())
		code, session := r.code(t, nil), r.open(t, nil).GetSessionId()
		_, err := r.signIns.CheckAgent(ctx, &sessionsv1.CheckAgentRequest{ClientId: clientID})
		require.NoError(t, err)
		_, err = r.admission.UpdateAdmission(ctx, &adminv1.UpdateAdmissionRequest{Admission: &adminv1.Admission{
			Name: r.company.Scope.Name() + "/admission", RequireDpopNonce: true, Mode: adminv1.AdmissionMode_ADMISSION_MODE_ALLOWLIST,
		}})
		require.NoError(t, err)
		_, err = r.signIns.CheckAgent(ctx, &sessionsv1.CheckAgentRequest{ClientId: clientID})
		requireReason(t, err, problem.InvalidClient)
		_, err = r.exchange(t, session, byCode(code), nil)
		requireReason(t, err, problem.InvalidClient)
		_, err = r.admission.CreateAdmissionRule(ctx, &adminv1.CreateAdmissionRuleRequest{
			Parent: r.company.Scope.Name(), AdmissionRule: &adminv1.AdmissionRule{ClientId: clientID, Effect: adminv1.AdmissionEffect_ADMISSION_EFFECT_ALLOW},
		})
		require.NoError(t, err)
		_, err = r.exchange(t, session, byCode(code), nil)
		requireReason(t, err, problem.UseDPoPNonce)
		nonce := problem.As(err).Extra[problem.DPoPNonce]
		require.NotEmpty(t, nonce)

		r.company.Snapshot.SessionStartsPerMinute = 1
		r.Changed(r.company)
		te := r.company.Issuer.TokenEndpoint()
		withNonce := func(q *sessionsv1.ExchangeRequest) {
			q.Proof.Proofs = []string{fixture.Proof(t, r.key, "POST", te, "", r.Clock.Now(), fixture.Claim("nonce", nonce))}
		}
		r.Clock.Advance(time.Second)
		in, err := r.exchange(t, session, byCode(code), withNonce)
		require.NoError(t, err)
		require.Equal(t, nonce, in.GetDpopNonce())
		_, err = r.exchange(t, "", byAccountToken(in.GetRefreshToken(), ""), withNonce)
		requireReason(t, err, problem.RateLimitedReason)
		require.NotZero(t, problem.As(err).RetryAfter)
	})
}

func TestIssueCode_OnlyWhatDirectSignInMayGrant(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#20", "poppy-0.1/4.4#22", "poppy-0.1/4.4#26", "poppy-0.1/4.4#23")
	clausetest.Refuses(t, "poppy-0.1/4.4#20", "poppy-0.1/4.4#22", "poppy-0.1/4.4#23", "poppy-0.1/4.4#24", "poppy-0.1/4.4#25", "poppy-0.1/4.4#26")
	eachOffering(t, func(t *testing.T, r *rig) {
		issue := func(scope, account string) error {
			_, err := r.signIns.IssueCode(r.company.Ctx(t.Context()), &sessionsv1.IssueCodeRequest{
				ClientId: clientID, RedirectUri: redirectURI, CodeChallenge: fixture.Challenge(verifier), Scope: scope, Account: &sessionsv1.Account{Id: account},
			})
			return err
		}
		require.NoError(t, issue("addresses poppy:read", mia))
		for _, scope := range []string{"", "poppy:admin", "poppy:read orders", " poppy:read", "poppy:read poppy:read"} {
			requireReason(t, issue(scope, mia), problem.InvalidScope)
		}
		for _, account := range []string{"", "a\x00b", strings.Repeat("a", 256)} {
			requireReason(t, issue(readOnly, account), problem.InvalidRequest)
		}
		r.offer(func(s *directoryv1.SignIn) { s.DirectScopes = nil })
		requireReason(t, issue(readOnly, mia), problem.UnauthorizedClient)
		r.company.Snapshot.SignIn = nil
		r.Changed(r.company)
		requireReason(t, issue(readOnly, mia), problem.UnauthorizedClient)
		_, err := r.signIns.Exchange(r.company.Ctx(t.Context()), &sessionsv1.ExchangeRequest{})
		requireReason(t, err, problem.ServerError)
	})
}
