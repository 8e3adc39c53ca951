package sessions_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

func rotating(s *directoryv1.SignIn) { s.RotateAccountTokens = true }

func TestRefresh_WithAndWithoutSession(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#1", "poppy-0.1/4.8#2", "poppy-0.1/4.8#3", "poppy-0.1/4.8#4", "poppy-0.1/4.8#5", "poppy-0.1/4.8#6", "poppy-0.1/4.8#7", "poppy-0.1/4.8#9", "poppy-0.1/4.8#10", "poppy-0.1/4.8#11",
		"poppy-0.1/4.8#d14", "poppy-0.1/4.9#16", "poppy-0.1/4.4#43")
	eachOffering(t, func(t *testing.T, r *rig) {
		in := r.signIn(t, nil)
		fresh, err := r.refresh(t, in.GetRefreshToken())
		require.NoError(t, err)
		require.True(t, fresh.GetCreated())
		require.NotEqual(t, in.GetSessionId(), fresh.GetSessionId())
		require.True(t, fresh.GetSignedIn())
		require.Equal(t, readWrite, fresh.GetScope())
		require.Empty(t, fresh.GetRefreshToken()) // rotation is off by default
		require.Nil(t, fresh.GetRefreshTokenExpiresIn())
		r.requireSignedIn(t, fresh.GetAccessToken(), mia, readWrite)
		s, err := r.admin.GetSession(r.company.Ctx(t.Context()), &adminv1.GetSessionRequest{Name: r.sessionName(fresh.GetSessionId())})
		require.NoError(t, err)
		require.Equal(t, userID, s.GetUser())
		require.Equal(t, mia, s.GetAccount())

		signedOut := r.open(t, nil)
		for _, session := range []string{signedOut.GetSessionId(), in.GetSessionId(), fresh.GetSessionId()} {
			got, err := r.exchange(t, session, byAccountToken(in.GetRefreshToken(), ""), nil)
			require.NoError(t, err)
			require.False(t, got.GetCreated())
			require.Equal(t, session, got.GetSessionId())
			r.requireSignedIn(t, got.GetAccessToken(), mia, readWrite)
		}
		r.requireSignedOut(t, signedOut.GetAccessToken())
		resource := r.company.Snapshot.GetResources()[0]
		got, err := r.exchange(t, "", byAccountToken(in.GetRefreshToken(), ""), func(q *sessionsv1.ExchangeRequest) { q.Resource = resource })
		require.NoError(t, err)
		r.refused(t, got.GetAccessToken(), problem.InvalidToken, nil)
		_, err = r.verify(t, got.GetAccessToken(), func(u *use) { u.resource = resource })
		require.NoError(t, err)
		require.Len(t, r.connections(t), 1)
	})
}

func TestRT06_ScopeOfARefresh(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#14", "poppy-0.1/4.8#15")
	clausetest.Refuses(t, "poppy-0.1/4.8#14", "poppy-0.1/4.8#15")
	eachOffering(t, func(t *testing.T, r *rig) {
		in := r.signIn(t, nil)
		ask := func(scope string) (*sessionsv1.IssuedTokens, error) {
			return r.exchange(t, in.GetSessionId(), byAccountToken(in.GetRefreshToken(), scope), nil)
		}
		narrow, err := ask(readOnly)
		require.NoError(t, err)
		require.Equal(t, readOnly, narrow.GetScope())
		full, err := ask(readWrite)
		require.NoError(t, err)
		require.Equal(t, readWrite, full.GetScope())
		all, err := ask("")
		require.NoError(t, err)
		require.Equal(t, readWrite, all.GetScope())
		for _, scope := range []string{"unknown", "addresses", readWrite + " addresses", "poppy:read poppy:read", " ", "POPPY:READ"} {
			_, err = ask(scope)
			requireReason(t, err, problem.InvalidScope)
		}
		// Each token keeps what it was issued with.
		r.requireSignedIn(t, narrow.GetAccessToken(), mia, readOnly)
		r.requireSignedIn(t, full.GetAccessToken(), mia, readWrite)

		little := r.signIn(t, func(q *sessionsv1.IssueCodeRequest) { q.Scope = readOnly })
		_, err = r.exchange(t, "", byAccountToken(little.GetRefreshToken(), readWrite), nil)
		requireReason(t, err, problem.InvalidScope)
	})
}

