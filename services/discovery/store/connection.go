package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/signinconnection"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

// connectionSettings are what of a connection isn't secret.
type connectionSettings struct {
	Method               app.Method          `json:"method,omitempty"`
	OIDC                 app.Provider        `json:"oidc"`
	LoginURL             string              `json:"login_url,omitempty"`
	CredentialCheck      app.CredentialCheck `json:"credential_check"`
	AccountTokenLifetime time.Duration       `json:"account_token_lifetime,omitempty"`
	WithoutEnd           bool                `json:"without_end,omitempty"`
	RotateAccountTokens  bool                `json:"rotate_account_tokens,omitempty"`
	EndSessions          bool                `json:"end_sessions,omitempty"`
}

// UpdateConnection implements app.Store.
func (s *Store) UpdateConnection(ctx context.Context, scope tenancy.Scope, change func(app.Company, *app.Connection) error) (out app.Connection, err error) {
	err = s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		_, c, err := s.lockCompany(ctx, tx, scope)
		if err != nil {
			return err
		}
		conn, err := connectionOf(ctx, tx, scope)
		if err != nil {
			return err
		}
		if err := change(c, &conn); err != nil {
			return err
		}
		settings, err := json.Marshal(connectionSettings{
			Method: conn.Method, OIDC: conn.OIDC, LoginURL: conn.LoginURL, CredentialCheck: conn.CredentialCheck,
			AccountTokenLifetime: conn.AccountTokenLifetime, WithoutEnd: conn.WithoutEnd, RotateAccountTokens: conn.RotateAccountTokens, EndSessions: conn.EndSessions,
		})
		if err != nil {
			return err
		}
		now := s.now()
		var row *ent.SignInConnection
		if conn.ID == "" {
			row, err = tx.SignInConnection.Create().SetID(ids.New(ids.Connection)).SetCompanyID(scope.CompanyID()).SetSettings(settings).
				SetSealedSecret(conn.SealedSecret).SetSealedAccounts(conn.SealedAccounts).SetCreatedAt(now).SetUpdatedAt(now).Save(ctx)
		} else {
			row, err = tx.SignInConnection.UpdateOneID(conn.ID).SetSettings(settings).
				SetSealedSecret(conn.SealedSecret).SetSealedAccounts(conn.SealedAccounts).SetUpdatedAt(now).AddVersion(1).Save(ctx)
		}
		if err != nil {
			return err
		}
		if err := bump(ctx, tx, scope); err != nil {
			return err
		}
		out, err = toConnection(row)
		return err
	})
	return out, notFound(err)
}

// connectionOf loads the connection of scope; the zero one where there is none yet.
func connectionOf(ctx context.Context, tx *ent.Tx, scope tenancy.Scope) (app.Connection, error) {
	row, err := tx.SignInConnection.Query().Where(signinconnection.CompanyID(scope.CompanyID())).Only(ctx)
	if err != nil && !ent.IsNotFound(err) {
		return app.Connection{}, err
	}
	return toConnection(row)
}

func toConnection(row *ent.SignInConnection) (app.Connection, error) {
	if row == nil {
		return app.Connection{}, nil
	}
	var c connectionSettings
	if err := json.Unmarshal(row.Settings, &c); err != nil {
		return app.Connection{}, fmt.Errorf("stored connection %s: %w", row.ID, err)
	}
	return app.Connection{
		ID: row.ID, Method: c.Method, OIDC: c.OIDC, LoginURL: c.LoginURL, CredentialCheck: c.CredentialCheck,
		SealedSecret: row.SealedSecret, SealedAccounts: row.SealedAccounts, AccountTokenLifetime: c.AccountTokenLifetime,
		WithoutEnd: c.WithoutEnd, RotateAccountTokens: c.RotateAccountTokens, EndSessions: c.EndSessions,
		Version: row.Version, CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(),
	}, nil
}
