package rpc

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations/dispatch"
)

const (
	defaultInFlight = 16
	maxInFlight     = 256
	// receiptsKept is how many answers may wait for their receipts before the next one is read.
	receiptsKept = 256
)

// BackendStreams implements adminv1.BackendStreamServiceServer.
type BackendStreams struct {
	adminv1.UnimplementedBackendStreamServiceServer
	Streams *dispatch.Dispatcher
}

type frames = grpc.BidiStreamingServer[adminv1.ConnectRequest, adminv1.ConnectResponse]

// Connect implements the service.
func (s *BackendStreams) Connect(stream frames) error {
	scope, err := tenancy.From(stream.Context())
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return resource.Invalid("hello", "is the first frame of a stream")
	}
	if hello.GetCompany() != scope.Name() {
		return resource.NotFound()
	}
	most := int(hello.GetMaxInFlight())
	if most == 0 {
		most = defaultInFlight
	}
	if most < 0 || most > maxInFlight {
		return resource.Invalid("hello.max_in_flight", "is not between 1 and 256")
	}
	open, err := s.Streams.Connect(stream.Context(), scope, most)
	if err != nil {
		return err
	}
	defer open.Close()
	welcome := &adminv1.BackendWelcome{Company: scope.Name()}
	if err := stream.Send(&adminv1.ConnectResponse{Frame: &adminv1.ConnectResponse_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	l := &listener{frames: stream, open: open, promised: make(chan promise, receiptsKept), receipts: make(chan *adminv1.BackendReceipt)}
	ended := make(chan error, 1)
	// A backend that doesn't read holds up whoever sends, but not the end of the stream.
	go func() { ended <- l.talk() }()
	select {
	case err := <-ended:
		return err
	case <-open.Slow:
		return problem.New(problem.RateLimited, problem.RateLimitedReason, "", "the stream's events are not read")
	}
}

// promise is the receipt of an answer, which may still have to be recorded.
type promise struct {
	delivery string
	comes    <-chan dispatch.Receipt
}

// listener is both directions of one stream.
type listener struct {
	frames   frames
	open     *dispatch.Stream
	promised chan promise // in the order of the answers; closed when the backend says no more
	receipts chan *adminv1.BackendReceipt

	mu      sync.Mutex
	owed    int   // receipts that are not sent yet
	failure error // why nothing more is read; nil for the end of the backend's frames
}

// talk goes on until either side ends the stream.
func (l *listener) talk() error {
	ctx := l.frames.Context()
	go l.listen(ctx)
	go l.await(ctx)
	goodbye, idle := l.open.Goodbye, (<-chan struct{})(nil)
	for {
		out := &adminv1.ConnectResponse{}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-l.open.Events:
			out.Frame = &adminv1.ConnectResponse_Event{Event: &adminv1.BackendEvent{Delivery: e.Delivery, Attempt: int32(min(e.Attempt, 1<<30)), Body: e.Body}}
		case r, more := <-l.receipts:
			if !more {
				return l.failed()
			}
			out.Frame = &adminv1.ConnectResponse_Receipt{Receipt: r}
		case <-goodbye:
			goodbye, idle = nil, l.open.Idle
			out.Frame = &adminv1.ConnectResponse_Goodbye{Goodbye: &adminv1.BackendGoodbye{Reason: "drain"}}
		case <-idle:
			idle = nil
			if l.settled(0) {
				return nil
			}
			continue
		}
		if err := l.frames.Send(out); err != nil {
			return err
		}
		if out.GetReceipt() != nil && l.settled(1) && goodbye == nil && l.isIdle() {
			return nil
		}
	}
}

func (l *listener) isIdle() bool {
	select {
	case <-l.open.Idle:
		return true
	default:
		return false
	}
}

// settled counts receipts that were sent, and reports whether none is owed.
func (l *listener) settled(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed -= n
	return l.owed == 0
}

func (l *listener) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// listen reads what the backend says. It ends with the stream.
func (l *listener) listen(ctx context.Context) {
	err := l.read(ctx)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	l.mu.Lock()
	l.failure = err
	l.mu.Unlock()
	l.open.Close() // who says no more answers nothing either
	close(l.promised)
}

func (l *listener) read(ctx context.Context) error {
	for {
		in, err := l.frames.Recv()
		if err != nil {
			return err
		}
		switch f := in.GetFrame().(type) {
		case *adminv1.ConnectRequest_Answer:
			l.mu.Lock()
			l.owed++
			l.mu.Unlock()
			p := promise{f.Answer.GetDelivery(), l.open.Answer(f.Answer.GetDelivery(), given(f.Answer))}
			select {
			case l.promised <- p:
			case <-ctx.Done():
				return ctx.Err()
			}
		case *adminv1.ConnectRequest_Delta:
			l.open.Piece(f.Delta.GetDelivery(), f.Delta.GetText())
		case *adminv1.ConnectRequest_Hello:
			return resource.Invalid("hello", "comes once")
		default:
			return problem.New(problem.Invalid, problem.InvalidRequest, "", "a frame is empty")
		}
	}
}

// await turns promises into receipts, one after the other.
func (l *listener) await(ctx context.Context) {
	defer close(l.receipts)
	for p := range l.promised {
		select {
		case r := <-p.comes:
			select {
			case l.receipts <- &adminv1.BackendReceipt{Delivery: p.delivery, Recorded: r.Recorded, Reason: r.Reason}:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// given reads an answer. What is wrong with it is for the delivery to tell.
func given(a *adminv1.BackendAnswer) dispatch.Given {
	g := dispatch.Given{Later: a.GetLater(), Failure: a.GetFailure(), Bad: proto.Size(a) > webhook.MaxAnswer}
	g.RequestUser, g.Close = a.GetRequestUser(), a.GetClose()
	if auth := a.GetAuthorization(); auth != nil {
		g.AuthorizationError, g.AuthorizationScope = auth.GetError(), auth.GetScope()
		g.Bad = g.Bad || g.AuthorizationError == ""
	}
	if h := a.GetHandOff(); h != nil {
		g.HandOff, g.HandOffReason = true, h.GetReason()
	}
	for _, m := range a.GetMessages() {
		said := dispatch.SaidMessage{Sender: m.GetSender(), Text: m.GetText()}
		if m.GetData() != nil {
			var err error
			if said.Data, err = m.GetData().MarshalJSON(); err != nil {
				g.Bad = true
			}
		}
		g.Messages = append(g.Messages, said)
	}
	return g
}
