package sessions_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

// startDevice starts a Device Sign-In that asks for both scopes.
func (r *rig) startDevice(t testing.TB) *sessionsv1.StartDeviceResponse {
	t.Helper()
	got, err := r.tryStartDevice(t, nil)
	require.NoError(t, err)
	return got
}

func (r *rig) tryStartDevice(t testing.TB, change func(*sessionsv1.StartDeviceRequest)) (*sessionsv1.StartDeviceResponse, error) {
	t.Helper()
	q := &sessionsv1.StartDeviceRequest{
		ClientId: clientID, AgentName: "Agent", Scope: readWrite, Once: []*sessionsv1.OnceKey{r.once(replay.KindClientAssertion)},
	}
	if change != nil {
		change(q)
	}
	return r.signIns.StartDevice(r.company.Ctx(t.Context()), q)
}

func (r *rig) find(t testing.TB, typed string) (*sessionsv1.FindDeviceResponse, error) {
	t.Helper()
	return r.signIns.FindDevice(r.company.Ctx(t.Context()), &sessionsv1.FindDeviceRequest{UserCode: typed})
}

// decide finds the Device Sign-In by its user code and decides about it; no scope declines.
func (r *rig) decide(t testing.TB, userCode, scope, account string) error {
	t.Helper()
	d, err := r.find(t, userCode)
	require.NoError(t, err)
	return r.decideAbout(t, d.GetDeviceId(), scope, account)
}

func (r *rig) decideAbout(t testing.TB, id, scope, account string) error {
	t.Helper()
	_, err := r.signIns.DecideDevice(r.company.Ctx(t.Context()), &sessionsv1.DecideDeviceRequest{
		DeviceId: id, ApprovedScope: scope, Account: &sessionsv1.Account{Id: account, Label: account + "@example.com"},
	})
	return err
}

func TestStartDevice(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#1", "poppy-0.1/4.6#5", "poppy-0.1/4.6#6", "poppy-0.1/4.4#23")
	clausetest.Refuses(t, "poppy-0.1/4.4#22", "poppy-0.1/4.4#23", "poppy-0.1/4.4#24", "poppy-0.1/4.4#25", "poppy-0.1/4.4#26")
	eachOffering(t, func(t *testing.T, r *rig) {
		d := r.startDevice(t)
		require.Regexp(t, `^pdc_[A-Za-z0-9_-]{43}$`, d.GetDeviceCode())
		require.Regexp(t, `^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$`, d.GetUserCode()) // RFC8628/6.1
		require.Equal(t, 10*time.Minute, d.GetExpiresIn().AsDuration())
		require.Equal(t, 5*time.Second, d.GetInterval().AsDuration())
		require.NotEqual(t, d.GetUserCode(), r.startDevice(t).GetUserCode())

		once := []*sessionsv1.OnceKey{r.once(replay.KindClientAssertion)}
		with := func(change func(*sessionsv1.StartDeviceRequest)) error {
			_, err := r.tryStartDevice(t, func(q *sessionsv1.StartDeviceRequest) {
				q.Once = once
				change(q)
			})
			return err
		}
		for _, scope := range []string{"", "unknown", "addresses", "poppy:read  poppy:write"} { // addresses is for Direct Sign-In alone
			requireReason(t, with(func(q *sessionsv1.StartDeviceRequest) { q.Scope = scope }), problem.InvalidScope)
		}
		require.NoError(t, with(func(*sessionsv1.StartDeviceRequest) {})) // the assertion was kept for this
		requireReason(t, with(func(*sessionsv1.StartDeviceRequest) {}), problem.InvalidClient)

		r.company.Snapshot.SessionStartsPerMinute = 1
		r.Changed(r.company)
		r.startDevice(t)
		_, err := r.tryStartDevice(t, nil)
		requireReason(t, err, problem.RateLimitedReason)
		_, err = r.tryStartDevice(t, func(q *sessionsv1.StartDeviceRequest) { q.ClientId = otherClient })
		require.NoError(t, err)
		r.offer(func(s *directoryv1.SignIn) { s.DeviceScopes = nil })
		r.Clock.Advance(time.Minute)
		_, err = r.tryStartDevice(t, nil)
		requireReason(t, err, problem.UnauthorizedClient)
		_, err = r.agents.RevokeAgent(r.company.Ctx(t.Context()), &adminv1.RevokeAgentRequest{Parent: r.company.Scope.Name(), ClientId: clientID})
		require.NoError(t, err)
		_, err = r.tryStartDevice(t, nil)
		requireReason(t, err, problem.InvalidClient)
	})
}

