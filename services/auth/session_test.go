package auth_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestToken_SessionStart(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4#2", "poppy-0.1/4#6", "poppy-0.1/4#9", "poppy-0.1/4#13", "poppy-0.1/4#15", "poppy-0.1/4#18", "poppy-0.1/4#23", "poppy-0.1/4#31",
		"poppy-0.1/4#33", "poppy-0.1/4#34", "poppy-0.1/4.1#1", "poppy-0.1/4.1#2", "poppy-0.1/4.1#3", "poppy-0.1/4.1#5", "poppy-0.1/4.1#6", "poppy-0.1/4.1#14", "poppy-0.1/4.1#15",
		"poppy-0.1/4.2#5", "poppy-0.1/4.2#6", "poppy-0.1/4.2#7", "poppy-0.1/4.2#8", "poppy-0.1/4.2#9", "poppy-0.1/4.2#10", "poppy-0.1/4.2#11", "poppy-0.1/4.2#12", "poppy-0.1/4.2#13",
		"poppy-0.1/4.2#14", "poppy-0.1/4.2#15", "poppy-0.1/4.2#16", "poppy-0.1/4.2#17", "poppy-0.1/4.2#18", "poppy-0.1/4.2#21", "poppy-0.1/4.2#22", "poppy-0.1/4.2#23",
		"poppy-0.1/4.2#24", "poppy-0.1/4.2#25", "poppy-0.1/4.2#26", "poppy-0.1/4.2#27", "poppy-0.1/4.2#28", "poppy-0.1/4.2#29", "poppy-0.1/4.2#30", "poppy-0.1/4.2#31",
		"poppy-0.1/4.2#32", "poppy-0.1/4.2#33", "poppy-0.1/4.2#35", "poppy-0.1/4.2#36", "poppy-0.1/4.2#37", "poppy-0.1/4.3#8", "poppy-0.1/4.3#15", "poppy-0.1/4.3#17")
	each(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.SessionTokenLifetime = durationpb.New(2 * time.Hour)
		r.Changed(r.company)
		a := r.ok(t, r.start(t))
		require.Equal(t, "application/json", a.header.Get("Content-Type"))
		require.Equal(t, "no-store", a.header.Get("Cache-Control"))
		require.Equal(t, "no-cache", a.header.Get("Pragma"))
		require.Empty(t, a.header.Get("DPoP-Nonce"))
		require.Empty(t, a.header.Values("Set-Cookie"))
		require.Len(t, a.body, 6)
		require.NotEmpty(t, a.text("access_token"))
		require.Equal(t, "DPoP", a.body["token_type"])
		require.InDelta(t, 7200, a.body["expires_in"], 0)
		require.Contains(t, a.raw, `"scope":""`)
		require.NotEmpty(t, a.text("session_id"))
		require.Equal(t, false, a.body["signed_in"])
		require.NoError(t, r.use(t, a.text("access_token"), r.key))

		b := r.ok(t, r.start(t))
		require.NotEqual(t, a.text("session_id"), b.text("session_id"))
		require.NotEqual(t, a.text("access_token"), b.text("access_token"))

		s, err := r.admin.GetSession(r.company.Ctx(t.Context()), &adminv1.GetSessionRequest{Name: r.company.Scope.Name() + "/sessions/" + a.text("session_id")})
		require.NoError(t, err)
		require.Equal(t, r.agent.ClientID, s.GetClientId())
		require.Equal(t, "Example Agent", s.GetAgentName())
		require.Equal(t, user, s.GetUser())
		require.False(t, s.GetSignedIn())
	})
}

func TestSC05_ScopeIsInEveryTokenResponse(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#37", "poppy-0.1/4.2#27")
	each(t, func(t *testing.T, r *rig) {
		a := r.ok(t, r.start(t))
		for _, q := range []*request{r.renew(t, a.text("session_id")), r.bearer(t, r.company.Snapshot.GetMcpUrls()[0])} {
			got := r.ok(t, q)
			require.Contains(t, got.body, "scope")
			require.Contains(t, got.raw, `"scope":""`)
			require.Len(t, got.body, 6)
		}
	})
}

