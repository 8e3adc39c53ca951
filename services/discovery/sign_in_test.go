package discovery_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	poppy "github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

const (
	clientSecret = "canary-client-secret"
	password     = "canary-password"
	oneTimeCode  = "canary-code"
)

// connect changes the connection, without waiting for anybody to hear of it.
func (r *rig) connect(t testing.TB, c tenant, in *adminv1.SignInConnection, paths ...string) *adminv1.SignInConnection {
	t.Helper()
	got, err := r.tryConnect(t, c, in, paths...)
	require.NoError(t, err)
	return got
}

func (r *rig) tryConnect(t testing.TB, c tenant, in *adminv1.SignInConnection, paths ...string) (*adminv1.SignInConnection, error) {
	t.Helper()
	in.Name = c.name + "/signInConnection"
	req := &adminv1.UpdateSignInConnectionRequest{SignInConnection: in}
	if len(paths) > 0 {
		req.UpdateMask = &fieldmaskpb.FieldMask{Paths: paths}
	}
	return r.setup.UpdateSignInConnection(c.ctx(t), req)
}

func byOIDC() *adminv1.SignInConnection {
	return &adminv1.SignInConnection{Method: adminv1.SignInMethod_SIGN_IN_METHOD_OIDC, Oidc: &adminv1.OidcProvider{
		Issuer: "https://id.noodle.example", ClientId: "poppy", ClientSecret: clientSecret, Scopes: []string{"email"}, LabelClaim: "email",
	}}
}

func byWebhook() *adminv1.SignInConnection {
	return &adminv1.SignInConnection{Method: adminv1.SignInMethod_SIGN_IN_METHOD_CREDENTIAL_CHECK, CredentialCheck: &adminv1.CredentialCheck{
		Url: "https://noodle.example/credentials", Fields: []*adminv1.CredentialField{{Name: "email", Label: "E-Mail"}, {Name: "pin", Label: "PIN", Secret: true}},
	}}
}

func byTestAccounts() *adminv1.SignInConnection {
	return &adminv1.SignInConnection{Method: adminv1.SignInMethod_SIGN_IN_METHOD_TEST_ACCOUNTS, TestAccounts: []*adminv1.TestAccount{
		{Account: "acc-1", Label: "mia@example.com", Username: "mia", Password: password, OneTimeCode: oneTimeCode, AsksForCode: true},
	}}
}

// everySignIn wants all three types.
func everySignIn() *adminv1.DiscoverySettings {
	return &adminv1.DiscoverySettings{
		ConversationsEnabled: true, CustomScopes: map[string]string{"addresses": "Manage addresses"},
		DirectScopes: []string{"poppy:read", "poppy:write", "addresses"}, DeviceScopes: []string{"poppy:read", "poppy:write"}, MediatedScopes: []string{"poppy:read"},
	}
}

// signIn returns what other services are told of a Company's sign-in.
func (r *rig) signIn(t testing.TB, c tenant) *directoryv1.SignIn {
	t.Helper()
	snap, err := r.api.GetCompanySnapshot(c.ctx(t), &directoryv1.GetCompanySnapshotRequest{})
	require.NoError(t, err)
	return snap.GetSignIn()
}

