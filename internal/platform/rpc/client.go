package rpc

import (
	"context"
	"crypto/tls"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// ClientConfig is what a caller of another process needs.
type ClientConfig struct {
	// Caller is the name of the calling service, checked against the callee's table.
	Caller string
	Secret string
	// TLS for the connection; nil on loopback or behind a mesh.
	TLS            *tls.Config
	TracerProvider trace.TracerProvider
}

// Dial returns a connection to the internal server at addr. It doesn't wait for it to be there.
func Dial(addr string, cfg ClientConfig) (*grpc.ClientConn, error) {
	return dial(addr, cfg,
		grpc.WithNoProxy(), // internal calls never leave by a proxy of the environment
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}, MinConnectTimeout: 2 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}))
}

func dial(target string, cfg ClientConfig, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	opts = append(opts,
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(traced(cfg.TracerProvider)...)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return FromStatus(invoke(outgoing(ctx, cfg.Caller, cfg.Secret), method, req, reply, cc, opts...))
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(outgoing(ctx, cfg.Caller, cfg.Secret), desc, cc, method, opts...)
			if err != nil {
				return nil, FromStatus(err)
			}
			return understood{stream}, nil
		}))
	return grpc.NewClient(target, opts...)
}
