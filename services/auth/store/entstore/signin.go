package entstore

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/signin"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/auth/store"
)

// Create implements store.SignIns.
func (s *Store) Create(ctx context.Context, scope tenancy.Scope, in store.SignIn) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		c := tx.SignIn.Create().SetID(in.ID).SetKind(signin.Kind(in.Kind)).SetStage(signin.Stage(in.Stage)).
			SetClientID(in.ClientID).SetAgentName(in.AgentName).SetAgentLogoURI(in.AgentLogoURI).SetScope(in.Scope).SetUILocale(in.UILocale).
			SetRedirectURI(in.RedirectURI).SetState(in.State).SetCodeChallenge(in.CodeChallenge).SetResource(in.Resource).SetDeviceID(in.DeviceID).
			SetSessionID(in.SessionID).SetUserID(in.UserID).SetBrowserHash(in.BrowserHash).SetNillableUpstreamHash(optional(in.UpstreamHash)).
			SetAccount(in.Account).SetAccountLabel(in.AccountLabel).SetCodeSentTo(in.CodeSentTo).
			SetCreatedAt(in.CreatedAt).SetExpiresAt(in.ExpiresAt).SetVersion(1)
		if len(in.Sealed) > 0 {
			c.SetSealed(in.Sealed)
		}
		return c.Exec(ctx)
	})
}

// Find implements store.SignIns.
func (s *Store) Find(ctx context.Context, scope tenancy.Scope, id string) (store.SignIn, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.SignIn, error) {
		return signInOf(tx.SignIn.Get(ctx, id))
	})
}

// FindUpstream implements store.SignIns.
func (s *Store) FindUpstream(ctx context.Context, scope tenancy.Scope, hash string) (store.SignIn, error) {
	return db.ReadValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.SignIn, error) {
		return signInOf(tx.SignIn.Query().Where(signin.UpstreamHash(hash)).Only(ctx))
	})
}

// Save implements store.SignIns.
func (s *Store) Save(ctx context.Context, scope tenancy.Scope, in store.SignIn) (store.SignIn, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.SignIn, error) {
		u := tx.SignIn.Update().Where(signin.ID(in.ID), signin.Version(in.Version)).SetStage(signin.Stage(in.Stage)).
			SetAccount(in.Account).SetAccountLabel(in.AccountLabel).SetCodeSentTo(in.CodeSentTo).
			SetExpiresAt(in.ExpiresAt).SetVersion(in.Version + 1)
		if in.UpstreamHash != "" {
			u.SetUpstreamHash(in.UpstreamHash)
		} else {
			u.ClearUpstreamHash()
		}
		if len(in.Sealed) > 0 {
			u.SetSealed(in.Sealed)
		} else {
			u.ClearSealed()
		}
		// Tries under way count on while s was being changed, so nothing here may set them back.
		if in.Stage != store.StageCode {
			u.SetCodeAttempts(0)
			in.CodeAttempts = 0
		}
		n, err := u.Save(ctx)
		if err == nil && n == 0 {
			err = store.ErrStale
		}
		in.Version++
		return in, err
	})
}

// TakeCodeAttempt implements store.SignIns. The condition is part of the one statement that counts.
func (s *Store) TakeCodeAttempt(ctx context.Context, scope tenancy.Scope, id string, limit int) (store.SignIn, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.SignIn, error) {
		n, err := tx.SignIn.Update().Where(signin.ID(id), signin.StageEQ(signin.StageCode), signin.CodeAttemptsLT(limit)).AddCodeAttempts(1).Save(ctx)
		if err != nil {
			return store.SignIn{}, err
		}
		found, err := signInOf(tx.SignIn.Get(ctx, id))
		if err == nil && n == 0 {
			err = store.ErrStale
		}
		return found, err
	})
}

// Prune implements store.SignIns.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	n := 0
	err := s.db.SystemWrite(ctx, db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		found, err := tx.SignIn.Query().Where(signin.ExpiresAtLT(before)).Limit(limit).IDs(ctx)
		if err != nil || len(found) == 0 {
			n = 0
			return err
		}
		n, err = tx.SignIn.Delete().Where(signin.IDIn(found...)).Exec(ctx)
		return err
	})
	return n, err
}

func signInOf(row *ent.SignIn, err error) (store.SignIn, error) {
	if ent.IsNotFound(err) {
		return store.SignIn{}, store.ErrNotFound
	}
	if err != nil {
		return store.SignIn{}, err
	}
	out := store.SignIn{
		ID: row.ID, Kind: directory.SignInType(row.Kind), Stage: store.Stage(row.Stage),
		ClientID: row.ClientID, AgentName: row.AgentName, AgentLogoURI: row.AgentLogoURI, Scope: row.Scope, UILocale: row.UILocale,
		RedirectURI: row.RedirectURI, State: row.State, CodeChallenge: row.CodeChallenge, Resource: row.Resource, DeviceID: row.DeviceID,
		SessionID: row.SessionID, UserID: row.UserID, BrowserHash: row.BrowserHash,
		Account: row.Account, AccountLabel: row.AccountLabel, CodeSentTo: row.CodeSentTo, CodeAttempts: row.CodeAttempts,
		CreatedAt: row.CreatedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(), Version: row.Version,
	}
	if row.UpstreamHash != nil {
		out.UpstreamHash = *row.UpstreamHash
	}
	if len(row.Sealed) > 0 {
		out.Sealed = row.Sealed
	}
	return out, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
