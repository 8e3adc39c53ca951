package sessions_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/bus"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

func TestRevokeToken_SignsOutEverySessionOnEveryReplica(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#1", "poppy-0.1/4.9#2", "poppy-0.1/4.9#5", "poppy-0.1/4.9#6", "poppy-0.1/4.9#7", "poppy-0.1/4.9#8", "poppy-0.1/4.9#12", "poppy-0.1/4.9#13", "poppy-0.1/4.9#d13", "poppy-0.1/4.8#19", "poppy-0.1/4.8#20")
	clausetest.Refuses(t, "poppy-0.1/4.9#1", "poppy-0.1/4.9#5", "poppy-0.1/4.9#6", "poppy-0.1/4.9#13", "poppy-0.1/4.9#d13", "poppy-0.1/4.8#19")
	eachOffering(t, func(t *testing.T, r *rig) {
		second := r.replica(t)
		in := r.signIn(t, nil)
		also, err := r.refresh(t, in.GetRefreshToken())
		require.NoError(t, err)
		// Signed in by another Grant since: its older token still is of the first.
		moved, err := r.refresh(t, in.GetRefreshToken())
		require.NoError(t, err)
		later := r.signSessionIn(t, moved.GetSessionId(), nil)
		hub, err := bus.NewHub(r.Bus, bus.AllSessions)
		require.NoError(t, err)
		t.Cleanup(hub.Close)
		var rung []<-chan struct{}
		for _, session := range []string{in.GetSessionId(), also.GetSessionId(), moved.GetSessionId()} {
			subject, err := bus.SessionSubject(r.company.Scope.CompanyID(), session)
			require.NoError(t, err)
			c, cancel := hub.Listen(subject)
			t.Cleanup(cancel)
			rung = append(rung, c)
		}
		second.requireSignedIn(t, in.GetAccessToken(), mia, readWrite)

		r.revoke(t, clientID, in.GetRefreshToken())
		for _, replica := range []*rig{second, r} {
			for _, token := range []string{in.GetAccessToken(), also.GetAccessToken(), moved.GetAccessToken()} {
				replica.requireSignedOut(t, token)
			}
			_, err := replica.refresh(t, in.GetRefreshToken())
			requireReason(t, err, problem.InvalidGrant)
		}
		for _, c := range rung {
			select {
			case <-c:
			case <-time.After(10 * time.Second):
				require.Fail(t, "nobody rang")
			}
		}
		r.requireSignedIn(t, later.GetAccessToken(), mia, readWrite)
		ctx := r.company.Ctx(t.Context())
		s, err := r.admin.GetSession(ctx, &adminv1.GetSessionRequest{Name: r.sessionName(in.GetSessionId())})
		require.NoError(t, err)
		require.False(t, s.GetSignedIn())
		require.Equal(t, mia, s.GetAccount())
		require.Nil(t, s.GetEndTime())
		list, err := r.admin.ListSessions(ctx, &adminv1.ListSessionsRequest{Parent: r.company.Scope.Name()})
		require.NoError(t, err)
		signedIn := map[string]bool{}
		for _, s := range list.GetSessions() {
			signedIn[s.GetUid()] = s.GetSignedIn()
		}
		require.Equal(t, map[string]bool{in.GetSessionId(): false, also.GetSessionId(): false, moved.GetSessionId(): true}, signedIn)

		// The Session goes on signed out; it may sign in again, to the same account, which revives nothing.
		renewed := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.SessionId = in.GetSessionId() })
		r.requireSignedOut(t, renewed.GetAccessToken())
		_, err = r.exchange(t, in.GetSessionId(), byCode(r.code(t, toAccount(ben))), nil)
		requireReason(t, err, problem.AccountMismatch)
		again := r.signSessionIn(t, in.GetSessionId(), nil)
		r.requireSignedIn(t, again.GetAccessToken(), mia, readWrite)
		r.requireSignedOut(t, in.GetAccessToken())
	})
}

