package auth_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

func TestDevice_SignIn(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4#27", "poppy-0.1/4.6#1", "poppy-0.1/4.6#3", "poppy-0.1/4.6#4", "poppy-0.1/4.6#5", "poppy-0.1/4.6#6", "poppy-0.1/4.6#13", "poppy-0.1/4.6#14", "poppy-0.1/4.6#16", "poppy-0.1/4.6#d30",
		"poppy-0.1/4.4#31", "poppy-0.1/4.4#32", "poppy-0.1/4.4#34", "poppy-0.1/4.1#d4", "poppy-0.1/4.3#d28")
	eachSignIn(t, func(t *testing.T, r *rig) {
		q := r.device(t, both)
		q.proofs = []string{"not a proof", "and another"} // none is needed here
		q.set("session_id", "ses_ignored")
		a := r.ok(t, q)
		require.Equal(t, "application/json", a.header.Get("Content-Type"))
		require.Equal(t, "no-store", a.header.Get("Cache-Control"))
		require.Len(t, a.body, 6)
		require.Regexp(t, `^pdc_[A-Za-z0-9_-]{43}$`, a.text("device_code"))
		require.Regexp(t, `^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$`, a.text("user_code"))
		page := r.company.Issuer.String() + "/device"
		require.Equal(t, page, a.text("verification_uri"))
		require.Equal(t, page+"?user_code="+a.text("user_code"), a.text("verification_uri_complete"))
		require.InDelta(t, 600, a.body["expires_in"], 0)
		require.InDelta(t, 5, a.body["interval"], 0)

		id := r.session(t)
		for range 3 {
			require.Empty(t, r.refused(t, r.poll(t, a.text("device_code"), id), bad, "authorization_pending").header.Get("WWW-Authenticate"))
			r.Clock.Advance(5 * time.Second)
		}
		r.decide(t, a.text("user_code"), "poppy:write", "acc-1")
		r.requireSignedIn(t, r.ok(t, r.poll(t, a.text("device_code"), id)), id, "poppy:write", "acc-1")

		// The assertion may be for the endpoint itself or the issuer.
		for _, audience := range []string{r.company.Issuer.DeviceAuthorizationEndpoint(), r.company.Issuer.String()} {
			r.ok(t, r.device(t, both).set("client_assertion", r.agent.ClientAssertion(t, audience, r.now())))
		}
	})
}

func TestDevice_StartRefused(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#23", "poppy-0.1/4.4#24", "poppy-0.1/4.4#25", "poppy-0.1/4.4#26")
	clausetest.Refuses(t, "poppy-0.1/4.6#1", "poppy-0.1/4.6#4", "poppy-0.1/4.4#22", "poppy-0.1/4.4#23", "poppy-0.1/4.4#24", "poppy-0.1/4.4#25", "poppy-0.1/4.4#26", "poppy-0.1/4.1#14",
		"poppy-0.1/4.3#45", "poppy-0.1/4.3#d26")
	eachSignIn(t, func(t *testing.T, r *rig) {
		other := fixture.NewAgent(t, "other.example")
		used := r.device(t, both)
		r.ok(t, used)
		for name, c := range map[string]struct {
			change func(*request)
			status int
			code   string
		}{
			"SC-03 no scope":         {func(q *request) { q.set("scope", "") }, bad, "invalid_scope"},
			"SC-03 unknown":          {func(q *request) { q.set("scope", "poppy:read foo") }, bad, "invalid_scope"},
			"SC-03 reserved unknown": {func(q *request) { q.set("scope", "poppy:admin") }, bad, "invalid_scope"},
			"SC-03 another type's":   {func(q *request) { q.set("scope", "addresses") }, bad, "invalid_scope"},
			"SC-03 two spaces":       {func(q *request) { q.set("scope", "poppy:read  poppy:write") }, bad, "invalid_scope"},
			"SC-03 twice":            {func(q *request) { q.set("scope", "poppy:read poppy:read") }, bad, "invalid_scope"},
			"SC-03 tab":              {func(q *request) { q.set("scope", "poppy:read\tpoppy:write") }, bad, "invalid_scope"},
			"GW-08 two scopes":       {func(q *request) { q.extra = "&scope=poppy:read" }, bad, "invalid_request"},
			"no client":              {func(q *request) { q.set("client_id", "") }, unauthorized, "invalid_client"},
			"no assertion":           {func(q *request) { q.set("client_assertion", "") }, unauthorized, "invalid_client"},
			"wrong key": {func(q *request) {
				q.set("client_assertion", r.agent.ClientAssertion(t, r.company.Issuer.TokenEndpoint(), r.now(), fixture.SignedBy(other.Signer)))
			}, unauthorized, "invalid_client"},
			"another audience": {func(q *request) {
				q.set("client_assertion", r.agent.ClientAssertion(t, r.company.Issuer.VerificationURI(), r.now()))
			}, unauthorized, "invalid_client"},
			"replayed assertion": {func(q *request) { q.set("client_assertion", used.form.Get("client_assertion")) }, unauthorized, "invalid_client"},
			"JSON":               {func(q *request) { q.contentType = "application/json" }, bad, "invalid_request"},
			"in the query":       {func(q *request) { q.url += "?client_assertion=x" }, bad, "invalid_request"},
		} {
			t.Run(name, func(t *testing.T) {
				q := r.device(t, both)
				c.change(q)
				r.refused(t, q, c.status, c.code)
			})
		}
		a := r.serve(t, httptest.NewRequestWithContext(t.Context(), http.MethodGet, r.company.Issuer.DeviceAuthorizationEndpoint(), nil))
		require.Equal(t, http.StatusMethodNotAllowed, a.status)
	})
}

