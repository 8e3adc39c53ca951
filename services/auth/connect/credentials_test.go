package connect_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/auth/connect"
)

const checkURL = "https://shop.example/check"

func (r *rig) checkedByCompany() {
	r.company.SignIn = &directory.SignIn{
		Method: directory.CredentialCheck, CredentialCheckURL: checkURL,
		CredentialFields: []discovery.MediatedField{{Name: "email", Label: "Email"}, {Name: "pin", Label: "PIN", Secret: true}},
	}
}

func (r *rig) checkedByTestAccounts(t testing.TB) {
	t.Helper()
	id := r.company.Scope.CompanyID()
	plain, err := json.Marshal([]map[string]string{
		{"account": "acc-1", "label": "Mia", "username": "mia", "password_hash": keys.HashToken(id, "canary-mia")},
		{"account": "acc-2", "username": "noah", "password_hash": keys.HashToken(id, "canary-noah"), "code_hash": keys.HashToken(id, "123456")},
		{"account": "acc-3", "username": "open", "password_hash": ""},
	})
	require.NoError(t, err)
	sealed, err := r.keys.Seal(id, "test accounts", "accounts", plain)
	require.NoError(t, err)
	r.company.SignIn = &directory.SignIn{Method: directory.TestAccounts, SealedTestAccounts: sealed}
}

func mediated() connect.Subject {
	return connect.Subject{
		SignInID: "sgn_1", ClientID: "https://agent.example/agent.json", AgentName: "Example Agent", UserID: "usr_1", SessionID: "ses_1",
		Scopes: []string{"poppy:read"}, SignIn: "mediated",
	}
}

func direct() connect.Subject { return connect.Subject{SignInID: "sgn_1", SignIn: "direct"} }

func TestCheck_AsksTheCompany(t *testing.T) {
	r := newRig(t)
	r.checkedByCompany()
	fields := map[string]string{"email": "mia@example.com", "pin": "canary-1"}
	r.outside.says(&relayv1.CheckCredentialsResponse{
		Outcome: relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_COMPLETE, Account: "acc-1", AccountLabel: "Mia",
	}, nil)
	v, err := r.creds.Check(t.Context(), r.company, "sgn_1-1", mediated(), fields)
	require.NoError(t, err)
	require.Equal(t, connect.Verdict{Outcome: connect.Complete, Account: connect.Account{ID: "acc-1", Label: "Mia"}}, v)
	sent := r.outside.checks[0]
	require.Equal(t, checkURL, sent.GetUrl())
	require.Equal(t, "sgn_1-1", sent.GetId())
	require.Equal(t, fields, sent.GetCredentials().GetFields())
	s := sent.GetSubject()
	got := connect.Subject{
		SignInID: s.GetSignInId(), ClientID: s.GetClientId(), AgentName: s.GetAgentName(), UserID: s.GetUserId(), SessionID: s.GetSessionId(), Scopes: s.GetScopes(), SignIn: s.GetSignIn(),
	}
	require.Equal(t, mediated(), got)
	require.Equal(t, r.company.Scope, r.outside.scopes[0])

	r.outside.says(&relayv1.CheckCredentialsResponse{Outcome: relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_FAILED}, nil)
	v, err = r.creds.Check(t.Context(), r.company, "sgn_1-2", direct(), fields)
	require.NoError(t, err)
	require.Equal(t, connect.Verdict{Outcome: connect.Failed}, v)
}

func TestCheckCode_AsksTheCompany(t *testing.T) {
	r := newRig(t)
	r.checkedByCompany()
	r.outside.says(&relayv1.CheckCredentialsResponse{
		Outcome: relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_CODE_REQUIRED, SentTo: "Text to …71", State: "one", ExpiresIn: durationpb.New(time.Minute),
	}, nil)
	want := connect.Verdict{Outcome: connect.CodeRequired, SentTo: "Text to …71", State: "one", Lifetime: time.Minute}
	v, err := r.creds.Check(t.Context(), r.company, "sgn_1-1", mediated(), nil)
	require.NoError(t, err)
	require.Equal(t, want, v)
	v, err = r.creds.CheckCode(t.Context(), r.company, "sgn_1-2", mediated(), "zero", "canary-123")
	require.NoError(t, err)
	require.Equal(t, want, v)
	sent := r.outside.checks[1]
	require.Equal(t, "sgn_1-2", sent.GetId())
	require.Equal(t, "canary-123", sent.GetCode().GetCode())
	require.Equal(t, "zero", sent.GetCode().GetState())
	require.Nil(t, sent.GetCredentials())

	r.outside.says(&relayv1.CheckCredentialsResponse{Outcome: relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_CODE_REQUIRED}, nil)
	v, err = r.creds.CheckCode(t.Context(), r.company, "sgn_1-3", mediated(), "one", "canary-123")
	require.NoError(t, err)
	require.Equal(t, connect.Verdict{Outcome: connect.CodeRequired, State: "one"}, v, "a Company that says nothing gets its state again")
}

