package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// talk stores a conversation of a User with n events.
func talk(t *testing.T, s *store.Store, scope tenancy.Scope, user string, n int) *store.Conversation {
	t.Helper()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	c := &store.Conversation{
		ID: ids.New(ids.Conversation), ClientID: "https://agent.example/a.json", UserID: user, SessionID: "ses_1", Status: conversation.Idle,
		Responder: conversation.ResponderAgent, CursorKey: ids.Random16(), OldestSequence: 1, LastEventAt: now, CreatedAt: now, UpdatedAt: now, Version: 1,
	}
	require.NoError(t, s.Write(t.Context(), scope, func(ctx context.Context, tx store.Tx) error {
		var said []conversation.Payload
		for i := range n {
			said = append(said, conversation.MessagePayload{ID: fmt.Sprint("msg_", i), Role: conversation.RoleCompany, Sender: conversation.SenderAgent, Text: fmt.Sprint(i + 1)})
		}
		events := store.Append(c, now, said...)
		if err := tx.Create(ctx, c); err != nil {
			return err
		}
		return tx.Insert(ctx, c, nil, events)
	}))
	return c
}

func from(after int64) func(*store.Conversation) (int64, error) {
	return func(*store.Conversation) (int64, error) { return after, nil }
}

// Whatever shares a unit with it, a read gets what it would get alone.
func TestTogether_EveryReadIsItsOwn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := store.New(d, nil)
		one, two := dbtest.Company(t, d), dbtest.Company(t, d)
		const longest = 30
		of := map[tenancy.Scope][]*store.Conversation{}
		for _, scope := range []tenancy.Scope{one, two} {
			for n := range 4 {
				of[scope] = append(of[scope], talk(t, s, scope, fmt.Sprint("usr_", n), 1+n*longest/3))
			}
		}
		shared := newTogether(s)
		odd := errors.New("odd start")
		var all sync.WaitGroup
		for i := range 400 {
			all.Go(func() {
				mine, other := one, two
				if i%2 == 1 {
					mine, other = two, one
				}
				n := i / 2 % 4
				c, user := of[mine][n], fmt.Sprint("usr_", n)
				caller := Caller{Scope: mine, ClientID: c.ClientID, UserID: user}
				urgency := []Urgency{AtOnce, Soon, AtLeisure}[i%3]
				read := func(caller Caller, id string, start func(*store.Conversation) (int64, error)) (page, error) {
					return shared.page(t.Context(), caller, id, urgency, start)
				}
				var err error
				switch i % 5 {
				case 0:
					_, err = read(caller, of[other][n].ID, from(0))
					if !problem.Is(err, problem.ConversationNotFound) {
						t.Errorf("another company's: %v", err)
					}
				case 1:
					caller.UserID = "usr_other"
					_, err = read(caller, c.ID, from(0))
					if !problem.Is(err, problem.ConversationNotFound) {
						t.Errorf("another User's: %v", err)
					}
				case 2:
					if _, err = read(caller, c.ID, func(*store.Conversation) (int64, error) { return 0, odd }); !errors.Is(err, odd) {
						t.Errorf("odd start: %v", err)
					}
				default:
					after := int64(i) % (c.LastSequence + 1)
					got, err := read(caller, c.ID, from(after))
					if err != nil || got.after != after || len(got.events) != int(c.LastSequence-after) || got.hasMore {
						t.Errorf("%d of %d after %d: %v %v", len(got.events), c.LastSequence, after, got.hasMore, err)
						return
					}
					for j, e := range got.events {
						if e.Sequence != after+int64(j)+1 {
							t.Errorf("event %d after %d is %d", j, after, e.Sequence)
						}
					}
				}
			})
		}
		all.Wait()
		require.Eventually(t, func() bool {
			shared.mu.Lock()
			defer shared.mu.Unlock()
			return len(shared.lines) == 0
		}, 20*time.Second, time.Millisecond, "nothing is kept of who has read")
	})
}

func TestTogether_WhoGivesUpHoldsNobody(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := store.New(d, nil)
		scope := dbtest.Company(t, d)
		c := talk(t, s, scope, "usr_1", 1)
		caller := Caller{Scope: scope, ClientID: c.ClientID, UserID: "usr_1"}
		shared := newTogether(s)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := shared.page(gone, caller, c.ID, AtLeisure, from(0))
		require.ErrorIs(t, err, context.Canceled)
		got, err := shared.page(t.Context(), caller, c.ID, AtOnce, from(0))
		require.NoError(t, err)
		require.Len(t, got.events, 1)
	})
}

// A panic is one unit's error, and nobody waits for ever.
func TestTogether_APanicIsAnError(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := store.New(d, nil)
		scope := dbtest.Company(t, d)
		c := talk(t, s, scope, "usr_1", 1)
		caller := Caller{Scope: scope, ClientID: c.ClientID, UserID: "usr_1"}
		shared := newTogether(s)
		_, err := shared.page(t.Context(), caller, c.ID, AtOnce, func(*store.Conversation) (int64, error) { panic("a bug") })
		require.True(t, problem.Is(err, problem.ServerError))
		require.NotContains(t, problem.As(err).Detail, "a bug")
		_, err = shared.page(t.Context(), caller, c.ID, AtOnce, from(0))
		require.NoError(t, err)
	})
}
