package conversations_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/conversations"
	"github.com/poppyfield/poppyfield/services/conversations/dispatch"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// route says how a Company's backend is delivered to, and rings as the relay does.
func (in *installation) route(c *fixture.Company, r *relayv1.GetRouteResponse) {
	in.backend.mu.Lock()
	if in.backend.routes == nil {
		in.backend.routes = map[string]*relayv1.GetRouteResponse{}
	}
	in.backend.routes[c.Scope.CompanyID()] = r
	in.backend.mu.Unlock()
	in.service.BackendChanged(c.Scope)
}

// socket is a backend's end of a stream.
type socket struct {
	t      *testing.T
	stream grpc.BidiStreamingClient[adminv1.ConnectRequest, adminv1.ConnectResponse]
	cut    context.CancelFunc
}

func dial(t *testing.T, conn *grpc.ClientConn, scope tenancy.Scope, hello *adminv1.BackendHello) *socket {
	t.Helper()
	ctx, cancel := context.WithCancel(tenancy.Into(t.Context(), scope))
	t.Cleanup(cancel)
	stream, err := adminv1.NewBackendStreamServiceClient(conn).Connect(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Hello{Hello: hello}}))
	return &socket{t, stream, cancel}
}

func (in *installation) dial(t *testing.T, most int32) *socket {
	t.Helper()
	s := dial(t, in.Conn(t), in.company.Scope, &adminv1.BackendHello{Company: in.company.Scope.Name(), MaxInFlight: most})
	require.Equal(t, in.company.Scope.Name(), s.next().GetWelcome().GetCompany())
	return s
}

// next returns the next frame.
func (s *socket) next() *adminv1.ConnectResponse {
	s.t.Helper()
	type frame struct {
		got *adminv1.ConnectResponse
		err error
	}
	came := make(chan frame, 1)
	go func() {
		got, err := s.stream.Recv()
		came <- frame{got, err}
	}()
	select {
	case f := <-came:
		require.NoError(s.t, f.err)
		return f.got
	case <-time.After(patience):
		require.FailNow(s.t, "no frame came")
		return nil
	}
}

func (s *socket) event() *adminv1.BackendEvent {
	s.t.Helper()
	e := s.next().GetEvent()
	require.NotNil(s.t, e)
	return e
}

func (s *socket) receipt(delivery string) *adminv1.BackendReceipt {
	s.t.Helper()
	r := s.next().GetReceipt()
	require.NotNil(s.t, r)
	require.Equal(s.t, delivery, r.GetDelivery())
	return r
}

func (s *socket) answer(a *adminv1.BackendAnswer) {
	s.t.Helper()
	require.NoError(s.t, s.stream.Send(&adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Answer{Answer: a}}))
}

func (s *socket) say(delivery, text string) {
	s.t.Helper()
	s.answer(&adminv1.BackendAnswer{Delivery: delivery, Messages: []*adminv1.Message{{Text: text}}})
}

// end returns how the stream ended, after frames of any kind.
func (s *socket) end() error {
	for {
		if _, err := s.stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func bodyOf(t *testing.T, e *adminv1.BackendEvent) webhook {
	t.Helper()
	var w webhook
	require.NoError(t, json.Unmarshal(e.GetBody(), &w))
	return w
}

// streamed has the Company's backend be one that opens streams.
func (in *installation) streamed() {
	in.route(in.company, &relayv1.GetRouteResponse{Stream: true, Timeout: durationpb.New(30 * time.Second)})
}

func TestBackendStream_EventsAreWebhooksAndAnswersBecomeEvents(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.streamed()
		s := in.dial(t, 0)
		u := in.user("u1")
		started := u.do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		e := s.event()
		require.EqualValues(t, 1, e.GetAttempt())
		w := bodyOf(t, e)
		require.Equal(t, "conversation.message", w.Type)
		require.Equal(t, "Hello", w.Data.Message.Text)
		require.Equal(t, started.ConversationID, w.Data.Conversation.ID)
		s.say(e.GetDelivery(), "Good day")
		require.True(t, s.receipt(e.GetDelivery()).GetRecorded())
		got := u.read(t, started.ConversationID, "")
		require.Equal(t, []string{"user: Hello", "=working", "company: Good day", "=idle"}, got.told())
		require.Empty(t, in.backend.webhooks(), "the relay is not asked")

		// What else a backend can ask for.
		u.send(t, started.ConversationID, "", text("m2", "My order"))
		e = s.event()
		s.answer(&adminv1.BackendAnswer{Delivery: e.GetDelivery(), RequestUser: "to agree to the terms"})
		require.True(t, s.receipt(e.GetDelivery()).GetRecorded())
		require.Contains(t, u.read(t, started.ConversationID, "").Raw, `"user_requested"`)
		u.send(t, started.ConversationID, "", text("m3", "Bye"))
		e = s.event()
		s.answer(&adminv1.BackendAnswer{Delivery: e.GetDelivery(), Messages: []*adminv1.Message{{Text: "Bye"}}, Close: true})
		require.True(t, s.receipt(e.GetDelivery()).GetRecorded())
		require.Equal(t, "closed", u.read(t, started.ConversationID, "").State)
	})
}

