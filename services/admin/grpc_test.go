package admin_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin"
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

func TestGRPC_TLSIsForThePortAndNotForREST(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	conf := certified.TLS.Clone()
	conf.NextProtos = nil
	d := dbtest.SQLite(t)
	a := start(t, d, admin.Config{TLS: conf})
	scope := dbtest.Company(t, d)
	key := a.key(t, scope, "*")
	require.Equal(t, http.StatusOK, a.rest(t, key, "GET", "/v1/me", "").status)
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	cc, err := grpc.NewClient(a.conn.Target(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12})))
	require.NoError(t, err)
	defer func() { require.NoError(t, cc.Close()) }()
	me, err := adminv1.NewApiKeyServiceClient(cc).GetMe(as(t, key), &adminv1.GetMeRequest{})
	require.NoError(t, err)
	require.Equal(t, scope.Name(), me.GetCompany())
	_, err = adminv1.NewApiKeyServiceClient(a.conn).GetMe(as(t, key), &adminv1.GetMeRequest{})
	require.Equal(t, codes.Unavailable, status.Code(err), "without TLS")
}
