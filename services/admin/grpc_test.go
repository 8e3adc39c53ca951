package admin_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/services/admin/method"
)

// failing is an owner that breaks.
func failing(context.Context, *method.Method, proto.Message) (proto.Message, error) {
	return nil, io.ErrUnexpectedEOF
}

func requireHealthy(t *testing.T, cc *grpc.ClientConn, service string) {
	t.Helper()
	got, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, got.GetStatus())
}

func reflected(t *testing.T, cc *grpc.ClientConn) []string {
	t.Helper()
	s, err := reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	got, err := s.Recv()
	require.NoError(t, err)
	require.NoError(t, s.CloseSend())
	var out []string
	for _, svc := range got.GetListServicesResponse().GetService() {
		out = append(out, svc.GetName())
	}
	return out
}
