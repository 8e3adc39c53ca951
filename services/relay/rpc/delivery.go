package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

// Deliveries implements relayv1.DeliveryServiceServer.
type Deliveries struct {
	relayv1.UnimplementedDeliveryServiceServer
	App *app.App
}

var outcomes = map[app.Outcome]relayv1.DeliverOutcome{
	app.Answered: relayv1.DeliverOutcome_DELIVER_OUTCOME_ANSWERED, app.Accepted: relayv1.DeliverOutcome_DELIVER_OUTCOME_ACCEPTED,
	app.Retry: relayv1.DeliverOutcome_DELIVER_OUTCOME_RETRY, app.Disabled: relayv1.DeliverOutcome_DELIVER_OUTCOME_DISABLED,
	app.Unwanted: relayv1.DeliverOutcome_DELIVER_OUTCOME_UNWANTED, app.Held: relayv1.DeliverOutcome_DELIVER_OUTCOME_HELD,
}

// Deliver implements the service.
func (s *Deliveries) Deliver(req *relayv1.DeliverRequest, stream grpc.ServerStreamingServer[relayv1.DeliverResponse]) error {
	ctx := stream.Context()
	scope, err := tenancy.From(ctx)
	if err != nil {
		return err
	}
	in := app.DeliverInput{
		ID: req.GetDeliveryId(), ConversationID: req.GetConversationId(), Body: req.GetBody(), Late: req.GetLate(), Attempt: int(req.GetAttempt()),
	}
	for _, t := range req.GetHistory() {
		in.History = append(in.History, app.Turn{Role: t.GetRole(), Sender: t.GetSender(), Text: t.GetText(), Data: t.GetData()})
	}
	got, err := s.App.Deliver(ctx, scope, in, func(text string) {
		// A caller that is gone shows by its context, which ends the attempt.
		_ = stream.Send(&relayv1.DeliverResponse{TextDelta: text})
	})
	if err != nil {
		return err
	}
	return stream.Send(attempt(got))
}

// attempt is the last frame of a Deliver.
func attempt(got app.Attempt) *relayv1.DeliverResponse {
	out := &relayv1.DeliverResponse{
		Outcome: outcomes[got.Outcome], Status: int32(got.Status), Reason: got.Reason,
		RetryAfter: durationpb.New(got.RetryAfter), Duration: durationpb.New(got.Duration),
		HandOff: got.HandOff, HandOffReason: got.HandOffReason, Close: got.Close,
	}
	for _, m := range got.Messages {
		out.Messages = append(out.Messages, &relayv1.AnswerMessage{Sender: string(m.Sender()), Text: m.Text(), Data: m.Data()})
	}
	if a := got.Authorization; a != nil {
		out.AuthorizationError, out.AuthorizationScope = a.Error, a.Scope
	}
	if u := got.UserRequested; u != nil {
		out.RequestUser = u.Reason
	}
	return out
}

// ListPublicKeys implements the service.
func (s *Deliveries) ListPublicKeys(ctx context.Context, _ *relayv1.ListPublicKeysRequest) (*relayv1.ListPublicKeysResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	got, err := s.App.Secrets(ctx, scope, app.Backend)
	if err != nil {
		return nil, err
	}
	out := &relayv1.ListPublicKeysResponse{}
	for _, one := range got {
		if one.PublicKey != "" {
			out.Keys = append(out.Keys, &relayv1.PublicKey{Id: one.ID, PublicKey: one.PublicKey})
		}
	}
	return out, nil
}

// Egress implements relayv1.EgressServiceServer over the guarded client.
type Egress struct {
	relayv1.UnimplementedEgressServiceServer
	Client *egress.Client
}

// Fetch implements the service.
func (s *Egress) Fetch(ctx context.Context, req *relayv1.FetchRequest) (*relayv1.FetchResponse, error) {
	res, err := s.Client.Fetch(ctx, egress.Request{URL: req.GetUrl(), Accept: req.GetAccept(), MaxBytes: req.GetMaxBytes(), Timeout: req.GetTimeout().AsDuration()})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return &relayv1.FetchResponse{Failure: string(egress.KindOf(err)), Detail: egress.DetailOf(err)}, nil
	}
	out := &relayv1.FetchResponse{Status: int32(res.Status), ContentType: res.ContentType, Body: res.Body, Headers: map[string]string{}}
	for name := range res.Header {
		out.Headers[name] = res.Header.Get(name)
	}
	return out, nil
}

// LookupTxt implements the service.
func (s *Egress) LookupTxt(ctx context.Context, req *relayv1.LookupTxtRequest) (*relayv1.LookupTxtResponse, error) {
	values, err := s.Client.LookupTXT(ctx, req.GetName())
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return &relayv1.LookupTxtResponse{Failure: string(egress.KindOf(err)), Detail: egress.DetailOf(err)}, nil
	}
	return &relayv1.LookupTxtResponse{Values: values}, nil
}
