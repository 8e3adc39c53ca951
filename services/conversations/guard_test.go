package conversations_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/ent"
	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/conversations/dispatch"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// A history may be larger than what the relay takes at once.
func TestDispatch_HistoryIsTheNewestThatFits(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.route(in.company, &relayv1.GetRouteResponse{History: 200})
		large := strings.Repeat("\U0001F33A", 32_000)
		texts := make([]string, 12)
		for i := range texts {
			texts[i] = large
		}
		in.backend.always(says(texts...))
		u := in.user("usr_1")
		got := u.start(t, "msg_1", "one")
		answered := func() {
			eventually(t, func() bool { return in.get(t, got.ConversationID).GetStatus() == "idle" }, "it is answered")
		}
		for _, id := range []string{"msg_2", "msg_3"} {
			u.send(t, got.ConversationID, "", text(id, id))
			answered()
		}
		// Beside all that the relay would get more than 4 MiB.
		in.backend.always(says("ok"))
		require.Equal(t, http.StatusAccepted, u.send(t, got.ConversationID, "", text("msg_4", "four")).Status)
		seen := in.backend.await(t, 4)[3].asked.GetHistory()
		size := 0
		for _, turn := range seen[:len(seen)-1] {
			require.Len(t, turn.GetText(), len(large))
			size += len(turn.GetText())
		}
		require.Equal(t, "four", seen[len(seen)-1].GetText())
		require.Less(t, size, store.MaxHistory)
		require.Greater(t, size+len(large), store.MaxHistory, "as many as fit")
		answered()
	})
}

func TestDispatch_HistoryOfAnotherAccountIsLeftOut(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.route(in.company, &relayv1.GetRouteResponse{History: 10})
		u := in.user("usr_1")
		parent := u.start(t, "msg_1", "hello").ConversationID
		in.Clock.Advance(time.Millisecond)
		child := u.direct(t, parent, "msg_2").ConversationID
		u.close(t, child)
		last := func(n int) (texts []string) {
			for _, turn := range in.backend.await(t, n)[n-1].asked.GetHistory() {
				texts = append(texts, turn.GetText())
			}
			return texts
		}
		set := func(id, account string) {
			in.write(t, func(ctx context.Context, tx *ent.Tx) error {
				return tx.Conversation.UpdateOneID(id).SetAccount(account).Exec(ctx)
			})
		}
		set(child, "acc_1")
		u.send(t, parent, "?wait=20", text("msg_3", "more"))
		require.Equal(t, []string{"hello", "echo: hello", "more"}, last(3))
		set(parent, "acc_1")
		u.signedIn("acc_1").send(t, parent, "?wait=20", text("msg_4", "and more"))
		require.Contains(t, last(4), "hi, it's me")
	})
}

// What the relay refuses to take isn't better the next time: that is a failed attempt.
func TestDispatch_WhatTheRelayRefusesCounts(t *testing.T) {
	for _, code := range []codes.Code{codes.ResourceExhausted, codes.InvalidArgument} {
		t.Run(code.String(), func(t *testing.T) {
			each(t, func(t *testing.T, in *installation) {
				in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) { return nil, status.Error(code, "no") })
				id := in.user("usr_1").posted(t, "msg_1", "hello")
				eventually(t, func() bool { return in.deliveries(t, id)[0].Attempts == 1 }, "it is counted")
				require.Equal(t, "refused by the relay", in.deliveries(t, id)[0].LastReason)
			})
		})
	}
}

