package directory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
)

// companyWith returns the Company of a snapshot as a service gets it.
func companyWith(t *testing.T, change func(*directoryv1.CompanySnapshot)) *directory.Company {
	t.Helper()
	s := newService()
	c, _ := newClient(s)
	snap := snapshot("https://a.example")
	change(snap)
	s.set("a.example", snap)
	got, err := c.Resolve(t.Context(), "a.example", "/")
	require.NoError(t, err)
	return got
}

func TestSignIn_ComesWhole(t *testing.T) {
	got := companyWith(t, func(s *directoryv1.CompanySnapshot) {
		s.Test, s.Domains = true, []string{"noodle.example"}
		s.SignIn = &directoryv1.SignIn{
			DirectScopes: []string{"poppy:read"}, DeviceScopes: []string{"orders"}, MediatedScopes: []string{"poppy:write"},
			CredentialFields: []*directoryv1.CredentialField{{Name: "pin", Label: "PIN", Secret: true}},
			ScopeTexts:       map[string]*directoryv1.Texts{"orders": {ByLanguage: map[string]string{"": "See orders", "de": "Bestellungen sehen"}}},
			Method:           directoryv1.SignInMethod_SIGN_IN_METHOD_OIDC, OidcIssuer: "https://id.example", OidcClientId: "c", OidcSealedSecret: []byte{1},
			OidcScopes: []string{"email"}, OidcAccountClaim: "sub", OidcLabelClaim: "email", LoginUrl: "https://a.example/login",
			CredentialCheckUrl: "https://a.example/check", SealedTestAccounts: []byte{2}, AccountTokenLifetime: durationpb.New(time.Hour),
			RotateAccountTokens: true, EndSessionsAtSignOut: true,
			Design: &directoryv1.PageDesign{
				AccentColor: "#aabbcc", LogoVersion: "v", Welcome: &directoryv1.Texts{ByLanguage: map[string]string{"": "Hi"}},
				SupportUrl: "https://a.example/s", PrivacyUrl: "https://a.example/p", TermsUrl: "https://a.example/t",
			},
		}
	})
	require.True(t, got.Test)
	require.Equal(t, []string{"noodle.example"}, got.Domains)
	require.Equal(t, &directory.SignIn{
		Direct: oauth.Scope{"poppy:read"}, Device: oauth.Scope{"orders"}, Mediated: oauth.Scope{"poppy:write"},
		CredentialFields: []discovery.MediatedField{{Name: "pin", Label: "PIN", Secret: true}},
		ScopeTexts:       map[string]map[string]string{"orders": {"": "See orders", "de": "Bestellungen sehen"}},
		Method:           directory.OIDC,
		OIDC: directory.OIDCProvider{
			Issuer: "https://id.example", ClientID: "c", SealedSecret: []byte{1}, Scopes: []string{"email"}, AccountClaim: "sub", LabelClaim: "email",
		},
		LoginURL: "https://a.example/login", CredentialCheckURL: "https://a.example/check", SealedTestAccounts: []byte{2},
		AccountTokenLifetime: time.Hour, RotateAccountTokens: true, EndSessions: true,
		Design: directory.Design{
			AccentColor: "#aabbcc", LogoVersion: "v", Welcome: map[string]string{"": "Hi"},
			SupportURL: "https://a.example/s", PrivacyURL: "https://a.example/p", TermsURL: "https://a.example/t",
		},
	}, got.SignIn)
}

func TestSignIn_EachMethod(t *testing.T) {
	for method, want := range map[directoryv1.SignInMethod]directory.Method{
		directoryv1.SignInMethod_SIGN_IN_METHOD_UNSPECIFIED: directory.NoMethod, directoryv1.SignInMethod_SIGN_IN_METHOD_OIDC: directory.OIDC,
		directoryv1.SignInMethod_SIGN_IN_METHOD_LOGIN_HANDOFF: directory.Handoff, directoryv1.SignInMethod_SIGN_IN_METHOD_CREDENTIAL_CHECK: directory.CredentialCheck,
		directoryv1.SignInMethod_SIGN_IN_METHOD_TEST_ACCOUNTS: directory.TestAccounts, 99: directory.NoMethod,
	} {
		got := companyWith(t, func(s *directoryv1.CompanySnapshot) { s.SignIn = &directoryv1.SignIn{Method: method} })
		require.Equal(t, want, got.SignIn.Method, method)
		require.Zero(t, got.SignIn.AccountTokenLifetime, "unset: without end")
	}
}

func TestSignIn_OffersWhatHasScopes(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#20")
	clausetest.Refuses(t, "poppy-0.1/4.4#4")
	types := []directory.SignInType{directory.Direct, directory.Device, directory.Mediated}
	got := companyWith(t, func(s *directoryv1.CompanySnapshot) {
		s.SignIn = &directoryv1.SignIn{DeviceScopes: []string{"poppy:read", "orders"}}
	}).SignIn
	require.True(t, got.Any())
	for _, one := range types {
		require.Equal(t, one == directory.Device, got.Offers(one))
	}
	require.Equal(t, oauth.Scope{"poppy:read", "orders"}, got.Scopes(directory.Device))
	require.Nil(t, got.Scopes("other"))

	// A Company without sign-in offers none, without anybody having to look first.
	none := companyWith(t, func(*directoryv1.CompanySnapshot) {}).SignIn
	require.Nil(t, none)
	require.False(t, none.Any())
	for _, one := range types {
		require.False(t, none.Offers(one))
		require.Nil(t, none.Scopes(one))
	}
}
