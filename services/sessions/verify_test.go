package sessions_test

import (
	"encoding/base64"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestVerify_RightRequest(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4#1", "poppy-0.1/4#7", "poppy-0.1/4#11", "poppy-0.1/4#25", "poppy-0.1/4.3#1", "poppy-0.1/4.3#2", "poppy-0.1/4.3#3", "poppy-0.1/4.3#4", "poppy-0.1/4.3#8", "poppy-0.1/4.3#14",
		"poppy-0.1/4.3#18", "poppy-0.1/4.3#19", "poppy-0.1/4.3#20", "poppy-0.1/4.3#21", "poppy-0.1/4.3#23", "poppy-0.1/4.3#40", "poppy-0.1/4.3#37", "poppy-0.1/4.3#d28", "poppy-0.1/4.3#10", "poppy-0.1/4.3#33", "poppy-0.1/4.3#d6", "poppy-0.1/4.3#45", "poppy-0.1/4.3#d26")
	each(t, func(t *testing.T, r *rig) {
		opened := r.open(t, nil)
		for range 3 {
			got, err := r.verify(t, opened.GetAccessToken(), nil)
			require.NoError(t, err)
			require.Equal(t, opened.GetSessionId(), got.GetSessionId())
			require.Equal(t, clientID, got.GetClientId())
			require.Equal(t, "Agent", got.GetAgentName())
			require.Equal(t, userID, got.GetUserId())
			require.False(t, got.GetSignedIn())
			require.Empty(t, got.GetAccount())
			require.Empty(t, got.GetScopes())
			require.Empty(t, got.GetDpopNonce())
		}
	})
}

func TestVerify_Variations(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#d2", "poppy-0.1/4.3#d7", "poppy-0.1/4.3#d8", "poppy-0.1/4.3#12")
	each(t, func(t *testing.T, r *rig) {
		token := r.open(t, nil).GetAccessToken()
		u, now := r.company.Issuer.String()+path, r.Clock.Now()
		for name, change := range map[string]func(*use){
			"DP-23 scheme in lower case": func(u *use) { u.authorization = []string{"dpop " + token} },
			"scheme in odd case":         func(u *use) { u.authorization = []string{"dPoP  " + token} },
			"DP-05 query":                func(x *use) { x.proof = []fixture.Change{fixture.Claim("htu", u+"?cursor=evt_1&wait=5")} },
			"fragment":                   func(x *use) { x.proof = []fixture.Change{fixture.Claim("htu", u+"#x")} },
			"default port": func(x *use) {
				x.proof = []fixture.Change{fixture.Claim("htu", strings.Replace(u, ".test/", ".test:443/", 1))}
			},
			"host in upper case": func(x *use) {
				x.proof = []fixture.Change{fixture.Claim("htu", strings.Replace(u, ".test/", ".TEST/", 1))}
			},
			"needless escape": func(x *use) {
				x.proof = []fixture.Change{fixture.Claim("htu", strings.Replace(u, "cnv_1", "cnv%5F1", 1))}
			},
			"dot segments": func(x *use) {
				x.proof = []fixture.Change{fixture.Claim("htu", strings.Replace(u, "cnv_1", "x/../cnv_1", 1))}
			},
			"a minute old":        func(u *use) { u.proof = []fixture.Change{fixture.Claim("iat", now.Add(-time.Minute).Unix())} },
			"ten seconds to come": func(u *use) { u.proof = []fixture.Change{fixture.Claim("iat", now.Add(10*time.Second).Unix())} },
		} {
			t.Run(name, func(t *testing.T) {
				_, err := r.verify(t, token, change)
				require.NoError(t, err)
			})
		}
	})
}

