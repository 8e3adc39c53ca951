package auth_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

const (
	allow    = adminv1.AdmissionEffect_ADMISSION_EFFECT_ALLOW
	block    = adminv1.AdmissionEffect_ADMISSION_EFFECT_BLOCK
	register = adminv1.AdmissionEffect_ADMISSION_EFFECT_REGISTER
	open     = adminv1.AdmissionMode_ADMISSION_MODE_OPEN
	listed   = adminv1.AdmissionMode_ADMISSION_MODE_ALLOWLIST
	unlisted = adminv1.AdmissionMode_ADMISSION_MODE_BLOCKLIST
	known    = adminv1.AdmissionMode_ADMISSION_MODE_REGISTRATION_REQUIRED
)

func TestToken_Admission(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#17", "poppy-0.1/4.1#18", "poppy-0.1/4.1#19", "poppy-0.1/4.1#20", "poppy-0.1/4.2#50", "poppy-0.1/4.2#51")
	clausetest.Refuses(t, "poppy-0.1/4.1#17", "poppy-0.1/4.1#18", "poppy-0.1/4.1#19", "poppy-0.1/4.1#20", "poppy-0.1/4.2#50", "poppy-0.1/4.2#51")
	each(t, func(t *testing.T, r *rig) {
		none := adminv1.AdmissionEffect_ADMISSION_EFFECT_UNSPECIFIED
		for i, c := range []struct {
			mode   adminv1.AdmissionMode
			effect adminv1.AdmissionEffect
			in     bool
		}{
			{open, none, true},
			{open, allow, true},
			{open, register, true},
			{open, block, false},
			{unlisted, none, true},
			{unlisted, allow, true},
			{unlisted, block, false},
			{listed, none, false},
			{listed, allow, true},
			{listed, register, false},
			{listed, block, false},
			{known, none, false},
			{known, allow, false},
			{known, register, true},
			{known, block, false},
		} {
			t.Run(c.mode.String()+" "+c.effect.String(), func(t *testing.T) {
				a := fixture.NewAgent(t, "agent"+strconv.Itoa(i)+".example")
				r.Web.Publish(a)
				r.policy(t, c.mode, false)
				if c.effect != none {
					r.rule(t, r.company, a.ClientID, c.effect)
				}
				q := r.startAt(t, r.company, a, user)
				if c.in {
					r.ok(t, q)
					return
				}
				r.refused(t, q, unauthorized, "invalid_client")
			})
		}
	})
}

// CI-14: a block holds from the agent's next request on, at that Company alone.
func TestCI14_BlockHoldsAtOnceAndAtOneCompany(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#19", "poppy-0.1/4.1#20")
	clausetest.Refuses(t, "poppy-0.1/4.1#20", "poppy-0.1/4#d40")
	each(t, func(t *testing.T, r *rig) {
		b := r.NewCompany(t)
		a := r.ok(t, r.start(t))
		token, id := a.text("access_token"), a.text("session_id")
		require.NoError(t, r.use(t, token, r.key))
		rule := r.rule(t, r.company, r.agent.ClientID, block)
		requireReason(t, r.use(t, token, r.key), problem.InvalidToken)
		r.refused(t, r.start(t), unauthorized, "invalid_client")
		r.refused(t, r.renew(t, id), unauthorized, "invalid_client")
		r.ok(t, r.startAt(t, b, r.agent, user))

		_, err := r.admission.DeleteAdmissionRule(r.company.Ctx(t.Context()), &adminv1.DeleteAdmissionRuleRequest{Name: rule.GetName()})
		require.NoError(t, err)
		require.NoError(t, r.use(t, token, r.key))
		r.ok(t, r.renew(t, id))

		// A rule that has expired counts as none.
		_, err = r.admission.CreateAdmissionRule(r.company.Ctx(t.Context()), &adminv1.CreateAdmissionRuleRequest{
			Parent: r.company.Scope.Name(),
			AdmissionRule: &adminv1.AdmissionRule{
				ClientId: r.agent.ClientID, Effect: block, ExpireTime: timestamppb.New(r.now().Add(time.Minute)),
			},
		})
		require.NoError(t, err)
		r.refused(t, r.start(t), unauthorized, "invalid_client")
		r.Clock.Advance(time.Minute)
		r.ok(t, r.start(t))
		require.NoError(t, r.use(t, token, r.key))

		// A stricter policy ends what it no longer admits.
		r.policy(t, known, false)
		requireReason(t, r.use(t, token, r.key), problem.InvalidToken)
	})
}