// While a backend is held back, what waits for it is left alone: one delivery tries.
func TestDispatch_WhatWaitsBehindAHeldBackBackendIsNotClaimed(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		mine := in.company.Scope.CompanyID()
		var open atomic.Bool
		in.backend.answers(func(_ context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			if w.company == mine && !open.Load() {
				return &relayv1.DeliverResponse{Outcome: relayv1.DeliverOutcome_DELIVER_OUTCOME_HELD, Reason: "endpoint keeps failing", RetryAfter: durationpb.New(time.Minute)}, nil
			}
			return says("ok"), nil
		})
		tries := func() (n int) {
			for _, w := range in.backend.webhooks() {
				if w.company == mine {
					n++
				}
			}
			return n
		}
		idle := func() bool { return in.service.InFlight() == 0 }
		conversations := []string{in.user("usr_0").posted(t, "msg_1", "hello")}
		in.backend.await(t, 1)
		eventually(t, idle, "it is put off")
		for range 20 {
			conversations = append(conversations, in.user("usr_1").posted(t, "msg_1"+strings.Repeat("x", len(conversations)), "hello"))
		}
		other := in.newCompany(t)
		require.Equal(t, "idle", in.userOf(other, agentID, "usr_1").start(t, "msg_1", "hello").State, "nobody else is held back")
		require.Equal(t, 1, tries())
		in.Clock.Advance(time.Second)
		eventually(t, func() bool { return tries() == 2 && idle() }, "one tries")
		require.Equal(t, "idle", in.userOf(other, agentID, "usr_1").start(t, "msg_2", "hello").State)
		require.Equal(t, 2, tries(), "and no other")
		for _, id := range conversations {
			require.Zero(t, in.deliveries(t, id)[0].Attempts)
		}
		open.Store(true)
		in.Clock.Advance(time.Minute)
		eventually(t, func() bool {
			for _, id := range conversations {
				if in.deliveries(t, id)[0].State != entdelivery.StateDelivered {
					return false
				}
			}
			return true
		}, "all are delivered")
	})
}

// The process was slow: its lease has lapsed, but the answer still comes.
func TestBackendStream_ALapsedLeaseIsNoSecondAttempt(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.streamed()
		stop(t, in.service)
		in.service = in.replica(t, dispatch.Config{Renew: time.Hour})
		start(t, in.service)
		_, address := in.serveWeb(t, in.service)
		s := dial(t, serveStreams(t, in.service), in.company.Scope, &adminv1.BackendHello{Company: in.company.Scope.Name()})
		require.NotNil(t, s.next().GetWelcome())
		u := in.user("usr_1")
		u.address = address
		id := u.posted(t, "msg_1", "hello")
		e := s.event()
		in.Clock.Advance(10 * time.Second)
		now := in.Clock.Now()
		eventually(t, func() bool { return in.deliveries(t, id)[0].LeaseUntil.Equal(now.Add(5 * time.Second)) }, "the sweep renews it")
		s.say(e.GetDelivery(), "here I am")
		require.True(t, s.receipt(e.GetDelivery()).GetRecorded(), "nothing was sent again")
		require.Equal(t, []string{"user: hello", "=working", "company: here I am", "=idle"}, u.read(t, id, "").told())
	})
}

// One conversation that can't be written holds back neither its Company's others nor another Company's.
func TestDeadline_OneThatFailsKeepsNobodyFromBeingTold(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.always(later)
		bad := in.user("usr_1").posted(t, "msg_1", "hello")
		in.Clock.Advance(time.Millisecond)
		u := in.user("usr_2")
		mine := u.posted(t, "msg_1", "hello")
		v := in.userOf(in.newCompany(t), agentID, "usr_3")
		theirs := v.posted(t, "msg_1", "hello")
		in.backend.await(t, 3)
		eventually(t, func() bool { return in.service.InFlight() == 0 }, "they are taken over")
		in.write(t, func(ctx context.Context, tx *ent.Tx) error { // its next event has no place
			return tx.Event.Create().SetID(ids.UUID()).SetConversationID(bad).SetSequence(3).SetType("message").
				SetPayload([]byte("{}")).SetCreatedAt(in.Clock.Now()).Exec(ctx)
		})
		in.Clock.Advance(time.Minute)
		eventually(t, func() bool { return u.read(t, mine, "").State == "idle" }, "the others are told")
		eventually(t, func() bool { return v.read(t, theirs, "").State == "idle" }, "at every Company")
		require.Equal(t, "working", in.get(t, bad).GetStatus())
	})
}
