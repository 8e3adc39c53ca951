package conversations_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/conversations"
	"github.com/poppyfield/poppyfield/services/conversations/dispatch"
)

var discard = slog.New(slog.DiscardHandler)

func piece(text string) *relayv1.DeliverResponse { return &relayv1.DeliverResponse{TextDelta: text} }

func TestDispatch_RouteIsAskedForOnceWhileItIsWarm(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		var all sync.WaitGroup
		for i := range 20 {
			u := in.user("u" + string(rune('a'+i)))
			all.Go(func() {
				got, err := u.try(t.Context(), http.MethodPost, endpoint+"?wait=20", text("m1", "Hello"))
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, got.Status)
			})
		}
		all.Wait()
		asked := func() int {
			in.backend.mu.Lock()
			defer in.backend.mu.Unlock()
			return in.backend.asked
		}
		require.Equal(t, 1, asked(), "the clock stands still")
		in.service.BackendChanged(in.company.Scope)
		in.user("v").start(t, "m1", "Hello")
		require.Equal(t, 2, asked(), "a ring drops it")
		in.Clock.Advance(time.Second)
		in.user("w").start(t, "m1", "Hello")
		require.Equal(t, 3, asked())
	})
}

func TestDispatch_ScheduleIsTheEndpoints(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.route(in.company, &relayv1.GetRouteResponse{Schedule: []*durationpb.Duration{durationpb.New(10 * time.Minute)}})
		in.backend.always(fails)
		u := in.user("u1")
		started := u.do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		in.backend.await(t, 1)
		eventually(t, func() bool { return in.service.InFlight() == 0 }, "the first attempt ends")
		in.Clock.Advance(5 * time.Minute)
		require.Len(t, in.backend.webhooks(), 1, "by the default a second one would be due")
		in.Clock.Advance(6 * time.Minute)
		in.backend.await(t, 2)
		eventually(t, func() bool { return u.read(t, started.ConversationID, "").State == "idle" }, "the schedule is over")
	})
}

func TestDispatch_NoMoreInFlightThanTheRouteLets(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.route(in.company, &relayv1.GetRouteResponse{MaxInFlight: 2})
		open := make(chan struct{})
		in.backend.answers(func(ctx context.Context, _ webhook) (*relayv1.DeliverResponse, error) {
			select {
			case <-open:
			case <-ctx.Done():
			}
			return says("done"), nil
		})
		var ids []string
		for i := range 5 {
			ids = append(ids, in.user("u"+string(rune('a'+i))).do(t, http.MethodPost, endpoint, text("m1", "Hello")).ConversationID)
		}
		in.backend.await(t, 2)
		require.Equal(t, 2, in.service.InFlight())
		require.Len(t, in.backend.webhooks(), 2)
		close(open)
		for i, id := range ids {
			u := in.user("u" + string(rune('a'+i)))
			eventually(t, func() bool { return u.read(t, id, "").State == "idle" }, "all are answered")
		}
	})
}

func TestDispatch_HeldIsNoAttempt(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		var n atomic.Int32
		in.backend.answers(func(context.Context, webhook) (*relayv1.DeliverResponse, error) {
			if n.Add(1) <= 3 {
				return &relayv1.DeliverResponse{Outcome: relayv1.DeliverOutcome_DELIVER_OUTCOME_HELD, Reason: "rate used up", RetryAfter: durationpb.New(3 * time.Second)}, nil
			}
			return says("at last"), nil
		})
		u := in.user("u1")
		started := u.do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		for i := range 3 {
			in.backend.await(t, i+1)
			eventually(t, func() bool { return in.service.InFlight() == 0 }, "it is put off")
			in.Clock.Advance(3 * time.Second)
		}
		w := in.backend.await(t, 4)
		require.Zero(t, w[3].asked.GetAttempt(), "none was counted")
		eventually(t, func() bool { return u.read(t, started.ConversationID, "").State == "idle" }, "it is answered")
	})
}

func TestDispatch_PiecesThenTheWholeMessage(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.answers(func(_ context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			for _, p := range []string{"Hel", "lo"} {
				if err := w.frames.Send(piece(p)); err != nil {
					return nil, err
				}
			}
			return says("Hello"), nil
		})
		got := in.user("u1").start(t, "m1", "Hi")
		require.Contains(t, got.told(), "company: Hello")
	})
}