func TestRV01_EveryTokenIsAnsweredAlike(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#d33", "poppy-0.1/4.8#d33", "poppy-0.1/4.9#4")
	clausetest.Refuses(t, "poppy-0.1/4.9#d33", "poppy-0.1/4.8#d33")
	eachOffering(t, func(t *testing.T, r *rig) {
		r.offer(func(s *directoryv1.SignIn) {
			s.AccountTokenLifetime, s.RotateAccountTokens = durationpb.New(24*time.Hour), true
		})
		in, expired := r.signIn(t, nil), r.signIn(t, nil)
		code := r.code(t, nil)
		r.Clock.Advance(24 * time.Hour)
		live := r.signIn(t, nil)
		other, err := r.refresh(t, live.GetRefreshToken())
		require.NoError(t, err)
		for _, token := range []string{
			"random", "pat_" + "x", in.GetRefreshToken()[:20] + "AAAA", "", "a\x00b", code, "eyJhbGciOi.x.y", expired.GetRefreshToken(), expired.GetAccessToken(),
		} {
			r.revoke(t, clientID, token)
		}
		r.revoke(t, otherClient, live.GetRefreshToken()) // another client's stays
		r.revoke(t, otherClient, live.GetAccessToken())
		r.requireSignedIn(t, live.GetAccessToken(), mia, readWrite)

		// A Session Token alone.
		r.revoke(t, clientID, live.GetAccessToken())
		r.refused(t, live.GetAccessToken(), problem.InvalidToken, nil)
		r.requireSignedIn(t, other.GetAccessToken(), mia, readWrite)
		// An Account Token that was replaced stands for its family; twice is no error.
		r.Clock.Advance(time.Hour)
		for range 2 {
			r.revoke(t, clientID, live.GetRefreshToken())
			_, err = r.refresh(t, other.GetRefreshToken())
			requireReason(t, err, problem.InvalidGrant)
		}
		c := r.connections(t)
		require.Equal(t, "signed_out", c[0].GetEndReason())
		require.Equal(t, r.Clock.Now(), c[0].GetEndTime().AsTime())
		require.Equal(t, adminv1.ConnectionState_CONNECTION_STATE_EXPIRED, c[1].GetState())
		require.Empty(t, c[1].GetEndReason())
	})
}

func TestRevokeToken_MayEndTheSessions(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#9", "poppy-0.1/4.9#10")
	clausetest.Refuses(t, "poppy-0.1/4.9#10")
	eachOffering(t, func(t *testing.T, r *rig) {
		r.offer(func(s *directoryv1.SignIn) { s.EndSessionsAtSignOut = true })
		in, other := r.signIn(t, nil), r.signIn(t, nil)
		also, err := r.refresh(t, in.GetRefreshToken())
		require.NoError(t, err)
		r.revoke(t, clientID, in.GetRefreshToken())
		for _, tokens := range []*sessionsv1.IssuedTokens{in, also} {
			r.refused(t, tokens.GetAccessToken(), problem.InvalidToken, nil)
			_, err = r.tryOpen(t, r.company, func(q *sessionsv1.OpenSessionRequest) { q.SessionId = tokens.GetSessionId() })
			requireReason(t, err, problem.InvalidSession)
		}
		r.requireSignedIn(t, other.GetAccessToken(), mia, readWrite)
		r.open(t, nil)
	})
}