// Where a type isn't offered, nothing tells its endpoint from a path that never was.
func TestSignIn_TypeNotOfferedIsNotThere(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#3", "poppy-0.1/4.4#4")
	clausetest.Refuses(t, "poppy-0.1/4.4#3", "poppy-0.1/4.4#4", "poppy-0.1/4.6#3")
	eachSignIn(t, func(t *testing.T, r *rig) {
		token := r.ok(t, r.start(t)).text("access_token")
		r.company.Snapshot.SignIn.DeviceScopes, r.company.Snapshot.SignIn.MediatedScopes = nil, nil
		r.Changed(r.company)
		nowhere := r.device(t, both)
		nowhere.url = r.company.Issuer.String() + "/oauth/nowhere"
		want := r.send(t, nowhere)
		for _, a := range []answer{
			r.send(t, r.device(t, both)),
			r.sendMediated(t, r.credentials(t, token, "poppy:read", email, password)),
			r.sendMediated(t, r.oneTimeCode(t, token, "sgn_1", "123456")),
		} {
			require.Equal(t, http.StatusNotFound, a.status)
			require.Equal(t, want.raw, a.raw)
			require.Equal(t, want.header, a.header)
		}
		require.Empty(t, r.Accounts.Asked())
	})
}

func TestDevice_PollRefused(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#17", "poppy-0.1/4.6#18", "poppy-0.1/4.6#d41", "poppy-0.1/4.6#d30", "poppy-0.1/4.5#d41")
	clausetest.Refuses(t, "poppy-0.1/4.6#13", "poppy-0.1/4.6#14", "poppy-0.1/4.6#16", "poppy-0.1/4.6#17", "poppy-0.1/4.6#18", "poppy-0.1/4.6#d30", "poppy-0.1/4.6#d41", "poppy-0.1/4.4#22", "poppy-0.1/4.4#21")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id, taken := r.session(t), r.session(t)
		r.signedIn(t, taken, both, "acc-2")
		other := fixture.NewAgent(t, "other.example")
		r.Web.Publish(other)
		te := r.company.Issuer.TokenEndpoint()
		foreign := r.ok(t, r.startAt(t, r.company, other, user)).text("session_id")

		a := r.ok(t, r.device(t, both))
		code := a.text("device_code")
		// No more than was asked for can be approved.
		found, err := r.signIns.FindDevice(r.company.Ctx(t.Context()), &sessionsv1.FindDeviceRequest{UserCode: a.text("user_code")})
		require.NoError(t, err)
		_, err = r.signIns.DecideDevice(r.company.Ctx(t.Context()), &sessionsv1.DecideDeviceRequest{
			DeviceId: found.GetDeviceId(), ApprovedScope: both + " addresses", Account: &sessionsv1.Account{Id: "acc-1"},
		})
		requireReason(t, err, problem.InvalidScope)
		r.decide(t, a.text("user_code"), both, "acc-1")
		for name, c := range map[string]struct {
			change func(*request)
			status int
			code   string
		}{
			"unknown":                    {func(q *request) { q.set("device_code", "pdc_unknown") }, bad, "invalid_grant"},
			"user code":                  {func(q *request) { q.set("device_code", a.text("user_code")) }, bad, "invalid_grant"},
			"missing":                    {func(q *request) { q.set("device_code", "") }, bad, "invalid_request"},
			"no session":                 {func(q *request) { q.set("session_id", "") }, bad, "invalid_request"},
			"unknown session":            {func(q *request) { q.set("session_id", "ses_unknown") }, bad, "invalid_session"},
			"another agent's session":    {func(q *request) { q.set("session_id", foreign) }, bad, "invalid_session"},
			"session of another account": {func(q *request) { q.set("session_id", taken) }, bad, "account_mismatch"},
			"another agent": {func(q *request) {
				q.set("client_id", other.ClientID).set("client_assertion", other.ClientAssertion(t, te, r.now())).set("session_id", foreign)
			}, bad, "invalid_grant"},
			"no proof":     {func(q *request) { q.proofs = nil }, bad, "invalid_request"},
			"broken proof": {func(q *request) { q.proofs = []string{"x"} }, bad, "invalid_dpop_proof"},
		} {
			t.Run(name, func(t *testing.T) {
				q := r.poll(t, code, id)
				c.change(q)
				r.refused(t, q, c.status, c.code)
			})
		}
		token := r.ok(t, r.poll(t, code, id)).text("access_token") // none of it used the code up
		// A later poll gets nothing, and ends nothing.
		r.refused(t, r.poll(t, code, id), bad, "invalid_grant")
		require.True(t, r.caller(t, token).GetSignedIn())

		declined := r.ok(t, r.device(t, both))
		r.decide(t, declined.text("user_code"), "", "")
		for range 2 {
			r.refused(t, r.poll(t, declined.text("device_code"), id), bad, "access_denied")
		}
		late := r.ok(t, r.device(t, both))
		r.Clock.Advance(601 * time.Second)
		r.refused(t, r.poll(t, late.text("device_code"), id), bad, "expired_token")
		require.Equal(t, "/device", mustPath(t, late.text("verification_uri")))
	})
}

