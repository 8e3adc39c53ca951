package auth_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestToken_ReplayIsRefused(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#20", "poppy-0.1/4.2#51", "poppy-0.1/4.2#53", "poppy-0.1/4.2#61", "poppy-0.1/4.3#22")
	clausetest.Refuses(t, "poppy-0.1/4.2#20", "poppy-0.1/4.2#51", "poppy-0.1/4.2#53", "poppy-0.1/4.2#61", "poppy-0.1/4.3#22", "poppy-0.1/4.1#d7", "poppy-0.1/4.2#d7", "poppy-0.1/4.3#d7", "poppy-0.1/4.3#8", "poppy-0.1/4.3#10")
	each(t, func(t *testing.T, r *rig) {
		used := r.start(t)
		r.ok(t, used)
		q := r.start(t)
		r.refused(t, q.set("client_assertion", used.form.Get("client_assertion")), unauthorized, "invalid_client")
		q = r.start(t)
		r.refused(t, q.set("assertion", used.form.Get("assertion")), bad, "invalid_grant")
		q = r.start(t)
		q.proofs = used.proofs
		a := r.refused(t, q, bad, "invalid_dpop_proof")
		require.Contains(t, a.header.Get("WWW-Authenticate"), "DPoP")

		// The jti counts, not the bytes, and for both assertions apart.
		te := r.company.Issuer.TokenEndpoint()
		jti := fixture.Claim("jti", fixture.RandomID())
		r.ok(t, r.start(t).set("client_assertion", r.agent.ClientAssertion(t, te, r.now(), jti)).set("assertion", r.agent.SessionAssertion(t, user, te, r.now(), jti)))
		r.refused(t, r.start(t).set("assertion", r.agent.SessionAssertion(t, "usr_other", te, r.now(), jti)), bad, "invalid_grant")

		// Another agent's jti and another key's are no concern.
		other := fixture.NewAgent(t, "other.example")
		r.Web.Publish(other)
		r.ok(t, r.startAt(t, r.company, other, user).set("assertion", other.SessionAssertion(t, user, te, r.now(), jti)))
		proof := fixture.Claim("jti", "same")
		for _, key := range []bool{true, false} {
			q := r.start(t)
			signer := r.key
			if !key {
				signer = fixture.NewKey(t)
			}
			q.proofs = []string{fixture.Proof(t, signer, http.MethodPost, te, "", r.now(), proof)}
			r.ok(t, q)
		}
	})
}

// A refused request uses nothing up: the same assertions and proof work once the fault is mended.
func TestToken_RefusedRequestUsesNothingUp(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#d7", "poppy-0.1/4.3#d7", "poppy-0.1/4.1#d7")
	each(t, func(t *testing.T, r *rig) {
		q := r.start(t)
		r.refused(t, q.set("scope", "poppy:read"), bad, "invalid_scope")
		r.refused(t, q.set("scope", "").set("resource", "https://evil.example/"), bad, "invalid_target")
		r.refused(t, q.set("resource", "").set("session_id", "ses_unknown"), bad, "invalid_session")
		q.set("session_id", "")
		proofs := q.proofs
		q.proofs = []string{"x"}
		r.refused(t, q, bad, "invalid_dpop_proof")
		q.proofs = proofs
		r.ok(t, q)
	})
}

// Twenty copies of one request at once start one Session.
func TestToken_ParallelReplayHasOneWinner(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.2#20", "poppy-0.1/4.1#d7", "poppy-0.1/4.2#d7", "poppy-0.1/4.3#22")
	each(t, func(t *testing.T, r *rig) {
		te := r.company.Issuer.TokenEndpoint()
		shared := r.start(t)
		// Copies that share one of the three only, so that each memory is put to the test.
		for name, copyOf := range map[string]func(*request){
			"invalid_client":     func(q *request) { q.set("client_assertion", shared.form.Get("client_assertion")) },
			"invalid_grant":      func(q *request) { q.set("assertion", shared.form.Get("assertion")) },
			"invalid_dpop_proof": func(q *request) { q.proofs = shared.proofs },
		} {
			const n = 20
			answers := make([]answer, n)
			requests := make([]*request, n)
			for i := range requests {
				requests[i] = r.start(t)
				copyOf(requests[i])
			}
			var wait sync.WaitGroup
			for i := range requests {
				wait.Go(func() { answers[i] = r.send(t, requests[i]) })
			}
			wait.Wait()
			won := 0
			for _, a := range answers {
				if a.status == http.StatusOK {
					won++
					continue
				}
				require.Equal(t, name, a.text("error"), a.raw)
			}
			require.Equal(t, 1, won, name)
			shared = r.start(t)
			shared.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, te, "", r.now())}
		}
	})
}