func TestDF05_UserCodeAsPeopleTypeIt(t *testing.T) {
	eachOffering(t, func(t *testing.T, r *rig) {
		d := r.startDevice(t)
		code := d.GetUserCode()
		bare := strings.ReplaceAll(code, "-", "")
		wide := strings.Map(func(c rune) rune { return c + 0xFEE0 }, bare)
		for name, typed := range map[string]string{
			"as shown": code, "no hyphen": bare, "lower case": strings.ToLower(code), "a space": strings.ToLower(bare[:4] + " " + bare[4:]),
			"trailing newline": code + "\n", "spaces and a tab": "  " + bare[:2] + "\t" + bare[2:] + " \r\n", "dots": bare[:4] + "." + bare[4:], "many hyphens": strings.Join(strings.Split(bare, ""), "-"),
		} {
			t.Run(name, func(t *testing.T) {
				got, err := r.find(t, typed)
				require.NoError(t, err)
				require.Equal(t, code, got.GetUserCode())
				require.Equal(t, clientID, got.GetClientId())
				require.Equal(t, "Agent", got.GetAgentName())
				require.Equal(t, readWrite, got.GetScope())
				require.Equal(t, r.Clock.Now().Add(10*time.Minute), got.GetExpireTime().AsTime())
				require.NotContains(t, got.GetDeviceId(), d.GetDeviceCode())
			})
		}
		for name, typed := range map[string]string{
			"empty": "", "full width": wide, "short": bare[:7], "long": bare + "B", "twice": bare + bare, "vowel": "A" + bare[1:], "digit added": bare + "1",
			"another": "BBBB-BBBB", "hyphen of print": bare[:4] + "‐" + bare[4:], "NUL and Cyrillic": "\x00В" + bare[1:], "huge": strings.Repeat(" ", 4096) + bare,
		} {
			t.Run(name, func(t *testing.T) {
				_, err := r.find(t, typed)
				requireReason(t, err, problem.NotFoundReason)
			})
		}
		// It belongs to its Company, and to the time before the decision.
		other := r.NewCompany(t)
		_, err := r.signIns.FindDevice(other.Ctx(t.Context()), &sessionsv1.FindDeviceRequest{UserCode: code})
		requireReason(t, err, problem.NotFoundReason)
		require.NoError(t, r.decide(t, code, readOnly, mia))
		_, err = r.find(t, code)
		requireReason(t, err, problem.NotFoundReason)
		late := r.startDevice(t)
		r.Clock.Advance(10 * time.Minute)
		_, err = r.find(t, late.GetUserCode())
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestExchange_DeviceApprovedInPart(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#10", "poppy-0.1/4.6#11", "poppy-0.1/4.6#13", "poppy-0.1/4.6#14", "poppy-0.1/4.6#16", "poppy-0.1/4.6#d30", "poppy-0.1/4.4#31", "poppy-0.1/4.4#32", "poppy-0.1/4.4#21")
	clausetest.Refuses(t, "poppy-0.1/4.6#11", "poppy-0.1/4.4#21")
	eachOffering(t, func(t *testing.T, r *rig) {
		d, opened := r.startDevice(t), r.open(t, nil)
		_, err := r.exchange(t, opened.GetSessionId(), byDevice(d.GetDeviceCode()), nil)
		requireReason(t, err, problem.AuthorizationPending)
		for range 3 { // looking decides nothing
			_, err = r.find(t, d.GetUserCode())
			require.NoError(t, err)
		}
		found, err := r.find(t, d.GetUserCode())
		require.NoError(t, err)
		r.offer(func(s *directoryv1.SignIn) { s.DeviceScopes = append(s.DeviceScopes, "orders") })
		requireReason(t, r.decide(t, d.GetUserCode(), "poppy:read orders", mia), problem.InvalidScope) // not asked for
		requireReason(t, r.decide(t, d.GetUserCode(), readOnly, ""), problem.InvalidRequest)
		r.Clock.Advance(5 * time.Second)
		_, err = r.exchange(t, opened.GetSessionId(), byDevice(d.GetDeviceCode()), nil)
		requireReason(t, err, problem.AuthorizationPending)
		require.NoError(t, r.decideAbout(t, found.GetDeviceId(), readOnly, mia))
		// Decided once; what nobody started is not found.
		requireReason(t, r.decideAbout(t, found.GetDeviceId(), readWrite, ben), problem.NotFoundReason)
		requireReason(t, r.decideAbout(t, found.GetDeviceId(), "", ""), problem.NotFoundReason)
		requireReason(t, r.decideAbout(t, "unknown", readOnly, mia), problem.NotFoundReason)

		in, err := r.exchange(t, opened.GetSessionId(), byDevice(d.GetDeviceCode()), nil)
		require.NoError(t, err)
		require.Equal(t, opened.GetSessionId(), in.GetSessionId())
		require.Equal(t, readOnly, in.GetScope())
		require.NotEmpty(t, in.GetRefreshToken())
		r.requireSignedIn(t, in.GetAccessToken(), mia, readOnly)
		require.Equal(t, "device", r.connections(t)[0].GetSignIn())
		require.Equal(t, userID, r.connections(t)[0].GetUser())
	})
}

func TestExchange_DeviceThatGivesNothing(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#17", "poppy-0.1/4.6#18", "poppy-0.1/4.6#d41")
	clausetest.Refuses(t, "poppy-0.1/4.6#13", "poppy-0.1/4.6#17", "poppy-0.1/4.6#18", "poppy-0.1/4.6#d30", "poppy-0.1/4.6#d41", "poppy-0.1/4.4#41")
	eachOffering(t, func(t *testing.T, r *rig) {
		session := r.open(t, nil).GetSessionId()
		declined, approved, pending := r.startDevice(t), r.startDevice(t), r.startDevice(t)
		require.NoError(t, r.decide(t, declined.GetUserCode(), "", ""))
		require.NoError(t, r.decide(t, approved.GetUserCode(), readWrite, mia))
		foreign := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.ClientId = otherClient }).GetSessionId()
		bens := r.signIn(t, toAccount(ben)).GetSessionId()
		for name, c := range map[string]struct {
			session, code string
			change        func(*sessionsv1.ExchangeRequest)
			reason        problem.Reason
		}{
			"declined":                 {session, declined.GetDeviceCode(), nil, problem.AccessDenied},
			"declined, twice":          {session, declined.GetDeviceCode(), nil, problem.AccessDenied},
			"unknown":                  {session, "pdc_unknown", nil, problem.InvalidGrant},
			"user code":                {session, approved.GetUserCode(), nil, problem.InvalidGrant},
			"another client's":         {session, approved.GetDeviceCode(), asOther, problem.InvalidGrant},
			"no session":               {"", approved.GetDeviceCode(), nil, problem.InvalidRequest},
			"unknown session":          {ids.New(ids.Session), approved.GetDeviceCode(), nil, problem.InvalidSession},
			"unknown session, pending": {ids.New(ids.Session), pending.GetDeviceCode(), nil, problem.InvalidSession},
			"another client's session": {foreign, approved.GetDeviceCode(), nil, problem.InvalidSession},
			"session of Ben":           {bens, approved.GetDeviceCode(), nil, problem.AccountMismatch},
			"no proof":                 {session, approved.GetDeviceCode(), func(q *sessionsv1.ExchangeRequest) { q.Proof.Proofs = nil }, problem.InvalidRequest},
			"bad proof":                {session, approved.GetDeviceCode(), func(q *sessionsv1.ExchangeRequest) { q.Proof.Proofs = []string{"x"} }, problem.InvalidDPoPProof},
			"blocked":                  {session, pending.GetDeviceCode(), func(q *sessionsv1.ExchangeRequest) { q.Proof.Method = "GET" }, problem.InvalidDPoPProof},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := r.exchange(t, c.session, byDevice(c.code), c.change)
				requireReason(t, err, c.reason)
			})
		}
		late := r.startDevice(t)
		_, err := r.exchange(t, session, byDevice(approved.GetDeviceCode()), nil)
		require.NoError(t, err) // nothing of the above used it up
		id, err := r.find(t, late.GetUserCode())
		require.NoError(t, err)
		r.Clock.Advance(10 * time.Minute)
		for _, d := range []*sessionsv1.StartDeviceResponse{late, pending, declined} {
			_, err = r.exchange(t, session, byDevice(d.GetDeviceCode()), nil)
			requireReason(t, err, problem.ExpiredToken)
		}
		requireReason(t, r.decideAbout(t, id.GetDeviceId(), readOnly, mia), problem.NotFoundReason)
	})
}

