package main

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/auth"
	"github.com/poppyfield/poppyfield/services/sessions"
	sessionsapp "github.com/poppyfield/poppyfield/services/sessions/app"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// narrow makes every limit one that a test meets, each wider than those inside of it.
func narrow(cfg *Config, o *processOptions) {
	o.sessions = sessions.Config{Rates: sessionsapp.Rates{RequestsPerUser: 5, RequestsPerAgent: 8, RequestsPerCompany: 12, StartsPerCompany: 14}}
	o.auth = auth.Config{RequestsPerMinute: 20}
	cfg.RequestsPerAddress = 60
}

// wants is how a refusal because of a limit has to look.
func (a answer) limited(t *testing.T, detail string) {
	t.Helper()
	require.Equal(t, http.StatusTooManyRequests, a.status, "%s", a.raw)
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, wait)
	require.LessOrEqual(t, wait, 60)
	require.Contains(t, string(a.raw), detail)
}

// Whatever is limited is refused in the same way: by Session, User, agent and Company, and by address (4.3).
func TestLimits_EveryOneAnswers429WithRetryAfter(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, func(*Config, *processOptions)) *installation{"sqlite": tunedOnSQLite, "postgres": tunedOnPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clausetest.Covers(t, "poppy-0.1/4.3#46", "poppy-0.1/4.1#21")
			clausetest.Refuses(t, "poppy-0.1/4.3#46", "poppy-0.1/4.1#21")
			in := start(t, narrow)
			everyLimit(t, in)
		})
	}
}

// everyLimit goes through the limits: what lets so many through is told by ask, which makes one more request.
func everyLimit(t *testing.T, in *installation) {
	const detailRequests = "too many requests"
	read := func(t *testing.T, s *session) answer {
		t.Helper()
		return s.read(t, "cnv_00000000000000000000000000", "")
	}
	get := func(path string) func(*testing.T, *company) func() answer {
		return func(t *testing.T, co *company) func() answer {
			t.Helper()
			return func() answer { return in.get(t, co.issuer+path) }
		}
	}
	for name, c := range map[string]struct {
		limits  object
		through int
		detail  string
		// asks prepares, and returns what makes one request.
		asks func(*testing.T, *company) func() answer
	}{
		"requests of a Session": {object{"requests_per_minute": 3}, 3, "in this Session", func(t *testing.T, co *company) func() answer {
			s := co.visitor(t)
			return func() answer { return read(t, s) }
		}},
		"requests of a User": {object{"requests_per_minute": 3}, 5, "of this User", func(t *testing.T, co *company) func() answer {
			first := co.visitor(t)
			return inTurn(func() answer { return read(t, first) }, 3, func() func() answer {
				second := first.again(t)
				return func() answer { return read(t, second) }
			})
		}},
		"requests of an agent": {object{"requests_per_minute": 3}, 8, "of this agent", func(t *testing.T, co *company) func() answer {
			a, n := in.agent(t), 0
			var s *session
			return func() answer {
				if n%2 == 0 {
					s = co.open(t, a, "usr_"+strconv.Itoa(n))
				}
				n++
				return read(t, s)
			}
		}},
		"requests at a Company": {object{"requests_per_minute": 3}, 12, "at this Company", func(t *testing.T, co *company) func() answer {
			n := 0
			var s *session
			return func() answer {
				if n%2 == 0 {
					s = co.visitor(t)
				}
				n++
				return read(t, s)
			}
		}},
		"Session starts of an agent": {object{"session_starts_per_minute": 3}, 3, "Session starts", func(t *testing.T, co *company) func() answer {
			a := in.agent(t)
			return func() answer { return co.token(t, co.form(t, a, "usr_1"), co.proof(t, fixture.NewKey(t))) }
		}},
		"Session starts at a Company": {nil, 14, "at this Company", func(t *testing.T, co *company) func() answer {
			return func() answer { return co.token(t, co.form(t, in.agent(t), "usr_1"), co.proof(t, fixture.NewKey(t))) }
		}},
		"OAuth of an address": {nil, 20, "from this address", func(t *testing.T, co *company) func() answer {
			return func() answer { return co.token(t, url.Values{"grant_type": {"x"}}) }
		}},
		"pages of an address":             {nil, 20, "", get("/device")},
		"metadata of an address":          {nil, 60, detailRequests, get("/.well-known/oauth-authorization-server")},
		"webhook keys of an address":      {nil, 60, detailRequests, get("/poppy/webhook-keys.json")},
		"poppy.json of an address":        {nil, 60, detailRequests, get("/poppy/shop.example/poppy.json")},
		"conversations of an address":     {nil, 60, detailRequests, get("/poppy/conversations/x/events")},
		"what isn't there, of an address": {nil, 60, detailRequests, get("/nothing")},
	} {
		t.Run(name, func(t *testing.T) {
			var change []func(*plan)
			if c.limits != nil {
				change = append(change, limits(c.limits))
			}
			ask := c.asks(t, in.company(t, change...))
			for i := range c.through {
				require.NotEqual(t, http.StatusTooManyRequests, ask().status, "request %d", i+1)
			}
			got := ask()
			for range 10 * c.through { // some of it comes back while the test asks
				if got.status == http.StatusTooManyRequests {
					break
				}
				got = ask()
			}
			got.limited(t, c.detail)
			// Nobody at another Company is held back by it.
			other := c.asks(t, in.company(t, change...))
			require.NotEqual(t, http.StatusTooManyRequests, other().status)
		})
	}
	t.Run("an API that has its calls judged", func(t *testing.T) {
		co := in.company(t, limits(object{"requests_per_minute": 2}), settings(object{"apis": []any{object{
			"type": "openapi", "url": "https://api.shop.test/openapi.json", "base_urls": []any{"https://api.shop.test/v2"},
		}}}))
		s := co.visitor(t)
		const u = "https://api.shop.test/v2/products"
		var got answer
		for range 3 {
			got = co.admin(t, http.MethodPost, co.name+":verifyRequest", object{"method": "GET", "url": u, "headers": []object{
				{"name": "Authorization", "value": "DPoP " + s.token}, {"name": "DPoP", "value": s.proofFor(t, http.MethodGet, u)},
			}}).is(t, http.StatusOK, "")
		}
		require.Equal(t, []any{false, 429.0, "rate_limited"}, []any{got.body["allowed"], got.body["status"], got.body["reason"]})
		require.Contains(t, string(got.raw), `"Retry-After"`)
	})
	t.Run("calls of a key", func(t *testing.T) {
		co := in.company(t)
		var got answer
		for range 2000 { // it comes back while the test asks
			if got = co.admin(t, http.MethodPost, co.name+":publish", object{"name": co.name}); got.status == http.StatusTooManyRequests {
				break
			}
		}
		got.limited(t, "RATE_LIMITED")
		require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
		require.Equal(t, http.StatusOK, co.admin(t, http.MethodGet, co.name, nil).status, "reads have a budget of their own")
	})
	t.Run("unknown keys of an address", func(t *testing.T) {
		_, port, err := net.SplitHostPort(in.address)
		require.NoError(t, err)
		var got answer
		for range 1000 {
			got = in.get(t, "https://"+apiHost+":"+port+"/v1/me", header("Authorization", "Bearer "+app.NewSecret()))
			if got.status == http.StatusTooManyRequests {
				break
			}
		}
		got.limited(t, "RATE_LIMITED")
	})
}