func TestVerify_BadProof(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#d44", "poppy-0.1/4.3#26")
	clausetest.Refuses(t, "poppy-0.1/4#25", "poppy-0.1/4#13", "poppy-0.1/4.3#2", "poppy-0.1/4.3#3", "poppy-0.1/4.3#4", "poppy-0.1/4.3#8", "poppy-0.1/4.3#9", "poppy-0.1/4.3#11", "poppy-0.1/4.3#12", "poppy-0.1/4.3#13", "poppy-0.1/4.3#14", "poppy-0.1/4.3#17",
		"poppy-0.1/4.3#18", "poppy-0.1/4.3#19", "poppy-0.1/4.3#20", "poppy-0.1/4.3#21", "poppy-0.1/4.3#23", "poppy-0.1/4.3#26", "poppy-0.1/4.3#d2", "poppy-0.1/4.3#d6", "poppy-0.1/4.3#d8", "poppy-0.1/4.3#d10",
		"poppy-0.1/4.3#d26", "poppy-0.1/4.3#d28", "poppy-0.1/4.3#d44")
	each(t, func(t *testing.T, r *rig) {
		token := r.open(t, nil).GetAccessToken()
		u, now := r.company.Issuer.String()+path, r.Clock.Now()
		claim := func(name string, value any) func(*use) {
			return func(u *use) { u.proof = []fixture.Change{fixture.Claim(name, value)} }
		}
		right := fixture.Proof(t, r.key, "GET", u, token, now)
		parts := strings.Split(right, ".")
		algs := map[string]func(*use){}
		for _, alg := range []string{"none", "NONE", "nOnE", "HS256", "HS512", "ES256 ", "", "RS1"} {
			header, err := base64.RawURLEncoding.DecodeString(parts[0])
			require.NoError(t, err)
			forged := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(header), `"ES256"`, `"`+alg+`"`, 1)))
			algs["DP-20 alg "+alg] = func(u *use) { u.proofs = []string{forged + "." + parts[1] + "." + parts[2]} }
		}
		cases := map[string]func(*use){
			"none":               func(u *use) { u.proofs = []string{} },
			"empty":              func(u *use) { u.proofs = []string{""} },
			"another key":        func(u *use) { u.signer = fixture.NewKey(t) },
			"ath of another":     func(u *use) { u.token = token + "x" },
			"no ath":             claim("ath", nil),
			"other method":       claim("htm", "POST"),
			"htm in lower case":  claim("htm", "get"),
			"other path":         claim("htu", u+"x"),
			"trailing slash":     claim("htu", u+"/"),
			"path in upper case": claim("htu", strings.Replace(u, "/poppy/", "/Poppy/", 1)),
			"other host":         claim("htu", "https://evil.example"+path),
			"http":               claim("htu", strings.Replace(u, "https", "http", 1)),
			"encoded slash":      claim("htu", strings.Replace(u, "cnv_1/", "cnv_1%2F", 1)),
			"61 s old":           claim("iat", now.Add(-61*time.Second).Unix()),
			"11 s to come":       claim("iat", now.Add(11*time.Second).Unix()),
			"no iat":             claim("iat", nil),
			"no jti":             claim("jti", nil),
			"wrong typ":          func(u *use) { u.proof = []fixture.Change{fixture.Typ("JWT")} },
			"no jwk":             func(u *use) { u.proof = []fixture.Change{func(j *fixture.JWT) { j.Header.EmbedKey = false }} },
			"signature cut":      func(u *use) { u.proofs = []string{parts[0] + "." + parts[1] + "."} },
			"signature of others": func(u *use) {
				u.proofs = []string{parts[0] + "." + parts[1] + "." + strings.Split(fixture.Proof(t, r.key, "GET", u.url, token, now), ".")[2]}
			},
			"PK-17 large": func(u *use) { u.proofs = []string{right + strings.Repeat("A", 17<<10)} },
			"PK-17 dots":  func(u *use) { u.proofs = []string{strings.Repeat(".", 100_000)} },
		}
		for name, change := range algs {
			cases[name] = change
		}
		for name, change := range cases {
			t.Run(name, func(t *testing.T) { r.refused(t, token, problem.InvalidDPoPProof, change) })
		}
		t.Run("two headers", func(t *testing.T) {
			r.refused(t, token, problem.InvalidRequest, func(u *use) { u.proofs = []string{right, right} })
		})
		_, err := r.verify(t, token, func(u *use) { u.proofs = []string{right} })
		require.NoError(t, err) // nothing of the above used it up
	})
}

