package store_test

import (
	"context"
	"encoding/json"
	"errors"
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

var now = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)

// suite is a store with one Company.
type suite struct {
	*store.Store
	db    *db.DB
	scope tenancy.Scope
}

func each(t *testing.T, fn func(*testing.T, suite)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { fn(t, suite{store.New(d, nil), d, dbtest.Company(t, d)}) })
}

func (s suite) write(t *testing.T, fn func(context.Context, store.Tx) error) {
	t.Helper()
	require.NoError(t, s.Write(t.Context(), s.scope, fn))
}

func (s suite) read(t *testing.T, fn func(context.Context, store.Tx) error) {
	t.Helper()
	require.NoError(t, s.Read(t.Context(), s.scope, fn))
}

func newConversation() *store.Conversation {
	return &store.Conversation{
		ID: ids.New(ids.Conversation), ClientID: "https://agent.example/a.json", AgentName: "Agent", UserID: "usr_1", SessionID: "ses_1",
		Status: conversation.Idle, Responder: conversation.ResponderAgent, CursorKey: ids.Random16(), OldestSequence: 1,
		LastEventAt: now, CreatedAt: now, UpdatedAt: now, Version: 1,
	}
}

// conversation stores a conversation with events of the given texts; the first is the agent's under messageID.
func (s suite) conversation(t *testing.T, messageID string, texts ...string) *store.Conversation {
	t.Helper()
	c := newConversation()
	s.write(t, func(ctx context.Context, tx store.Tx) error { return insert(ctx, tx, c, messageID, texts...) })
	return c
}

func insert(ctx context.Context, tx store.Tx, c *store.Conversation, messageID string, texts ...string) error {
	payloads := make([]conversation.Payload, 0, len(texts))
	for _, s := range texts {
		payloads = append(payloads, conversation.MessagePayload{ID: messageID, Role: conversation.RoleUser, Sender: conversation.SenderAgent, Text: s})
	}
	events := store.Append(c, now, payloads...)
	if err := tx.Create(ctx, c); err != nil {
		return err
	}
	return tx.Insert(ctx, c, &store.Identity{Owner: "owner", MessageID: messageID, Content: [32]byte{1}, First: true}, events)
}

func (s suite) enqueue(t *testing.T, c *store.Conversation, seq int64, behind bool, lease store.Lease) store.Delivery {
	t.Helper()
	d := store.Delivery{
		ID: ids.New(ids.Delivery), ConversationID: c.ID, Sequence: seq, ExpectsReply: true, ReplyBy: now.Add(time.Minute),
		Moment:      store.Moment{SessionID: "ses_1", Scopes: []string{"poppy:read"}, Status: conversation.Working, Responder: conversation.ResponderAgent},
		Context:     json.RawMessage(`{"z":1.0,"a":{"y":1e2,"b":12345678901234567890}}`),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", CreatedAt: now,
	}
	s.write(t, func(ctx context.Context, tx store.Tx) error { return tx.Enqueue(ctx, d, behind, lease) })
	return d
}

func TestConversation_ComesBackAsItWas(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		c := newConversation()
		c.Context = json.RawMessage(`{"z":1.0,"a":[1e2]}`)
		c.AnswerDueAt = now.Add(time.Minute)
		s.write(t, func(ctx context.Context, tx store.Tx) error { return tx.Create(ctx, c) })
		s.write(t, func(ctx context.Context, tx store.Tx) error {
			got, err := tx.Lock(ctx, c.ID)
			require.NoError(t, err)
			require.Equal(t, c, got)
			got.Status, got.ClosedBy, got.AnswerDueAt, got.Context = conversation.Closed, "agent", time.Time{}, nil
			return tx.Save(ctx, got, now.Add(time.Second))
		})
		s.read(t, func(ctx context.Context, tx store.Tx) error {
			got, err := tx.Conversation(ctx, c.ID)
			require.NoError(t, err)
			require.Equal(t, conversation.Closed, got.Status)
			require.Equal(t, int64(2), got.Version)
			require.True(t, got.AnswerDueAt.IsZero())
			require.Nil(t, got.Context)
			require.Equal(t, now.Add(time.Second), got.UpdatedAt)
			return nil
		})
	})
}

func TestConversation_OfAnotherCompanyIsNotThere(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		c := s.conversation(t, "msg_1", "hello")
		other := dbtest.Company(t, s.db)
		err := s.Read(t.Context(), other, func(ctx context.Context, tx store.Tx) error {
			_, found, err := tx.FindMessage(ctx, "owner", "msg_1")
			require.NoError(t, err)
			require.False(t, found)
			_, err = tx.Conversation(ctx, c.ID)
			return err
		})
		require.True(t, problem.Is(err, problem.ConversationNotFound))
	})
}

func TestInsert_AMessageIDIsTakenOnce(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		first := s.conversation(t, "msg_1", "hello")
		err := s.Write(t.Context(), s.scope, func(ctx context.Context, tx store.Tx) error {
			return insert(ctx, tx, newConversation(), "msg_1", "hello")
		})
		require.ErrorIs(t, err, store.ErrTaken)
		s.read(t, func(ctx context.Context, tx store.Tx) error {
			found, ok, err := tx.FindMessage(ctx, "owner", "msg_1")
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, store.Accepted{
				Identity: store.Identity{Owner: "owner", MessageID: "msg_1", Content: [32]byte{1}, First: true}, ConversationID: first.ID, Sequence: 1,
			}, found)
			return nil
		})
	})
}

