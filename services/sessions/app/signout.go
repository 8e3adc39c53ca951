package app

import (
	"context"
	"errors"
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/cimd"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Revoke ends a Session Token of the client, or signs out by an Account Token of the
// client (Poppy 4.9). For any other token it does nothing and says so no less (RFC 7009 section 2.2).
func (a *App) Revoke(ctx context.Context, scope tenancy.Scope, clientID, token string) error {
	company, err := a.Companies.Get(ctx, scope)
	if err != nil {
		return err
	}
	ended, err := a.Store.Revoke(ctx, scope, keys.HashToken(scope.CompanyID(), token), clientID, a.ending(company, store.SignedOut))
	if err != nil {
		return err
	}
	a.signedOut(ctx, scope, ended, store.SignedOut)
	return nil
}

// maxConnections bounds what one account's page shows.
const maxConnections = 200

// Connections returns the Grants of an account that are in force, the newest first.
func (a *App) Connections(ctx context.Context, scope tenancy.Scope, account string) ([]store.Grant, error) {
	if account == "" || strings.ContainsRune(account, 0) {
		return nil, nil
	}
	return a.Store.Grants(ctx, scope, store.GrantFilter{Account: account, InForceAt: a.Now()}, store.Place{}, maxConnections)
}

// Disconnect ends every Grant that an account gave to the agent of one of its Grants,
// or without one all that it gave; it returns how many.
func (a *App) Disconnect(ctx context.Context, scope tenancy.Scope, account, grantID string) (int, error) {
	if account == "" || strings.ContainsRune(account+grantID, 0) {
		return 0, nil
	}
	company, err := a.Companies.Get(ctx, scope)
	if err != nil {
		return 0, err
	}
	which := store.Selection{Account: account}
	if grantID != "" {
		g, err := a.Store.Grant(ctx, scope, grantID)
		if errors.Is(err, store.ErrNotFound) || err == nil && g.Account != account {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		which.ClientID = g.ClientID // poppy-0.1/4.9#18
	}
	ended, err := a.endGrants(ctx, company, which, store.Disconnected)
	return ended.Grants, err
}

// Connection returns one Grant, in force or not.
func (a *App) Connection(ctx context.Context, scope tenancy.Scope, id string) (store.Grant, error) {
	g, err := a.Store.Grant(ctx, scope, id)
	return g, found(err)
}

// AllConnections returns at most limit Grants, the newest first; without showOver only those in force.
func (a *App) AllConnections(ctx context.Context, scope tenancy.Scope, f store.GrantFilter, showOver bool, after store.Place, limit int) ([]store.Grant, error) {
	if !showOver {
		f.InForceAt = a.Now()
	}
	return a.Store.Grants(ctx, scope, f, after, limit)
}

// DisconnectOne ends one Grant; one that is over stays as it is.
func (a *App) DisconnectOne(ctx context.Context, scope tenancy.Scope, id string) (store.Grant, error) {
	company, err := a.Companies.Get(ctx, scope)
	if err != nil {
		return store.Grant{}, err
	}
	if _, err := a.endGrants(ctx, company, store.Selection{ID: id}, store.Disconnected); err != nil {
		return store.Grant{}, err
	}
	return a.Connection(ctx, scope, id)
}

// DisconnectAccount ends the Grants of an account, those of one agent or all; it returns how many.
func (a *App) DisconnectAccount(ctx context.Context, scope tenancy.Scope, account, clientID string) (int, error) {
	if account == "" || strings.ContainsRune(account, 0) {
		return 0, badField("account", "is not an account")
	}
	if clientID != "" {
		if err := checkClientID(clientID); err != nil {
			return 0, err
		}
	}
	company, err := a.Companies.Get(ctx, scope)
	if err != nil {
		return 0, err
	}
	ended, err := a.endGrants(ctx, company, store.Selection{Account: account, ClientID: clientID}, store.Disconnected)
	return ended.Grants, err
}

// RevokeAgent blocks an agent and ends all its Grants and Sessions (Poppy 4.1, 4.4); it returns how many.
func (a *App) RevokeAgent(ctx context.Context, scope tenancy.Scope, clientID, reason string) (grants, sessions int, err error) {
	if err := checkClientID(clientID); err != nil {
		return 0, 0, err
	}
	if strings.ContainsRune(reason, 0) {
		return 0, 0, badField("reason", "holds a NUL")
	}
	now := a.Now()
	rule := store.Rule{ID: ids.New(ids.AdmissionRule), ClientID: clientID, Effect: store.EffectBlock, Reason: reason, CreatedAt: now}
	ended, err := a.Store.RevokeAgent(ctx, scope, rule, store.Ending{At: now, Reason: store.AgentRevoked})
	if err != nil {
		return 0, 0, err
	}
	a.admissionChanged(ctx, scope)
	a.signedOut(ctx, scope, ended, store.AgentRevoked)
	return ended.Grants, len(ended.Sessions), nil
}

func (a *App) endGrants(ctx context.Context, company *directory.Company, which store.Selection, reason store.EndReason) (store.Ended, error) {
	ended, err := a.Store.EndGrants(ctx, company.Scope, which, a.ending(company, reason))
	if err != nil {
		return store.Ended{}, err
	}
	a.signedOut(ctx, company.Scope, ended, reason)
	return ended, nil
}

// ending says how Grants end at a Company: it may want signing out to end the Sessions, too (poppy-0.1/4.9#9).
func (a *App) ending(c *directory.Company, reason store.EndReason) store.Ending {
	return store.Ending{At: a.Now(), Reason: reason, EndSessions: c.SignIn != nil && c.SignIn.EndSessions}
}

// signedOut tells everybody who waits in a Session whose tokens mean something else now.
func (a *App) signedOut(ctx context.Context, scope tenancy.Scope, ended store.Ended, reason store.EndReason) {
	for _, id := range ended.Sessions {
		a.sessionChanged(ctx, scope, id)
	}
	a.counts.end(ctx, ended.Grants, reason)
	if ended.Grants > 0 {
		a.Log.InfoContext(ctx, "sign-ins ended", "grants", ended.Grants, "sessions", len(ended.Sessions), "reason", string(reason))
	}
}

func checkClientID(raw string) error {
	if err := parseClientID(raw); err != nil {
		return badField("client_id", "is no client_id: "+problem.As(err).Detail)
	}
	return nil
}

// parseClientID checks that raw is an agent's client_id, or the id of a client that has
// registered itself.
func parseClientID(raw string) error {
	if strings.HasPrefix(raw, ids.MCPClient+"_") {
		return nil
	}
	_, err := cimd.ParseClientID(raw)
	return err
}