func TestVerify_BadToken(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#d44", "poppy-0.1/4.2#34")
	clausetest.Refuses(t, "poppy-0.1/4#1", "poppy-0.1/4.3#1", "poppy-0.1/4.3#3", "poppy-0.1/4.3#33", "poppy-0.1/4.3#d26", "poppy-0.1/4.3#d44", "poppy-0.1/4.2#34", "poppy-0.1/4#d40")
	each(t, func(t *testing.T, r *rig) {
		opened := r.open(t, nil)
		token := opened.GetAccessToken()
		auth := func(values ...string) func(*use) { return func(u *use) { u.authorization = values } }
		elsewhere := r.NewCompany(t)
		theirs, err := r.tryOpen(t, elsewhere, nil)
		require.NoError(t, err)
		for name, c := range map[string]struct {
			change func(*use)
			reason problem.Reason
		}{
			"no header":                  {auth(), problem.InvalidToken},
			"DP-17 Bearer":               {auth("Bearer " + token), problem.InvalidToken},
			"DP-17 bEaRer":               {auth("bEaRer " + token), problem.InvalidToken},
			"DP-17 Bearer without proof": {func(u *use) { u.authorization, u.proofs = []string{"Bearer " + token}, []string{} }, problem.InvalidToken},
			"DP-17 Bearer at the MCP server": {func(u *use) {
				u.authorization, u.resource = []string{"Bearer " + token}, r.company.Snapshot.GetMcpUrls()[0]
			}, problem.InvalidToken},
			"Basic":                       {auth("Basic " + token), problem.InvalidToken},
			"PS-02 scheme in a parameter": {auth(`Digest realm="DPoP ` + token + `", x`), problem.InvalidToken},
			"PS-02 two in one":            {auth("Bearer " + token + ", DPoP " + token), problem.InvalidRequest},
			"PS-02 DPoP first":            {auth("DPoP " + token + ", Bearer " + token), problem.InvalidRequest},
			"PS-02 two headers":           {auth("DPoP "+token, "DPoP "+token), problem.InvalidRequest},
			"PS-02 two schemes":           {auth("Bearer "+token, "DPoP "+token), problem.InvalidRequest},
			"no token":                    {auth("DPoP "), problem.InvalidRequest},
			"unknown":                     {auth("DPoP pst_" + fixture.RandomID()), problem.InvalidToken},
			"a session id":                {auth("DPoP " + opened.GetSessionId()), problem.InvalidToken},
			"an account token":            {auth("DPoP pat_8Hk2"), problem.InvalidToken},
			"another Company's":           {auth("DPoP " + theirs.GetAccessToken()), problem.InvalidToken},
			"PK-17 large":                 {auth("DPoP " + strings.Repeat("x", 500_000)), problem.InvalidRequest},
		} {
			t.Run(name, func(t *testing.T) { r.refused(t, token, c.reason, c.change) })
		}
		_, err = r.verify(t, token, nil)
		require.NoError(t, err)
	})
}