func TestRT07_RefreshByOthers(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#12", "poppy-0.1/4.8#13", "poppy-0.1/4.8#d33")
	clausetest.Refuses(t, "poppy-0.1/4.8#3", "poppy-0.1/4.8#8", "poppy-0.1/4.8#9", "poppy-0.1/4.8#10", "poppy-0.1/4.8#11", "poppy-0.1/4.8#12", "poppy-0.1/4.8#13", "poppy-0.1/4.8#d33", "poppy-0.1/4.4#43")
	eachOffering(t, func(t *testing.T, r *rig) {
		in := r.signIn(t, nil)
		othersUser := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.UserId = otherUser }).GetSessionId()
		foreign := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.ClientId = otherClient }).GetSessionId()
		bens := r.signIn(t, toAccount(ben))
		ended := r.open(t, nil).GetSessionId()
		_, err := r.admin.EndSession(r.company.Ctx(t.Context()), &adminv1.EndSessionRequest{Name: r.sessionName(ended)})
		require.NoError(t, err)
		for name, c := range map[string]struct {
			session, token string
			change         func(*sessionsv1.ExchangeRequest)
			reason         problem.Reason
		}{
			"another client":                  {"", in.GetRefreshToken(), asOther, problem.InvalidGrant},
			"another client with its session": {foreign, in.GetRefreshToken(), asOther, problem.InvalidGrant},
			"session of another client":       {foreign, in.GetRefreshToken(), nil, problem.InvalidSession},
			"session of another User":         {othersUser, in.GetRefreshToken(), nil, problem.InvalidSession},
			"ended session":                   {ended, in.GetRefreshToken(), nil, problem.InvalidSession},
			"unknown session":                 {ids.New(ids.Session), in.GetRefreshToken(), nil, problem.InvalidSession},
			"session of another account":      {bens.GetSessionId(), in.GetRefreshToken(), nil, problem.AccountMismatch},
			"unknown token":                   {"", in.GetRefreshToken() + "x", nil, problem.InvalidGrant},
			"no token":                        {"", "", nil, problem.InvalidGrant},
			"Session Token":                   {"", in.GetAccessToken(), nil, problem.InvalidGrant},
			"no proof":                        {"", in.GetRefreshToken(), func(q *sessionsv1.ExchangeRequest) { q.Proof.Proofs = nil }, problem.InvalidRequest},
			"bad proof":                       {"", in.GetRefreshToken(), func(q *sessionsv1.ExchangeRequest) { q.Proof.Method = "GET" }, problem.InvalidDPoPProof},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := r.exchange(t, c.session, byAccountToken(c.token, ""), c.change)
				requireReason(t, err, c.reason)
			})
		}
		// An Account Token is no Session Token.
		r.refused(t, in.GetRefreshToken(), problem.InvalidToken, nil)
		// Another Company knows none of it (decision 40).
		here := r.company
		r.company = r.NewCompany(t)
		r.offer(nil)
		_, err = r.refresh(t, in.GetRefreshToken())
		requireReason(t, err, problem.InvalidGrant)
		r.company = here
		_, err = r.refresh(t, in.GetRefreshToken())
		require.NoError(t, err)
	})
}

func TestRefresh_UseDoesNotExtendTheLifetime(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#16", "poppy-0.1/4.8#19", "poppy-0.1/4.8#20", "poppy-0.1/4.4#37", "poppy-0.1/4.9#d13")
	clausetest.Refuses(t, "poppy-0.1/4.8#16", "poppy-0.1/4.8#19", "poppy-0.1/4.8#20", "poppy-0.1/4.9#d13")
	eachOffering(t, func(t *testing.T, r *rig) {
		for _, change := range []func(*directoryv1.SignIn){nil, rotating} {
			r.offer(func(s *directoryv1.SignIn) {
				s.AccountTokenLifetime = durationpb.New(2 * time.Hour)
				if change != nil {
					change(s)
				}
			})
			in := r.signIn(t, nil)
			token := in.GetRefreshToken()
			r.Clock.Advance(90 * time.Minute)
			got, err := r.exchange(t, in.GetSessionId(), byAccountToken(token, ""), nil)
			require.NoError(t, err)
			if change != nil {
				token = got.GetRefreshToken()
				require.Equal(t, 30*time.Minute, got.GetRefreshTokenExpiresIn().AsDuration())
			}
			r.Clock.Advance(30*time.Minute - time.Microsecond)
			r.requireSignedIn(t, got.GetAccessToken(), mia, readWrite)
			r.Clock.Advance(time.Microsecond)
			r.requireSignedOut(t, got.GetAccessToken())
			_, err = r.refresh(t, token)
			requireReason(t, err, problem.InvalidGrant)
			require.Equal(t, adminv1.ConnectionState_CONNECTION_STATE_EXPIRED, r.connections(t)[0].GetState())
			// The Session lives on, and a new sign-in doesn't bring the old token back to life.
			renewed := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.SessionId = in.GetSessionId() })
			r.requireSignedOut(t, renewed.GetAccessToken())
			again := r.signSessionIn(t, in.GetSessionId(), nil)
			r.requireSignedIn(t, again.GetAccessToken(), mia, readWrite)
			r.requireSignedOut(t, got.GetAccessToken())
		}
	})
}