// inTurn asks first so many times, and then what next makes.
func inTurn(first func() answer, times int, next func() func() answer) func() answer {
	n := 0
	var second func() answer
	return func() answer {
		if n++; n <= times {
			return first()
		}
		if second == nil {
			second = next()
		}
		return second()
	}
}

// keepUsage is what every process does each few seconds.
func (in *installation) keepUsage(t *testing.T) {
	t.Helper()
	require.NoError(t, in.process.graph.usage.Keep(t.Context()))
}

func (co *company) quota(t *testing.T, kind string, limit int) {
	t.Helper()
	co.patch(t, "quotas", object{kind: object{"limit": limit}})
	co.in.keepUsage(t)
}

func used(t *testing.T, co *company, kind string) any {
	t.Helper()
	co.in.keepUsage(t)
	q, ok := co.admin(t, http.MethodGet, co.name+"/quotas", nil).is(t, http.StatusOK, "").body[kind].(map[string]any)
	require.True(t, ok)
	return q["used"]
}

// over is how an agent is refused at a Company that is over a quota: as by any limit, and not for longer than an hour.
func (a answer) over(t *testing.T) {
	t.Helper()
	a.is(t, http.StatusTooManyRequests, "rate_limited")
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, wait)
	require.LessOrEqual(t, wait, 3600)
}

func TestQuotas_SessionsAreRefusedAtTheDoor(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.1#21", "poppy-0.1/4.3#46")
		clausetest.Refuses(t, "poppy-0.1/4.1#21")
		co := in.company(t)
		co.quota(t, "sessions", 2)
		s := co.visitor(t)
		co.visitor(t)
		form, key := co.form(t, in.agent(t), "usr_1"), fixture.NewKey(t)
		proof := co.proof(t, key)
		co.token(t, form, proof).over(t)
		// Who has a Session goes on, and renews it.
		s.talk(t, "hello")
		renew := co.form(t, s.agent, s.user, with("session_id", s.id))
		co.token(t, renew, co.proof(t, s.key)).is(t, http.StatusOK, "")
		require.Equal(t, "2", used(t, co, "sessions"))
		// The refused request used nothing up: it is good once the quota is raised.
		co.quota(t, "sessions", 3)
		co.token(t, form, proof).is(t, http.StatusOK, "")
	})
}