func TestToken_StartsAreLimitedByClient(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#21", "poppy-0.1/4.2#67", "poppy-0.1/4.2#68", "poppy-0.1/4.3#46")
	clausetest.Refuses(t, "poppy-0.1/4.1#21", "poppy-0.1/4.2#67", "poppy-0.1/4.3#46")
	each(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.SessionStartsPerMinute = 2
		r.Changed(r.company)
		id := r.ok(t, r.start(t)).text("session_id")
		r.ok(t, r.renew(t, id))
		a := r.refused(t, r.start(t), http.StatusTooManyRequests, "rate_limited")
		wait, err := strconv.Atoi(a.header.Get("Retry-After"))
		require.NoError(t, err)
		require.Equal(t, 30, wait)
		other := fixture.NewAgent(t, "other.example")
		r.Web.Publish(other)
		r.ok(t, r.startAt(t, r.company, other, user))
		r.ok(t, r.startAt(t, r.NewCompany(t), r.agent, user))
		// Waiting as long as told is enough.
		r.Clock.Advance(time.Duration(wait) * time.Second)
		r.ok(t, r.start(t))
	})
}

// DP-25: the whole course of a nonce at the token endpoint and with the token.
func TestDP25_Nonce(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.2#63", "poppy-0.1/4.2#64", "poppy-0.1/4.3#16", "poppy-0.1/4.3#24", "poppy-0.1/4.3#26")
	clausetest.Refuses(t, "poppy-0.1/4.2#63", "poppy-0.1/4.2#64", "poppy-0.1/4.3#16", "poppy-0.1/4.3#24", "poppy-0.1/4.3#26")
	each(t, func(t *testing.T, r *rig) {
		r.policy(t, open, true)
		te := r.company.Issuer.TokenEndpoint()
		with := func(q *request, nonce string) *request {
			q.proofs = []string{fixture.Proof(t, r.key, http.MethodPost, te, "", r.now(), fixture.Claim("nonce", nonce))}
			return q
		}
		// The first try uses nothing up: the retry has the same assertions.
		q := r.start(t)
		a := r.refused(t, q, bad, "use_dpop_nonce")
		nonce := a.header.Get("DPoP-Nonce")
		require.NotEmpty(t, nonce)
		require.Contains(t, a.header.Get("WWW-Authenticate"), `DPoP error="use_dpop_nonce"`)
		require.NotContains(t, a.raw, nonce)
		a = r.ok(t, with(q, nonce))
		require.Equal(t, nonce, a.header.Get("DPoP-Nonce"))
		token := a.text("access_token")

		// Also at other errors the agent learns the nonce.
		require.Equal(t, nonce, r.refused(t, with(r.renew(t, "ses_unknown"), nonce), bad, "invalid_session").header.Get("DPoP-Nonce"))
		r.refused(t, with(r.start(t), "made-up"), bad, "use_dpop_nonce")

		// With the token it is the same.
		err := r.use(t, token, r.key)
		requireReason(t, err, problem.UseDPoPNonce)
		require.Equal(t, nonce, problem.As(err).Extra["dpop_nonce"])
		require.NoError(t, r.useNonce(t, token, nonce))

		// An old one is refused with a new one.
		r.Clock.Advance(10 * time.Minute)
		a = r.refused(t, with(r.start(t), nonce), bad, "use_dpop_nonce")
		fresh := a.header.Get("DPoP-Nonce")
		require.NotEqual(t, nonce, fresh)
		r.ok(t, with(r.start(t), fresh))
		requireReason(t, r.useNonce(t, token, nonce), problem.UseDPoPNonce)
		require.NoError(t, r.useNonce(t, token, fresh))

		// Another Company's nonce is none.
		b := r.NewCompany(t)
		requireReason(t, r.useNonce(t, token, r.nonceOf(b)), problem.UseDPoPNonce)
	})
}
