package auth_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestRV01_EveryTokenIsAnsweredAlike(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#3", "poppy-0.1/4.9#4", "poppy-0.1/4.9#d33", "poppy-0.1/4.1#d4", "poppy-0.1/4.3#d28", "poppy-0.1/4.9#2")
	clausetest.Refuses(t, "poppy-0.1/4.9#d33")
	each(t, func(t *testing.T, r *rig) {
		first := r.ok(t, r.start(t))
		id := first.text("session_id")
		second, third := r.ok(t, r.renew(t, id)), r.ok(t, r.renew(t, id))
		other := fixture.NewAgent(t, "other.example")
		r.Web.Publish(other)
		foreign := r.revocation(t, second.text("access_token"))
		for name, values := range other.ClientForm(t, r.company.Issuer.TokenEndpoint(), r.now()) {
			foreign.form[name] = values
		}
		ignored := r.revocation(t, "pst_unknown")
		ignored.proofs = []string{"not a proof", "and another"} // no proof is needed here
		atEndpoint := r.revocation(t, first.text("access_token"))
		atEndpoint.set("client_assertion", r.agent.ClientAssertion(t, r.company.Issuer.RevocationEndpoint(), r.now()))
		for name, q := range map[string]*request{
			"random":          r.revocation(t, "pst_"+fixture.RandomID()),
			"wrong secret":    r.revocation(t, first.text("access_token")+"x"),
			"another format":  r.revocation(t, "eyJhbGciOiJub25lIn0.e30."),
			"account token":   r.revocation(t, "pat_8Hk2"),
			"another agent's": foreign,
			"with a proof":    ignored,
			"session id":      r.revocation(t, id),
			"very long":       r.revocation(t, strings.Repeat("x", 20_000)),
		} {
			t.Run(name, func(t *testing.T) {
				a := r.ok(t, q)
				require.Empty(t, a.raw)
				require.Equal(t, "no-store", a.header.Get("Cache-Control"))
				require.Empty(t, a.header.Get("Location"))
			})
		}
		for _, a := range []answer{first, second, third} {
			require.NoError(t, r.use(t, a.text("access_token"), r.key))
		}
		// A Session Token: that token alone, at once, and twice without a difference.
		require.Empty(t, r.ok(t, atEndpoint).raw)
		require.Empty(t, r.ok(t, r.revocation(t, first.text("access_token"))).raw)
		requireReason(t, r.use(t, first.text("access_token"), r.key), problem.InvalidToken)
		require.NoError(t, r.use(t, second.text("access_token"), r.key))
		r.ok(t, r.renew(t, id))
		// An expired one.
		r.Clock.Advance(2 * time.Hour)
		require.Empty(t, r.ok(t, r.revocation(t, second.text("access_token"))).raw)
	})
}

func TestRV04_MissingToken(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.9#4", "poppy-0.1/4.9#2", "poppy-0.1/4.1#14", "poppy-0.1/4.1#d7", "poppy-0.1/4.3#d26")
	each(t, func(t *testing.T, r *rig) {
		token := r.ok(t, r.start(t)).text("access_token")
		r.refused(t, r.revocation(t, ""), bad, "invalid_request")
		r.refused(t, r.revocation(t, token).set("token", ""), bad, "invalid_request")
		twice := r.revocation(t, token)
		twice.extra = "&token=" + url.QueryEscape(token)
		r.refused(t, twice, bad, "invalid_request")
		inQuery := r.revocation(t, token)
		inQuery.url += "?token=" + token
		r.refused(t, inQuery, bad, "invalid_request")
		r.refused(t, r.revocation(t, token).set("client_assertion", ""), unauthorized, "invalid_client")
		r.refused(t, r.revocation(t, token).set("client_assertion", r.agent.ClientAssertion(t, "https://other.example/", r.now())), unauthorized, "invalid_client")
		require.NoError(t, r.use(t, token, r.key))

		used := r.revocation(t, "pst_unknown")
		r.ok(t, used)
		r.refused(t, used.set("token", token), unauthorized, "invalid_client")
		r.refused(t, r.start(t).set("client_assertion", used.form.Get("client_assertion")), unauthorized, "invalid_client")
		require.NoError(t, r.use(t, token, r.key))
	})
}

// Neither tokens nor assertions nor proofs reach the log, whatever comes of a request.
func TestLog_HoldsNoCredentials(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.start(t)
		a := r.ok(t, q)
		r.refused(t, q, unauthorized, "invalid_client")
		require.NoError(t, r.use(t, a.text("access_token"), r.key))
		r.ok(t, r.revocation(t, a.text("access_token")))
		requireReason(t, r.use(t, a.text("access_token"), r.key), problem.InvalidToken)
		inQuery := r.start(t)
		inQuery.url += "?access_token=" + a.text("access_token")
		r.refused(t, inQuery, bad, "invalid_request")
		logged := r.Logged.String()
		require.Contains(t, logged, "oauth request refused")
		require.Contains(t, logged, a.text("session_id"))
		for _, secret := range []string{a.text("access_token"), q.form.Get("assertion"), q.form.Get("client_assertion"), q.proofs[0]} {
			require.NotContains(t, logged, secret)
			require.NotContains(t, logged, secret[len(secret)-40:])
		}
	})
}

// A client address is bounded before anything costly is done for it.
func TestToken_FloodOfOneAddress(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#46")
	r := newRig(t, dbtest.SQLite(t), auth.Config{RequestsPerMinute: 3})
	for range 3 {
		r.refused(t, r.start(t).set("client_id", "https://nowhere.example/agent.json"), unauthorized, "invalid_client")
	}
	a := r.refused(t, r.start(t), http.StatusTooManyRequests, "rate_limited")
	require.Equal(t, "20", a.header.Get("Retry-After"))
	require.Zero(t, r.Web.Fetches(r.agent.ClientID))
	r.Clock.Advance(20 * time.Second)
	r.ok(t, r.start(t))
}
