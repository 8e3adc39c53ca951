package app

import (
	"context"
	"errors"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// deskTimes are how long a person is waited for.
type deskTimes struct {
	queue  time.Duration // until somebody joins
	answer time.Duration // until who joined answers
}

func (u *unit) deskTimes(ctx context.Context) (deskTimes, error) {
	s, err := u.inbox(ctx)
	return s.times(), err
}

// inbox reads the settings: handoffs are rare, so nobody keeps them.
func (u *unit) inbox(ctx context.Context) (InboxSettings, error) {
	row, err := u.Inbox(ctx)
	if err != nil {
		return InboxSettings{}, err
	}
	return settingsOf(row)
}

// staffing is what a handoff of c would find; it is looked for only where one is asked for.
func (u *unit) staffing(ctx context.Context, c *store.Conversation, asked bool) (conversation.Staffing, error) {
	if !asked {
		return conversation.Staffing{}, nil
	}
	s, err := u.inbox(ctx)
	if err != nil {
		return conversation.Staffing{}, err
	}
	open, err := staffed(ctx, u.Tx, s, u.now)
	if err != nil || open {
		return conversation.Staffing{}, err
	}
	return conversation.Staffing{Nobody: true, Notice: notice(s.say(nobody, c))}, nil
}

// staffed reports whether somebody looks after the queue: within the opening hours, and
// with room for another conversation.
func staffed(ctx context.Context, tx store.Tx, s InboxSettings, now time.Time) (bool, error) {
	if !s.openAt(now) {
		return false, nil
	}
	if s.QueueWithoutPresence {
		return true, nil
	}
	there, err := tx.Presences(ctx, now)
	if err != nil || len(there) == 0 || s.MaxPerPerson == 0 {
		return len(there) > 0, err
	}
	handled, err := tx.Handled(ctx)
	if err != nil {
		return false, err
	}
	for _, p := range there {
		if handled[p.Person] < s.MaxPerPerson {
			return true, nil
		}
	}
	return false, nil
}

func notice(text string) conversation.MessagePayload {
	return conversation.MessagePayload{ID: newMessageID(), Role: conversation.RoleCompany, Sender: conversation.SenderAgent, Text: text}
}

// expirePerson ends the wait for a person who didn't join, or didn't answer. The latter
// keeps the conversation: whoever takes it over joins or has it transferred.
func (u *unit) expirePerson(ctx context.Context, c *store.Conversation) error {
	s, err := u.inbox(ctx)
	if err != nil {
		return err
	}
	if c.Responder != conversation.ResponderHuman {
		return u.nobodyJoins(ctx, c, s.say(nobodyJoined, c))
	}
	_, err = u.happen(ctx, c, conversation.DeadlinePassed(notice(s.say(noAnswer, c)), false), effects{person: c.Person})
	return err
}

// Present is a person who is there, and how many conversations they handle.
type Present struct {
	store.Presence
	Conversations int
}

// SetPresence says that a person is there for a time; 0 is gone. Where the last one
// goes, nobody is left to wait for, and the agents that wait are told so.
func (a *App) SetPresence(ctx context.Context, scope tenancy.Scope, person, displayName string, ttl time.Duration) (Present, error) {
	if err := checkPerson("person", person); err != nil {
		return Present{}, err
	}
	var out Present
	set := func() error {
		return a.store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
			now := a.now()
			out = Present{Presence: store.Presence{Person: person, DisplayName: displayName, Until: now.Add(ttl)}}
			if err := tx.SavePresence(ctx, out.Presence, now); err != nil {
				return err
			}
			var err error
			out.Conversations, err = tx.HandledBy(ctx, person)
			return err
		})
	}
	err := set()
	if errors.Is(err, store.ErrTaken) {
		err = set() // the same person, for the first time, twice at once
	}
	if err != nil || ttl > 0 {
		return out, err
	}
	return out, a.endWaits(ctx, scope)
}

// endWaits ends the wait of every queued conversation where nobody is there any more.
func (a *App) endWaits(ctx context.Context, scope tenancy.Scope) error {
	var left bool
	find := func(ctx context.Context, tx store.Tx) ([]string, error) {
		var err error
		if left, err = lookedAfter(ctx, tx, a.now()); err != nil || left {
			return nil, err
		}
		return tx.QueuedIDs(ctx, sweepBatch)
	}
	return a.eachFound(ctx, scope, find, func(ctx context.Context, id string) error {
		return a.write(ctx, scope, func(ctx context.Context, u *unit) error {
			c, err := u.Lock(ctx, id)
			if err != nil || c.Status != conversation.Queued {
				return err
			}
			// Somebody may have come back meanwhile.
			if left, err := lookedAfter(ctx, u.Tx, u.now); err != nil || left {
				return err
			}
			s, err := u.inbox(ctx)
			if err != nil {
				return err
			}
			return u.nobodyJoins(ctx, c, s.say(nobody, c))
		})
	})
}

// lookedAfter reports whether anybody is left whom a queued conversation may wait for,
// with room now or later.
func lookedAfter(ctx context.Context, tx store.Tx, now time.Time) (bool, error) {
	row, err := tx.Inbox(ctx)
	if err != nil {
		return false, err
	}
	s, err := settingsOf(row)
	if err != nil || s.QueueWithoutPresence {
		return true, err
	}
	there, err := tx.Presences(ctx, now)
	return len(there) > 0, err
}

// Presences returns who is there, and whether a handoff now would be queued.
func (a *App) Presences(ctx context.Context, scope tenancy.Scope) (people []Present, open bool, err error) {
	err = a.store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		now := a.now()
		row, err := tx.Inbox(ctx)
		if err != nil {
			return err
		}
		s, err := settingsOf(row)
		if err != nil {
			return err
		}
		there, err := tx.Presences(ctx, now)
		if err != nil {
			return err
		}
		handled, err := tx.Handled(ctx)
		if err != nil {
			return err
		}
		people = make([]Present, 0, len(there))
		for _, p := range there {
			people = append(people, Present{Presence: p, Conversations: handled[p.Person]})
		}
		open, err = staffed(ctx, tx, s, now)
		return err
	})
	return people, open, err
}

// AddNote writes a note beside a conversation.
func (a *App) AddNote(ctx context.Context, scope tenancy.Scope, n store.Note) (store.Note, error) {
	if err := checkPerson("note.author", n.Author); err != nil {
		return store.Note{}, err
	}
	err := a.store.Write(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		if _, err := tx.Conversation(ctx, n.ConversationID); err != nil {
			return err
		}
		n.ID, n.CreatedAt = ids.New(ids.Note), a.now()
		return tx.CreateNote(ctx, n)
	})
	return n, err
}
