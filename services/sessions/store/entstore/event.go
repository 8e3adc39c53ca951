package entstore

import (
	"context"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/predicate"
	"github.com/poppyfield/poppyfield/ent/session"
	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

// What listeners read besides the reasons of store.EndReason.
const (
	byAccountToken  = "account_token"
	endedByCompany  = "company"
	endedByIdleness = "idle"
)

// facts are what an event says of a Session whose token is t; the zero Token is none.
func facts(id string, sn store.Session, t store.Token) webhook.SessionFacts {
	return webhook.SessionFacts{
		Session: webhook.NewDeliverySession(id, t.SignedIn, sn.Account, strings.Fields(t.Scope)),
		Agent:   webhook.DeliveryAgent{ClientID: sn.ClientID, Name: sn.AgentName}, User: webhook.EventUser{ID: sn.UserID},
	}
}

func (s *Store) tell(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, name, sessionID string, at time.Time, data any) error {
	return s.events.Add(ctx, tx, scope, outbox.Event{Type: name, Subject: "sessions/" + sessionID, At: at, Data: data})
}

func (s *Store) started(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, sn store.Session, t store.Token) error {
	return s.tell(ctx, tx, scope, webhook.EventSessionStarted, sn.ID, sn.CreatedAt, webhook.SessionStartedData{SessionFacts: facts(sn.ID, sn, t)})
}

// signedIn tells that the Session of t was signed in; sn says whose it is.
func (s *Store) signedIn(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, sn store.Session, t store.Token, by string) error {
	if err := note(ctx, tx, t.CreatedAt, t.SessionID); err != nil {
		return err
	}
	return s.tell(ctx, tx, scope, webhook.EventSessionSignedIn, t.SessionID, t.CreatedAt,
		webhook.SessionSignedInData{SessionFacts: facts(t.SessionID, sn, t), SignIn: by})
}

// grantOf returns the Grant that last signed a Session in, where somebody wants to know.
func (s *Store) grantOf(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, sessionID string) (string, error) {
	if s.events.Quiet(scope) {
		return "", nil
	}
	sn, err := findSession(ctx, tx, sessionID)
	if err != nil || sn == nil {
		return "", err
	}
	return sn.GrantID, nil
}

// signedOut tells of the Sessions whose last sign-in gave Grants that end.
func (s *Store) signedOut(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, grants []string, how store.Ending) error {
	return s.each(ctx, tx, scope, session.And(session.GrantIDIn(grants...), session.EndedAtIsNil()), func(sn store.Session) outbox.Event {
		return outbox.Event{Type: webhook.EventSessionSignedOut, At: how.At, Data: webhook.SessionSignedOutData{
			SessionFacts: facts(sn.ID, sn, store.Token{}), Account: sn.Account, Reason: string(how.Reason),
		}}
	})
}

// ended tells of Sessions that end, as they are before or after.
func (s *Store) ended(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, which predicate.Session, at time.Time, reason string) error {
	return s.each(ctx, tx, scope, which, func(sn store.Session) outbox.Event {
		return outbox.Event{Type: webhook.EventSessionEnded, At: at, Data: webhook.SessionEndedData{SessionFacts: facts(sn.ID, sn, store.Token{}), Reason: reason}}
	})
}

func (s *Store) each(ctx context.Context, tx *ent.Tx, scope tenancy.Scope, which predicate.Session, tell func(store.Session) outbox.Event) error {
	if s.events.Quiet(scope) {
		return nil
	}
	rows, err := tx.Session.Query().Where(which).Order(session.ByID()).All(ctx)
	if err != nil {
		return err
	}
	events := make([]outbox.Event, 0, len(rows))
	for _, row := range rows {
		e := tell(sessionOf(row))
		e.Subject = "sessions/" + row.ID
		events = append(events, e)
	}
	return s.events.Add(ctx, tx, scope, events...)
}
