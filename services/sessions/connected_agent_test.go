package sessions_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

func TestConnectedAgents_ListAndGet(t *testing.T) {
	eachOffering(t, func(t *testing.T, r *rig) {
		ctx, parent := r.company.Ctx(t.Context()), r.company.Scope.Name()
		r.offer(func(s *directoryv1.SignIn) { s.AccountTokenLifetime = durationpb.New(time.Hour) })
		r.signIn(t, nil) // will have expired
		r.Clock.Advance(time.Hour)
		r.offer(nil)
		var tokens []*sessionsv1.IssuedTokens
		for _, account := range []string{mia, ben, mia, mia} {
			tokens = append(tokens, r.signIn(t, toAccount(account)))
		}
		r.revoke(t, clientID, tokens[3].GetRefreshToken())
		list := func(q *adminv1.ListConnectedAgentsRequest) []*adminv1.ConnectedAgent {
			t.Helper()
			q.Parent, q.PageSize = parent, 2
			var all []*adminv1.ConnectedAgent
			for {
				got, err := r.agents.ListConnectedAgents(ctx, q)
				require.NoError(t, err)
				require.LessOrEqual(t, len(got.GetConnectedAgents()), 2)
				all = append(all, got.GetConnectedAgents()...)
				if q.PageToken = got.GetNextPageToken(); q.GetPageToken() == "" {
					return all
				}
			}
		}
		all := list(&adminv1.ListConnectedAgentsRequest{ShowEnded: true})
		require.Len(t, all, 5)
		var states []adminv1.ConnectionState
		for i, c := range all {
			require.True(t, i == 0 || !c.GetCreateTime().AsTime().After(all[i-1].GetCreateTime().AsTime()))
			states = append(states, c.GetState())
		}
		const active, ended, expired = adminv1.ConnectionState_CONNECTION_STATE_ACTIVE, adminv1.ConnectionState_CONNECTION_STATE_ENDED, adminv1.ConnectionState_CONNECTION_STATE_EXPIRED
		require.Equal(t, []adminv1.ConnectionState{ended, active, active, active, expired}, states)
		require.Len(t, list(&adminv1.ListConnectedAgentsRequest{}), 3)
		require.Len(t, list(&adminv1.ListConnectedAgentsRequest{Account: mia}), 2)
		require.Len(t, list(&adminv1.ListConnectedAgentsRequest{Account: ben, ClientId: clientID}), 1)
		require.Empty(t, list(&adminv1.ListConnectedAgentsRequest{ClientId: otherClient}))
		require.Empty(t, list(&adminv1.ListConnectedAgentsRequest{Account: "a\x00b"}))

		got, err := r.agents.GetConnectedAgent(ctx, &adminv1.GetConnectedAgentRequest{Name: all[0].GetName()})
		require.NoError(t, err)
		require.Equal(t, all[0].String(), got.String())
		require.Equal(t, parent+"/connectedAgents/"+got.GetUid(), got.GetName())
		// Page tokens belong to their list, and names to their Company.
		page, err := r.agents.ListConnectedAgents(ctx, &adminv1.ListConnectedAgentsRequest{Parent: parent, PageSize: 1})
		require.NoError(t, err)
		for _, q := range []*adminv1.ListConnectedAgentsRequest{
			{Account: mia}, {ClientId: clientID}, {ShowEnded: true},
		} {
			q.Parent, q.PageToken = parent, page.GetNextPageToken()
			_, err = r.agents.ListConnectedAgents(ctx, q)
			requireReason(t, err, problem.InvalidRequest)
		}
		other := r.NewCompany(t)
		for _, name := range []string{all[0].GetName(), other.Scope.Name() + "/connectedAgents/" + all[0].GetUid()} {
			_, err = r.agents.GetConnectedAgent(other.Ctx(t.Context()), &adminv1.GetConnectedAgentRequest{Name: name})
			requireReason(t, err, problem.NotFoundReason)
			_, err = r.agents.DisconnectAgent(other.Ctx(t.Context()), &adminv1.DisconnectAgentRequest{Name: name})
			requireReason(t, err, problem.NotFoundReason)
		}
		_, err = r.agents.ListConnectedAgents(other.Ctx(t.Context()), &adminv1.ListConnectedAgentsRequest{Parent: parent})
		requireReason(t, err, problem.NotFoundReason)
	})
}