func TestVerify_TokensEnd(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#30", "poppy-0.1/4.3#d29", "poppy-0.1/4.3#d44")
	clausetest.Refuses(t, "poppy-0.1/4.2#30", "poppy-0.1/4.3#d29", "poppy-0.1/4.3#d44")
	each(t, func(t *testing.T, r *rig) {
		opened := r.open(t, nil)
		require.Equal(t, time.Hour, opened.GetExpiresIn().AsDuration())
		r.Clock.Advance(time.Hour - time.Microsecond)
		_, err := r.verify(t, opened.GetAccessToken(), nil)
		require.NoError(t, err)
		r.Clock.Advance(time.Microsecond)
		r.refused(t, opened.GetAccessToken(), problem.InvalidToken, nil)

		revoked := r.open(t, nil)
		ctx := r.company.Ctx(t.Context())
		_, err = r.api.RevokeToken(ctx, &sessionsv1.RevokeTokenRequest{ClientId: clientID, Token: revoked.GetAccessToken()})
		require.NoError(t, err)
		r.refused(t, revoked.GetAccessToken(), problem.InvalidToken, nil)

		ended := r.open(t, nil)
		_, err = r.admin.EndSession(ctx, &adminv1.EndSessionRequest{Name: r.sessionName(ended.GetSessionId())})
		require.NoError(t, err)
		r.refused(t, ended.GetAccessToken(), problem.InvalidToken, nil)
	})
}

func TestVerify_Resource(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#30", "poppy-0.1/4.3#32", "poppy-0.1/4.3#36", "poppy-0.1/4.3#38", "poppy-0.1/4.3#39", "poppy-0.1/4#13")
	clausetest.Refuses(t, "poppy-0.1/4.3#30", "poppy-0.1/4.3#32", "poppy-0.1/4.3#33", "poppy-0.1/4.3#37", "poppy-0.1/4.3#38", "poppy-0.1/4.3#39", "poppy-0.1/4.3#36")
	each(t, func(t *testing.T, r *rig) {
		shop, mcp := r.company.Snapshot.GetResources()[0], r.company.Snapshot.GetMcpUrls()[0]
		plain := r.open(t, nil).GetAccessToken()
		narrow := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.Resource = shop }).GetAccessToken()
		free := r.open(t, bearer(mcp)).GetAccessToken()
		bound := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.Resource = mcp }).GetAccessToken()
		at := func(resource string) func(*use) { return func(u *use) { u.resource = resource } }
		asBearer := func(token, resource string) func(*use) {
			return func(u *use) {
				u.authorization, u.proofs, u.resource = []string{"Bearer " + token}, []string{}, resource
			}
		}
		for name, c := range map[string]struct {
			token  string
			change func(*use)
			ok     bool
		}{
			"plain anywhere":              {plain, at(""), true},
			"plain at the shop":           {plain, at(shop), false},
			"plain at MCP":                {plain, at(mcp), false},
			"narrow at the shop":          {narrow, at(shop), true},
			"narrow elsewhere":            {narrow, at(""), false},
			"narrow at MCP":               {narrow, at(mcp), false},
			"Bearer at MCP":               {free, asBearer(free, mcp), true},
			"Bearer elsewhere":            {free, asBearer(free, ""), false},
			"Bearer at the shop":          {free, asBearer(free, shop), false},
			"Bearer at no known MCP":      {free, asBearer(free, mcp+"2"), false},
			"Bearer with a proof":         {free, at(mcp), false},
			"bound to MCP at MCP":         {bound, at(mcp), true},
			"bound to MCP elsewhere":      {bound, at(""), false},
			"bound to MCP sent by Bearer": {bound, asBearer(bound, mcp), false},
		} {
			t.Run(name, func(t *testing.T) {
				if c.ok {
					_, err := r.verify(t, c.token, c.change)
					require.NoError(t, err)
					return
				}
				r.refused(t, c.token, problem.InvalidToken, c.change)
			})
		}
		// An MCP server that is listed no more takes no Bearer tokens.
		r.company.Snapshot.McpUrls = nil
		r.Changed(r.company)
		r.refused(t, free, problem.InvalidToken, asBearer(free, mcp))
	})
}

