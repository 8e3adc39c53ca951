package poppy

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// UnaryInterceptor judges the calls of a gRPC server as POST requests to BaseURL and
// the method's full name. What HTTP says in header fields is in the header metadata.
func (v *Verifier) UnaryInterceptor(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := v.call(ctx, info.FullMethod, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) })
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// StreamInterceptor judges streams when they begin, as UnaryInterceptor does calls.
func (v *Verifier) StreamInterceptor(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := v.call(stream.Context(), info.FullMethod, stream.SetHeader)
	if err != nil {
		return err
	}
	return next(srv, judgedStream{stream, ctx})
}

type judgedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context has the Session.
func (s judgedStream) Context() context.Context { return s.ctx }

func (v *Verifier) call(ctx context.Context, method string, set func(metadata.MD) error) (context.Context, error) {
	sent, _ := metadata.FromIncomingContext(ctx) // none is an empty one
	d, err := v.Verify(ctx, Request{Method: http.MethodPost, URL: v.cfg.BaseURL + method, Authorization: sent.Get("authorization"), DPoP: sent.Get("dpop")})
	if err != nil {
		v.cfg.Log.WarnContext(ctx, "call not judged", "method", method, "error", err)
		if status.Code(err) == codes.InvalidArgument {
			return nil, status.Error(codes.Unimplemented, "agents may not call this")
		}
		return nil, status.Error(codes.Unavailable, "temporarily_unavailable")
	}
	md := metadata.MD{}
	for name, values := range d.Header {
		md.Append(strings.ToLower(name), values...)
	}
	if err := set(md); err != nil {
		return nil, err
	}
	if !d.Allowed {
		return nil, status.Error(codeOf(d.Status), d.Reason)
	}
	return withSession(ctx, d.Session), nil
}

func codeOf(httpStatus int) codes.Code {
	switch httpStatus {
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusBadRequest:
		return codes.InvalidArgument
	default:
		return codes.Unavailable
	}
}
