package entstore

import (
	"context"
	"slices"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/authorizationcode"
	"github.com/poppyfield/poppyfield/ent/deviceauthorization"
	"github.com/poppyfield/poppyfield/ent/grant"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/ent/sessiontoken"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// maxIDs bounds the parameters of one statement.
const maxIDs = 500

// endGrants ends what which selects and is in force. Sessions with a token of an
// ended Grant are affected even where another Grant has signed them in since.
func (s *Store) endGrants(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, which store.Selection, how store.Ending) (store.Ended, error) {
	if which == (store.Selection{}) {
		return store.Ended{}, nil
	}
	if which.ID == "" {
		// First, so that a redemption under way is waited for, and its Grant seen below.
		if err := endApprovals(ctx, tx, which, how.At); err != nil {
			return store.Ended{}, err
		}
	}
	q := tx.Grant.Query().Where(inForce(how.At)).Order(grant.ByID())
	if which.ID != "" {
		q.Where(grant.ID(which.ID))
	}
	if which.Account != "" {
		q.Where(grant.Account(which.Account))
	}
	if which.ClientID != "" {
		q.Where(grant.ClientID(which.ClientID))
	}
	if s.db.Postgres() {
		q.ForUpdate()
	}
	ids, err := q.IDs(ctx)
	if err != nil {
		return store.Ended{}, err
	}
	ended := store.Ended{Grants: len(ids)}
	for some := range slices.Chunk(ids, maxIDs) {
		if err := tx.Grant.Update().Where(grant.IDIn(some...)).SetEndedAt(how.At).SetEndReason(string(how.Reason)).Exec(ctx); err != nil {
			return store.Ended{}, err
		}
		affected, err := sessionsOf(ctx, tx, some, how.At)
		if err != nil {
			return store.Ended{}, err
		}
		ended.Sessions = append(ended.Sessions, affected...)
		if err := s.signedOut(ctx, tx, scope, some, how); err != nil {
			return store.Ended{}, err
		}
		if how.EndSessions {
			if err := s.ended(ctx, tx, scope, session.And(session.GrantIDIn(some...), session.EndedAtIsNil()), how.At, string(how.Reason)); err != nil {
				return store.Ended{}, err
			}
			err := tx.Session.Update().Where(session.GrantIDIn(some...), session.EndedAtIsNil()).SetEndedAt(how.At).Exec(ctx)
			if err != nil {
				return store.Ended{}, err
			}
		}
	}
	slices.Sort(ended.Sessions)
	ended.Sessions = slices.Compact(ended.Sessions)
	return ended, note(ctx, tx, how.At, ended.Sessions...)
}

// endApprovals makes worthless what was approved and not yet exchanged: it would give a
// new Grant after the User, or the Company, has taken everything back.
func endApprovals(ctx context.Context, tx *ent.Tx, which store.Selection, now time.Time) error {
	devices := tx.DeviceAuthorization.Update().Where(deviceauthorization.StateEQ(deviceauthorization.StateApproved))
	codes := tx.AuthorizationCode.Update().Where(authorizationcode.ConsumedAtIsNil())
	if which.Account != "" {
		devices.Where(deviceauthorization.Account(which.Account))
		codes.Where(authorizationcode.Account(which.Account))
	}
	if which.ClientID != "" {
		devices.Where(deviceauthorization.ClientID(which.ClientID))
		codes.Where(authorizationcode.ClientID(which.ClientID))
	}
	if err := devices.SetState(deviceauthorization.StateDenied).Exec(ctx); err != nil {
		return err
	}
	return codes.SetConsumedAt(now).Exec(ctx)
}

// sessionsOf names the Sessions that the Grants signed in last, or that have tokens of them.
func sessionsOf(ctx context.Context, tx *ent.Tx, grants []string, now time.Time) ([]string, error) {
	last, err := tx.Session.Query().Where(session.GrantIDIn(grants...), session.EndedAtIsNil()).IDs(ctx)
	if err != nil {
		return nil, err
	}
	held, err := tx.SessionToken.Query().Where(sessiontoken.GrantIDIn(grants...), sessiontoken.ExpiresAtGT(now)).
		Unique(true).Select(sessiontoken.FieldSessionID).Strings(ctx)
	return append(last, held...), err
}
