package poppy

import (
	"context"
	"crypto/tls"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Dial opens a connection to the gRPC port of the admin API for an API key. roots and
// the like are set in conf; nil takes what the machine trusts.
func Dial(address, key string, conf *tls.Config, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(conf)), grpc.WithPerRPCCredentials(apiKey(key))}
	return grpc.NewClient(address, append(options, more...)...)
}

// apiKey is sent with every call, and over TLS alone.
type apiKey string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (k apiKey) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(k)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (apiKey) RequireTransportSecurity() bool { return true }

// String returns a placeholder.
func (apiKey) String() string { return "[redacted]" }

// GoString returns a placeholder.
func (k apiKey) GoString() string { return k.String() }