// However a refresh and the end of its Grant interleave, nothing stays signed in.
func TestRevokeToken_RacesRefreshes(t *testing.T) {
	eachOffering(t, func(t *testing.T, r *rig) {
		for _, ends := range []bool{false, true} {
			r.offer(func(s *directoryv1.SignIn) { s.RotateAccountTokens, s.EndSessionsAtSignOut = true, ends })
			second := r.replica(t)
			in := r.signIn(t, nil)
			var got [12]*sessionsv1.IssuedTokens
			for i, err := range atOnce(len(got), func(i int) error {
				if i == 5 {
					_, err := second.api.RevokeToken(r.company.Ctx(t.Context()), &sessionsv1.RevokeTokenRequest{ClientId: clientID, Token: in.GetRefreshToken()})
					return err
				}
				var err error
				got[i], err = []*rig{r, second}[i%2].refresh(t, in.GetRefreshToken())
				return err
			}) {
				if i == 5 {
					require.NoError(t, err)
				} else if err != nil {
					requireReason(t, err, problem.InvalidGrant)
				}
			}
			for _, tokens := range got {
				if tokens == nil {
					continue
				}
				if ends {
					r.refused(t, tokens.GetAccessToken(), problem.InvalidToken, nil)
				} else {
					r.requireSignedOut(t, tokens.GetAccessToken())
				}
				_, err := r.refresh(t, tokens.GetRefreshToken())
				requireReason(t, err, problem.InvalidGrant)
			}
		}
	})
}

func TestRV07_DisconnectingOneAccount(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#17", "poppy-0.1/4.9#18", "poppy-0.1/4.9#19", "poppy-0.1/4.9#d13")
	clausetest.Refuses(t, "poppy-0.1/4.9#18", "poppy-0.1/4.9#19")
	eachOffering(t, func(t *testing.T, r *rig) {
		ctx := r.company.Ctx(t.Context())
		disconnect := func(account, grant string) int32 {
			got, err := r.pages.Disconnect(ctx, &sessionsv1.DisconnectRequest{AccountId: account, GrantId: grant})
			require.NoError(t, err)
			return got.GetEnded()
		}
		list := func(account string) []*sessionsv1.Connection {
			got, err := r.pages.ListConnections(ctx, &sessionsv1.ListConnectionsRequest{AccountId: account})
			require.NoError(t, err)
			return got.GetConnections()
		}
		one, bens := r.signIn(t, nil), r.signIn(t, toAccount(ben))
		r.Clock.Advance(time.Second)
		two := r.signIn(t, func(q *sessionsv1.IssueCodeRequest) { q.Scope = readOnly })
		theirs := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.ClientId = otherClient })
		code := r.code(t, func(q *sessionsv1.IssueCodeRequest) { q.ClientId = otherClient })
		others, err := r.exchange(t, theirs.GetSessionId(), byCode(code), asOther)
		require.NoError(t, err)

		mias := list(mia)
		require.Len(t, mias, 3)
		require.Equal(t, clientID, mias[2].GetClientId())
		require.Equal(t, "Agent", mias[2].GetAgentName())
		require.Equal(t, readWrite, mias[2].GetScope())
		require.Nil(t, mias[2].GetExpireTime())
		require.Len(t, list(ben), 1)
		require.Empty(t, list(""))
		require.Empty(t, list("a\x00b"))

		// Neither another account's Grant nor an unknown one.
		require.Zero(t, disconnect(mia, list(ben)[0].GetGrantId()))
		require.Zero(t, disconnect(mia, "grt_unknown"))
		require.Zero(t, disconnect("", ""))
		require.Len(t, list(mia), 3)
		// Both of the agent's, whichever was chosen, and not the other agent's.
		require.Equal(t, int32(2), disconnect(mia, mias[2].GetGrantId()))
		require.Zero(t, disconnect(mia, mias[2].GetGrantId()))
		for _, tokens := range []*sessionsv1.IssuedTokens{one, two} {
			r.requireSignedOut(t, tokens.GetAccessToken())
			_, err := r.refresh(t, tokens.GetRefreshToken())
			requireReason(t, err, problem.InvalidGrant)
		}
		r.requireSignedIn(t, bens.GetAccessToken(), ben, readWrite)
		_, err = r.refresh(t, bens.GetRefreshToken())
		require.NoError(t, err)
		r.requireSignedIn(t, others.GetAccessToken(), mia, readWrite)
		require.Len(t, list(mia), 1)
		require.Equal(t, int32(1), disconnect(mia, ""))
		r.requireSignedOut(t, others.GetAccessToken())
		require.Empty(t, list(mia))
		require.Len(t, list(ben), 1)
	})
}
