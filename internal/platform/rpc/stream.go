package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// within is a stream with another context than it came with.
type within struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *within) Context() context.Context { return s.ctx }

func (s *Server) recoverStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.cfg.Log.ErrorContext(stream.Context(), "panic in handler", "method", info.FullMethod, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = ToStatus(problem.New(problem.Internal, problem.ServerError, "", "internal error")).Err()
		}
	}()
	if err = next(srv, stream); err != nil {
		return s.failed(stream.Context(), info.FullMethod, err)
	}
	return nil
}

func (s *Server) admitStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := s.admitted(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return next(srv, &within{stream, ctx})
}

// checked is a stream whose messages keep the rules written in the proto.
type checked struct {
	grpc.ServerStream
	validator protovalidate.Validator
}

// RecvMsg implements grpc.ServerStream.
func (s *checked) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if msg, ok := m.(proto.Message); ok {
		return Check(s.validator, msg)
	}
	return nil
}

func validateStream(v protovalidate.Validator) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(srv, &checked{stream, v})
	}
}

// understood is a client's stream whose errors are problems again.
type understood struct{ grpc.ClientStream }

// RecvMsg implements grpc.ClientStream. The end of the stream stays io.EOF.
func (s understood) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if errors.Is(err, io.EOF) {
		return err
	}
	return FromStatus(err)
}