func TestSignIn_OnlyWhatIsSetUpIsPublished(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#1", "poppy-0.1/4.4#3", "poppy-0.1/4.4#4", "poppy-0.1/4.4#15", "poppy-0.1/4.4#16", "poppy-0.1/4.4#20",
		"poppy-0.1/4.5#3", "poppy-0.1/4.5#6", "poppy-0.1/4.6#3", "poppy-0.1/4.7#3", "poppy-0.1/4.7#4", "poppy-0.1/4.7#5", "poppy-0.1/4.7#6")
	each(t, func(t *testing.T, r *rig) {
		c := r.company(t, "noodle", "", "noodle.example")
		r.settings(t, c, everySignIn())
		doc, meta := r.pair(t, c, "noodle.example", "noodle.example")
		require.Nil(t, doc.Auth.Direct, "scopes alone offer nothing")
		require.Nil(t, doc.Auth.Device)
		require.Nil(t, doc.Auth.Mediated)
		require.Empty(t, meta.AuthorizationEndpoint)
		require.Empty(t, meta.DeviceAuthorizationEndpoint)
		require.Nil(t, r.signIn(t, c))

		r.connect(t, c, byOIDC())
		r.dir.Forget()
		doc, meta = r.pair(t, c, "noodle.example", "noodle.example")
		require.Equal(t, []string{"poppy:read", "poppy:write", "addresses"}, doc.Auth.Direct.Scopes)
		require.Equal(t, []string{"poppy:read", "poppy:write"}, doc.Auth.Device.Scopes)
		require.Nil(t, doc.Auth.Mediated, "nobody checks credentials")
		require.Equal(t, c.issuer.AuthorizationEndpoint(), meta.AuthorizationEndpoint)
		require.Equal(t, c.issuer.DeviceAuthorizationEndpoint(), meta.DeviceAuthorizationEndpoint)
		require.Contains(t, string(r.fetch(t, c.issuer.MetadataURL())), `"code_challenge_methods_supported": [
    "S256"
  ]`)

		r.connect(t, c, byWebhook())
		r.dir.Forget()
		doc, _ = r.pair(t, c, "noodle.example", "noodle.example")
		require.Equal(t, &poppy.MediatedEndpoint{
			Endpoint: c.issuer.SignInEndpoint(), Scopes: []string{"poppy:read"},
			Fields: []poppy.MediatedField{{Name: "email", Label: "E-Mail"}, {Name: "pin", Label: "PIN", Secret: true}},
		}, doc.Auth.Mediated)
		require.Equal(t, map[string]string{"addresses": "Manage addresses"}, doc.Auth.CustomScopes)

		r.connect(t, c, &adminv1.SignInConnection{}, "method")
		r.dir.Forget()
		doc, meta = r.pair(t, c, "noodle.example", "noodle.example")
		require.Nil(t, doc.Auth.Direct)
		require.Nil(t, doc.Auth.Device)
		require.NotNil(t, doc.Auth.Mediated, "Mediated Sign-In needs no method")
		require.Empty(t, meta.AuthorizationEndpoint)
		require.Equal(t, []string{"poppy:read"}, r.signIn(t, c).GetMediatedScopes())
		require.Empty(t, r.signIn(t, c).GetDirectScopes())
	})
}

func TestSignIn_NarrowerScopesAlone(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#15", "poppy-0.1/4.4#18", "poppy-0.1/4.4#20")
	r := newRig(t)
	c := r.company(t, "noodle", "", "noodle.example")
	r.settings(t, c, &adminv1.DiscoverySettings{CustomScopes: map[string]string{"addresses": "Manage addresses"}, DirectScopes: []string{"addresses"}})
	r.connect(t, c, byOIDC())
	r.dir.Forget()
	doc, _ := r.pair(t, c, "noodle.example", "noodle.example")
	require.Equal(t, []string{"addresses"}, doc.Auth.Direct.Scopes)
	require.Nil(t, doc.Auth.Device)
	require.Contains(t, string(r.fetch(t, c.issuer.MetadataURL())), `"scopes_supported": [
    "addresses"
  ]`)
}