func mustPath(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	return u.Path
}

// DF-02: slow_down lasts, and holds in every process; the approved code still comes.
func TestDF02_SlowDownLastsInEveryProcess(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#15", "poppy-0.1/4.6#14", "poppy-0.1/4.6#16")
	clausetest.Refuses(t, "poppy-0.1/4.6#15")
	eachSignIn(t, func(t *testing.T, r *rig) {
		id := r.session(t)
		a := r.ok(t, r.device(t, both))
		code := a.text("device_code")
		poll := func(i int, want string) {
			t.Helper()
			got := r.sendTo(t, []http.Handler{r.web, r.replica}[i%2], r.poll(t, code, id))
			require.Equal(t, bad, got.status)
			require.Equal(t, want, got.text("error"))
		}
		poll(0, "authorization_pending")
		for i := range 9 { // ten polls within a second
			poll(i+1, "slow_down")
		}
		r.Clock.Advance(5 * time.Second) // the interval of the beginning is no longer enough
		poll(0, "slow_down")
		r.Clock.Advance(5 * time.Second)
		poll(1, "slow_down")
		r.Clock.Advance(2 * time.Minute)
		poll(0, "authorization_pending")
		r.decide(t, a.text("user_code"), both, "acc-1")
		// DF-03: an impatient agent gets what was approved all the same.
		got := r.sendTo(t, r.replica, r.poll(t, code, id))
		require.Equal(t, http.StatusOK, got.status, got.raw)
	})
}

func TestDevice_StartsAreLimitedByClient(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#21")
	eachSignIn(t, func(t *testing.T, r *rig) {
		r.company.Snapshot.SessionStartsPerMinute = 2
		r.Changed(r.company)
		r.ok(t, r.device(t, both))
		r.ok(t, r.device(t, both))
		a := r.refused(t, r.device(t, both), http.StatusTooManyRequests, "rate_limited")
		require.NotEmpty(t, a.header.Get("Retry-After"))
	})
}