func TestBackendStream_ReceiptsComeInTheOrderOfAnswers(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.streamed()
		s := in.dial(t, 8)
		var deliveries []string
		for i := range 5 {
			in.user("u"+string(rune('a'+i))).do(t, http.MethodPost, endpoint, text("m1", "Hello"))
			deliveries = append(deliveries, s.event().GetDelivery())
		}
		s.say("dlv_nowhere", "x")
		for _, id := range deliveries {
			s.say(id, "answer")
		}
		s.say(deliveries[0], "again")
		require.Equal(t, "unknown delivery", s.receipt("dlv_nowhere").GetReason())
		for _, id := range deliveries {
			require.True(t, s.receipt(id).GetRecorded())
		}
		require.Equal(t, "too late", s.receipt(deliveries[0]).GetReason())
	})
}

func TestBackendStream_BadAnswersAreFailuresAndTheStreamGoesOn(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.route(in.company, &relayv1.GetRouteResponse{Stream: true, Schedule: []*durationpb.Duration{
			durationpb.New(time.Millisecond), durationpb.New(time.Millisecond), durationpb.New(time.Millisecond), durationpb.New(time.Millisecond), durationpb.New(time.Hour),
		}})
		s := in.dial(t, 1)
		u := in.user("u1")
		started := u.do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		for i, bad := range []*adminv1.BackendAnswer{
			{Messages: []*adminv1.Message{{Text: strings.Repeat("x", 32001)}}},
			{Authorization: &adminv1.Authorization{Error: "nonsense"}},
			{Messages: []*adminv1.Message{{Sender: "nobody", Text: "x"}}},
			{Close: true, HandOff: &adminv1.HandOff{}},
		} {
			var e *adminv1.BackendEvent
			in.Clock.Advance(time.Second)
			e = s.event()
			require.EqualValues(t, i+1, e.GetAttempt())
			bad.Delivery = e.GetDelivery()
			s.answer(bad)
			r := s.receipt(e.GetDelivery())
			require.False(t, r.GetRecorded())
			require.Equal(t, "answer breaks the contract", r.GetReason())
		}
		in.Clock.Advance(time.Second)
		e := s.event()
		s.answer(&adminv1.BackendAnswer{Delivery: e.GetDelivery(), Failure: "the database is away"})
		require.True(t, s.receipt(e.GetDelivery()).GetRecorded())
		require.Equal(t, "working", u.read(t, started.ConversationID, "").State)
	})
}

func TestBackendStream_NobodyConnectedLeasesAndCountsNothing(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.streamed()
		u := in.user("u1")
		started := u.do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		in.Clock.Advance(time.Minute)
		eventually(t, func() bool { return u.read(t, started.ConversationID, "").State == "idle" }, "the agent is told at the deadline")
		require.Zero(t, in.service.InFlight())
		s := in.dial(t, 0)
		e := s.event()
		require.EqualValues(t, 1, e.GetAttempt(), "nothing was counted")
		s.say(e.GetDelivery(), "late but here")
		require.True(t, s.receipt(e.GetDelivery()).GetRecorded())
		told := u.read(t, started.ConversationID, "").told()
		require.Contains(t, told, "company: late but here")

		// Unless late ones aren't wanted.
		in.route(in.company, &relayv1.GetRouteResponse{Stream: true, DropLate: true})
		require.NoError(t, s.stream.CloseSend())
		require.NoError(t, s.end())
		late := u.again().do(t, http.MethodPost, endpoint, text("m2", "Anybody?"))
		in.Clock.Advance(time.Minute)
		eventually(t, func() bool { return u.read(t, late.ConversationID, "").State == "idle" }, "the agent is told at the deadline")
		s = in.dial(t, 0)
		u.again().do(t, http.MethodPost, endpoint, text("m3", "In time"))
		require.Equal(t, "In time", bodyOf(t, s.event()).Data.Message.Text)
	})
}