func TestSignIn_ScopesRefused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.4#16", "poppy-0.1/4.4#17", "poppy-0.1/4.4#20")
	r := newRig(t)
	c := r.company(t, "noodle", "", "noodle.example")
	r.settings(t, c, everySignIn())
	update := func(s *adminv1.DiscoverySettings, paths ...string) error {
		s.Name = c.name + "/discoverySettings"
		_, err := r.companies.UpdateDiscoverySettings(c.ctx(t), &adminv1.UpdateDiscoverySettingsRequest{DiscoverySettings: s, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return err
	}
	requireReason(t, update(&adminv1.DiscoverySettings{DirectScopes: []string{"poppy:admin"}}, "direct_scopes"), problem.InvalidRequest, "discovery_settings.direct_scopes[0]")
	requireReason(t, update(&adminv1.DiscoverySettings{DeviceScopes: []string{"poppy:read", "orders"}}, "device_scopes"), problem.InvalidRequest, "discovery_settings.device_scopes[1]")
	requireReason(t, update(&adminv1.DiscoverySettings{CustomScopes: map[string]string{"poppy:orders": "x"}}, "custom_scopes"), problem.FailedPrecondition)
	requireReason(t, update(&adminv1.DiscoverySettings{}, "custom_scopes"), problem.FailedPrecondition, "discovery_settings.custom_scopes.addresses")
	require.NoError(t, update(&adminv1.DiscoverySettings{}, "custom_scopes", "direct_scopes"))
	got, err := r.companies.GetDiscoverySettings(c.ctx(t), &adminv1.GetDiscoverySettingsRequest{Name: c.name + "/discoverySettings"})
	require.NoError(t, err)
	require.Empty(t, got.GetDirectScopes())
	require.Equal(t, []string{"poppy:read", "poppy:write"}, got.GetDeviceScopes(), "what isn't named stays")
}

// The clock stands still: only the bus can have told.
func TestMD05_SignInThatIsTakenAwayIsGoneAtTheNextRequest(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.4#3", "poppy-0.1/4.4#4", "poppy-0.1/4.5#3", "poppy-0.1/4.6#3", "poppy-0.1/4.7#3")
	each(t, func(t *testing.T, r *rig) {
		c := r.company(t, "noodle", "", "noodle.example")
		r.settings(t, c, everySignIn())
		r.connect(t, c, byWebhook())
		offers := func() bool {
			company, err := r.dir.Resolve(t.Context(), c.issuer.Hostname(), "/")
			require.NoError(t, err)
			doc, meta := r.pair(t, c, "noodle.example", "noodle.example")
			published := doc.Auth.Direct != nil
			require.Equal(t, published, doc.Auth.Device != nil)
			require.Equal(t, published, doc.Auth.Mediated != nil)
			require.Equal(t, published, meta.AuthorizationEndpoint != "")
			return published && company.SignIn.Any()
		}
		require.Eventually(t, offers, 10*time.Second, time.Millisecond)
		r.connect(t, c, &adminv1.SignInConnection{}, "method", "credential_check")
		require.Eventually(t, func() bool { return !offers() }, 10*time.Second, time.Millisecond)
	})
}

func TestSnapshot_OfEachMethod(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c := r.setUpAs(t, "trial", "", adminv1.CompanyKind_COMPANY_KIND_TEST)
		r.publish(t, c)
		r.verify(t, c, "trial.example")
		r.settings(t, c, everySignIn())
		open := func(purpose, id string, sealed []byte) string {
			raw, err := r.ring.Open(c.scope.CompanyID(), purpose, id, sealed)
			require.NoError(t, err)
			return string(raw)
		}

		r.connect(t, c, byOIDC())
		s := r.signIn(t, c)
		require.Equal(t, clientSecret, open("oidc client secret", "oidc", s.GetOidcSealedSecret()))
		require.Equal(t, 90*24*time.Hour, s.GetAccountTokenLifetime().AsDuration())
		s.OidcSealedSecret = nil
		require.True(t, proto.Equal(&directoryv1.SignIn{
			DirectScopes: []string{"poppy:read", "poppy:write", "addresses"}, DeviceScopes: []string{"poppy:read", "poppy:write"},
			ScopeTexts: map[string]*directoryv1.Texts{"addresses": {ByLanguage: map[string]string{"": "Manage addresses"}}},
			Method:     directoryv1.SignInMethod_SIGN_IN_METHOD_OIDC, OidcIssuer: "https://id.noodle.example", OidcClientId: "poppy",
			OidcScopes: []string{"email"}, OidcAccountClaim: "sub", OidcLabelClaim: "email",
			AccountTokenLifetime: durationpb.New(90 * 24 * time.Hour), Design: &directoryv1.PageDesign{Welcome: &directoryv1.Texts{}},
		}, s), "%v", s)

		r.connect(t, c, &adminv1.SignInConnection{
			Method: adminv1.SignInMethod_SIGN_IN_METHOD_LOGIN_HANDOFF, LoginHandoff: &adminv1.LoginHandoff{LoginUrl: "https://trial.example/login"},
			AccountTokenLifetime: durationpb.New(time.Hour), RotateAccountTokens: true, EndSessionsAtSignOut: true,
		})
		s = r.signIn(t, c)
		require.Equal(t, "https://trial.example/login", s.GetLoginUrl())
		require.Empty(t, s.GetOidcIssuer(), "what isn't in use stays at home")
		require.Empty(t, s.GetOidcSealedSecret())
		require.Equal(t, time.Hour, s.GetAccountTokenLifetime().AsDuration())
		require.True(t, s.GetRotateAccountTokens())
		require.True(t, s.GetEndSessionsAtSignOut())
		require.Empty(t, s.GetMediatedScopes())

		r.connect(t, c, byWebhook())
		s = r.signIn(t, c)
		require.Equal(t, "https://noodle.example/credentials", s.GetCredentialCheckUrl())
		require.Len(t, s.GetCredentialFields(), 2)
		require.Equal(t, []string{"poppy:read"}, s.GetMediatedScopes())

		r.connect(t, c, byTestAccounts())
		r.connect(t, c, &adminv1.SignInConnection{AccountTokensWithoutEnd: true})
		s = r.signIn(t, c)
		require.Nil(t, s.GetAccountTokenLifetime(), "without end")
		require.Empty(t, s.GetCredentialCheckUrl(), "test accounts are asked of nobody else")
		require.Equal(t, "username", s.GetCredentialFields()[0].GetName())
		require.True(t, s.GetCredentialFields()[1].GetSecret())
		require.JSONEq(t, fmt.Sprintf(`[{"account":"acc-1","label":"mia@example.com","username":"mia","password_hash":%q,"code_hash":%q}]`,
			keys.HashToken(c.scope.CompanyID(), password), keys.HashToken(c.scope.CompanyID(), oneTimeCode)), open("test accounts", "accounts", s.GetSealedTestAccounts()))

		company, err := r.dir.Get(t.Context(), c.scope)
		require.NoError(t, err)
		require.True(t, company.Test)
		require.Equal(t, []string{"trial.example"}, company.Domains)
		require.Equal(t, directory.TestAccounts, company.SignIn.Method)
		require.Zero(t, company.SignIn.AccountTokenLifetime)
		require.True(t, company.SignIn.Offers(directory.Mediated))
	})
}

