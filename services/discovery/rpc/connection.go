package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// SignInSetup implements adminv1.SignInSetupServiceServer.
type SignInSetup struct {
	adminv1.UnimplementedSignInSetupServiceServer
	App *app.App
}

// methods are the spellings of each method: in the admin API, and inside the installation.
var methods = map[app.Method]struct {
	admin  adminv1.SignInMethod
	inside directoryv1.SignInMethod
}{
	app.OIDC:           {adminv1.SignInMethod_SIGN_IN_METHOD_OIDC, directoryv1.SignInMethod_SIGN_IN_METHOD_OIDC},
	app.LoginHandoff:   {adminv1.SignInMethod_SIGN_IN_METHOD_LOGIN_HANDOFF, directoryv1.SignInMethod_SIGN_IN_METHOD_LOGIN_HANDOFF},
	app.CheckByWebhook: {adminv1.SignInMethod_SIGN_IN_METHOD_CREDENTIAL_CHECK, directoryv1.SignInMethod_SIGN_IN_METHOD_CREDENTIAL_CHECK},
	app.TestAccounts:   {adminv1.SignInMethod_SIGN_IN_METHOD_TEST_ACCOUNTS, directoryv1.SignInMethod_SIGN_IN_METHOD_TEST_ACCOUNTS},
}

func methodFrom(m adminv1.SignInMethod) (app.Method, error) {
	if m == adminv1.SignInMethod_SIGN_IN_METHOD_UNSPECIFIED {
		return app.NoMethod, nil
	}
	for method, spelled := range methods {
		if spelled.admin == m {
			return method, nil
		}
	}
	return app.NoMethod, resource.Invalid("sign_in_connection.method", "there is no such method")
}

// GetSignInConnection implements the service.
func (s *SignInSetup) GetSignInConnection(ctx context.Context, req *adminv1.GetSignInConnectionRequest) (*adminv1.SignInConnection, error) {
	scope, err := scopeOf(ctx, req.GetName(), "signInConnection")
	if err != nil {
		return nil, err
	}
	got, err := s.App.Snapshot(ctx, scope)
	if err != nil {
		return nil, err
	}
	return s.connection(got.Company, got.Connection)
}

// UpdateSignInConnection implements the service.
func (s *SignInSetup) UpdateSignInConnection(ctx context.Context, req *adminv1.UpdateSignInConnectionRequest) (*adminv1.SignInConnection, error) {
	in := req.GetSignInConnection()
	scope, err := scopeOf(ctx, in.GetName(), "signInConnection")
	if err != nil {
		return nil, err
	}
	ch, err := connectionChange(req)
	if err != nil {
		return nil, err
	}
	conn, err := s.App.UpdateConnection(ctx, scope, ch)
	if err != nil {
		return nil, err
	}
	c, err := s.App.Company(ctx, scope)
	if err != nil {
		return nil, err
	}
	return s.connection(c, conn)
}

func connectionChange(req *adminv1.UpdateSignInConnectionRequest) (app.ConnectionChange, error) {
	in := req.GetSignInConnection()
	present := map[string]bool{
		"method": in.GetMethod() != adminv1.SignInMethod_SIGN_IN_METHOD_UNSPECIFIED, "oidc": in.GetOidc() != nil,
		"login_handoff": in.GetLoginHandoff() != nil, "credential_check": in.GetCredentialCheck() != nil, "test_accounts": len(in.GetTestAccounts()) > 0,
		"account_token_lifetime": in.GetAccountTokenLifetime() != nil, "account_tokens_without_end": in.GetAccountTokensWithoutEnd(),
		"rotate_account_tokens": in.GetRotateAccountTokens(), "end_sessions_at_sign_out": in.GetEndSessionsAtSignOut(),
	}
	has, err := resource.Mask(req.GetUpdateMask(), []string{
		"method", "oidc", "login_handoff", "credential_check", "test_accounts",
		"account_token_lifetime", "account_tokens_without_end", "rotate_account_tokens", "end_sessions_at_sign_out",
	}, func(f string) bool { return present[f] })
	if err != nil {
		return app.ConnectionChange{}, err
	}
	ch := app.ConnectionChange{ETag: in.GetEtag(), ValidateOnly: req.GetValidateOnly()}
	if has("method") {
		method, err := methodFrom(in.GetMethod())
		if err != nil {
			return app.ConnectionChange{}, err
		}
		ch.Method = &method
	}
	if has("oidc") {
		o := in.GetOidc()
		ch.OIDC = &app.Provider{
			Issuer: o.GetIssuer(), ClientID: o.GetClientId(), Scopes: o.GetScopes(), AccountClaim: o.GetAccountClaim(), LabelClaim: o.GetLabelClaim(),
		}
		ch.Secret = keys.NewSecret(o.GetClientSecret())
	}
	if has("login_handoff") {
		url := in.GetLoginHandoff().GetLoginUrl()
		ch.LoginURL = &url
	}
	if has("credential_check") {
		check := app.CredentialCheck{URL: in.GetCredentialCheck().GetUrl()}
		for _, f := range in.GetCredentialCheck().GetFields() {
			check.Fields = append(check.Fields, discovery.MediatedField{Name: f.GetName(), Label: f.GetLabel(), Secret: f.GetSecret()})
		}
		ch.CredentialCheck = &check
	}
	if has("test_accounts") {
		accounts := make([]app.NewTestAccount, 0, len(in.GetTestAccounts()))
		for _, a := range in.GetTestAccounts() {
			accounts = append(accounts, app.NewTestAccount{
				TestAccount: app.TestAccount{Account: a.GetAccount(), Label: a.GetLabel(), Username: a.GetUsername(), AsksForCode: a.GetAsksForCode()},
				Password:    keys.NewSecret(a.GetPassword()), OneTimeCode: keys.NewSecret(a.GetOneTimeCode()),
			})
		}
		ch.TestAccounts = &accounts
	}
	if has("account_token_lifetime") {
		d := in.GetAccountTokenLifetime()
		if d != nil && (!d.IsValid() || d.AsDuration() <= 0) {
			return app.ConnectionChange{}, resource.Invalid("sign_in_connection.account_token_lifetime", "must be a positive duration")
		}
		lifetime := d.AsDuration()
		ch.AccountTokenLifetime = &lifetime
	}
	for field, to := range map[string]struct {
		part  **bool
		value bool
	}{
		"account_tokens_without_end": {&ch.WithoutEnd, in.GetAccountTokensWithoutEnd()},
		"rotate_account_tokens":      {&ch.RotateAccountTokens, in.GetRotateAccountTokens()},
		"end_sessions_at_sign_out":   {&ch.EndSessions, in.GetEndSessionsAtSignOut()},
	} {
		if has(field) {
			*to.part = &to.value
		}
	}
	return ch, nil
}

