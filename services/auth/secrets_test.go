package auth_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// Neither credentials nor codes nor tokens are in a log line or an error's body,
// whatever comes of the request that they were in.
func TestSignIn_SecretsStayWhereTheyBelong(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#24")
	clausetest.Refuses(t, "poppy-0.1/4.7#24")
	eachSignIn(t, func(t *testing.T, r *rig) {
		const canary, code = "canary-p4ssw0rd", "canary-0t1c"
		r.Accounts.Put("canary@example.com", fixture.Account{ID: "acc-7", Password: canary, Code: code})
		var secrets []string
		var bodies []string
		keep := func(a answer, names ...string) answer {
			for _, name := range names {
				require.NotEmpty(t, a.text(name), name)
				secrets = append(secrets, a.text(name))
			}
			return a
		}
		note := func(a answer) { bodies = append(bodies, a.raw) }

		started := r.ok(t, r.start(t))
		token, id := started.text("access_token"), started.text("session_id")
		secrets = append(secrets, token, canary, code, fixture.Verifier)
		note(r.sendMediated(t, r.credentials(t, token, "poppy:write", "canary@example.com", canary)))
		note(r.sendMediated(t, r.credentials(t, token, "poppy:read", "canary@example.com", canary+"x")))
		note(r.sendMediated(t, r.mediatedAt(t, token, "", `{"scope":"poppy:read","credentials":{"`+canary+`":"x"}}`)))
		note(r.sendMediated(t, r.mediatedAt(t, token, "", `{"`+canary)))
		r.Accounts.Down(true)
		note(r.sendMediated(t, r.credentials(t, token, "poppy:read", "canary@example.com", canary)))
		r.Accounts.Down(false)
		pending := r.status(t, r.credentials(t, token, "poppy:read", "canary@example.com", canary), "code_required")
		note(pending)
		note(r.sendMediated(t, r.oneTimeCode(t, token, pending.text("sign_in_id"), code+"x")))
		keep(r.status(t, r.oneTimeCode(t, token, pending.text("sign_in_id"), code), "complete"), "access_token", "refresh_token")
		note(r.sendMediated(t, r.oneTimeCode(t, token, pending.text("sign_in_id"), code)))

		authorization := r.approve(t, r.agent, both, "acc-7")
		secrets = append(secrets, authorization)
		note(r.send(t, r.exchange(t, authorization, id).set("redirect_uri", "https://evil.example/")))
		direct := keep(r.ok(t, r.exchange(t, authorization, id)), "access_token", "refresh_token")
		note(r.send(t, r.exchange(t, authorization, id)))
		device := keep(r.ok(t, r.device(t, both)), "device_code", "user_code")
		note(r.send(t, r.poll(t, device.text("device_code"), id)))
		r.decide(t, device.text("user_code"), both, "acc-7")
		other := keep(r.ok(t, r.poll(t, device.text("device_code"), id)), "access_token", "refresh_token")
		keep(r.ok(t, r.refresh(t, other.text("refresh_token"))), "access_token")
		note(r.send(t, r.refresh(t, direct.text("refresh_token"))))
		note(r.send(t, r.refresh(t, other.text("refresh_token")).set("scope", both+" addresses")))
		inQuery := r.refresh(t, other.text("refresh_token"))
		inQuery.url += "?refresh_token=" + other.text("refresh_token")
		note(r.send(t, inQuery))
		r.ok(t, r.revocation(t, other.text("refresh_token")))
		note(r.send(t, r.refresh(t, other.text("refresh_token"))))

		logged := r.Logged.String()
		require.Contains(t, logged, "mediated sign-in refused")
		for _, secret := range secrets {
			require.NotContains(t, logged, secret)
			for _, body := range bodies {
				require.NotContains(t, body, secret)
			}
		}
	})
}