// A token is random and holds nothing, so there is nothing in it to encrypt or to read.
func TestToken_IsOpaque(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4#17", "poppy-0.1/4.2#47", "poppy-0.1/4#19")
	each(t, func(t *testing.T, r *rig) {
		seen := map[string]bool{}
		for range 3 {
			a := r.ok(t, r.start(t))
			require.Regexp(t, `^pst_[A-Za-z0-9_-]{43}$`, a.text("access_token"))
			require.False(t, seen[a.text("access_token")])
			seen[a.text("access_token")] = true
			// The Company recognises the User by the agent's opaque id, and knows no more.
			s, err := r.admin.GetSession(r.company.Ctx(t.Context()), &adminv1.GetSessionRequest{Name: r.company.Scope.Name() + "/sessions/" + a.text("session_id")})
			require.NoError(t, err)
			require.Equal(t, user, s.GetUser())
		}
	})
}

// Every algorithm of decision 10, for assertions and proofs.
func TestToken_Algorithms(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#d10", "poppy-0.1/4.3#d10")
	each(t, func(t *testing.T, r *rig) {
		for alg, signer := range fixture.Signers(t) {
			t.Run(alg, func(t *testing.T) {
				a := fixture.NewAgent(t, strings.ToLower(alg)+".example")
				a.Signer = signer
				r.Web.Publish(a)
				q := r.startAt(t, r.company, a, user)
				q.proofs = []string{fixture.Proof(t, signer, http.MethodPost, q.url, "", r.now())}
				token := r.ok(t, q).text("access_token")
				require.NoError(t, r.use(t, token, signer))
			})
		}
	})
}

// Sessions of one User run side by side, each with a key of its own.
func TestToken_SeveralSessions(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4#4", "poppy-0.1/4.3#6", "poppy-0.1/4#7", "poppy-0.1/4#11", "poppy-0.1/4#25")
	each(t, func(t *testing.T, r *rig) {
		first := r.ok(t, r.start(t))
		second := r.start(t)
		key := fixture.NewKey(t)
		second.proofs = []string{fixture.Proof(t, key, http.MethodPost, second.url, "", r.now())}
		b := r.ok(t, second)
		require.NotEqual(t, first.text("session_id"), b.text("session_id"))
		require.NoError(t, r.use(t, first.text("access_token"), r.key))
		require.NoError(t, r.use(t, b.text("access_token"), key))
		requireReason(t, r.use(t, b.text("access_token"), r.key), problem.InvalidDPoPProof)
	})
}

func TestToken_Renewal(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4#24", "poppy-0.1/4#35", "poppy-0.1/4.2#38", "poppy-0.1/4.2#39", "poppy-0.1/4.2#40", "poppy-0.1/4.3#d29")
	each(t, func(t *testing.T, r *rig) {
		first := r.ok(t, r.start(t))
		id := first.text("session_id")
		r.Clock.Advance(30 * time.Minute)
		second := r.renew(t, id)
		key := fixture.NewKey(t)
		second.proofs = []string{fixture.Proof(t, key, http.MethodPost, second.url, "", r.now())}
		renewed := r.ok(t, second)
		require.Equal(t, id, renewed.text("session_id"))
		require.NotEqual(t, first.text("access_token"), renewed.text("access_token"))
		require.Equal(t, false, renewed.body["signed_in"])
		// The earlier token goes on until it expires, bound to its own key.
		require.NoError(t, r.use(t, first.text("access_token"), r.key))
		require.NoError(t, r.use(t, renewed.text("access_token"), key))
		r.Clock.Advance(31 * time.Minute)
		requireReason(t, r.use(t, first.text("access_token"), r.key), problem.InvalidToken)
		require.NoError(t, r.use(t, renewed.text("access_token"), key))
		// The Session outlives its tokens.
		r.Clock.Advance(24 * time.Hour)
		require.Equal(t, id, r.ok(t, r.renew(t, id)).text("session_id"))
	})
}

