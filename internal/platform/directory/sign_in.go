package directory

import (
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
)

// SignInType is one of the protocol's ways to sign in.
type SignInType string

// The types (Poppy 4.5 to 4.7).
const (
	Direct   SignInType = "direct"
	Device   SignInType = "device"
	Mediated SignInType = "mediated"
)

// Method is how Users prove who they are on the pages.
type Method uint8

// The methods.
const (
	NoMethod        Method = iota
	OIDC                   // at the Company's own OpenID Connect provider
	Handoff                // on the Company's own login page
	CredentialCheck        // on our form, checked by the Company's signed webhook
	TestAccounts           // with made-up accounts, at a Company for trying out
)

// SignIn is how a Company's Users sign in, as far as that is set up.
type SignIn struct {
	// Scopes that each type may grant; none: the type isn't offered.
	Direct, Device, Mediated oauth.Scope
	// CredentialFields are asked for on our form and in Mediated Sign-In.
	CredentialFields []discovery.MediatedField
	// ScopeTexts is what the User is told: by scope, then by language, "" being any.
	ScopeTexts map[string]map[string]string

	Method             Method
	OIDC               OIDCProvider
	LoginURL           string // Handoff
	CredentialCheckURL string // CredentialCheck, and Mediated Sign-In unless by test accounts
	SealedTestAccounts []byte // TestAccounts

	AccountTokenLifetime time.Duration // 0: Account Tokens have no end
	RotateAccountTokens  bool
	EndSessions          bool // signing out ends Sessions instead of leaving them signed out

	Design Design
}

// OIDCProvider is a Company's own identity provider.
type OIDCProvider struct {
	Issuer, ClientID string
	SealedSecret     []byte // empty for a public client
	Scopes           []string
	AccountClaim     string
	LabelClaim       string
}

// Design is how a Company's pages look.
type Design struct {
	AccentColor string // "#rrggbb", or empty
	LogoVersion string // hash of the logo, empty without one
	Welcome     map[string]string
	SupportURL  string
	PrivacyURL  string
	TermsURL    string
}

// Scopes returns what a type may grant; nil where it isn't offered, or s is nil.
func (s *SignIn) Scopes(t SignInType) oauth.Scope {
	if s == nil {
		return nil
	}
	switch t {
	case Direct:
		return s.Direct
	case Device:
		return s.Device
	case Mediated:
		return s.Mediated
	}
	return nil
}

// Offers reports whether Users can sign in by t.
func (s *SignIn) Offers(t SignInType) bool { return len(s.Scopes(t)) > 0 }

// Any reports whether Users can sign in at all.
func (s *SignIn) Any() bool { return s.Offers(Direct) || s.Offers(Device) || s.Offers(Mediated) }

func signInFrom(s *directoryv1.SignIn) *SignIn {
	if s == nil {
		return nil
	}
	out := &SignIn{
		Direct: s.GetDirectScopes(), Device: s.GetDeviceScopes(), Mediated: s.GetMediatedScopes(),
		ScopeTexts: make(map[string]map[string]string, len(s.GetScopeTexts())),
		Method:     methodFrom(s.GetMethod()),
		OIDC: OIDCProvider{
			Issuer: s.GetOidcIssuer(), ClientID: s.GetOidcClientId(), SealedSecret: s.GetOidcSealedSecret(),
			Scopes: slices.Clone(s.GetOidcScopes()), AccountClaim: s.GetOidcAccountClaim(), LabelClaim: s.GetOidcLabelClaim(),
		},
		LoginURL: s.GetLoginUrl(), CredentialCheckURL: s.GetCredentialCheckUrl(), SealedTestAccounts: s.GetSealedTestAccounts(),
		AccountTokenLifetime: s.GetAccountTokenLifetime().AsDuration(), RotateAccountTokens: s.GetRotateAccountTokens(),
		EndSessions: s.GetEndSessionsAtSignOut(),
	}
	for _, f := range s.GetCredentialFields() {
		out.CredentialFields = append(out.CredentialFields, discovery.MediatedField{Name: f.GetName(), Label: f.GetLabel(), Secret: f.GetSecret()})
	}
	for scope, texts := range s.GetScopeTexts() {
		out.ScopeTexts[scope] = texts.GetByLanguage()
	}
	d := s.GetDesign()
	out.Design = Design{
		AccentColor: d.GetAccentColor(), LogoVersion: d.GetLogoVersion(), Welcome: d.GetWelcome().GetByLanguage(),
		SupportURL: d.GetSupportUrl(), PrivacyURL: d.GetPrivacyUrl(), TermsURL: d.GetTermsUrl(),
	}
	return out
}

func methodFrom(m directoryv1.SignInMethod) Method {
	switch m {
	case directoryv1.SignInMethod_SIGN_IN_METHOD_OIDC:
		return OIDC
	case directoryv1.SignInMethod_SIGN_IN_METHOD_LOGIN_HANDOFF:
		return Handoff
	case directoryv1.SignInMethod_SIGN_IN_METHOD_CREDENTIAL_CHECK:
		return CredentialCheck
	case directoryv1.SignInMethod_SIGN_IN_METHOD_TEST_ACCOUNTS:
		return TestAccounts
	case directoryv1.SignInMethod_SIGN_IN_METHOD_UNSPECIFIED:
	}
	return NoMethod
}
