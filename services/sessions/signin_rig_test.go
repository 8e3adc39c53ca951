package sessions_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/replay"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/test/fixture"
)

const (
	otherClient = "https://other.example/agent.json"
	otherUser   = "usr_other"
	redirectURI = "https://agent.example/callback"
	verifier    = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	readOnly    = "poppy:read"
	readWrite   = "poppy:read poppy:write"
	mia, ben    = "acc-mia", "acc-ben"
)

// eachOffering is each with a Company that offers every type of sign-in.
func eachOffering(t *testing.T, fn func(*testing.T, *rig)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newRig(t, d)
		r.offer(nil)
		fn(t, r)
	})
}

func (r *rig) offer(change func(*directoryv1.SignIn)) {
	s := &directoryv1.SignIn{
		DirectScopes: []string{"poppy:read", "poppy:write", "addresses"}, DeviceScopes: []string{"poppy:read", "poppy:write"},
		MediatedScopes: []string{"poppy:read"},
	}
	if change != nil {
		change(s)
	}
	r.company.Snapshot.SignIn = s
	r.Changed(r.company)
}

// code is one that the User approved, read and write to Mia's account unless changed.
func (r *rig) code(t testing.TB, change func(*sessionsv1.IssueCodeRequest)) string {
	t.Helper()
	q := &sessionsv1.IssueCodeRequest{
		ClientId: clientID, AgentName: "Agent", RedirectUri: redirectURI, CodeChallenge: fixture.Challenge(verifier), Scope: readWrite,
		Account: &sessionsv1.Account{Id: mia, Label: "mia@example.com"},
	}
	if change != nil {
		change(q)
	}
	got, err := r.signIns.IssueCode(r.company.Ctx(t.Context()), q)
	require.NoError(t, err)
	return got.GetCode()
}

func toAccount(id string) func(*sessionsv1.IssueCodeRequest) {
	return func(q *sessionsv1.IssueCodeRequest) { q.Account.Id = id }
}

// exchange is a right request for a grant, unless changed.
func (r *rig) exchange(t testing.TB, sessionID string, grant, change func(*sessionsv1.ExchangeRequest)) (*sessionsv1.IssuedTokens, error) {
	t.Helper()
	q := &sessionsv1.ExchangeRequest{
		ClientId: clientID, AgentName: "Agent", SessionId: sessionID, Proof: r.proof(t, r.company),
		Once: []*sessionsv1.OnceKey{r.once(replay.KindClientAssertion)},
	}
	grant(q)
	if change != nil {
		change(q)
	}
	got, err := r.signIns.Exchange(r.company.Ctx(t.Context()), q)
	if err != nil {
		for _, secret := range []string{q.GetCode().GetCode(), q.GetDevice().GetDeviceCode(), q.GetAccountToken().GetToken()} {
			require.True(t, secret == "" || !strings.Contains(err.Error(), secret))
		}
	}
	return got.GetTokens(), err
}

func byCode(code string) func(*sessionsv1.ExchangeRequest) {
	return func(q *sessionsv1.ExchangeRequest) {
		q.Grant = &sessionsv1.ExchangeRequest_Code{Code: &sessionsv1.CodeGrant{Code: code, RedirectUri: redirectURI, CodeVerifier: verifier}}
	}
}

func byDevice(code string) func(*sessionsv1.ExchangeRequest) {
	return func(q *sessionsv1.ExchangeRequest) {
		q.Grant = &sessionsv1.ExchangeRequest_Device{Device: &sessionsv1.DeviceGrant{DeviceCode: code}}
	}
}

func byAccountToken(token, scope string) func(*sessionsv1.ExchangeRequest) {
	return func(q *sessionsv1.ExchangeRequest) {
		q.Grant = &sessionsv1.ExchangeRequest_AccountToken{AccountToken: &sessionsv1.AccountTokenGrant{Token: token, Scope: scope}}
	}
}

func asOther(q *sessionsv1.ExchangeRequest) { q.ClientId = otherClient }

// signIn opens a Session and signs it in by a code.
func (r *rig) signIn(t testing.TB, change func(*sessionsv1.IssueCodeRequest)) *sessionsv1.IssuedTokens {
	t.Helper()
	return r.signSessionIn(t, r.open(t, nil).GetSessionId(), change)
}

func (r *rig) signSessionIn(t testing.TB, sessionID string, change func(*sessionsv1.IssueCodeRequest)) *sessionsv1.IssuedTokens {
	t.Helper()
	got, err := r.exchange(t, sessionID, byCode(r.code(t, change)), nil)
	require.NoError(t, err)
	return got
}

func (r *rig) refresh(t testing.TB, token string) (*sessionsv1.IssuedTokens, error) {
	t.Helper()
	return r.exchange(t, "", byAccountToken(token, ""), nil)
}

// seesAs says what a request with the token counts as.
func (r *rig) seesAs(t testing.TB, token string) *sessionsv1.VerifyRequestResponse {
	t.Helper()
	got, err := r.verify(t, token, nil)
	require.NoError(t, err)
	return got
}

func (r *rig) requireSignedIn(t testing.TB, token, account, scope string) {
	t.Helper()
	got := r.seesAs(t, token)
	require.True(t, got.GetSignedIn())
	require.Equal(t, account, got.GetAccount())
	require.Equal(t, strings.Fields(scope), got.GetScopes())
	require.NotEmpty(t, got.GetJkt())
}

func (r *rig) requireSignedOut(t testing.TB, token string) {
	t.Helper()
	got := r.seesAs(t, token)
	require.False(t, got.GetSignedIn())
	require.Empty(t, got.GetAccount())
	require.Empty(t, got.GetScopes())
}

func (r *rig) revoke(t testing.TB, client, token string) {
	t.Helper()
	_, err := r.api.RevokeToken(r.company.Ctx(t.Context()), &sessionsv1.RevokeTokenRequest{ClientId: client, Token: token})
	require.NoError(t, err)
}

// connections are all Grants of the Company, the newest first.
func (r *rig) connections(t testing.TB) []*adminv1.ConnectedAgent {
	t.Helper()
	got, err := r.agents.ListConnectedAgents(r.company.Ctx(t.Context()), &adminv1.ListConnectedAgentsRequest{Parent: r.company.Scope.Name(), ShowEnded: true})
	require.NoError(t, err)
	return got.GetConnectedAgents()
}

// atOnce runs fn n times in parallel and returns the errors.
func atOnce(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() { errs[i] = fn(i) })
	}
	wait.Wait()
	return errs
}

func requireOneWinner(t testing.TB, errs []error, reason problem.Reason) {
	t.Helper()
	won := len(slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err != nil }))
	require.Equal(t, 1, won)
	for _, err := range errs {
		if err != nil {
			requireReason(t, err, reason)
		}
	}
}