func TestDispatch_StreamOfFramesThatBreaksOrHangsIsAFailedAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(context.Context, webhook) (*relayv1.DeliverResponse, error)
	}{
		"breaks": {func(_ context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			_ = w.frames.Send(piece("Hel"))
			return nil, status.Error(codes.Unavailable, "gone")
		}},
		"hangs": {func(ctx context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			_ = w.frames.Send(piece("Hel"))
			<-ctx.Done()
			return nil, ctx.Err()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, in *installation) {
				other := in.replicaWith(t, conversations.Config{Dispatch: dispatch.Config{Attempt: 50 * time.Millisecond, Sweep: 20 * time.Millisecond}})
				start(t, other)
				stop(t, in.service)
				var n atomic.Int32
				in.backend.answers(func(ctx context.Context, w webhook) (*relayv1.DeliverResponse, error) {
					if n.Add(1) == 1 {
						return c.breaks(ctx, w)
					}
					return says("whole"), nil
				})
				u := in.user("u1")
				started := u.do(t, http.MethodPost, endpoint, text("m1", "Hi"))
				in.backend.await(t, 1)
				eventually(t, func() bool { return other.InFlight() == 0 }, "the attempt fails")
				in.Clock.Advance(2 * time.Second)
				in.backend.await(t, 2)
				require.EqualValues(t, 1, in.backend.webhooks()[1].asked.GetAttempt(), "it counted")
				eventually(t, func() bool { return u.read(t, started.ConversationID, "").State == "idle" }, "it is answered")
			})
		})
	}
}

func stop(t *testing.T, s *conversations.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, s.Stop(ctx))
}

func TestDispatch_ActionsOfAnAnswer(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		answer := says("Please come yourself")
		answer.RequestUser = "to agree to the terms"
		in.backend.always(answer)
		u := in.user("u1")
		got := u.start(t, "m1", "Hi")
		require.Contains(t, got.Raw, `"user_requested"`)
		closing := says("Bye")
		closing.Close = true
		in.backend.always(closing)
		u.send(t, got.ConversationID, "?wait=20", text("m2", "Thanks"))
		require.Equal(t, "closed", u.read(t, got.ConversationID, "").State)
		// What doesn't go together is a failed attempt.
		both := says("x")
		both.Close, both.HandOff = true, true
		in.backend.always(both)
		bad := u.again().do(t, http.MethodPost, endpoint, text("m3", "Hi"))
		in.backend.await(t, 3)
		eventually(t, func() bool { return in.service.InFlight() == 0 }, "the attempt ends")
		require.Equal(t, "working", u.read(t, bad.ConversationID, "").State)
	})
}

func TestDispatch_HistoryHasTheMessageLast(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.route(in.company, &relayv1.GetRouteResponse{History: 3})
		u := in.user("u1")
		got := u.start(t, "m1", "one")
		u.send(t, got.ConversationID, "?wait=20", text("m2", "two"))
		u.send(t, got.ConversationID, "?wait=20", text("m3", "three"))
		seen := in.backend.await(t, 3)
		var told []string
		for _, turn := range seen[2].asked.GetHistory() {
			told = append(told, turn.GetRole()+" "+turn.GetText())
		}
		require.Equal(t, []string{"user two", "company echo: two", "user three"}, told)
		require.Len(t, seen[0].asked.GetHistory(), 1)
		require.Equal(t, got.ConversationID, seen[0].asked.GetConversationId())
	})
}