func TestConnectedAgents_Disconnect(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.9#19")
	eachOffering(t, func(t *testing.T, r *rig) {
		ctx, parent := r.company.Ctx(t.Context()), r.company.Scope.Name()
		one, two, bens := r.signIn(t, nil), r.signIn(t, nil), r.signIn(t, toAccount(ben))
		name := r.connections(t)[2].GetName()
		var first *adminv1.ConnectedAgent
		for range 2 {
			got, err := r.agents.DisconnectAgent(ctx, &adminv1.DisconnectAgentRequest{Name: name})
			require.NoError(t, err)
			require.Equal(t, adminv1.ConnectionState_CONNECTION_STATE_ENDED, got.GetState())
			require.Equal(t, "disconnected", got.GetEndReason())
			if first == nil {
				first = got
			}
			require.Equal(t, first.String(), got.String()) // one that is over stays as it is
			r.Clock.Advance(time.Second)
		}
		r.requireSignedOut(t, one.GetAccessToken())
		r.requireSignedIn(t, two.GetAccessToken(), mia, readWrite)

		account := func(account, client string) int32 {
			got, err := r.agents.DisconnectAccount(ctx, &adminv1.DisconnectAccountRequest{Parent: parent, Account: account, ClientId: client})
			require.NoError(t, err)
			return got.GetEnded()
		}
		require.Zero(t, account(mia, otherClient))
		require.Zero(t, account("acc-unknown", ""))
		require.Equal(t, int32(1), account(mia, clientID))
		require.Zero(t, account(mia, ""))
		r.requireSignedOut(t, two.GetAccessToken())
		r.requireSignedIn(t, bens.GetAccessToken(), ben, readWrite)
		for _, q := range []*adminv1.DisconnectAccountRequest{{Account: ""}, {Account: "a\x00b"}, {Account: ben, ClientId: "http://agent.example/"}} {
			q.Parent = parent
			_, err := r.agents.DisconnectAccount(ctx, q)
			requireReason(t, err, problem.InvalidRequest)
		}
		_, err := r.agents.DisconnectAccount(ctx, &adminv1.DisconnectAccountRequest{Parent: r.NewCompany(t).Scope.Name(), Account: ben})
		requireReason(t, err, problem.NotFoundReason)
		r.requireSignedIn(t, bens.GetAccessToken(), ben, readWrite)
	})
}

func TestConnectedAgents_RevokeAgent(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#7")
	clausetest.Refuses(t, "poppy-0.1/4.4#7")
	eachOffering(t, func(t *testing.T, r *rig) {
		ctx, parent := r.company.Ctx(t.Context()), r.company.Scope.Name()
		in, plain := r.signIn(t, nil), r.open(t, nil)
		code := r.code(t, nil)
		theirs := r.open(t, func(q *sessionsv1.OpenSessionRequest) { q.ClientId = otherClient })
		for _, q := range []*adminv1.RevokeAgentRequest{{ClientId: "http://agent.example/"}, {ClientId: clientID, Reason: "a\x00b"}} {
			q.Parent = parent
			_, err := r.agents.RevokeAgent(ctx, q)
			requireReason(t, err, problem.InvalidRequest)
		}
		for i := range 2 {
			got, err := r.agents.RevokeAgent(ctx, &adminv1.RevokeAgentRequest{Parent: parent, ClientId: clientID, Reason: "signs in by itself"})
			require.NoError(t, err)
			require.Equal(t, int32(1-i), got.GetConnectionsEnded())
			require.Equal(t, int32(2*(1-i)), got.GetSessionsEnded())
		}
		for _, token := range []string{in.GetAccessToken(), plain.GetAccessToken()} {
			r.refused(t, token, problem.InvalidToken, nil)
		}
		_, err := r.tryOpen(t, r.company, nil)
		requireReason(t, err, problem.InvalidClient)
		_, err = r.refresh(t, in.GetRefreshToken())
		requireReason(t, err, problem.InvalidClient)
		_, err = r.exchange(t, plain.GetSessionId(), byCode(code), nil)
		requireReason(t, err, problem.InvalidClient)
		require.Equal(t, "agent_revoked", r.connections(t)[0].GetEndReason())
		r.requireSignedOut(t, theirs.GetAccessToken())

		// Letting the agent in again brings nothing back.
		rules, err := r.admission.ListAdmissionRules(ctx, &adminv1.ListAdmissionRulesRequest{Parent: parent})
		require.NoError(t, err)
		require.Len(t, rules.GetAdmissionRules(), 1)
		require.Equal(t, "signs in by itself", rules.GetAdmissionRules()[0].GetReason())
		_, err = r.admission.DeleteAdmissionRule(ctx, &adminv1.DeleteAdmissionRuleRequest{Name: rules.GetAdmissionRules()[0].GetName()})
		require.NoError(t, err)
		r.refused(t, in.GetAccessToken(), problem.InvalidToken, nil)
		_, err = r.refresh(t, in.GetRefreshToken())
		requireReason(t, err, problem.InvalidGrant)
	})
}
