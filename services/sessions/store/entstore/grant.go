package entstore

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/accounttoken"
	"github.com/poppyfield/poppyfield/ent/grant"
	"github.com/poppyfield/poppyfield/ent/predicate"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// lastUse is how exact a Grant's last use is kept.
const lastUse = time.Minute

// SignIn implements store.Grants.
func (s *Store) SignIn(ctx context.Context, scope tenancy.Scope, in store.SignedIn) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error { return s.signIn(ctx, tx, scope, in) })
}

// signIn adds the Grant with its Account Token, and signs the Session in. Rows are
// locked in the order Grant, Session everywhere, so that ends and sign-ins don't deadlock.
func (s *Store) signIn(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, in store.SignedIn) error {
	g := in.Grant
	err := tx.Grant.Create().SetID(g.ID).SetClientID(g.ClientID).SetAgentName(g.AgentName).SetUserID(g.UserID).SetAccount(g.Account).
		SetAccountLabel(g.AccountLabel).SetScope(g.Scope).SetSignIn(grant.SignIn(g.SignIn)).SetResource(g.Resource).SetCreatedAt(g.CreatedAt).
		SetNillableExpiresAt(optional(g.ExpiresAt)).SetLastUsedAt(g.LastUsedAt).Exec(ctx)
	if err != nil {
		return err
	}
	if err := tx.AccountToken.Create().SetID(in.AccountToken).SetGrantID(g.ID).SetCreatedAt(g.CreatedAt).Exec(ctx); err != nil {
		return err
	}
	sn := store.Session{
		ID: in.Token.SessionID, ClientID: g.ClientID, AgentName: g.AgentName, UserID: g.UserID, Account: g.Account, GrantID: g.ID,
		Extensions: in.Extensions, CreatedAt: g.CreatedAt, LastUsedAt: g.CreatedAt,
	}
	if in.Create {
		if err := createSession(ctx, tx, sn); err != nil {
			return err
		}
		err = s.started(ctx, tx, scope, sn, in.Token)
	} else {
		err = signSessionIn(ctx, tx, sn)
	}
	if err != nil {
		return err
	}
	if err := s.signedIn(ctx, tx, scope, sn, in.Token, string(g.SignIn)); err != nil {
		return err
	}
	return createToken(ctx, tx, in.Token)
}

// signSessionIn gives the Session the account, Grant, name, extensions and last use of sn. The
// condition decides races: a Session never takes a second account (poppy-0.1/4.4#40).
func signSessionIn(ctx context.Context, tx *ent.Tx, sn store.Session) error {
	n, err := tx.Session.Update().
		Where(session.ID(sn.ID), session.EndedAtIsNil(), session.Or(session.Account(""), session.Account(sn.Account))).
		SetAccount(sn.Account).SetGrantID(sn.GrantID).SetAgentName(sn.AgentName).SetExtensions(extensions(sn)).SetLastUsedAt(sn.LastUsedAt).Save(ctx)
	if err != nil || n > 0 {
		return err
	}
	live, err := tx.Session.Query().Where(session.ID(sn.ID), session.EndedAtIsNil()).Exist(ctx)
	switch {
	case err != nil:
		return err
	case live:
		return store.ErrAccount
	}
	return store.ErrEnded
}

// Renew implements store.Grants.
func (s *Store) Renew(ctx context.Context, scope tenancy.Scope, r store.Renewal) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		at := r.Token.CreatedAt
		if err := useGrant(ctx, tx, s.db.Postgres(), r.Token.GrantID, at); err != nil {
			return err
		}
		if r.Successor != "" {
			if err := replace(ctx, tx, r, at); err != nil {
				return err
			}
		}
		if err := s.renewSession(ctx, tx, scope, r); err != nil {
			return err
		}
		return createToken(ctx, tx, r.Token)
	})
}

// renewSession makes the Session of a renewal, or signs it in.
func (s *Store) renewSession(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, r store.Renewal) error {
	if r.Create {
		if err := createSession(ctx, tx, r.Session); err != nil {
			return err
		}
		if err := s.started(ctx, tx, scope, r.Session, r.Token); err != nil {
			return err
		}
		return s.signedIn(ctx, tx, scope, r.Session, r.Token, byAccountToken)
	}
	before, err := s.grantOf(ctx, tx, scope, r.Session.ID)
	if err != nil {
		return err
	}
	if err := signSessionIn(ctx, tx, r.Session); err != nil {
		return err
	}
	if before == r.Session.GrantID { // its sign-in goes on
		return nil
	}
	return s.signedIn(ctx, tx, scope, r.Session, r.Token, byAccountToken)
}

