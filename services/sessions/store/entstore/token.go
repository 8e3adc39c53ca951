package entstore

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/ent/sessiontoken"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Opening implements store.Tokens.
func (s *Store) Opening(ctx context.Context, scope tenancy.Scope, clientID, sessionID string) (store.Opening, error) {
	return read(ctx, s, scope, func(ctx context.Context, tx *ent.Tx) (store.Opening, error) {
		var o store.Opening
		var err error
		if o.Standing, err = standing(ctx, tx, clientID); err != nil || sessionID == "" {
			return o, err
		}
		o.Session, err = findSession(ctx, tx, sessionID)
		return o, err
	})
}

// Credential implements store.Tokens.
func (s *Store) Credential(ctx context.Context, scope tenancy.Scope, hash string) (store.Credential, error) {
	return read(ctx, s, scope, func(ctx context.Context, tx *ent.Tx) (store.Credential, error) {
		var c store.Credential
		row, err := tx.SessionToken.Get(ctx, hash)
		if err != nil && !ent.IsNotFound(err) {
			return c, err
		}
		clientID := ""
		if err == nil {
			t := tokenOf(row)
			if c.Session, err = findSession(ctx, tx, t.SessionID); err != nil {
				return c, err
			}
			if c.Session != nil {
				c.Token, clientID = &t, c.Session.ClientID
			}
		}
		c.Standing, err = standing(ctx, tx, clientID)
		return c, err
	})
}

// Issue implements store.Tokens.
func (s *Store) Issue(ctx context.Context, scope tenancy.Scope, sn store.Session, create bool, t store.Token) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		if create {
			err := tx.Session.Create().SetID(sn.ID).SetClientID(sn.ClientID).SetAgentName(sn.AgentName).SetUserID(sn.UserID).
				SetAccount(sn.Account).SetCreatedAt(sn.CreatedAt).SetLastUsedAt(sn.LastUsedAt).Exec(ctx)
			if err != nil {
				return err
			}
		} else {
			n, err := tx.Session.Update().Where(session.ID(sn.ID), session.EndedAtIsNil()).
				SetLastUsedAt(sn.LastUsedAt).SetAgentName(sn.AgentName).Save(ctx)
			if err != nil {
				return err
			}
			if n == 0 {
				return store.ErrEnded
			}
		}
		return tx.SessionToken.Create().SetID(t.Hash).SetSessionID(t.SessionID).SetJkt(t.JKT).SetResource(t.Resource).SetScope(t.Scope).
			SetSignedIn(t.SignedIn).SetCreatedAt(t.CreatedAt).SetExpiresAt(t.ExpiresAt).Exec(ctx)
	})
}

// Revoke implements store.Tokens.
func (s *Store) Revoke(ctx context.Context, scope tenancy.Scope, hash, clientID string, at time.Time) (string, error) {
	return write(ctx, s, scope, func(ctx context.Context, tx *ent.Tx) (string, error) {
		row, err := tx.SessionToken.Query().Where(sessiontoken.ID(hash), sessiontoken.RevokedAtIsNil()).Only(ctx)
		if ent.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		// RFC7009/2.1: a token of another client stays as it is.
		sn, err := findSession(ctx, tx, row.SessionID)
		if err != nil || sn == nil || sn.ClientID != clientID {
			return "", err
		}
		return row.SessionID, tx.SessionToken.UpdateOneID(hash).SetRevokedAt(at).Exec(ctx)
	})
}

// Touch implements store.Tokens.
func (s *Store) Touch(ctx context.Context, scope tenancy.Scope, sessionID string, at time.Time) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Session.Update().Where(session.ID(sessionID), session.EndedAtIsNil(), session.LastUsedAtLT(at)).SetLastUsedAt(at).Exec(ctx)
	})
}

func tokenOf(row *ent.SessionToken) store.Token {
	return store.Token{
		Hash: row.ID, SessionID: row.SessionID, JKT: row.Jkt, Resource: row.Resource, Scope: row.Scope, SignedIn: row.SignedIn,
		CreatedAt: row.CreatedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(), RevokedAt: timeOf(row.RevokedAt),
	}
}