func TestRT01_ParallelRefreshesSignNobodyOut(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#1", "poppy-0.1/4.8#17", "poppy-0.1/4.8#d14")
	eachOffering(t, func(t *testing.T, r *rig) {
		replicas := []*rig{r, r.replica(t)}
		for name, change := range map[string]func(*directoryv1.SignIn){"no rotation": nil, "rotation": rotating} {
			t.Run(name, func(t *testing.T) {
				r.offer(change)
				replicas[1].Changed(r.company)
				in := r.signIn(t, nil)
				var got [20]*sessionsv1.IssuedTokens
				for range 2 { // and once more, as after lost answers
					for _, err := range atOnce(len(got), func(i int) error {
						session := []string{"", in.GetSessionId()}[i%4/2]
						var err error
						got[i], err = replicas[i%2].exchange(t, session, byAccountToken(in.GetRefreshToken(), ""), nil)
						return err
					}) {
						require.NoError(t, err)
					}
					for _, tokens := range got {
						require.Equal(t, got[0].GetRefreshToken(), tokens.GetRefreshToken())
						r.requireSignedIn(t, tokens.GetAccessToken(), mia, readWrite)
					}
					r.Clock.Advance(30 * time.Second)
				}
				r.requireSignedIn(t, in.GetAccessToken(), mia, readWrite)
				require.Equal(t, change == nil, got[0].GetRefreshToken() == "")
			})
		}
	})
}

func TestRefresh_Rotation(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.8#7", "poppy-0.1/4.8#17", "poppy-0.1/4.8#d14")
	clausetest.Refuses(t, "poppy-0.1/4.8#d14")
	eachOffering(t, func(t *testing.T, r *rig) {
		r.offer(rotating)
		first := r.signIn(t, nil)
		one, err := r.refresh(t, first.GetRefreshToken())
		require.NoError(t, err)
		require.Regexp(t, `^pat_[A-Za-z0-9_-]{43}$`, one.GetRefreshToken())
		require.NotEqual(t, first.GetRefreshToken(), one.GetRefreshToken())
		two, err := r.refresh(t, one.GetRefreshToken())
		require.NoError(t, err)
		require.NotEqual(t, one.GetRefreshToken(), two.GetRefreshToken())

		r.Clock.Advance(time.Minute)
		again, err := r.refresh(t, first.GetRefreshToken()) // the last moment of its grace
		require.NoError(t, err)
		require.Equal(t, one.GetRefreshToken(), again.GetRefreshToken())
		r.offer(nil) // rotation off: who replaced a token still hears of its successor
		again, err = r.refresh(t, one.GetRefreshToken())
		require.NoError(t, err)
		require.Equal(t, two.GetRefreshToken(), again.GetRefreshToken())
		quiet, err := r.refresh(t, two.GetRefreshToken())
		require.NoError(t, err)
		require.Empty(t, quiet.GetRefreshToken())

		r.Clock.Advance(time.Microsecond)
		_, err = r.exchange(t, "", byAccountToken(first.GetRefreshToken(), ""), asOther) // a thief without the agent's key
		requireReason(t, err, problem.InvalidGrant)
		r.requireSignedIn(t, quiet.GetAccessToken(), mia, readWrite)
		_, err = r.refresh(t, first.GetRefreshToken())
		requireReason(t, err, problem.InvalidGrant)
		for _, tokens := range []*sessionsv1.IssuedTokens{first, one, two, again, quiet} {
			r.requireSignedOut(t, tokens.GetAccessToken())
		}
		_, err = r.refresh(t, two.GetRefreshToken())
		requireReason(t, err, problem.InvalidGrant)
		require.Equal(t, "replaced_token_reused", r.connections(t)[0].GetEndReason())
	})
}

// The last use is kept to the minute.
func TestRefresh_NotesTheLastUse(t *testing.T) {
	eachOffering(t, func(t *testing.T, r *rig) {
		in := r.signIn(t, nil)
		start := r.Clock.Now()
		for _, c := range []struct{ after, noted time.Duration }{{59 * time.Second, 0}, {61 * time.Second, 61 * time.Second}, {90 * time.Second, 61 * time.Second}} {
			r.Clock.Advance(start.Add(c.after).Sub(r.Clock.Now()))
			_, err := r.refresh(t, in.GetRefreshToken())
			require.NoError(t, err)
			require.Equal(t, start.Add(c.noted), r.connections(t)[0].GetLastUsedTime().AsTime())
		}
	})
}