// Waiting uses up neither assertion nor proof; getting tokens does.
func TestExchange_DevicePollsConsumeNothing(t *testing.T) {
	eachOffering(t, func(t *testing.T, r *rig) {
		d, session := r.startDevice(t), r.open(t, nil).GetSessionId()
		proof, once := r.proof(t, r.company), r.once(replay.KindClientAssertion)
		same := func(q *sessionsv1.ExchangeRequest) { q.Proof, q.Once = proof, []*sessionsv1.OnceKey{once} }
		for _, want := range []problem.Reason{problem.AuthorizationPending, problem.SlowDown, problem.SlowDown} {
			_, err := r.exchange(t, session, byDevice(d.GetDeviceCode()), same)
			requireReason(t, err, want)
		}
		require.NoError(t, r.decide(t, d.GetUserCode(), readOnly, mia))
		in, err := r.exchange(t, session, byDevice(d.GetDeviceCode()), same)
		require.NoError(t, err)
		// Later polls get nothing, and end nothing.
		for _, change := range []func(*sessionsv1.ExchangeRequest){same, nil} {
			_, err = r.exchange(t, session, byDevice(d.GetDeviceCode()), change)
			requireReason(t, err, problem.InvalidGrant)
		}
		r.requireSignedIn(t, in.GetAccessToken(), mia, readOnly)
	})
}