func TestQuotas_NewMessagesAreRefusedAndAcceptedOnesGoOn(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.3#46", "poppy-0.1/7.3#d17")
		clausetest.Refuses(t, "poppy-0.1/4.3#46")
		for _, kind := range []string{"messages", "deliveries"} {
			co := in.company(t)
			s := co.visitor(t)
			co.quota(t, kind, 1)
			first := text("hello")
			got := s.post(t, conversationsPath, first).is(t, http.StatusCreated, "")
			id := got.str("conversation_id")
			require.Equal(t, []string{"user", "working", "company", "idle"}, shape(s.settled(t, id)), "what was accepted is answered, over the quota too")
			in.keepUsage(t)
			second := text("once more")
			s.post(t, messagesPath(id), second).over(t)
			s.post(t, conversationsPath, text("anew")).over(t)
			// The retry of an accepted message is none.
			require.Equal(t, id, s.post(t, conversationsPath, first).is(t, http.StatusCreated, "").str("conversation_id"))
			// The Company may still speak, and its people too.
			co.say(t, id, object{"text": "by the way"}).is(t, http.StatusOK, "")
			require.Equal(t, 1, co.backend.total())
			co.quota(t, kind, 0)
			s.post(t, messagesPath(id), second).is(t, http.StatusAccepted, "")
			s.settled(t, id)
			require.Equal(t, map[string]any{"messages": "5", "deliveries": "2"}[kind], used(t, co, kind))
		}
	})
}

func TestQuotas_VerificationsTellTheCompany(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		co := in.company(t)
		s := co.visitor(t)
		co.quota(t, "verifications", 1)
		ask := func() answer {
			return co.admin(t, http.MethodPost, co.name+":introspectToken", object{"token": s.token})
		}
		require.Equal(t, true, ask().is(t, http.StatusOK, "").body["active"])
		got := ask()
		require.Equal(t, http.StatusTooManyRequests, got.status)
		require.Equal(t, "QUOTA_EXCEEDED", got.str("reason"))
		wait, err := strconv.Atoi(got.header.Get("Retry-After"))
		require.NoError(t, err)
		require.LessOrEqual(t, wait, 3600)
		// Its conversations have nothing to do with it.
		s.talk(t, "hello")
	})
}

func TestUsage_ACompanySeesItsOwn(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		co, other := in.company(t), in.company(t)
		s := co.visitor(t)
		s.settled(t, s.talk(t, "hello"))
		in.keepUsage(t)
		today := time.Now().UTC().Format(time.DateOnly)
		list := func(co *company, query string) []any {
			days, _ := co.admin(t, http.MethodGet, co.name+"/usage"+query, nil).is(t, http.StatusOK, "").body["days"].([]any)
			return days
		}
		require.Equal(t, []any{map[string]any{
			"day": today, "sessions": "1", "messages_from_agents": "1", "messages_to_agents": "1", "deliveries": "1", "verifications": "0",
		}}, list(co, ""))
		require.Empty(t, list(other, ""))
		require.Empty(t, list(co, "?end="+today))
		require.Len(t, list(co, "?start="+today), 1)
		for _, bad := range []string{"?start=2027-02-30", "?start=x", "?start=2027-02-01&end=2027-01-01", "?page_token=x"} {
			require.Equal(t, http.StatusBadRequest, co.admin(t, http.MethodGet, co.name+"/usage"+bad, nil).status, bad)
		}

		// Quotas are the operator's to set, and the Company's to see.
		co.quota(t, "messages", 100)
		secret := co.admin(t, http.MethodPost, co.name+"/apiKeys", object{"scopes": []any{"*"}}).is(t, http.StatusOK, "").str("key")
		own, theirs := *co, *other
		own.key, theirs.key = secret, secret
		got := own.admin(t, http.MethodGet, co.name+"/quotas", nil).is(t, http.StatusOK, "")
		require.Equal(t, map[string]any{"limit": "100", "used": "2"}, got.body["messages"])
		require.Equal(t, map[string]any{"limit": "0", "used": "1"}, got.body["sessions"])
		reset, err := time.Parse(time.RFC3339, got.str("reset_time"))
		require.NoError(t, err)
		require.True(t, reset.After(time.Now()) && reset.Day() == 1 && reset.UTC().Hour() == 0, reset)
		require.Equal(t, http.StatusForbidden, own.admin(t, http.MethodPatch, co.name+"/quotas", object{"messages": object{"limit": 0}}).status)
		require.Equal(t, http.StatusNotFound, theirs.admin(t, http.MethodGet, other.name+"/quotas", nil).status)
		require.Equal(t, http.StatusNotFound, theirs.admin(t, http.MethodGet, other.name+"/usage", nil).status)

		// What isn't named stays, and what somebody else changed isn't overwritten.
		require.Equal(t, map[string]any{"limit": "100", "used": "2"}, co.patch(t, "quotas", object{"sessions": object{"limit": 7}}).body["messages"])
		require.Equal(t, http.StatusPreconditionFailed, co.admin(t, http.MethodPatch, co.name+"/quotas", object{"messages": object{"limit": 1}, "etag": got.str("etag")}).status)
		require.Equal(t, http.StatusBadRequest, co.admin(t, http.MethodPatch, co.name+"/quotas", object{"messages": object{"limit": -1}}).status)
	})
}