func TestBackendStream_BrokenOneIsRetriedAtOnceOnAnother(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.streamed()
		first := in.dial(t, 4)
		u := in.user("u1")
		started := u.do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		e := first.event()
		second := in.dial(t, 4)
		begun := time.Now()
		first.cut()
		again := second.event()
		require.Less(t, time.Since(begun), 5*time.Second)
		require.Equal(t, e.GetDelivery(), again.GetDelivery())
		require.Equal(t, e.GetBody(), again.GetBody())
		require.EqualValues(t, 2, again.GetAttempt())
		second.say(again.GetDelivery(), "here")
		require.True(t, second.receipt(again.GetDelivery()).GetRecorded())
		require.Equal(t, "idle", u.read(t, started.ConversationID, "").State)
	})
}

func TestBackendStream_NoAnswerInTimeIsTriedAgainBySchedule(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.route(in.company, &relayv1.GetRouteResponse{Stream: true, Timeout: durationpb.New(30 * time.Millisecond)})
		s := in.dial(t, 1)
		in.user("u1").do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		e := s.event()
		eventually(t, func() bool { return in.service.InFlight() == 0 }, "the wait ends")
		s.say(e.GetDelivery(), "after all")
		require.Equal(t, "too late", s.receipt(e.GetDelivery()).GetReason())
		in.Clock.Advance(2 * time.Second)
		require.EqualValues(t, 2, s.event().GetAttempt())
	})
}

func TestBackendStream_SeveralShareByRoom(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.streamed()
		a, b := in.dial(t, 2), in.dial(t, 4)
		for i := range 7 {
			in.user("u"+string(rune('a'+i))).do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		}
		var mine []string
		for range 2 {
			mine = append(mine, a.event().GetDelivery())
		}
		for range 4 {
			b.event()
		}
		require.Equal(t, 6, in.service.InFlight(), "the seventh waits")
		a.say(mine[0], "one")
		require.True(t, a.receipt(mine[0]).GetRecorded())
		require.NotEmpty(t, a.event().GetDelivery(), "whoever has room gets it")
	})
}

// A message accepted by one process goes to a stream that another one has.
func TestBackendStream_OnAnotherReplicaIsReachedAtOnce(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.streamed()
		// Its sweeps are too rare to help.
		slow := conversations.Config{Dispatch: dispatch.Config{Sweep: time.Hour}, DeadlineEvery: time.Hour, CloseEvery: time.Hour, PruneEvery: time.Hour}
		other := in.replicaWith(t, slow)
		start(t, other)
		conn := serveStreams(t, other)
		s := dial(t, conn, in.company.Scope, &adminv1.BackendHello{Company: in.company.Scope.Name()})
		require.NotNil(t, s.next().GetWelcome())
		var worst time.Duration
		for i := range 20 {
			u := in.user("u" + string(rune('a'+i)))
			begun := time.Now()
			started := u.do(t, http.MethodPost, endpoint, text("m1", "Hello"))
			e := s.event()
			worst = max(worst, time.Since(begun))
			s.say(e.GetDelivery(), "from over there")
			require.True(t, s.receipt(e.GetDelivery()).GetRecorded())
			require.Equal(t, "idle", u.read(t, started.ConversationID, "").State)
		}
		t.Logf("slowest of 20: %v", worst)
		require.Less(t, worst, 5*time.Second)
		require.Empty(t, in.backend.webhooks())
	})
}

