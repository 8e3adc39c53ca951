package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/platform/rpc"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/admin/app"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

const (
	firstMessage = 10 * time.Second
	recheck      = 5 * time.Second
	// tooManyWait is when it may be worth trying again to open one more stream.
	tooManyWait = 15 * time.Second
)

// streams are the open ones, by the key that opened them.
type streams struct {
	mu   sync.Mutex
	open map[string]int
}

// OpenStream counts one more open stream or watch of the caller, up to the limit. end must be called when it is over.
func (g *Gate) OpenStream(caller *app.Key) (end func(), err error) {
	g.streams.mu.Lock()
	defer g.streams.mu.Unlock()
	if most := g.cfg.StreamsPerKey; most > 0 && g.streams.open[caller.ID] >= most {
		return nil, problem.New(problem.RateLimited, problem.RateLimitedReason, "", "the key has too many streams open: %d", most).WithRetryAfter(tooManyWait)
	}
	g.streams.open[caller.ID]++
	return func() {
		g.streams.mu.Lock()
		defer g.streams.mu.Unlock()
		if g.streams.open[caller.ID]--; g.streams.open[caller.ID] <= 0 {
			delete(g.streams.open, caller.ID)
		}
	}, nil
}

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
	err = g.stream(ctx, stream, m)
	if err != nil && ctx.Err() == nil && problem.As(err).Kind == problem.Internal {
		g.deps.Log.ErrorContext(ctx, "stream failed", "method", m.FullName, "request_id", id, "error", err)
	}
	return err
}

func (g *Gate) stream(ctx context.Context, stream grpc.ServerStream, m *method.Method) error {
	secret := bearer(ctx)
	caller, err := g.Authenticate(ctx, secret, g.address(ctx))
	if err != nil {
		return err
	}
	if err := g.spend(caller, reads); err != nil {
		return err
	}
	if err := authorise(caller, m); err != nil {
		return err
	}
	over, err := g.OpenStream(caller)
	if err != nil {
		return err
	}
	defer over()
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
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end(nil)
	watching.Go(func() { g.guard(ctx, secret, m, end) })
	if err := g.join(ctx, stream, m, first); err != nil {
		if cause := context.Cause(ctx); ctx.Err() != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return err
	}
	return nil
}

// guard ends a stream whose key is no longer good for it, and one that a stop of the process finds open.
func (g *Gate) guard(ctx context.Context, secret string, m *method.Method, end context.CancelCauseFunc) {
	tick := time.NewTicker(g.cfg.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.closing:
			end(problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the server is going away: open the stream again").WithRetryAfter(time.Second))
			return
		case <-tick.C:
		}
		again, err := g.deps.Auth.Authenticate(ctx, secret)
		if err == nil {
			err = authorise(again, m)
		}
		if err != nil && ctx.Err() == nil && problem.As(err).Kind != problem.Internal && problem.As(err).Kind != problem.Unavailable {
			end(err) // a database that is away ends no stream
			return
		}
	}
}

// Close ends the streams that are open, and every one that opens from now on.
func (g *Gate) Close() { g.closed.Do(func() { close(g.closing) }) }

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
	late := time.NewTimer(g.cfg.FirstMessage)
	defer late.Stop()
	select {
	case c := <-came:
		if c.err != nil {
			return nil, problem.New(problem.Invalid, problem.InvalidRequest, "", "the stream's first message can't be read").WithCause(c.err)
		}
		return c.msg, nil
	case <-late.C:
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
			switch {
			case err == nil:
				err = g.sound(msg)
			case stream.Context().Err() == nil:
				err = problem.New(problem.Invalid, problem.InvalidRequest, "", "a message of the stream can't be read").WithCause(err)
			}
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	ended := make(chan error, 1)
	// A caller that doesn't read holds up whoever sends, but not the end of the stream.
	go func() { ended <- answer(owner, stream, m) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if problem.As(err).Kind == problem.NotFound {
		return resource.NotFound() // as for calls: it reads the same, whoever wrote the sentence
	}
	return err
}

// answer passes on what the owner says until it says no more.
func answer(owner grpc.ClientStream, stream grpc.ServerStream, m *method.Method) error {
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
			return err
		}
	}
}