// useGrant notes a use, and keeps the Grant from being ended until the transaction is over.
func useGrant(ctx context.Context, tx *ent.Tx, locks bool, id string, at time.Time) error {
	n, err := tx.Grant.Update().Where(grant.ID(id), inForce(at), grant.LastUsedAtLTE(at.Add(-lastUse))).SetLastUsedAt(at).Save(ctx)
	if err != nil || n > 0 {
		return err
	}
	q := tx.Grant.Query().Where(grant.ID(id), inForce(at))
	if locks {
		q.ForShare()
	}
	_, err = q.OnlyID(ctx)
	if ent.IsNotFound(err) {
		return store.ErrOver
	}
	return err
}

// replace marks the token as replaced when it is the first to do so, and makes sure
// that there is the successor, which is the same for everybody (decision 14).
func replace(ctx context.Context, tx *ent.Tx, r store.Renewal, at time.Time) error {
	err := tx.AccountToken.Update().Where(accounttoken.ID(r.Replaced), accounttoken.ReplacedAtIsNil()).SetReplacedAt(at).Exec(ctx)
	if err != nil {
		return err
	}
	return tx.AccountToken.Create().SetID(r.Successor).SetGrantID(r.Token.GrantID).SetCreatedAt(at).
		OnConflictColumns(accounttoken.FieldID).Ignore().Exec(ctx)
}

// EndGrants implements store.Grants.
func (s *Store) EndGrants(ctx context.Context, scope tenancy.Scope, which store.Selection, how store.Ending) (store.Ended, error) {
	return db.WriteValue(ctx, s.db, scope, func(ctx context.Context, tx *ent.Tx) (store.Ended, error) {
		return s.endGrants(ctx, tx, scope, which, how)
	})
}

func inForce(at time.Time) predicate.Grant {
	return grant.And(grant.EndedAtIsNil(), grant.Or(grant.ExpiresAtIsNil(), grant.ExpiresAtGT(at)))
}

// findGrant returns nil when there is no such Grant.
func findGrant(ctx context.Context, tx *ent.Tx, id string) (*store.Grant, error) {
	row, err := tx.Grant.Get(ctx, id)
	if ent.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	if err != nil {
		return nil, err
	}
	g := grantOf(row)
	return &g, nil
}

// findAccountToken returns both or neither.
func findAccountToken(ctx context.Context, tx *ent.Tx, hash string, successors []string) (*store.AccountToken, *store.Grant, error) {
	row, err := tx.AccountToken.Get(ctx, hash)
	if ent.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	g, err := findGrant(ctx, tx, row.GrantID)
	if err != nil || g == nil {
		return nil, nil, err
	}
	t := &store.AccountToken{Hash: row.ID, GrantID: row.GrantID, CreatedAt: row.CreatedAt.UTC(), ReplacedAt: timeOf(row.ReplacedAt)}
	if row.ReplacedAt != nil && len(successors) > 0 {
		// Several only where processes of two root keys were asked at once; the oldest was given out first.
		t.Successor, err = tx.AccountToken.Query().Where(accounttoken.IDIn(successors...), accounttoken.GrantID(g.ID)).
			Order(accounttoken.ByCreatedAt(), accounttoken.ByID()).FirstID(ctx)
		if err != nil && !ent.IsNotFound(err) {
			return nil, nil, err
		}
	}
	return t, g, nil
}

func grantOf(row *ent.Grant) store.Grant {
	return store.Grant{
		ID: row.ID, ClientID: row.ClientID, AgentName: row.AgentName, UserID: row.UserID, Account: row.Account, AccountLabel: row.AccountLabel,
		Scope: row.Scope, SignIn: directory.SignInType(row.SignIn), Resource: row.Resource, CreatedAt: row.CreatedAt.UTC(), ExpiresAt: timeOf(row.ExpiresAt),
		LastUsedAt: row.LastUsedAt.UTC(), EndedAt: timeOf(row.EndedAt), EndReason: store.EndReason(row.EndReason),
	}
}
