package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/discovery"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Method is how Users prove who they are on the pages.
type Method string

// The methods.
const (
	NoMethod        Method = ""
	OIDC            Method = "oidc"
	LoginHandoff    Method = "login_handoff"
	CheckByWebhook  Method = "credential_check"
	TestAccounts    Method = "test_accounts"
	DefaultLifetime        = 90 * 24 * time.Hour // of Account Tokens
	minLifetime            = time.Minute
	maxLifetime            = 3650 * 24 * time.Hour
)

// The purposes and ids that secrets are sealed under; who opens them knows no row.
const (
	secretPurpose, secretID     = "oidc client secret", "oidc"
	accountsPurpose, accountsID = "test accounts", "accounts"
)

// Connection is a Company's connection to its accounts; one never set up has no ID.
type Connection struct {
	ID              string
	Method          Method
	OIDC            Provider
	LoginURL        string
	CredentialCheck CredentialCheck
	// SealedSecret is the client secret at the identity provider; empty for a public client.
	SealedSecret []byte
	// SealedAccounts are the test accounts.
	SealedAccounts []byte

	AccountTokenLifetime time.Duration // 0: DefaultLifetime
	WithoutEnd           bool          // Account Tokens have no end
	RotateAccountTokens  bool
	EndSessions          bool // signing out ends Sessions

	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Provider is an OpenID Connect provider as the Company names it.
type Provider struct {
	Issuer       string   `json:"issuer,omitempty"`
	ClientID     string   `json:"client_id,omitempty"`
	Scopes       []string `json:"scopes,omitempty"` // beside openid
	AccountClaim string   `json:"account_claim,omitempty"`
	LabelClaim   string   `json:"label_claim,omitempty"`
}

func (p Provider) isZero() bool {
	return p.Issuer == "" && p.ClientID == "" && len(p.Scopes) == 0 && p.AccountClaim == "" && p.LabelClaim == ""
}

// CredentialCheck is where credentials are checked by webhook.
type CredentialCheck struct {
	URL    string                    `json:"url,omitempty"`
	Fields []discovery.MediatedField `json:"fields,omitempty"`
}

// Lifetime is how long Account Tokens live that have an end.
func (c Connection) Lifetime() time.Duration {
	if c.AccountTokenLifetime == 0 {
		return DefaultLifetime
	}
	return c.AccountTokenLifetime
}

// ConnectionChange is what may change of a connection; nil leaves a part.
type ConnectionChange struct {
	Method *Method
	OIDC   *Provider
	// Secret comes with OIDC; an empty one leaves the one that is stored.
	Secret               keys.Secret
	LoginURL             *string
	CredentialCheck      *CredentialCheck
	TestAccounts         *[]NewTestAccount
	AccountTokenLifetime *time.Duration
	WithoutEnd           *bool
	RotateAccountTokens  *bool
	EndSessions          *bool
	ETag                 string
	ValidateOnly         bool
}

// UpdateConnection changes the connection. What is published follows at once.
func (a *App) UpdateConnection(ctx context.Context, scope tenancy.Scope, ch ConnectionChange) (Connection, error) {
	apply := func(c Company, conn *Connection) error {
		if err := resource.CheckETag(ch.ETag, conn.Version); err != nil {
			return err
		}
		if err := a.change(c, conn, ch); err != nil {
			return err
		}
		if err := checkConnection(c, *conn); err != nil {
			return err
		}
		// The fields go into the documents.
		return a.check(&c, *conn)
	}
	if ch.ValidateOnly {
		now, err := a.store.Snapshot(ctx, scope)
		if err != nil {
			return Connection{}, err
		}
		if err := apply(now.Company, &now.Connection); err != nil {
			return Connection{}, err
		}
		return now.Connection, nil
	}
	conn, err := a.store.UpdateConnection(ctx, scope, apply)
	if err != nil {
		return Connection{}, err
	}
	a.changed(ctx, scope.CompanyID())
	return conn, nil
}

// change makes of conn what ch asks for.
func (a *App) change(c Company, conn *Connection, ch ConnectionChange) error {
	set(&conn.Method, ch.Method)
	set(&conn.LoginURL, ch.LoginURL)
	set(&conn.CredentialCheck, ch.CredentialCheck)
	set(&conn.AccountTokenLifetime, ch.AccountTokenLifetime)
	set(&conn.WithoutEnd, ch.WithoutEnd)
	set(&conn.RotateAccountTokens, ch.RotateAccountTokens)
	set(&conn.EndSessions, ch.EndSessions)
	if ch.OIDC != nil {
		if err := a.changeProvider(c, conn, *ch.OIDC, ch.Secret); err != nil {
			return err
		}
	}
	if ch.TestAccounts != nil {
		return a.changeAccounts(c, conn, *ch.TestAccounts)
	}
	return nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func (a *App) changeProvider(c Company, conn *Connection, p Provider, secret keys.Secret) error {
	// A secret is one client's at one provider: sent anywhere else, it would be given away.
	if p.Issuer != conn.OIDC.Issuer || p.ClientID != conn.OIDC.ClientID {
		conn.SealedSecret = nil
	}
	conn.OIDC = p
	if secret.IsZero() {
		return nil
	}
	if p.ClientID == "" {
		return resource.Invalid("sign_in_connection.oidc.client_id", "required with a client secret")
	}
	var err error
	conn.SealedSecret, err = a.keys.Seal(c.ID, secretPurpose, secretID, []byte(secret.Reveal()))
	return err
}

// onlyForTests is the refusal of made-up accounts at a Company that has real ones.
func onlyForTests(field string) error {
	return problem.New(problem.Conflict, problem.FailedPrecondition, "", "only a company of kind TEST has test accounts").
		WithField(field, "only at companies of kind TEST")
}