func TestCheck_Unavailable(t *testing.T) {
	r := newRig(t)
	r.checkedByCompany()
	for name, c := range map[string]struct {
		answer *relayv1.CheckCredentialsResponse
		err    error
	}{
		"no answer":  {&relayv1.CheckCredentialsResponse{Outcome: relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_UNAVAILABLE, Reason: "status 500"}, nil},
		"nothing":    {&relayv1.CheckCredentialsResponse{}, nil},
		"no account": {&relayv1.CheckCredentialsResponse{Outcome: relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_COMPLETE}, nil},
		"relay":      {nil, errors.New("relay is down")},
	} {
		t.Run(name, func(t *testing.T) {
			r.outside.says(c.answer, c.err)
			v, err := r.creds.Check(t.Context(), r.company, "sgn_1-1", mediated(), map[string]string{"email": "canary"})
			requireUnavailable(t, err)
			require.Zero(t, v)
			v, err = r.creds.CheckCode(t.Context(), r.company, "sgn_1-1", mediated(), "canary-state", "canary-code")
			requireUnavailable(t, err)
			require.Zero(t, v)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.outside.says(nil, errors.New("rpc: canceled"))
	_, err := r.creds.Check(ctx, r.company, "sgn_1-1", mediated(), nil)
	require.ErrorIs(t, err, context.Canceled)

	asked := len(r.outside.checks)
	for _, s := range []*directory.SignIn{nil, {}, {Method: directory.CredentialCheck}, {Method: directory.OIDC}} {
		r.company.SignIn = s
		_, err = r.creds.Check(t.Context(), r.company, "sgn_1-1", mediated(), nil)
		requireUnavailable(t, err)
		_, err = r.creds.CheckCode(t.Context(), r.company, "sgn_1-1", direct(), "", "")
		requireUnavailable(t, err)
	}
	require.Len(t, r.outside.checks, asked)
}

func TestCheck_WhoAnswers(t *testing.T) {
	r := newRig(t)
	r.outside.says(&relayv1.CheckCredentialsResponse{Outcome: relayv1.CredentialsOutcome_CREDENTIALS_OUTCOME_FAILED}, nil)
	asks := func(s connect.Subject) bool {
		before := len(r.outside.checks)
		v, err := r.creds.Check(t.Context(), r.company, "sgn_1-1", s, map[string]string{"username": "mia", "password": "canary-mia"})
		require.NoError(t, err)
		asked := len(r.outside.checks) > before
		require.Equal(t, asked, v.Outcome == connect.Failed)
		return asked
	}
	r.checkedByTestAccounts(t)
	require.False(t, asks(direct()))
	require.False(t, asks(mediated()))
	r.company.SignIn.CredentialCheckURL = checkURL
	require.False(t, asks(direct()))
	require.True(t, asks(mediated()))
	r.company.SignIn.Method = directory.OIDC
	require.True(t, asks(mediated()))
}

func TestCheck_TestAccounts(t *testing.T) {
	r := newRig(t)
	r.checkedByTestAccounts(t)
	check := func(username, password string) connect.Verdict {
		v, err := r.creds.Check(t.Context(), r.company, "sgn_1-1", direct(), map[string]string{"username": username, "password": password})
		require.NoError(t, err)
		return v
	}
	require.Equal(t, connect.Verdict{Outcome: connect.Complete, Account: connect.Account{ID: "acc-1", Label: "Mia"}}, check("mia", "canary-mia"))
	for _, c := range [][2]string{
		{"mia", "canary-noah"}, {"mia", ""}, {"", "canary-mia"}, {"", ""}, {"MIA", "canary-mia"}, {"mia ", "canary-mia"}, {"nobody", "canary-mia"}, {"open", ""}, {"noah", "123456"},
	} {
		require.Equal(t, connect.Verdict{Outcome: connect.Failed}, check(c[0], c[1]), "%v", c)
	}
	require.Empty(t, r.outside.checks)

	v := check("noah", "canary-noah")
	require.Equal(t, connect.CodeRequired, v.Outcome)
	require.Zero(t, v.Account)
	require.NotEmpty(t, v.SentTo)
	code := func(state, code string) connect.Verdict {
		v, err := r.creds.CheckCode(t.Context(), r.company, "sgn_1-2", direct(), state, code)
		require.NoError(t, err)
		return v
	}
	for _, wrong := range []string{"", "123457", " 123456", "canary-noah"} {
		require.Equal(t, v, code(v.State, wrong), "another try")
	}
	require.Equal(t, connect.Verdict{Outcome: connect.Complete, Account: connect.Account{ID: "acc-2", Label: "noah"}}, code(v.State, "123456"))
	for _, state := range []string{"", "nobody", "mia"} {
		require.Equal(t, connect.Verdict{Outcome: connect.Failed}, code(state, "123456"), state)
		require.Equal(t, connect.Verdict{Outcome: connect.Failed}, code(state, ""), state)
	}
}

func TestCheck_TestAccountsByTheCompanysFields(t *testing.T) {
	r := newRig(t)
	r.checkedByTestAccounts(t)
	r.company.SignIn.CredentialFields = []discovery.MediatedField{{Name: "pin", Label: "PIN", Secret: true}, {Name: "email", Label: "Email"}, {Name: "name", Label: "Name"}}
	v, err := r.creds.Check(t.Context(), r.company, "sgn_1-1", direct(), map[string]string{"email": "mia", "pin": "canary-mia", "name": "x"})
	require.NoError(t, err)
	require.Equal(t, connect.Complete, v.Outcome)
}

func TestMT03_Check_TestAccountsOfAnotherCompany(t *testing.T) {
	r := newRig(t)
	r.checkedByTestAccounts(t)
	other := r.newCompany(t, "cmp_zzzzzzzzzzzzzzzzzzzzzzzzzz")
	other.SignIn = r.company.SignIn
	_, err := r.creds.Check(t.Context(), other, "sgn_1-1", direct(), map[string]string{"username": "mia", "password": "canary-mia"})
	requireUnavailable(t, err)
	_, err = r.creds.TestUsers(other)
	requireUnavailable(t, err)
}

func TestTestUsersAndFields(t *testing.T) {
	r := newRig(t)
	users, err := r.creds.TestUsers(r.company)
	require.NoError(t, err)
	require.Empty(t, users)
	require.Empty(t, r.creds.Fields(r.company))

	r.checkedByTestAccounts(t)
	users, err = r.creds.TestUsers(r.company)
	require.NoError(t, err)
	require.Equal(t, []connect.TestUser{{Username: "mia", Label: "Mia"}, {Username: "noah", Label: "noah"}, {Username: "open", Label: "open"}}, users)
	require.Equal(t, []discovery.MediatedField{{Name: "username", Label: "Username"}, {Name: "password", Label: "Password", Secret: true}}, r.creds.Fields(r.company))

	r.company.SignIn.SealedTestAccounts = nil
	users, err = r.creds.TestUsers(r.company)
	require.NoError(t, err)
	require.Empty(t, users)
	v, err := r.creds.Check(t.Context(), r.company, "sgn_1-1", direct(), map[string]string{"username": "", "password": ""})
	require.NoError(t, err)
	require.Equal(t, connect.Failed, v.Outcome)

	r.company.SignIn.SealedTestAccounts, err = r.keys.Seal(r.company.Scope.CompanyID(), "test accounts", "accounts", []byte(`canary`))
	require.NoError(t, err)
	_, err = r.creds.TestUsers(r.company)
	requireUnavailable(t, err)

	r.checkedByCompany()
	require.Len(t, r.creds.Fields(r.company), 2)
	r.company.SignIn = nil
	require.Empty(t, r.creds.Fields(r.company))
}