func TestVerify_Replay(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#22", "poppy-0.1/4.3#d44", "poppy-0.1/4.3#d7")
	clausetest.Refuses(t, "poppy-0.1/4.3#22", "poppy-0.1/4.3#10", "poppy-0.1/4.3#d44", "poppy-0.1/4.3#d7")
	each(t, func(t *testing.T, r *rig) {
		token := r.open(t, nil).GetAccessToken()
		id := fixture.Claim("jti", "e1j3V_bKic8-LAEB")
		jti := []fixture.Change{id}
		// A thief who has the token and guesses the jti, but not the key, burns nothing.
		r.refused(t, token, problem.InvalidDPoPProof, func(u *use) { u.signer, u.proof = fixture.NewKey(t), jti })
		r.refused(t, token, problem.InvalidDPoPProof, func(u *use) { u.proof = []fixture.Change{id, fixture.Claim("htm", "POST")} })
		_, err := r.verify(t, token, func(u *use) { u.proof = jti })
		require.NoError(t, err)
		r.refused(t, token, problem.InvalidDPoPProof, func(u *use) { u.proof = jti })
		r.refused(t, token, problem.InvalidDPoPProof, func(u *use) { u.proof, u.method = jti, "POST" })
		// The memory is of the key, so another token of the same key shares it.
		r.refused(t, r.open(t, nil).GetAccessToken(), problem.InvalidDPoPProof, func(u *use) { u.proof = jti })

		const n = 20
		raw := fixture.Proof(t, r.key, "GET", r.company.Issuer.String()+path, token, r.Clock.Now())
		errs := make([]error, n)
		var wait sync.WaitGroup
		for i := range errs {
			wait.Go(func() { _, errs[i] = r.verify(t, token, func(u *use) { u.proofs = []string{raw} }) })
		}
		wait.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			requireReason(t, err, problem.InvalidDPoPProof)
		}
		require.Equal(t, 1, won)
	})
}

func TestVerify_RateLimit(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#46")
	clausetest.Refuses(t, "poppy-0.1/4.3#46")
	each(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.RequestsPerMinute = 2
		r.Changed(r.company)
		one, other := r.open(t, nil).GetAccessToken(), r.open(t, nil).GetAccessToken()
		// A copied token without its key uses nothing up.
		for range 3 {
			r.refused(t, one, problem.InvalidDPoPProof, func(u *use) { u.signer = fixture.NewKey(t) })
		}
		proof := []fixture.Change{fixture.Claim("jti", "kept")}
		for range 2 {
			_, err := r.verify(t, one, nil)
			require.NoError(t, err)
		}
		p := r.refused(t, one, problem.RateLimitedReason, func(u *use) { u.proof = proof })
		require.Equal(t, 30*time.Second, p.RetryAfter)
		_, err := r.verify(t, other, nil)
		require.NoError(t, err)
		r.Clock.Advance(p.RetryAfter)
		_, err = r.verify(t, one, func(u *use) { u.proof = proof }) // its jti was not used up
		require.NoError(t, err)
	})
}

// The last use is noted behind the request, and keeps a Session alive.
func TestVerify_NotesTheLastUse(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		require.NoError(t, r.service.Start(t.Context()))
		opened := r.open(t, nil)
		ctx, name := r.company.Ctx(t.Context()), r.sessionName(opened.GetSessionId())
		r.Clock.Advance(59 * time.Second)
		_, err := r.verify(t, opened.GetAccessToken(), nil)
		require.NoError(t, err)
		r.Clock.Advance(time.Minute)
		used := r.Clock.Now()
		_, err = r.verify(t, opened.GetAccessToken(), nil)
		require.NoError(t, err)
		require.NoError(t, r.service.Stop(t.Context())) // writes what is queued
		s, err := r.admin.GetSession(ctx, &adminv1.GetSessionRequest{Name: name})
		require.NoError(t, err)
		require.Equal(t, used, s.GetLastUsedTime().AsTime())
		require.NoError(t, r.service.Stop(t.Context()))
	})
}