func TestToken_RenewalOfASignedInSession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#d12", "poppy-0.1/4.2#41")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id := r.ok(t, r.start(t)).text("session_id")
		signedIn := r.signedIn(t, id, both, "acc-1").text("access_token")
		a := r.ok(t, r.renew(t, id))
		require.Equal(t, id, a.text("session_id"))
		require.Equal(t, false, a.body["signed_in"])
		require.Contains(t, a.raw, `"scope":""`)
		s, err := r.admin.GetSession(r.company.Ctx(t.Context()), &adminv1.GetSessionRequest{Name: r.company.Scope.Name() + "/sessions/" + id})
		require.NoError(t, err)
		require.True(t, s.GetSignedIn())
		require.True(t, r.caller(t, signedIn).GetSignedIn())
	})
}

// A Session ID names a Session and is worth nothing to anybody else.
func TestToken_RenewalRefused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4#24", "poppy-0.1/4.2#38", "poppy-0.1/4.2#40", "poppy-0.1/4.2#39", "poppy-0.1/4.2#43", "poppy-0.1/4.2#54", "poppy-0.1/4.2#34", "poppy-0.1/4#2")
	clausetest.Covers(t, "poppy-0.1/4.2#43", "poppy-0.1/4.2#54", "poppy-0.1/4.2#55", "poppy-0.1/4.2#34", "poppy-0.1/4.2#42", "poppy-0.1/4.2#48", "poppy-0.1/4.2#49")
	each(t, func(t *testing.T, r *rig) {
		id := r.ok(t, r.start(t)).text("session_id")
		other := fixture.NewAgent(t, "other.example")
		r.Web.Publish(other)
		elsewhere := r.NewCompany(t)
		var answers []answer
		for name, q := range map[string]*request{
			"unknown":       r.renew(t, "ses_unknown"),
			"other User":    r.startAt(t, r.company, r.agent, "usr_other").set("session_id", id),
			"other agent":   r.startAt(t, r.company, other, user).set("session_id", id),
			"other Company": r.startAt(t, elsewhere, r.agent, user).set("session_id", id),
		} {
			t.Run(name, func(t *testing.T) {
				answers = append(answers, r.refused(t, q, http.StatusBadRequest, "invalid_session"))
			})
		}
		for _, a := range answers { // nothing tells that the id exists
			require.Equal(t, answers[0].raw, a.raw)
		}
		r.ok(t, r.renew(t, id)) // and nobody ended it

		_, err := r.admin.EndSession(r.company.Ctx(t.Context()), &adminv1.EndSessionRequest{Name: r.company.Scope.Name() + "/sessions/" + id})
		require.NoError(t, err)
		require.Equal(t, answers[0].raw, r.refused(t, r.renew(t, id), http.StatusBadRequest, "invalid_session").raw)

		idle := r.ok(t, r.start(t)).text("session_id")
		r.Clock.Advance(7*24*time.Hour + 2*time.Minute)
		r.refused(t, r.renew(t, idle), http.StatusBadRequest, "invalid_session")
	})
}

func TestToken_EndedSessionStopsItsTokensAtOnce(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#d29")
	clausetest.Refuses(t, "poppy-0.1/4.3#d29", "poppy-0.1/4#9", "poppy-0.1/4#7", "poppy-0.1/4#11")
	each(t, func(t *testing.T, r *rig) {
		a := r.ok(t, r.start(t))
		b := r.ok(t, r.renew(t, a.text("session_id")))
		untouched := r.ok(t, r.start(t))
		_, err := r.admin.EndSession(r.company.Ctx(t.Context()), &adminv1.EndSessionRequest{Name: r.company.Scope.Name() + "/sessions/" + a.text("session_id")})
		require.NoError(t, err)
		requireReason(t, r.use(t, a.text("access_token"), r.key), problem.InvalidToken)
		requireReason(t, r.use(t, b.text("access_token"), r.key), problem.InvalidToken)
		require.NoError(t, r.use(t, untouched.text("access_token"), r.key))
	})
}