func TestSnapshot_MethodWithoutScopes(t *testing.T) {
	r := newRig(t)
	c := r.company(t, "noodle", "")
	r.connect(t, c, byOIDC())
	r.dir.Forget()
	company, err := r.dir.Get(t.Context(), c.scope)
	require.NoError(t, err)
	require.NotNil(t, company.SignIn)
	require.False(t, company.SignIn.Any())
	require.False(t, company.Test)
}

func TestSignInConnection_ComesBackWithoutItsSecrets(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c := r.setUpAs(t, "trial", "", adminv1.CompanyKind_COMPANY_KIND_TEST)
		name := c.name + "/signInConnection"
		var answers []string
		show := func(got *adminv1.SignInConnection, err error) *adminv1.SignInConnection {
			require.NoError(t, err)
			// protojson and prototext redact what is marked; the bytes on the wire do not.
			raw, err := proto.Marshal(got)
			require.NoError(t, err)
			answers = append(answers, string(raw))
			return got
		}
		get := func() *adminv1.SignInConnection {
			return show(r.setup.GetSignInConnection(c.ctx(t), &adminv1.GetSignInConnectionRequest{Name: name}))
		}
		got := get()
		require.True(t, proto.Equal(&adminv1.SignInConnection{
			Name: name, Oidc: &adminv1.OidcProvider{CallbackUrl: c.issuer.CallbackURL()}, AccountTokenLifetime: durationpb.New(90 * 24 * time.Hour), Etag: got.GetEtag(),
		}, got), "nothing is set up: %v", got)

		in := byTestAccounts()
		in.Oidc, in.CredentialCheck, in.LoginHandoff = byOIDC().GetOidc(), byWebhook().GetCredentialCheck(), &adminv1.LoginHandoff{LoginUrl: "https://noodle.example/login"}
		in.Etag = got.GetEtag()
		set := show(r.tryConnect(t, c, in))
		require.True(t, proto.Equal(set, get()))
		require.True(t, set.GetOidc().GetHasClientSecret())
		require.True(t, set.GetTestAccounts()[0].GetAsksForCode())
		require.Equal(t, "https://noodle.example/login", set.GetLoginHandoff().GetLoginUrl())
		require.True(t, proto.Equal(in.GetCredentialCheck(), set.GetCredentialCheck()))
		require.NotNil(t, set.GetUpdateTime())

		// What was read can be written: everything stays, the secrets too.
		again := show(r.tryConnect(t, c, proto.CloneOf(set), "*"))
		require.True(t, again.GetOidc().GetHasClientSecret())
		require.NotEqual(t, set.GetEtag(), again.GetEtag())
		again.Etag, again.UpdateTime = set.GetEtag(), set.GetUpdateTime()
		require.True(t, proto.Equal(set, again))
		_, err := r.tryConnect(t, c, proto.CloneOf(set))
		requireReason(t, err, problem.EtagMismatch)
		other := byOIDC()
		other.Oidc.ClientSecret, other.Oidc.ClientId = "", "other"
		require.False(t, show(r.tryConnect(t, c, other, "oidc")).GetOidc().GetHasClientSecret())
		r.connect(t, c, byOIDC(), "oidc")

		// Refusals repeat no secret either.
		for _, spoil := range []func(*adminv1.SignInConnection){
			func(in *adminv1.SignInConnection) { in.Oidc.Issuer = "x" },
			func(in *adminv1.SignInConnection) { in.TestAccounts[0].Username = " " },
			func(in *adminv1.SignInConnection) { in.Method = 99 },
			func(in *adminv1.SignInConnection) { in.AccountTokenLifetime = &durationpb.Duration{Seconds: -1} },
		} {
			in := byTestAccounts()
			in.Oidc = byOIDC().GetOidc()
			spoil(in)
			_, err := r.tryConnect(t, c, in)
			require.Error(t, err)
			answers = append(answers, fmt.Sprintf("%v %+v", err, problem.As(err)))
		}
		_, err = r.tryConnect(t, c, byOIDC(), "oidc.client_secret")
		requireReason(t, err, problem.InvalidRequest, "update_mask")

		checked, err := r.setup.CheckSignInConnection(c.ctx(t), &adminv1.CheckSignInConnectionRequest{Name: name})
		require.NoError(t, err)
		snap, err := r.api.GetCompanySnapshot(c.ctx(t), &directoryv1.GetCompanySnapshotRequest{})
		require.NoError(t, err)
		answers = append(answers, fmt.Sprint(checked), fmt.Sprint(snap), r.log.String(), r.rows(t, c))
		for _, answer := range answers {
			for _, secret := range []string{clientSecret, password, oneTimeCode} {
				require.NotContains(t, answer, secret)
			}
		}
	})
}