func TestDF02_SlowDownLastsOnEveryReplica(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#15", "poppy-0.1/4.6#12")
	clausetest.Refuses(t, "poppy-0.1/4.6#15")
	eachOffering(t, func(t *testing.T, r *rig) {
		replicas := []*rig{r, r.replica(t)}
		d, session := r.startDevice(t), r.open(t, nil).GetSessionId()
		poll := func(i int) error {
			_, err := replicas[i%2].exchange(t, session, byDevice(d.GetDeviceCode()), nil)
			return err
		}
		requireReason(t, poll(0), problem.AuthorizationPending)
		for i := range 9 { // ten in a second
			r.Clock.Advance(100 * time.Millisecond)
			requireReason(t, poll(i), problem.SlowDown)
		}
		// 5 s and nine times 5 more.
		r.Clock.Advance(48 * time.Second)
		requireReason(t, poll(1), problem.SlowDown) // and now 55
		r.Clock.Advance(55 * time.Second)
		requireReason(t, poll(0), problem.AuthorizationPending)
		r.Clock.Advance(55 * time.Second)
		requireReason(t, poll(1), problem.AuthorizationPending)
		// Approval reaches an impatient agent at once (DF-03).
		require.NoError(t, r.decide(t, d.GetUserCode(), readOnly, mia))
		require.NoError(t, poll(0))
	})
}