func TestToken_BearerForMCP(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#29", "poppy-0.1/4.3#27", "poppy-0.1/4.3#28", "poppy-0.1/4.3#29", "poppy-0.1/4.3#30", "poppy-0.1/4.3#31", "poppy-0.1/4.3#32", "poppy-0.1/4.3#d34", "poppy-0.1/4.3#d28", "poppy-0.1/4.3#36")
	clausetest.Refuses(t, "poppy-0.1/4.3#30", "poppy-0.1/4.3#32", "poppy-0.1/4.3#33", "poppy-0.1/4.3#d34", "poppy-0.1/4.3#29", "poppy-0.1/4.2#8", "poppy-0.1/4.3#27", "poppy-0.1/4.3#28")
	each(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.McpUrls = append(r.company.Snapshot.McpUrls, "https://second.example/mcp")
		r.Changed(r.company)
		mcp := r.company.Snapshot.GetMcpUrls()
		bound := r.ok(t, r.start(t))

		// It starts a Session or renews one, which keeps its DPoP tokens.
		q := r.bearer(t, mcp[0]).set("session_id", bound.text("session_id"))
		a := r.ok(t, q)
		require.Equal(t, "Bearer", a.body["token_type"])
		require.Equal(t, bound.text("session_id"), a.text("session_id"))
		require.Equal(t, "Bearer", r.ok(t, r.bearer(t, mcp[1])).body["token_type"])
		require.NoError(t, r.use(t, bound.text("access_token"), r.key))

		token := a.text("access_token")
		require.NoError(t, r.useBearer(t, token, mcp[0]))
		requireReason(t, r.useBearer(t, token, mcp[1]), problem.InvalidToken)
		requireReason(t, r.useBearer(t, token, ""), problem.InvalidToken)
		requireReason(t, r.useBearer(t, token, r.company.Snapshot.GetResources()[0]), problem.InvalidToken)
		requireReason(t, r.use(t, token, r.key), problem.InvalidToken)
		requireReason(t, r.useBearer(t, bound.text("access_token"), mcp[0]), problem.InvalidToken)

		r.refused(t, r.bearer(t, ""), http.StatusBadRequest, "invalid_request")
		r.refused(t, r.bearer(t, r.company.Snapshot.GetResources()[0]), http.StatusBadRequest, "invalid_target")
		r.refused(t, r.bearer(t, mcp[0]+"/"), http.StatusBadRequest, "invalid_target")
		r.refused(t, r.bearer(t, "https://evil.example/mcp").set("session_id", bound.text("session_id")), http.StatusBadRequest, "invalid_target")
	})
}

func TestToken_Resource(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#36", "poppy-0.1/4.3#37", "poppy-0.1/4.2#60")
	clausetest.Refuses(t, "poppy-0.1/4.2#60", "poppy-0.1/4.3#39")
	each(t, func(t *testing.T, r *rig) {
		shop := r.company.Snapshot.GetResources()[0]
		a := r.ok(t, r.start(t).set("resource", shop))
		require.Equal(t, "DPoP", a.body["token_type"])
		// Narrowed to one service, it is refused at those that ask for no resource.
		requireReason(t, r.use(t, a.text("access_token"), r.key), problem.InvalidToken)
		// A listed MCP server is a resource too; the token stays bound to its key.
		require.Equal(t, "DPoP", r.ok(t, r.start(t).set("resource", r.company.Snapshot.GetMcpUrls()[0])).body["token_type"])

		r.refused(t, r.start(t).set("resource", "https://evil.example/"), http.StatusBadRequest, "invalid_target")
		r.refused(t, r.start(t).set("resource", shop+"#x"), http.StatusBadRequest, "invalid_target")
		twice := r.start(t).set("resource", shop)
		twice.extra = "&resource=" + shop
		r.refused(t, twice, http.StatusBadRequest, "invalid_target")
	})
}

func TestToken_DisabledCompanyIsNotThere(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.start(t)
		r.company.Snapshot.Active = false
		r.Changed(r.company)
		a := r.send(t, q)
		require.Equal(t, http.StatusNotFound, a.status)
		require.Equal(t, `{"error":"not_found"}`, a.raw)
	})
}
