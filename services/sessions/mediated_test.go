package sessions_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
)

func (r *rig) signInMediated(t testing.TB, sessionID string, change func(*sessionsv1.SignInRequest)) (*sessionsv1.IssuedTokens, error) {
	t.Helper()
	q := &sessionsv1.SignInRequest{
		SessionId: sessionID, ClientId: clientID, Jkt: r.seesAs(t, r.open(t, nil).GetAccessToken()).GetJkt(), Scope: readOnly,
		Account: &sessionsv1.Account{Id: mia, Label: "mia@example.com"},
	}
	if change != nil {
		change(q)
	}
	got, err := r.signIns.SignIn(r.company.Ctx(t.Context()), q)
	return got.GetTokens(), err
}

func TestSignIn_Mediated(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.7#11", "poppy-0.1/4.4#31", "poppy-0.1/4.4#22")
	clausetest.Refuses(t, "poppy-0.1/4.4#22", "poppy-0.1/4.4#24", "poppy-0.1/4.4#26", "poppy-0.1/4.4#41")
	eachOffering(t, func(t *testing.T, r *rig) {
		opened := r.open(t, nil)
		in, err := r.signInMediated(t, opened.GetSessionId(), nil)
		require.NoError(t, err)
		require.Equal(t, opened.GetSessionId(), in.GetSessionId())
		require.Equal(t, "DPoP", in.GetTokenType())
		require.Equal(t, readOnly, in.GetScope())
		require.True(t, in.GetSignedIn())
		r.requireSignedIn(t, in.GetAccessToken(), mia, readOnly)
		_, err = r.refresh(t, in.GetRefreshToken())
		require.NoError(t, err)
		require.Equal(t, "mediated", r.connections(t)[0].GetSignIn())
		require.Equal(t, "Agent", r.connections(t)[0].GetAgentName())
		again, err := r.signInMediated(t, opened.GetSessionId(), nil)
		require.NoError(t, err)
		r.requireSignedIn(t, again.GetAccessToken(), mia, readOnly)

		ended := r.open(t, nil).GetSessionId()
		_, err = r.admin.EndSession(r.company.Ctx(t.Context()), &adminv1.EndSessionRequest{Name: r.sessionName(ended)})
		require.NoError(t, err)
		for name, c := range map[string]struct {
			session string
			change  func(*sessionsv1.SignInRequest)
			reason  problem.Reason
		}{
			"another account":   {opened.GetSessionId(), func(q *sessionsv1.SignInRequest) { q.Account.Id = ben }, problem.AccountMismatch},
			"more than allowed": {opened.GetSessionId(), func(q *sessionsv1.SignInRequest) { q.Scope = readWrite }, problem.InvalidScope},
			"no scope":          {opened.GetSessionId(), func(q *sessionsv1.SignInRequest) { q.Scope = "" }, problem.InvalidScope},
			"no account":        {opened.GetSessionId(), func(q *sessionsv1.SignInRequest) { q.Account = nil }, problem.InvalidRequest},
			"no key":            {opened.GetSessionId(), func(q *sessionsv1.SignInRequest) { q.Jkt = "" }, problem.InvalidRequest},
			"another client":    {opened.GetSessionId(), func(q *sessionsv1.SignInRequest) { q.ClientId = otherClient }, problem.InvalidSession},
			"unknown session":   {ids.New(ids.Session), nil, problem.InvalidSession},
			"ended session":     {ended, nil, problem.InvalidSession},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := r.signInMediated(t, c.session, c.change)
				requireReason(t, err, c.reason)
			})
		}
		r.requireSignedIn(t, in.GetAccessToken(), mia, readOnly)
		_, err = r.agents.RevokeAgent(r.company.Ctx(t.Context()), &adminv1.RevokeAgentRequest{Parent: r.company.Scope.Name(), ClientId: clientID})
		require.NoError(t, err)
		_, err = r.signIns.SignIn(r.company.Ctx(t.Context()), &sessionsv1.SignInRequest{SessionId: opened.GetSessionId(), ClientId: clientID})
		requireReason(t, err, problem.InvalidClient)
	})
}
