package demo

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

const streamPause = time.Second

// A streamer takes deliveries from a stream that it opens itself, as a Company does
// that can't be reached from outside, and has the backend answer them.
type streamer struct {
	cfg     Config
	backend *Backend
	company string
	key     string
}

// run keeps a stream open until ctx ends.
func (s *streamer) run(ctx context.Context) {
	for {
		err := s.once(ctx)
		if clock.Wait(ctx, streamPause) != nil {
			return
		}
		s.cfg.Log.WarnContext(ctx, "the stream of deliveries ended", "error", err)
	}
}

func (s *streamer) once(ctx context.Context) error {
	conn, err := grpc.NewClient(s.cfg.StreamAddress, grpc.WithTransportCredentials(
		credentials.NewTLS(&tls.Config{RootCAs: s.cfg.Roots, MinVersion: tls.VersionTLS12})))
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer func() { _ = conn.Close() }()
	ctx, stop := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.key))
	stream, err := adminv1.NewBackendStreamServiceClient(conn).Connect(ctx)
	if err != nil {
		stop()
		return err
	}
	out := &outgoing{stream: stream}
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop() // before the wait: what isn't answered yet comes again
	if err := out.send(&adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Hello{Hello: &adminv1.BackendHello{Company: s.company}}}); err != nil {
		return err
	}
	for {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		if event := in.GetEvent(); event != nil {
			busy.Go(func() { s.answer(ctx, out, event) })
		}
		if receipt := in.GetReceipt(); receipt != nil && !receipt.GetRecorded() {
			s.cfg.Log.WarnContext(ctx, "an answer was not recorded", "delivery", receipt.GetDelivery(), "reason", receipt.GetReason())
		}
	}
}

// outgoing lets answers to several deliveries share a stream.
type outgoing struct {
	mu     sync.Mutex
	stream grpc.BidiStreamingClient[adminv1.ConnectRequest, adminv1.ConnectResponse]
}

func (o *outgoing) send(f *adminv1.ConnectRequest) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stream.Send(f)
}

// answer answers one delivery. Where that fails it comes again, and gets the same answer.
func (s *streamer) answer(ctx context.Context, out *outgoing, event *adminv1.BackendEvent) {
	id := event.GetDelivery()
	a, conversation, err := s.backend.answer(id, event.GetBody())
	frame := &adminv1.BackendAnswer{Delivery: id}
	switch {
	case err != nil:
		frame.Failure = err.Error()
	case a.way == later && s.backend.desk.take(id, conversation, a):
		frame.Later = true
	case a.way == inPieces:
		for _, word := range strings.SplitAfter(a.Messages[0].Text, " ") {
			piece := &adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Delta{Delta: &adminv1.BackendDelta{Delivery: id, Text: word}}}
			if out.send(piece) != nil || clock.Wait(ctx, s.backend.pace) != nil {
				return
			}
		}
		err = a.fill(frame)
	default:
		err = a.fill(frame)
	}
	if err != nil {
		frame.Failure = err.Error()
	}
	if err := out.send(&adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Answer{Answer: frame}}); err != nil {
		s.cfg.Log.WarnContext(ctx, "an answer could not be sent", "delivery", id, "error", err)
	}
}

// fill puts the answer into the form that the API has.
func (a answer) fill(frame *adminv1.BackendAnswer) error {
	form := map[string]any{"delivery": frame.GetDelivery(), "messages": a.Messages, "close": a.Close}
	if a.Authorization != nil {
		form["authorization"] = a.Authorization
	}
	if a.RequestUser != nil {
		form["request_user"] = a.RequestUser.Reason
	}
	if a.HandOff != nil {
		form["hand_off"] = a.HandOff
	}
	raw, err := json.Marshal(form)
	if err == nil {
		err = protojson.Unmarshal(raw, frame)
	}
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	return nil
}
