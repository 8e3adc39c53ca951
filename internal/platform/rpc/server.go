package rpc

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strings"

	"buf.build/go/protovalidate"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// MaxMessage bounds a gRPC message in either direction, in bytes.
const MaxMessage = 4 << 20

// Allow says which services may call the methods of each gRPC service, by full
// service name. A gRPC service that isn't listed can't be called at all.
type Allow map[string][]string

// ServerConfig is what every internal server needs.
type ServerConfig struct {
	// Name of the service, for logs.
	Name string
	// Secret that internal callers prove themselves by, at least 32 bytes.
	Secret string
	Allow  Allow
	Log    *slog.Logger
	// TLS for the TCP listener; nil on loopback or behind a mesh.
	TLS            *tls.Config
	TracerProvider trace.TracerProvider
}

// Server is the internal gRPC server of a process. It always listens in memory,
// and on TCP when asked to.
type Server struct {
	*grpc.Server
	mem *bufconn.Listener
	cfg ServerConfig
}

// NewServer makes a server; register services on it, then call Serve.
func NewServer(cfg ServerConfig) (*Server, error) {
	if len(cfg.Secret) < 32 {
		return nil, errors.New("internal secret is shorter than 32 bytes")
	}
	v, err := protovalidate.New()
	if err != nil {
		return nil, fmt.Errorf("protovalidate: %w", err)
	}
	s := &Server{mem: bufconn.Listen(1 << 20), cfg: cfg}
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.ChainUnaryInterceptor(s.recover, s.admit, validate(v)),
		grpc.ChainStreamInterceptor(s.recoverStream, s.admitStream, validateStream(v)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5e9, PermitWithoutStream: true}),
		grpc.StatsHandler(otelgrpc.NewServerHandler(traced(cfg.TracerProvider)...)),
	}
	if cfg.TLS != nil {
		opts = append(opts, grpc.Creds(&exceptMemory{credentials.NewTLS(cfg.TLS)}))
	}
	s.Server = grpc.NewServer(opts...)
	return s, nil
}

func traced(tp trace.TracerProvider) []otelgrpc.Option {
	if tp == nil {
		return nil
	}
	return []otelgrpc.Option{otelgrpc.WithTracerProvider(tp)}
}

// Serve answers calls until Stop. lis may be nil: then only this process can call.
func (s *Server) Serve(lis net.Listener) error {
	for name := range s.GetServiceInfo() {
		if _, ok := s.cfg.Allow[name]; !ok {
			return fmt.Errorf("nobody is allowed to call %s: add it to the table of callers", name)
		}
	}
	hs := health.NewServer()
	hs.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(s.Server, hs)
	errs := make(chan error, 2)
	go func() { errs <- s.Server.Serve(s.mem) }()
	if lis != nil {
		go func() { errs <- s.Server.Serve(lis) }()
	}
	return <-errs
}

// exceptMemory asks for TLS on every connection but those from within the process.
type exceptMemory struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *exceptMemory) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if conn.LocalAddr().Network() == "bufconn" {
		return insecure.NewCredentials().ServerHandshake(conn)
	}
	return c.TransportCredentials.ServerHandshake(conn)
}

// Clone implements credentials.TransportCredentials.
func (c *exceptMemory) Clone() credentials.TransportCredentials {
	return &exceptMemory{c.TransportCredentials.Clone()}
}

// Dial returns a connection to this server from within the process, for the service named caller.
func (s *Server) Dial(caller string) (*grpc.ClientConn, error) {
	return dial("passthrough:///memory", ClientConfig{Caller: caller, Secret: s.cfg.Secret, TracerProvider: s.cfg.TracerProvider},
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.mem.DialContext(ctx) }))
}

func (s *Server) recover(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.cfg.Log.ErrorContext(ctx, "panic in handler", "method", info.FullMethod, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			resp, err = nil, ToStatus(problem.New(problem.Internal, problem.ServerError, "", "internal error")).Err()
		}
	}()
	resp, err = next(ctx, req)
	if err == nil {
		return resp, nil
	}
	return nil, s.failed(ctx, info.FullMethod, err)
}

// failed is err as the caller gets it; one of ours is logged.
func (s *Server) failed(ctx context.Context, method string, err error) error {
	st := ToStatus(err)
	if st.Code() == codes.Internal || st.Code() == codes.Unknown {
		s.cfg.Log.ErrorContext(ctx, "call failed", "method", method, "error", err)
	}
	return st.Err()
}

// admit lets in the callers of the table.
func (s *Server) admit(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := s.admitted(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// admitted puts the Company and the actor of a call into ctx, if the table has its caller.
func (s *Server) admitted(ctx context.Context, method string) (context.Context, error) {
	service := strings.TrimPrefix(method, "/")
	service = service[:strings.LastIndexByte(service, '/')]
	if service == healthpb.Health_ServiceDesc.ServiceName {
		return ctx, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if subtle.ConstantTimeCompare([]byte(one(md, mdSecret)), []byte(s.cfg.Secret)) != 1 {
		return nil, problem.New(problem.Unauthenticated, problem.Unauthenticated401, "", "internal calls only")
	}
	if !slices.Contains(s.cfg.Allow[service], one(md, mdCaller)) {
		return nil, problem.New(problem.Forbidden, problem.PermissionDenied, "", "not a caller of this service")
	}
	if id := one(md, mdCompany); id != "" {
		scope, err := tenancy.For(id)
		if err != nil {
			return nil, err
		}
		ctx = tenancy.Into(ctx, scope)
	}
	if a := one(md, mdActor); a != "" {
		ctx = WithActor(ctx, a)
	}
	return ctx, nil
}

// validate refuses requests that break the rules written in the proto.
func validate(v protovalidate.Validator) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if m, ok := req.(proto.Message); ok {
			if err := Check(v, m); err != nil {
				return nil, err
			}
		}
		return next(ctx, req)
	}
}

// Check validates m and names every field at fault.
func Check(v protovalidate.Validator, m proto.Message) error {
	err := v.Validate(m)
	if err == nil {
		return nil
	}
	var ve *protovalidate.ValidationError
	if !errors.As(err, &ve) {
		return err
	}
	p := problem.New(problem.Invalid, problem.InvalidRequest, "", "the request breaks a rule")
	for _, viol := range ve.Violations {
		p = p.WithField(protovalidate.FieldPathString(viol.Proto.GetField()), viol.Proto.GetMessage())
	}
	if len(p.Fields) > 0 {
		p.Detail = p.Fields[0].Path + ": " + p.Fields[0].Detail
	}
	return p
}