func TestEvents_NotBeyondWhatTheConversationKnows(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		c := s.conversation(t, "msg_1", "a", "b", "c", "d")
		s.read(t, func(ctx context.Context, tx store.Tx) error {
			old := *c
			old.LastSequence = 3
			events, err := tx.Events(ctx, &old, 1, 10)
			require.NoError(t, err)
			require.Len(t, events, 2)
			require.Equal(t, int64(2), events[0].Sequence)
			require.Equal(t, now, events[0].CreatedAt)
			events, err = tx.Events(ctx, c, 0, 2)
			require.NoError(t, err)
			require.Len(t, events, 2)
			return nil
		})
	})
}

func TestClaims_HeadsOnlyAndOneOwnerEach(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		c := s.conversation(t, "msg_1", "a", "b", "c")
		head := s.enqueue(t, c, 1, false, store.Lease{})
		next := s.enqueue(t, c, 2, true, store.Lease{})
		lease := store.Lease{Owner: "dsp_1", Until: now.Add(5 * time.Second)}
		due, err := s.DueDeliveries(t.Context(), now, 10, nil)
		require.NoError(t, err)
		require.Equal(t, []store.Due{{Scope: s.scope, ID: head.ID}}, due)
		busy, err := s.DueDeliveries(t.Context(), now, 10, []string{s.scope.CompanyID()})
		require.NoError(t, err)
		require.Empty(t, busy)

		take := func(owner string, at time.Time) []store.Claim {
			var claims []store.Claim
			s.write(t, func(ctx context.Context, tx store.Tx) error {
				var err error
				claims, _, err = tx.TakeDue(ctx, s.scope, []string{head.ID, next.ID}, at, store.Lease{Owner: owner, Until: at.Add(5 * time.Second)})
				return err
			})
			return claims
		}
		claims := take("dsp_1", now)
		require.Len(t, claims, 1)
		require.Equal(t, head, claims[0].Delivery, "the very bytes of the context too")
		require.Equal(t, "a", claims[0].Message.Text)
		require.Equal(t, "usr_1", claims[0].UserID)
		require.Empty(t, take("dsp_2", now.Add(4*time.Second)))

		require.NoError(t, s.Renew(t.Context(), []string{head.ID}, store.Lease{Owner: "dsp_2", Until: now.Add(time.Hour)}), "not the owner: nothing happens")
		lease.Until = now.Add(7 * time.Second)
		require.NoError(t, s.Renew(t.Context(), []string{head.ID}, lease))
		require.Empty(t, take("dsp_2", now.Add(6*time.Second)))
		require.Len(t, take("dsp_2", now.Add(8*time.Second)), 1)

		require.NoError(t, s.ReleaseAll(t.Context(), "dsp_1", now))
		due, err = s.DueDeliveries(t.Context(), now, 10, nil)
		require.NoError(t, err)
		require.Empty(t, due, "dsp_1 has none any more")
		require.NoError(t, s.ReleaseAll(t.Context(), "dsp_2", now))
		due, err = s.DueDeliveries(t.Context(), now, 10, nil)
		require.NoError(t, err)
		require.Len(t, due, 1)
	})
}

func TestLive_PendingOnesAndOpenTurns(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		c := s.conversation(t, "msg_1", "a", "b", "c")
		first := s.enqueue(t, c, 1, false, store.Lease{Owner: "dsp_1", Until: now.Add(time.Second)})
		second := s.enqueue(t, c, 2, true, store.Lease{})
		s.write(t, func(ctx context.Context, tx store.Tx) error {
			pending, err := tx.HasPending(ctx, c.ID)
			require.NoError(t, err)
			require.True(t, pending)
			require.NoError(t, tx.Finish(ctx, first.ID, store.Delivered, store.OutcomeOpen, store.Attempt{Status: 202, Count: 1}, now))
			live, err := tx.Live(ctx, c.ID)
			require.NoError(t, err)
			require.Len(t, live, 2)
			require.False(t, live[0].Pending)
			require.True(t, live[0].Open(), "a 202 leaves the turn open")
			require.NoError(t, tx.SettleTurns(ctx, store.OutcomeAnswered, first.ID))
			require.NoError(t, tx.Finish(ctx, second.ID, store.Failed, store.OutcomeDeadline, store.Attempt{Count: 11}, now))
			live, err = tx.Live(ctx, c.ID)
			require.NoError(t, err)
			require.Empty(t, live)
			pending, err = tx.HasPending(ctx, c.ID)
			require.NoError(t, err)
			require.False(t, pending)
			return nil
		})
	})
}

func TestWrite_AFailedUnitLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		cut := errors.New("cut")
		c := newConversation()
		err := s.Write(t.Context(), s.scope, func(ctx context.Context, tx store.Tx) error {
			if err := insert(ctx, tx, c, "msg_1", "a"); err != nil {
				return err
			}
			return cut
		})
		require.ErrorIs(t, err, cut)
		_, ok, err := s.NextCompany(t.Context(), "")
		require.NoError(t, err)
		require.False(t, ok)
	})
}

func TestNextCompany_EveryCompanyOnce(t *testing.T) {
	each(t, func(t *testing.T, s suite) {
		want := map[string]bool{s.scope.CompanyID(): true}
		s.conversation(t, "msg_1", "a")
		s.conversation(t, "msg_2", "a")
		for range 3 {
			other := suite{s.Store, s.db, dbtest.Company(t, s.db)}
			other.conversation(t, "msg_1", "a")
			want[other.scope.CompanyID()] = true
		}
		got := map[string]bool{}
		for after := ""; ; {
			scope, ok, err := s.NextCompany(t.Context(), after)
			require.NoError(t, err)
			if !ok {
				break
			}
			require.False(t, got[scope.CompanyID()])
			after = scope.CompanyID()
			got[after] = true
		}
		require.Equal(t, want, got)
	})
}
