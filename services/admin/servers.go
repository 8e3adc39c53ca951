package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"

	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/services/admin/gate"
	"github.com/poppyfield/poppyfield/services/admin/gateway"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

// servers are the same API twice: for everybody on TCP, and in memory for REST, which
// alone may say for whom it asks.
type servers struct {
	public, memory *grpc.Server
	health         *health.Server
	lis            *bufconn.Listener
	inside         *grpc.ClientConn
}

const maxHeaders = 16 << 10

func newServers(table *method.Table, g *gate.Gate, cfg *tls.Config, tp trace.TracerProvider, mp metric.MeterProvider) (*servers, error) {
	telemetry := traced(tp, mp)
	common := []grpc.ServerOption{
		grpc.MaxSendMsgSize(rpc.MaxMessage), grpc.MaxHeaderListSize(maxHeaders), grpc.UnknownServiceHandler(gate.Unknown),
		grpc.StatsHandler(otelgrpc.NewServerHandler(telemetry...)),
	}
	// Who calls from outside starts a trace of its own here, linked to theirs.
	outside := append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(gate.MaxRequest), grpc.MaxConcurrentStreams(250), grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 15 * time.Minute, Time: time.Minute, Timeout: 20 * time.Second}),
	}, common...)
	if cfg != nil {
		outside = append(outside, grpc.Creds(credentials.NewTLS(cfg)))
	}
	s := &servers{
		public: grpc.NewServer(outside...),
		memory: grpc.NewServer(append([]grpc.ServerOption{grpc.MaxRecvMsgSize(rpc.MaxMessage)}, common...)...),
		health: health.NewServer(),
		lis:    bufconn.Listen(1 << 20),
	}
	register(s.public, table, g, func(ctx context.Context) context.Context { return ctx })
	register(s.memory, table, g, gate.Inside)
	if err := registerOthers(s.public, table, g); err != nil {
		return nil, err
	}
	healthpb.RegisterHealthServer(s.public, s.health)
	for _, name := range table.Services() {
		s.health.SetServingStatus(string(name), healthpb.HealthCheckResponse_SERVING)
	}
	reflection.Register(s.public)
	var err error
	s.inside, err = grpc.NewClient("passthrough:///memory",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(rpc.MaxMessage), grpc.MaxCallSendMsgSize(rpc.MaxMessage)),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(telemetry...)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.lis.DialContext(ctx) }))
	if err != nil {
		return nil, err
	}
	return s, nil
}

func traced(tp trace.TracerProvider, mp metric.MeterProvider) []otelgrpc.Option {
	var out []otelgrpc.Option
	if tp != nil {
		out = append(out, otelgrpc.WithTracerProvider(tp))
	}
	if mp != nil {
		out = append(out, otelgrpc.WithMeterProvider(mp))
	}
	return out
}

// register serves every method of the table through the gate. The handlers are made
// from the descriptors, so a new method needs no line of code here.
func register(s *grpc.Server, table *method.Table, g *gate.Gate, mark func(context.Context) context.Context) {
	for _, name := range table.Services() {
		desc := &grpc.ServiceDesc{ServiceName: string(name), HandlerType: (*any)(nil)}
		for _, m := range table.Of(name) {
			if m.Stream {
				desc.Streams = append(desc.Streams, grpc.StreamDesc{
					StreamName: string(m.Desc.Name()), ServerStreams: m.Desc.IsStreamingServer(), ClientStreams: m.Desc.IsStreamingClient(),
					Handler: func(_ any, stream grpc.ServerStream) error { return g.HandleStream(stream, m) },
				})
				continue
			}
			desc.Methods = append(desc.Methods, grpc.MethodDesc{
				MethodName: string(m.Desc.Name()),
				Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
					return g.Handle(mark(ctx), m, decode)
				},
			})
		}
		desc.Metadata = table.Of(name)[0].Desc.ParentFile().Path()
		s.RegisterService(desc, nil)
	}
}

// registerOthers serves the methods of other gRPC services that the table has.
func registerOthers(s *grpc.Server, table *method.Table, g *gate.Gate) error {
	for _, door := range table.Doors() {
		switch {
		case method.IsPath(door):
		case door == authv3.Authorization_Check_FullMethodName:
			authv3.RegisterAuthorizationServer(s, gateway.NewEnvoy(g, table.ByDoor(door)))
		default:
			return fmt.Errorf("nobody serves %s", door)
		}
	}
	return nil
}

func (s *servers) serve(lis net.Listener) error { return served(s.public.Serve(lis)) }

func (s *servers) serveInside() error { return served(s.memory.Serve(s.lis)) }

func served(err error) error {
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// stop lets calls finish until the end of ctx, and cuts what is left.
func (s *servers) stop(ctx context.Context) error {
	s.health.Shutdown()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.public.GracefulStop()
		s.memory.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.public.Stop()
		s.memory.Stop()
		<-done
	}
	return s.inside.Close()
}
