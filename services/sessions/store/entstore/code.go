package entstore

import (
	"context"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/authorizationcode"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// SaveCode implements store.Codes.
func (s *Store) SaveCode(ctx context.Context, scope tenancy.Scope, c store.Code) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		return tx.AuthorizationCode.Create().SetID(c.Hash).SetClientID(c.ClientID).SetAgentName(c.AgentName).SetRedirectURI(c.RedirectURI).
			SetCodeChallenge(c.Challenge).SetResource(c.Resource).SetScope(c.Scope).SetAccount(c.Account).SetAccountLabel(c.AccountLabel).
			SetCreatedAt(c.CreatedAt).SetExpiresAt(c.ExpiresAt).Exec(ctx)
	})
}

// RedeemCode implements store.Codes. Of several at once the first to write wins; the
// others find the code consumed.
func (s *Store) RedeemCode(ctx context.Context, scope tenancy.Scope, hash string, in store.SignedIn) error {
	return s.db.Write(ctx, scope, func(ctx context.Context, tx *ent.Tx) error {
		n, err := tx.AuthorizationCode.Update().Where(authorizationcode.ID(hash), authorizationcode.ConsumedAtIsNil()).
			SetConsumedAt(in.Grant.CreatedAt).SetGrantID(in.Grant.ID).Save(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			return store.ErrConsumed
		}
		return s.signIn(ctx, tx, scope, in)
	})
}

// findCode returns nil when there is no such code.
func findCode(ctx context.Context, tx *ent.Tx, hash string) (*store.Code, error) {
	row, err := tx.AuthorizationCode.Get(ctx, hash)
	if ent.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	if err != nil {
		return nil, err
	}
	return &store.Code{
		Hash: row.ID, ClientID: row.ClientID, AgentName: row.AgentName, RedirectURI: row.RedirectURI, Challenge: row.CodeChallenge, Resource: row.Resource,
		Scope: row.Scope, Account: row.Account, AccountLabel: row.AccountLabel, CreatedAt: row.CreatedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(),
		Consumed: timeOf(row.ConsumedAt), GrantID: row.GrantID,
	}, nil
}