// Whatever the times and the replicas, the answers are those of RFC 8628 section 3.5.
func TestExchange_DevicePollingIntervals(t *testing.T) {
	eachOffering(t, func(t *testing.T, r *rig) {
		replicas := []*rig{r, r.replica(t)}
		random := rand.New(rand.NewPCG(1, 2))
		session := r.open(t, nil).GetSessionId()
		for range 8 {
			d := r.startDevice(t)
			interval, since := 5*time.Second, time.Hour
			for spent := time.Duration(0); ; {
				_, err := replicas[random.IntN(2)].exchange(t, session, byDevice(d.GetDeviceCode()), nil)
				want := problem.AuthorizationPending
				if since < interval-time.Second {
					want, interval = problem.SlowDown, min(interval+5*time.Second, time.Minute)
				}
				requireReason(t, err, want)
				since = time.Duration(random.Int64N(int64(interval) * 3 / 2)).Truncate(time.Microsecond)
				if spent += since; spent >= 10*time.Minute {
					break
				}
				r.Clock.Advance(since)
			}
			r.Clock.Advance(10 * time.Minute)
			_, err := r.exchange(t, session, byDevice(d.GetDeviceCode()), nil)
			requireReason(t, err, problem.ExpiredToken)
		}
	})
}

// Polls at once: while pending each but the first is too fast and each raises the
// interval; after approval one gets the tokens, and the others nothing.
func TestExchange_DevicePollsAtOnce(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.6#15", "poppy-0.1/4.6#16")
	eachOffering(t, func(t *testing.T, r *rig) {
		replicas := []*rig{r, r.replica(t)}
		d, session := r.startDevice(t), r.open(t, nil).GetSessionId()
		var tokens [10]*sessionsv1.IssuedTokens
		polls := func() []error {
			return atOnce(len(tokens), func(i int) error {
				var err error
				tokens[i], err = replicas[i%2].exchange(t, session, byDevice(d.GetDeviceCode()), nil)
				return err
			})
		}
		seen := map[problem.Reason]int{}
		for _, err := range polls() {
			seen[problem.As(err).Reason]++
		}
		require.Equal(t, map[problem.Reason]int{problem.AuthorizationPending: 1, problem.SlowDown: 9}, seen)
		r.Clock.Advance(48 * time.Second)
		_, err := r.exchange(t, session, byDevice(d.GetDeviceCode()), nil)
		requireReason(t, err, problem.SlowDown) // the interval has become 50 s

		require.NoError(t, r.decide(t, d.GetUserCode(), readOnly, mia))
		requireOneWinner(t, polls(), problem.InvalidGrant)
		require.Len(t, r.connections(t), 1)
		for _, in := range tokens {
			if in != nil {
				r.requireSignedIn(t, in.GetAccessToken(), mia, readOnly)
			}
		}
	})
}

// Several decisions at once: one stands.
func TestDecideDevice_AtOnce(t *testing.T) {
	eachOffering(t, func(t *testing.T, r *rig) {
		d := r.startDevice(t)
		found, err := r.find(t, d.GetUserCode())
		require.NoError(t, err)
		replicas := []*rig{r, r.replica(t)}
		requireOneWinner(t, atOnce(10, func(i int) error {
			return replicas[i%2].decideAbout(t, found.GetDeviceId(), []string{readOnly, ""}[i/5], mia)
		}), problem.NotFoundReason)
	})
}