// CheckSignInConnection implements the service.
func (s *SignInSetup) CheckSignInConnection(ctx context.Context, req *adminv1.CheckSignInConnectionRequest) (*adminv1.CheckSignInConnectionResponse, error) {
	scope, err := scopeOf(ctx, req.GetName(), "signInConnection")
	if err != nil {
		return nil, err
	}
	steps, err := s.App.CheckConnection(ctx, scope)
	if err != nil {
		return nil, err
	}
	out := &adminv1.CheckSignInConnectionResponse{Ok: true}
	for _, step := range steps {
		out.Steps = append(out.Steps, &adminv1.CheckStep{Id: step.ID, Ok: step.OK, Detail: step.Detail})
		out.Ok = out.GetOk() && step.OK
	}
	return out, nil
}

// connection shows conn, without its secrets. The callback URL is there before anything
// else is: the provider needs it first.
func (s *SignInSetup) connection(c app.Company, conn app.Connection) (*adminv1.SignInConnection, error) {
	out := &adminv1.SignInConnection{
		Name: "companies/" + c.ID + "/signInConnection", Method: methods[conn.Method].admin,
		Oidc: &adminv1.OidcProvider{
			Issuer: conn.OIDC.Issuer, ClientId: conn.OIDC.ClientID, HasClientSecret: len(conn.SealedSecret) > 0, Scopes: conn.OIDC.Scopes,
			AccountClaim: conn.OIDC.AccountClaim, LabelClaim: conn.OIDC.LabelClaim, CallbackUrl: c.Issuer.CallbackURL(),
		},
		AccountTokenLifetime: durationpb.New(conn.Lifetime()), AccountTokensWithoutEnd: conn.WithoutEnd,
		RotateAccountTokens: conn.RotateAccountTokens, EndSessionsAtSignOut: conn.EndSessions, Etag: resource.ETag(conn.Version),
	}
	if conn.LoginURL != "" {
		out.LoginHandoff = &adminv1.LoginHandoff{LoginUrl: conn.LoginURL}
	}
	if conn.CredentialCheck.URL != "" {
		out.CredentialCheck = &adminv1.CredentialCheck{Url: conn.CredentialCheck.URL}
		for _, f := range conn.CredentialCheck.Fields {
			out.CredentialCheck.Fields = append(out.CredentialCheck.Fields, &adminv1.CredentialField{Name: f.Name, Label: f.Label, Secret: f.Secret})
		}
	}
	accounts, err := s.App.TestAccounts(c.ID, conn)
	if err != nil {
		return nil, err
	}
	for _, a := range accounts {
		out.TestAccounts = append(out.TestAccounts, &adminv1.TestAccount{Account: a.Account, Label: a.Label, Username: a.Username, AsksForCode: a.AsksForCode})
	}
	if !conn.UpdatedAt.IsZero() {
		out.UpdateTime = stamp(&conn.UpdatedAt)
	}
	return out, nil
}