// rows shows every column of the Company's connection as the database has it.
func (r *rig) rows(t testing.TB, c tenant) string {
	t.Helper()
	out := ""
	require.NoError(t, r.db.Read(t.Context(), c.scope, func(ctx context.Context, tx *ent.Tx) error {
		rows, err := tx.SignInConnection.Query().All(ctx)
		if err != nil {
			return err
		}
		require.Len(t, rows, 1)
		require.NotEmpty(t, rows[0].SealedSecret)
		require.NotEmpty(t, rows[0].SealedAccounts)
		out = fmt.Sprintf("%s %s %s %v", rows[0].Settings, rows[0].SealedSecret, rows[0].SealedAccounts, rows[0])
		return nil
	}))
	return out
}

func TestTestAccounts_OnlyAtTestCompanies(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c := r.company(t, "noodle", "")
		_, err := r.tryConnect(t, c, byTestAccounts())
		requireReason(t, err, problem.FailedPrecondition, "sign_in_connection.test_accounts")
		require.Nil(t, r.signIn(t, c))
	})
}

func TestMT03_OtherCompanysSignInIsNotThere(t *testing.T) {
	r := newRig(t)
	a, b := r.company(t, "a", ""), r.company(t, "b", "")
	r.connect(t, b, byOIDC())
	before := r.signIn(t, b)
	ctx := a.ctx(t)
	connection, design := b.name+"/signInConnection", b.name+"/pageDesign"
	for name, call := range map[string]func() error{
		"GetSignInConnection": func() error {
			_, err := r.setup.GetSignInConnection(ctx, &adminv1.GetSignInConnectionRequest{Name: connection})
			return err
		},
		"UpdateSignInConnection": func() error {
			_, err := r.setup.UpdateSignInConnection(ctx, &adminv1.UpdateSignInConnectionRequest{SignInConnection: &adminv1.SignInConnection{Name: connection, EndSessionsAtSignOut: true}})
			return err
		},
		"CheckSignInConnection": func() error {
			_, err := r.setup.CheckSignInConnection(ctx, &adminv1.CheckSignInConnectionRequest{Name: connection})
			return err
		},
		"GetPageDesign": func() error {
			_, err := r.setup.GetPageDesign(ctx, &adminv1.GetPageDesignRequest{Name: design})
			return err
		},
		"UpdatePageDesign": func() error {
			_, err := r.setup.UpdatePageDesign(ctx, &adminv1.UpdatePageDesignRequest{PageDesign: &adminv1.PageDesign{Name: design, AccentColor: "#000000"}})
			return err
		},
	} {
		err := call()
		requireReason(t, err, problem.NotFoundReason)
		require.Equal(t, "not found", problem.As(err).Detail, name)
	}
	require.True(t, proto.Equal(before, r.signIn(t, b)))
}

