package entstore

import (
	"context"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/ent/sessiontoken"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// Opening implements store.Tokens.
func (s *Store) Opening(ctx context.Context, scope tenancy.Scope, asked store.Asked) (store.Opening, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.Opening, error) {
		var o store.Opening
		var err error
		if o.Standing, err = standing(ctx, tx, asked.ClientID); err != nil {
			return o, err
		}
		if asked.SessionID != "" {
			if o.Session, err = findSession(ctx, tx, asked.SessionID); err != nil {
				return o, err
			}
		}
		switch {
		case asked.Code != "":
			o.Code, err = findCode(ctx, tx, asked.Code)
		case asked.Device != "":
			o.Device, err = findDevice(ctx, tx, asked.Device)
		case asked.AccountToken != "":
			o.AccountToken, o.Grant, err = findAccountToken(ctx, tx, asked.AccountToken, asked.Successors)
		}
		if err == nil && asked.OfGrant && o.Grant != nil {
			o.Session, err = sessionOfGrant(ctx, tx, o.Grant.ID)
		}
		return o, err
	})
}

// Issue implements store.Tokens.
func (s *Store) Issue(ctx context.Context, scope tenancy.Scope, sn store.Session, create bool, t store.Token) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		if create {
			if err := createSession(ctx, tx, sn); err != nil {
				return err
			}
			if err := s.started(ctx, tx, scope, sn, t); err != nil {
				return err
			}
		} else {
			n, err := tx.Session.Update().Where(session.ID(sn.ID), session.EndedAtIsNil()).
				SetLastUsedAt(sn.LastUsedAt).SetAgentName(sn.AgentName).SetExtensions(extensions(sn)).Save(ctx)
			if err != nil {
				return err
			}
			if n == 0 {
				return store.ErrEnded
			}
		}
		return createToken(ctx, tx, t)
	})
}

// Revoke implements store.Tokens. Every token takes the same way: which kind it is of shows in the rows alone.
func (s *Store) Revoke(ctx context.Context, scope tenancy.Scope, hash, clientID string, how store.Ending) (store.Ended, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.Ended, error) {
		_, g, err := findAccountToken(ctx, tx, hash, nil)
		if err != nil {
			return store.Ended{}, err
		}
		row, err := tx.SessionToken.Query().Where(sessiontoken.ID(hash), sessiontoken.RevokedAtIsNil()).Only(ctx)
		if err != nil && !ent.IsNotFound(err) {
			return store.Ended{}, err
		}
		// RFC7009/2.1: a token of another client stays as it is.
		switch {
		case g != nil && g.ClientID == clientID:
			return s.endGrants(ctx, tx, scope, store.Selection{ID: g.ID}, how)
		case row == nil:
			return store.Ended{}, nil
		}
		sn, err := findSession(ctx, tx, row.SessionID)
		if err != nil || sn == nil || sn.ClientID != clientID {
			return store.Ended{}, err
		}
		if err := tx.SessionToken.UpdateOneID(hash).SetRevokedAt(how.At).Exec(ctx); err != nil {
			return store.Ended{}, err
		}
		return store.Ended{Sessions: []string{sn.ID}}, note(ctx, tx, how.At, sn.ID)
	})
}

// Touch implements store.Tokens.
func (s *Store) Touch(ctx context.Context, scope tenancy.Scope, sessionID string, at time.Time) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.Session.Update().Where(session.ID(sessionID), session.EndedAtIsNil(), session.LastUsedAtLT(at)).SetLastUsedAt(at).Exec(ctx)
	})
}

func createSession(ctx context.Context, tx *ent.Tx, sn store.Session) error {
	return tx.Session.Create().SetID(sn.ID).SetClientID(sn.ClientID).SetAgentName(sn.AgentName).SetUserID(sn.UserID).
		SetAccount(sn.Account).SetGrantID(sn.GrantID).SetExtensions(extensions(sn)).SetCreatedAt(sn.CreatedAt).SetLastUsedAt(sn.LastUsedAt).Exec(ctx)
}

// extensions is how a row has them: none has a space in its name.
func extensions(sn store.Session) string { return strings.Join(sn.Extensions, " ") }

func createToken(ctx context.Context, tx *ent.Tx, t store.Token) error {
	return tx.SessionToken.Create().SetID(t.Hash).SetSessionID(t.SessionID).SetJkt(t.JKT).SetResource(t.Resource).SetScope(t.Scope).
		SetSignedIn(t.SignedIn).SetGrantID(t.GrantID).SetCreatedAt(t.CreatedAt).SetExpiresAt(t.ExpiresAt).Exec(ctx)
}

func tokenOf(row *ent.SessionToken) store.Token {
	return store.Token{
		Hash: row.ID, SessionID: row.SessionID, JKT: row.Jkt, Resource: row.Resource, Scope: row.Scope, SignedIn: row.SignedIn, GrantID: row.GrantID,
		CreatedAt: row.CreatedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(), RevokedAt: timeOf(row.RevokedAt),
	}
}