// One of ten Companies hangs, and everything it may have is stuck: the others go on, however few slots there are.
func TestDispatch_OneHangingCompanyLeavesSlotsToTheOthers(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		stop(t, in.service)
		in.service = in.replica(t, dispatch.Config{PerCompany: 64, Total: 16})
		start(t, in.service)
		_, in.address = in.serveWeb(t, in.service)
		hanging := in.company.Scope.CompanyID()
		in.backend.answers(func(ctx context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			if w.company == hanging {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return says("done"), nil
		})
		for i := range 40 {
			in.user("h"+string(rune('A'+i))).do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		}
		eventually(t, func() bool { return in.service.InFlight() >= 8 }, "it has what it may have")
		require.LessOrEqual(t, in.service.InFlight(), 8, "half of all")
		var done sync.WaitGroup
		var answered atomic.Int32
		for range 9 {
			c := in.newCompany(t)
			for i := range 5 {
				u := in.userOf(c, agentID, "u"+string(rune('a'+i)))
				done.Go(func() {
					got, err := u.try(t.Context(), http.MethodPost, endpoint+"?wait=20", text("m1", "Hello"))
					if err == nil && got.State == "idle" {
						answered.Add(1)
					}
				})
			}
		}
		done.Wait()
		require.EqualValues(t, 45, answered.Load())
	})
}

// The pieces of an answer extend no deadline: the agent is told, and the whole message is added when it comes (decision 25).
func TestDispatch_AnswerStillBeingWrittenAtTheDeadline(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		open := make(chan struct{})
		in.backend.answers(func(ctx context.Context, w webhook) (*relayv1.DeliverResponse, error) {
			if err := w.frames.Send(piece("I am")); err != nil {
				return nil, err
			}
			select {
			case <-open:
			case <-ctx.Done():
			}
			return says("I am here"), nil
		})
		u := in.user("u1")
		started := u.do(t, http.MethodPost, endpoint, text("m1", "Hi"))
		in.backend.await(t, 1)
		in.Clock.Advance(time.Minute)
		eventually(t, func() bool { return u.read(t, started.ConversationID, "").State == "idle" }, "the agent is told at the deadline")
		close(open)
		eventually(t, func() bool {
			told := u.read(t, started.ConversationID, "").told()
			return told[len(told)-1] == "company: I am here" || told[len(told)-2] == "company: I am here"
		}, "the late answer is added")
	})
}

// 202 and then nothing: the agent is told at the answer deadline, and no second attempt is made.
func TestDispatch_TakenOverAndThenNothing(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.backend.always(later)
		u := in.user("u1")
		started := u.do(t, http.MethodPost, endpoint, text("m1", "Hi"))
		in.backend.await(t, 1)
		eventually(t, func() bool { return in.service.InFlight() == 0 }, "the 202 is recorded")
		in.Clock.Advance(59 * time.Second)
		require.Equal(t, "working", u.read(t, started.ConversationID, "").State)
		in.Clock.Advance(time.Second)
		eventually(t, func() bool { return u.read(t, started.ConversationID, "").State == "idle" }, "the agent is told")
		require.Len(t, in.backend.webhooks(), 1)
	})
}

// The Company's agent of a conversation knows what is said in the Direct one below it, and the other way round (7.10).
func TestDispatch_HistoryHoldsTheFamily(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.route(in.company, &relayv1.GetRouteResponse{History: 10})
		u := in.user("u1")
		parent := u.start(t, "m1", "from the agent")
		in.Clock.Advance(time.Millisecond)
		child := u.do(t, http.MethodPost, endpoint+"?wait=20",
			`{"parent_conversation_id":"`+parent.ConversationID+`","message":{"id":"m2","sender":"human","text":"from the user"}}`)
		require.Equal(t, http.StatusCreated, child.Status, child.Raw)
		in.Clock.Advance(time.Millisecond)
		u.close(t, child.ConversationID) // until then the parent takes no messages
		again := u.send(t, parent.ConversationID, "?wait=20", text("m3", "from the agent again"))
		require.Equal(t, http.StatusAccepted, again.Status, again.Raw)
		seen := in.backend.await(t, 3)
		texts := func(i int) []string {
			var out []string
			for _, turn := range seen[i].asked.GetHistory() {
				out = append(out, turn.GetText())
			}
			return out
		}
		require.Equal(t, []string{"from the agent", "echo: from the agent", "from the user"}, texts(1))
		require.Equal(t, []string{"from the agent", "echo: from the agent", "from the user", "echo: from the user", "from the agent again"}, texts(2))
		require.Contains(t, seen[1].raw, `"direct":true,"parent":"`+parent.ConversationID+`"`)
		require.Contains(t, seen[2].raw, `"direct":false,"parent":null`)
	})
}
