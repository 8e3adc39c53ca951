package admin

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// local is the connection to a service of this very package: the gate forwards to it
// as to any owner. The caller's key is in ctx, which no internal call would carry.
type local struct {
	desc *grpc.ServiceDesc
	impl any
}

var errNoStreams = errors.New("no streams here")

// Invoke implements grpc.ClientConnInterface.
func (l local) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	in, ok := args.(proto.Message)
	if !ok {
		return errors.New("request is no message")
	}
	out, ok := reply.(proto.Message)
	if !ok {
		return errors.New("answer is no message")
	}
	name, _ := strings.CutPrefix(method, "/"+l.desc.ServiceName+"/")
	for _, m := range l.desc.Methods {
		if m.MethodName != name {
			continue
		}
		got, err := m.Handler(l.impl, ctx, func(into any) error {
			to, ok := into.(proto.Message)
			if !ok {
				return errors.New("request is no message")
			}
			proto.Merge(to, in)
			return nil
		}, nil)
		if err != nil {
			return err
		}
		answer, ok := got.(proto.Message)
		if !ok {
			return errors.New("answer is no message")
		}
		proto.Merge(out, answer)
		return nil
	}
	return problem.New(problem.Internal, problem.ServerError, "", "internal error")
}

// NewStream implements grpc.ClientConnInterface.
func (local) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNoStreams
}
