package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

const (
	// firstMessage is how long a caller may take to say what its stream is about.
	firstMessage = 10 * time.Second
	// recheck is how often the key of an open stream is looked at again.
	recheck = 5 * time.Second
)

// HandleStream joins a caller's stream of m with one to its owner, for as long as the
// caller's key is good.
func (g *Gate) HandleStream(stream grpc.ServerStream, m *method.Method) (err error) {
	id := requestID(stream.Context())
	ctx := withRequestID(stream.Context(), id)
	// It fails only when the headers are out already, which they aren't.
	_ = stream.SetHeader(requestIDHeader(id))
	defer func() {
		if r := recover(); r != nil {
			g.deps.Log.ErrorContext(ctx, "panic in a stream", "method", m.FullName, "request_id", id, "panic", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
			err = problem.New(problem.Internal, problem.ServerError, "", "internal error")
		}
		if err != nil {
			err = toStatus(err, id)
		}
	}()
	secret := bearer(ctx)
	caller, err := g.Authenticate(ctx, secret, g.address(ctx))
	if err != nil {
		return err
	}
	if err := g.spend(caller, false); err != nil {
		return err
	}
	if err := authorise(caller, m); err != nil {
		return err
	}
	first, err := g.first(stream, m)
	if err != nil {
		return err
	}
	scope, err := g.Scope(ctx, caller, m.CompanyID(first))
	if err != nil {
		return err
	}
	if err := g.sound(first); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(tenancy.Into(app.WithCaller(rpc.WithActor(ctx, caller.Name()), caller), scope))
	defer end(nil)
	go clock.Every(ctx, recheck, func(ctx context.Context) {
		again, err := g.deps.Auth.Authenticate(ctx, secret)
		if err == nil {
			err = authorise(again, m)
		}
		if err != nil && ctx.Err() == nil && problem.As(err).Kind != problem.Internal && problem.As(err).Kind != problem.Unavailable {
			end(err) // a database that is away ends no stream
		}
	})
	if err := g.join(ctx, stream, m, first); err != nil {
		if cause := context.Cause(ctx); ctx.Err() != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return err
	}
	return nil
}

// first reads the message that says which Company the stream is about.
func (g *Gate) first(stream grpc.ServerStream, m *method.Method) (proto.Message, error) {
	type got struct {
		msg proto.Message
		err error
	}
	came := make(chan got, 1)
	go func() {
		msg := m.NewInput()
		err := stream.RecvMsg(msg)
		came <- got{msg, err}
	}()
	select {
	case c := <-came:
		if c.err != nil {
			return nil, problem.New(problem.Invalid, problem.InvalidRequest, "", "the stream's first message can't be read").WithCause(c.err)
		}
		return c.msg, nil
	case <-time.After(firstMessage):
		return nil, problem.New(problem.Invalid, problem.InvalidRequest, "", "the stream's first message didn't come")
	}
}

// sound refuses what no owner should have to look at.
func (g *Gate) sound(msg proto.Message) error {
	if at := method.UnknownField(msg); at != "" {
		return resource.Invalid(at, "there is no such field")
	}
	if at := method.NULField(msg); at != "" {
		return resource.Invalid(strings.ReplaceAll(at, "\x00", ""), "holds a NUL character")
	}
	return rpc.Check(g.validate, msg)
}

// join passes messages both ways until either side ends.
func (g *Gate) join(ctx context.Context, stream grpc.ServerStream, m *method.Method, first proto.Message) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	desc := &grpc.StreamDesc{StreamName: string(m.Desc.Name()), ServerStreams: m.Desc.IsStreamingServer(), ClientStreams: m.Desc.IsStreamingClient()}
	owner, err := g.deps.Owners[m.Service].NewStream(ctx, desc, m.FullName)
	if err != nil {
		return err
	}
	go func() {
		for msg := first; ; {
			if err := owner.SendMsg(msg); err != nil {
				return // the other direction tells why
			}
			if !desc.ClientStreams {
				_ = owner.CloseSend() // the other direction tells
				return
			}
			msg = m.NewInput()
			err := stream.RecvMsg(msg)
			if errors.Is(err, io.EOF) {
				_ = owner.CloseSend()
				return
			}
			if err == nil {
				err = g.sound(msg)
			}
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	for {
		msg := m.NewOutput()
		err := owner.RecvMsg(msg)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = stream.SendMsg(msg)
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
				return cause
			}
			return err
		}
	}
}