// serveStreams serves a replica's streams on an internal server of its own.
func serveStreams(t *testing.T, s *conversations.Service) *grpc.ClientConn {
	t.Helper()
	srv, err := rpc.NewServer(rpc.ServerConfig{
		Name: "other", Secret: strings.Repeat("s", 32), Log: discard,
		Allow: rpc.Allow{"poppyfield.admin.v1.BackendStreamService": {"admin"}, "poppyfield.admin.v1.ConversationService": {"admin"}, "poppyfield.admin.v1.InboxService": {"admin"}, "poppyfield.admin.v1.BackendDeliveryService": {"admin"}},
	})
	require.NoError(t, err)
	s.Register(srv)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(nil) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	conn, err := srv.Dial("admin")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

func TestBackendStream_GoodbyeWaitsForOutstandingAnswers(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.streamed()
		other := in.replica(t, dispatch.Config{})
		require.NoError(t, other.Start(t.Context()))
		conn := serveStreams(t, other)
		s := dial(t, conn, in.company.Scope, &adminv1.BackendHello{Company: in.company.Scope.Name()})
		require.NotNil(t, s.next().GetWelcome())
		u := in.user("u1")
		started := u.do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		e := s.event()
		stopped := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
			defer cancel()
			stopped <- other.Stop(ctx)
		}()
		require.Equal(t, "drain", s.next().GetGoodbye().GetReason())
		refused := dial(t, conn, in.company.Scope, &adminv1.BackendHello{Company: in.company.Scope.Name()})
		require.True(t, problem.Is(refused.end(), problem.TemporarilyUnavailable))
		s.say(e.GetDelivery(), "before I go")
		require.True(t, s.receipt(e.GetDelivery()).GetRecorded())
		require.NoError(t, s.end())
		require.NoError(t, <-stopped)
		require.Contains(t, u.read(t, started.ConversationID, "").told(), "company: before I go")
	})
}

func TestBackendStream_DrainGivesBackWhatStaysUnanswered(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.streamed()
		other := in.replica(t, dispatch.Config{})
		require.NoError(t, other.Start(t.Context()))
		s := dial(t, serveStreams(t, other), in.company.Scope, &adminv1.BackendHello{Company: in.company.Scope.Name()})
		require.NotNil(t, s.next().GetWelcome())
		in.user("u1").do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		e := s.event()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, other.Stop(ctx), context.DeadlineExceeded)
		here := in.dial(t, 0)
		again := here.event()
		require.Equal(t, e.GetDelivery(), again.GetDelivery())
		require.EqualValues(t, 1, again.GetAttempt(), "a drain is no attempt")
	})
}

func TestBackendStream_HelloHasToBeRight(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		open := func(h *adminv1.BackendHello) error { return dial(t, in.Conn(t), in.company.Scope, h).end() }
		name := in.company.Scope.Name()
		require.True(t, problem.Is(open(&adminv1.BackendHello{Company: name}), problem.FailedPrecondition), "the backend is a webhook")
		in.streamed()
		require.True(t, problem.Is(open(&adminv1.BackendHello{Company: "companies/cmp_zzzzzzzzzzzzzzzzzzzzzzzzzz"}), problem.NotFoundReason))
		require.True(t, problem.Is(open(&adminv1.BackendHello{Company: name, MaxInFlight: 257}), problem.InvalidRequest))
		require.True(t, problem.Is(open(&adminv1.BackendHello{Company: name, MaxInFlight: -1}), problem.InvalidRequest))
		s := in.dial(t, 1)
		require.NoError(t, s.stream.Send(&adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Hello{Hello: &adminv1.BackendHello{Company: name}}}))
		require.True(t, problem.Is(s.end(), problem.InvalidRequest), "a second hello")
		s = in.dial(t, 1)
		require.NoError(t, s.stream.Send(&adminv1.ConnectRequest{}))
		require.True(t, problem.Is(s.end(), problem.InvalidRequest), "an empty frame")
		s = in.dial(t, 1)
		require.NoError(t, s.stream.CloseSend())
		require.NoError(t, s.end(), "a backend may go")
	})
}

func TestBackendStream_LaterAndThenByTheAPI(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		in.streamed()
		s := in.dial(t, 0)
		u := in.user("u1")
		started := u.do(t, http.MethodPost, endpoint, text("m1", "Hello"))
		e := s.event()
		s.answer(&adminv1.BackendAnswer{Delivery: e.GetDelivery(), Later: true})
		require.True(t, s.receipt(e.GetDelivery()).GetRecorded())
		_, err := in.admin.PostMessage(tenancy.Into(t.Context(), in.company.Scope), &adminv1.PostMessageRequest{
			Conversation: in.company.Scope.Name() + "/conversations/" + started.ConversationID, Message: &adminv1.Message{Text: "Found it"},
		})
		require.NoError(t, err)
		got := u.read(t, started.ConversationID, "")
		require.Equal(t, []string{"user: Hello", "=working", "company: Found it", "=idle"}, got.told())

		// An answer to a closed conversation is not recorded.
		u.send(t, started.ConversationID, "", text("m2", "One more"))
		e = s.event()
		u.close(t, started.ConversationID)
		s.say(e.GetDelivery(), "too late")
		r := s.receipt(e.GetDelivery())
		require.False(t, r.GetRecorded())
		require.NotEmpty(t, r.GetReason())
	})
}