// Nothing is let through while nobody can say what was used before.
func TestToken_MemoryUnreachableIs503(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#d7", "poppy-0.1/4.3#d7")
	clausetest.Refuses(t, "poppy-0.1/4.2#d7", "poppy-0.1/4.3#d7")
	each(t, func(t *testing.T, r *rig) {
		token := r.ok(t, r.start(t)).text("access_token")
		r.Bus.Close()
		a := r.refused(t, r.start(t), http.StatusServiceUnavailable, "temporarily_unavailable")
		require.NotEmpty(t, a.header.Get("Retry-After"))
		requireReason(t, r.use(t, token, r.key), "TEMPORARILY_UNAVAILABLE")
		q := r.revocation(t, token)
		r.refused(t, q, http.StatusServiceUnavailable, "temporarily_unavailable")
	})
}

// What the memory can't know about is refused, and a fresh assertion works.
func TestToken_IssuedBeforeTheMemory(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.Clock.Advance(-time.Hour) // to the present, in which the memory was made
		r.refused(t, r.start(t), unauthorized, "invalid_client")
		r.Clock.Advance(oauth.Skew + time.Minute)
		r.ok(t, r.start(t))
	})
}

func TestMT06_OneCompanysThingsAreUnknownAtAnother(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4#d40", "poppy-0.1/4#2")
	clausetest.Refuses(t, "poppy-0.1/4#d40")
	each(t, func(t *testing.T, r *rig) {
		b := r.NewCompany(t)
		teA, teB := r.company.Issuer.TokenEndpoint(), b.Issuer.TokenEndpoint()
		// The same agent, User ID, jti, key and second: fully independent.
		jti := fixture.Claim("jti", fixture.RandomID())
		var tokens, ids []string
		for _, c := range []*fixture.Company{r.company, b} {
			te := c.Issuer.TokenEndpoint()
			q := r.startAt(t, c, r.agent, user).set("client_assertion", r.agent.ClientAssertion(t, te, r.now(), jti)).
				set("assertion", r.agent.SessionAssertion(t, user, te, r.now(), jti))
			q.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, te, "", r.now(), jti)}
			a := r.ok(t, q)
			tokens, ids = append(tokens, a.text("access_token")), append(ids, a.text("session_id"))
		}
		require.NotEqual(t, tokens[0], tokens[1])
		require.NotEqual(t, ids[0], ids[1])
		requireReason(t, r.use(t, tokens[1], r.key), "INVALID_TOKEN")
		require.NoError(t, r.use(t, tokens[0], r.key))
		r.refused(t, r.startAt(t, b, r.agent, user).set("session_id", ids[0]), bad, "invalid_session")

		// Assertions and proofs for one are worth nothing at the other.
		r.refused(t, r.startAt(t, b, r.agent, user).set("assertion", r.agent.SessionAssertion(t, user, teA, r.now())), bad, "invalid_grant")
		r.refused(t, r.startAt(t, b, r.agent, user).set("client_assertion", r.agent.ClientAssertion(t, teA, r.now())), unauthorized, "invalid_client")
		q := r.startAt(t, b, r.agent, user)
		q.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, teA, "", r.now())}
		r.refused(t, q, bad, "invalid_dpop_proof")

		// Revocation at the other is answered alike and changes nothing.
		q = r.revocation(t, tokens[0])
		q.url = b.Issuer.RevocationEndpoint()
		q.set("client_assertion", r.agent.ClientAssertion(t, teB, r.now()))
		require.Empty(t, r.ok(t, q).raw)
		require.NoError(t, r.use(t, tokens[0], r.key))
	})
}

// DP-04: an issuer with a path, whether or not a proxy takes the path off.
func TestDP04_IssuerWithAPath(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c := r.NewCompanyAt(t, "/t/acme")
		r.ok(t, r.startAt(t, c, r.agent, user))
		stripped := r.startAt(t, c, r.agent, user)
		stripped.url = strings.Replace(stripped.url, "/t/acme", "", 1)
		r.ok(t, stripped)
		inner := r.startAt(t, c, r.agent, user)
		inner.url = strings.Replace(inner.url, "/t/acme", "", 1)
		inner.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, inner.url, "", r.now())}
		r.refused(t, inner, bad, "invalid_dpop_proof")
	})
}
