package rpc_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	directoryv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/directory/v1"
)

const secret = "0123456789abcdef0123456789abcdef"

type directory struct {
	directoryv1.UnimplementedDirectoryServiceServer
	err error
}

func (d directory) GetCompanySnapshot(ctx context.Context, _ *directoryv1.GetCompanySnapshotRequest) (*directoryv1.CompanySnapshot, error) {
	if d.err != nil {
		return nil, d.err
	}
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	return &directoryv1.CompanySnapshot{CompanyId: scope.CompanyID(), Slug: rpc.Actor(ctx)}, nil
}

func (directory) ResolveHost(context.Context, *directoryv1.ResolveHostRequest) (*directoryv1.ResolveHostResponse, error) {
	panic("a bug")
}

func serve(t *testing.T, impl directory) *rpc.Server {
	t.Helper()
	s, err := rpc.NewServer(rpc.ServerConfig{
		Name: "test", Secret: secret, Log: slog.New(slog.DiscardHandler),
		Allow: rpc.Allow{directoryv1.DirectoryService_ServiceDesc.ServiceName: {"auth"}},
	})
	require.NoError(t, err)
	directoryv1.RegisterDirectoryServiceServer(s, impl)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(nil) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return s
}

func client(t *testing.T, s *rpc.Server, caller string) directoryv1.DirectoryServiceClient {
	t.Helper()
	cc, err := s.Dial(caller)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cc.Close()) })
	return directoryv1.NewDirectoryServiceClient(cc)
}

func TestCall_CarriesCompanyAndActor(t *testing.T) {
	c := client(t, serve(t, directory{}), "auth")
	scope, err := tenancy.For("cmp_01234567890123456789012345")
	require.NoError(t, err)
	ctx := rpc.WithActor(tenancy.Into(t.Context(), scope), "companies/x/apiKeys/y")
	got, err := c.GetCompanySnapshot(ctx, &directoryv1.GetCompanySnapshotRequest{})
	require.NoError(t, err)
	require.Equal(t, scope.CompanyID(), got.GetCompanyId())
	require.Equal(t, "companies/x/apiKeys/y", got.GetSlug())
}

func TestCall_WithoutCompanyFailsClosed(t *testing.T) {
	_, err := client(t, serve(t, directory{}), "auth").GetCompanySnapshot(t.Context(), &directoryv1.GetCompanySnapshotRequest{})
	require.Equal(t, problem.Internal, problem.As(err).Kind)
}

func TestCall_UnlistedCallerIsRefused(t *testing.T) {
	_, err := client(t, serve(t, directory{}), "relay").GetCompanySnapshot(t.Context(), &directoryv1.GetCompanySnapshotRequest{})
	require.True(t, problem.Is(err, problem.PermissionDenied), "%v", err)
}

func TestCall_ProblemComesBackWhole(t *testing.T) {
	want := problem.New(problem.Conflict, problem.DirectConversationOpen, "poppy-0.1/7.10#1", "one is open").
		WithExtra("conversation_id", "cnv_1").WithField("a.b", "bad").WithRetryAfter(3 * time.Second)
	_, err := client(t, serve(t, directory{err: want}), "auth").GetCompanySnapshot(t.Context(), &directoryv1.GetCompanySnapshotRequest{})
	require.Equal(t, want, problem.As(err))
}

func TestCall_OtherErrorsAndPanicsShowNothing(t *testing.T) {
	c := client(t, serve(t, directory{err: io.ErrUnexpectedEOF}), "auth")
	_, err := c.GetCompanySnapshot(t.Context(), &directoryv1.GetCompanySnapshotRequest{})
	require.Equal(t, "internal error", problem.As(err).Detail)
	_, err = c.ResolveHost(t.Context(), &directoryv1.ResolveHostRequest{})
	require.Equal(t, "internal error", problem.As(err).Detail)
}

func TestServe_RefusesServiceThatNobodyMayCall(t *testing.T) {
	s, err := rpc.NewServer(rpc.ServerConfig{Name: "test", Secret: secret, Log: slog.Default(), Allow: rpc.Allow{}})
	require.NoError(t, err)
	directoryv1.RegisterDirectoryServiceServer(s, directory{})
	require.ErrorContains(t, s.Serve(nil), "nobody is allowed")
}

func TestToStatus_CodeByKind(t *testing.T) {
	require.Equal(t, codes.NotFound, rpc.ToStatus(problem.New(problem.NotFound, problem.NotFoundReason, "", "x")).Code())
	require.Equal(t, codes.Aborted, rpc.ToStatus(problem.New(problem.Conflict, problem.EtagMismatch, "", "x")).Code())
	require.Equal(t, codes.Canceled, status.Code(rpc.ToStatus(context.Canceled).Err()))
}
