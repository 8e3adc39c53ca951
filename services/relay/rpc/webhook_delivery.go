package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/relay/queue"
)

// WebhookDeliveries implements adminv1.WebhookDeliveryServiceServer.
type WebhookDeliveries struct {
	adminv1.UnimplementedWebhookDeliveryServiceServer
	Kept queue.Deliveries
	// Look tells this process's queue that something is due; nil for nobody.
	Look func(queue.Key)
	Now  clock.Clock
}

// namedDelivery returns the call's scope, and the endpoint and the delivery that name is of.
func namedDelivery(ctx context.Context, name string) (scope tenancy.Scope, endpointID, id string, err error) {
	if scope, err = tenancy.From(ctx); err != nil {
		return scope, "", "", err
	}
	ids, err := resource.Child(scope, name, "endpoints", "deliveries")
	if err == nil && len(ids) != 2 {
		err = resource.NotFound()
	}
	if err != nil {
		return scope, "", "", err
	}
	return scope, ids[0], ids[1], nil
}

// parentEndpoint returns the call's scope and the endpoint that name is of.
func parentEndpoint(ctx context.Context, name string) (tenancy.Scope, string, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return scope, "", err
	}
	id, err := resource.ChildID(scope, name, "endpoints")
	return scope, id, err
}

// GetWebhookDelivery implements the service.
func (s *WebhookDeliveries) GetWebhookDelivery(ctx context.Context, req *adminv1.GetWebhookDeliveryRequest) (*adminv1.WebhookDelivery, error) {
	scope, endpointID, id, err := namedDelivery(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	d, err := s.Kept.Delivery(ctx, scope, endpointID, id)
	if err != nil {
		return nil, err
	}
	return webhookDelivery(scope, d), nil
}

// ListWebhookDeliveries implements the service.
func (s *WebhookDeliveries) ListWebhookDeliveries(ctx context.Context, req *adminv1.ListWebhookDeliveriesRequest) (*adminv1.ListWebhookDeliveriesResponse, error) {
	scope, endpointID, err := parentEndpoint(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	now := s.Now()
	var f queue.Filter
	if f.Span, err = resource.ParseSpan(now, req.GetStartTime(), req.GetEndTime()); err != nil {
		return nil, err
	}
	if err := resource.ParseFilter(req.GetFilter(), map[string]*string{"state": &f.State, "event_type": &f.EventType, "event": &f.EventID}); err != nil {
		return nil, err
	}
	if err := resource.OneOf("state", f.State, string(queue.Pending), string(queue.Delivered), string(queue.Failed), string(queue.Canceled)); err != nil {
		return nil, err
	}
	bound := []string{req.GetParent(), req.GetFilter(), req.GetStartTime().String(), req.GetEndTime().String()}
	after, err := resource.ParsePlace(now, req.GetPageToken(), bound...)
	if err != nil {
		return nil, err
	}
	size := resource.Size(req.GetPageSize())
	page, err := s.Kept.Deliveries(ctx, scope, endpointID, f, after, size+1)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListWebhookDeliveriesResponse{}
	if len(page) > size {
		page = page[:size]
		out.NextPageToken = resource.Place{CreatedAt: page[size-1].CreatedAt, ID: page[size-1].ID}.Token(now, bound...)
	}
	for _, d := range page {
		out.Deliveries = append(out.Deliveries, webhookDelivery(scope, d))
	}
	return out, nil
}

// ResendWebhookDelivery implements the service.
func (s *WebhookDeliveries) ResendWebhookDelivery(ctx context.Context, req *adminv1.ResendWebhookDeliveryRequest) (*adminv1.WebhookDelivery, error) {
	scope, endpointID, id, err := namedDelivery(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	d, err := s.Kept.Resend(ctx, scope, endpointID, id, s.Now())
	if err != nil {
		return nil, err
	}
	s.look(scope, endpointID)
	return webhookDelivery(scope, d), nil
}

// ResendWebhookDeliveries implements the service.
func (s *WebhookDeliveries) ResendWebhookDeliveries(ctx context.Context, req *adminv1.ResendWebhookDeliveriesRequest) (*adminv1.ResendWebhookDeliveriesResponse, error) {
	scope, endpointID, err := parentEndpoint(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	now := s.Now()
	r := queue.Range{All: req.GetAll(), ValidateOnly: req.GetValidateOnly(), Limit: queue.MaxResent}
	if r.Span, err = resource.ParseSpan(now, req.GetStartTime(), req.GetEndTime()); err != nil {
		return nil, err
	}
	if r.To.IsZero() {
		r.To = now
	}
	got, err := s.Kept.ResendSpan(ctx, scope, endpointID, r, now)
	if err != nil {
		return nil, err
	}
	if got.Count > 0 && !r.ValidateOnly {
		s.look(scope, endpointID)
	}
	return &adminv1.ResendWebhookDeliveriesResponse{Resent: int32(got.Count), More: got.More, NextStartTime: stamp(got.Next)}, nil
}

// CancelWebhookDelivery implements the service.
func (s *WebhookDeliveries) CancelWebhookDelivery(ctx context.Context, req *adminv1.CancelWebhookDeliveryRequest) (*adminv1.WebhookDelivery, error) {
	scope, endpointID, id, err := namedDelivery(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	d, err := s.Kept.Cancel(ctx, scope, endpointID, id, s.Now())
	if err != nil {
		return nil, err
	}
	return webhookDelivery(scope, d), nil
}

func (s *WebhookDeliveries) look(scope tenancy.Scope, endpointID string) {
	if s.Look != nil {
		s.Look(queue.Key{Scope: scope, ID: endpointID})
	}
}

func webhookDelivery(scope tenancy.Scope, d queue.Delivery) *adminv1.WebhookDelivery {
	return &adminv1.WebhookDelivery{
		Name:  scope.Name() + "/endpoints/" + d.EndpointID + "/deliveries/" + d.ID,
		Event: d.EventID, EventType: d.EventType, Origin: d.Origin, State: string(d.State), Attempts: int32(d.Attempts),
		NextAttemptTime: stamp(d.NextAttemptAt), InFlight: d.InFlight, LastStatus: int32(d.LastStatus), LastReason: d.LastReason,
		CreateTime: timestamppb.New(d.CreatedAt), DoneTime: stamp(d.DoneAt), Body: d.Body,
	}
}
