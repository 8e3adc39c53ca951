package rpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

type (
	serverSide = grpc.BidiStreamingServer[adminv1.ConnectRequest, adminv1.ConnectResponse]
	clientSide = grpc.BidiStreamingClient[adminv1.ConnectRequest, adminv1.ConnectResponse]
)

// talker serves streams as a test says, and watches of the inbox, whose requests have rules.
type talker struct {
	adminv1.UnimplementedBackendStreamServiceServer
	adminv1.UnimplementedInboxServiceServer
	talk func(serverSide) error
}

func (s talker) Connect(stream serverSide) error { return s.talk(stream) }

func (talker) WatchInbox(_ *adminv1.WatchInboxRequest, stream grpc.ServerStreamingServer[adminv1.WatchInboxResponse]) error {
	return stream.Send(&adminv1.WatchInboxResponse{})
}

func talk(t *testing.T, caller string, fn func(serverSide) error) (context.Context, *grpc.ClientConn) {
	t.Helper()
	s, err := rpc.NewServer(rpc.ServerConfig{
		Name: "test", Secret: secret, Log: slog.New(slog.DiscardHandler),
		Allow: rpc.Allow{adminv1.BackendStreamService_ServiceDesc.ServiceName: {"admin"}, adminv1.InboxService_ServiceDesc.ServiceName: {"admin"}},
	})
	require.NoError(t, err)
	adminv1.RegisterBackendStreamServiceServer(s, talker{talk: fn})
	adminv1.RegisterInboxServiceServer(s, talker{})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(nil) }()
	t.Cleanup(func() { s.Stop(); <-done })
	cc, err := s.Dial(caller)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cc.Close()) })
	scope, err := tenancy.For("cmp_01234567890123456789012345")
	require.NoError(t, err)
	return rpc.WithActor(tenancy.Into(t.Context(), scope), "companies/x/apiKeys/y"), cc
}

func open(ctx context.Context, t *testing.T, cc *grpc.ClientConn) clientSide {
	t.Helper()
	stream, err := adminv1.NewBackendStreamServiceClient(cc).Connect(ctx)
	require.NoError(t, err)
	return stream
}

func TestStream_CarriesCompanyAndActorBothWays(t *testing.T) {
	ctx, cc := talk(t, "admin", func(s serverSide) error {
		scope, err := tenancy.From(s.Context())
		if err != nil {
			return err
		}
		for {
			in, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			out := &adminv1.BackendEvent{Delivery: in.GetDelta().GetText() + " " + scope.CompanyID() + " " + rpc.Actor(s.Context())}
			if err := s.Send(&adminv1.ConnectResponse{Frame: &adminv1.ConnectResponse_Event{Event: out}}); err != nil {
				return err
			}
		}
	})
	stream := open(ctx, t, cc)
	for _, text := range []string{"a", "b"} {
		require.NoError(t, stream.Send(&adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Delta{Delta: &adminv1.BackendDelta{Text: text}}}))
		got, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, text+" cmp_01234567890123456789012345 companies/x/apiKeys/y", got.GetEvent().GetDelivery())
	}
	require.NoError(t, stream.CloseSend())
	_, err := stream.Recv()
	require.ErrorIs(t, err, io.EOF, "the end stays the end")
}

func TestStream_UnlistedCallerIsRefused(t *testing.T) {
	ctx, cc := talk(t, "relay", func(serverSide) error { panic("reached") })
	_, err := open(ctx, t, cc).Recv()
	require.True(t, problem.Is(err, problem.PermissionDenied), "%v", err)
}

func TestStream_WithoutCompanyFailsClosed(t *testing.T) {
	_, cc := talk(t, "admin", func(s serverSide) error {
		_, err := tenancy.From(s.Context())
		return err
	})
	_, err := open(t.Context(), t, cc).Recv()
	require.Equal(t, problem.Internal, problem.As(err).Kind)
}

func TestStream_MessagesKeepTheProtosRules(t *testing.T) {
	ctx, cc := talk(t, "admin", nil)
	inbox := adminv1.NewInboxServiceClient(cc)
	good, err := inbox.WatchInbox(ctx, &adminv1.WatchInboxRequest{Parent: "companies/x/inbox"})
	require.NoError(t, err)
	_, err = good.Recv()
	require.NoError(t, err)
	bad, err := inbox.WatchInbox(ctx, &adminv1.WatchInboxRequest{Parent: "elsewhere"})
	require.NoError(t, err)
	_, err = bad.Recv()
	require.True(t, problem.Is(err, problem.InvalidRequest), "%v", err)
	require.Equal(t, "parent", problem.As(err).Fields[0].Path)

	// A bidirectional stream's later messages too.
	seen := make(chan error, 2)
	ctx, cc = talk(t, "admin", func(s serverSide) error {
		for range 2 {
			_, err := s.Recv()
			seen <- err
		}
		return nil
	})
	stream := open(ctx, t, cc)
	require.NoError(t, stream.Send(&adminv1.ConnectRequest{}))
	require.NoError(t, stream.Send(&adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Answer{Answer: &adminv1.BackendAnswer{
		Delivery: strings.Repeat("x", 129),
	}}}))
	require.NoError(t, <-seen)
	require.True(t, problem.Is(<-seen, problem.InvalidRequest))
}

func TestStream_ProblemComesBackWhole(t *testing.T) {
	want := problem.New(problem.Conflict, problem.DirectConversationOpen, "poppy-0.1/7.10#1", "one is open").
		WithExtra("conversation_id", "cnv_1").WithField("a.b", "bad").WithRetryAfter(3 * time.Second)
	ctx, cc := talk(t, "admin", func(serverSide) error { return want })
	_, err := open(ctx, t, cc).Recv()
	require.Equal(t, want, problem.As(err))
}

func TestStream_OtherErrorsAndPanicsShowNothing(t *testing.T) {
	for _, fn := range []func(serverSide) error{
		func(serverSide) error { return io.ErrUnexpectedEOF },
		func(serverSide) error { panic("a bug") },
	} {
		ctx, cc := talk(t, "admin", fn)
		_, err := open(ctx, t, cc).Recv()
		require.Equal(t, problem.Internal, problem.As(err).Kind)
		require.Equal(t, "internal error", problem.As(err).Detail)
	}
}

func TestStream_CancelReachesTheOtherSide(t *testing.T) {
	over := make(chan error, 1)
	ctx, cc := talk(t, "admin", func(s serverSide) error {
		_, err := s.Recv()
		over <- s.Context().Err()
		return err
	})
	ctx, cancel := context.WithCancel(ctx)
	stream := open(ctx, t, cc)
	cancel()
	require.ErrorIs(t, <-over, context.Canceled)
	_, err := stream.Recv()
	require.ErrorIs(t, err, context.Canceled)
}