func TestCheckSignInConnection_ReadsTheProvider(t *testing.T) {
	r := newRig(t)
	c := r.company(t, "noodle", "")
	r.connect(t, c, byOIDC())
	check := func() *adminv1.CheckSignInConnectionResponse {
		got, err := r.setup.CheckSignInConnection(c.ctx(t), &adminv1.CheckSignInConnectionRequest{Name: c.name + "/signInConnection"})
		require.NoError(t, err)
		return got
	}
	got := check()
	require.False(t, got.GetOk())
	require.Len(t, got.GetSteps(), 1)
	require.Equal(t, "https://id.noodle.example/.well-known/openid-configuration: the host does not resolve", got.GetSteps()[0].GetDetail())
	r.mu.Lock()
	r.pages["https://id.noodle.example/.well-known/openid-configuration"] = &relayv1.FetchResponse{Status: http.StatusOK, Body: []byte(`{"issuer":"https://id.noodle.example",
		"authorization_endpoint":"https://id.noodle.example/a","token_endpoint":"https://id.noodle.example/t","jwks_uri":"https://id.noodle.example/k"}`)}
	r.pages["https://id.noodle.example/k"] = &relayv1.FetchResponse{Status: http.StatusOK, Body: []byte(`{"keys":[{"kty":"RSA","n":"a","e":"b"}]}`)}
	r.mu.Unlock()
	got = check()
	require.True(t, got.GetOk(), "%v", got)
	var ids []string
	for _, s := range got.GetSteps() {
		ids = append(ids, s.GetId())
	}
	require.Equal(t, []string{"metadata", "endpoints", "keys", "pkce"}, ids)
}
