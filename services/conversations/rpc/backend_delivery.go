package rpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations/app"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// BackendDeliveries implements adminv1.BackendDeliveryServiceServer.
type BackendDeliveries struct {
	adminv1.UnimplementedBackendDeliveryServiceServer
	App   *app.App
	Store *store.Store
	Now   clock.Clock
}

const deliveriesKind = "backend/deliveries"

// GetBackendDelivery implements the service.
func (s *BackendDeliveries) GetBackendDelivery(ctx context.Context, req *adminv1.GetBackendDeliveryRequest) (*adminv1.BackendDelivery, error) {
	scope, id, err := namedDelivery(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	var d store.BackendDelivery
	err = s.Store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		var err error
		d, err = tx.BackendDelivery(ctx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return backendDelivery(scope, d), nil
}

// ListBackendDeliveries implements the service.
func (s *BackendDeliveries) ListBackendDeliveries(ctx context.Context, req *adminv1.ListBackendDeliveriesRequest) (*adminv1.ListBackendDeliveriesResponse, error) {
	scope, err := backendOf(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	now := s.Now()
	f, err := deliveryFilter(scope, now, req)
	if err != nil {
		return nil, err
	}
	bound := []string{req.GetParent(), req.GetFilter(), req.GetStartTime().String(), req.GetEndTime().String()}
	after, err := resource.ParsePlace(now, req.GetPageToken(), bound...)
	if err != nil {
		return nil, err
	}
	size := resource.Size(req.GetPageSize())
	var page []store.BackendDelivery
	err = s.Store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		var err error
		page, err = tx.BackendDeliveries(ctx, f, after, size+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListBackendDeliveriesResponse{}
	if len(page) > size {
		page = page[:size]
		out.NextPageToken = resource.Place{CreatedAt: page[size-1].CreatedAt, ID: page[size-1].ID}.Token(now, bound...)
	}
	for _, d := range page {
		out.Deliveries = append(out.Deliveries, backendDelivery(scope, d))
	}
	return out, nil
}

func deliveryFilter(scope tenancy.Scope, now time.Time, req *adminv1.ListBackendDeliveriesRequest) (store.DeliveryFilter, error) {
	var f store.DeliveryFilter
	var err error
	if f.Span, err = resource.ParseSpan(now, req.GetStartTime(), req.GetEndTime()); err != nil {
		return f, err
	}
	name := ""
	err = resource.ParseFilter(req.GetFilter(), map[string]*string{"state": &f.State, "agent_outcome": &f.Outcome, "conversation": &name})
	if err != nil {
		return f, err
	}
	if err := resource.OneOf("state", f.State, "pending", string(store.Delivered), string(store.Failed), string(store.Expired)); err != nil {
		return f, err
	}
	if name != "" {
		if f.ConversationID, err = resource.ChildID(scope, name, kind); err != nil {
			return f, resource.Invalid("filter", "conversation is the name of one, companies/…/conversations/…")
		}
	}
	return f, nil
}

// ResendBackendDelivery implements the service.
func (s *BackendDeliveries) ResendBackendDelivery(ctx context.Context, req *adminv1.ResendBackendDeliveryRequest) (*adminv1.BackendDelivery, error) {
	scope, id, err := namedDelivery(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	d, err := s.App.Resend(ctx, scope, id)
	if err != nil {
		return nil, missing(err)
	}
	return backendDelivery(scope, d), nil
}

// ResendBackendDeliveries implements the service.
func (s *BackendDeliveries) ResendBackendDeliveries(ctx context.Context, req *adminv1.ResendBackendDeliveriesRequest) (*adminv1.ResendBackendDeliveriesResponse, error) {
	scope, err := backendOf(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	now := s.Now()
	span, err := resource.ParseSpan(now, req.GetStartTime(), req.GetEndTime())
	if err != nil {
		return nil, err
	}
	if span.To.IsZero() {
		span.To = now
	}
	got, err := s.App.ResendUndelivered(ctx, scope, span, req.GetValidateOnly())
	if err != nil {
		return nil, missing(err)
	}
	out := &adminv1.ResendBackendDeliveriesResponse{Resent: int32(got.Count), More: got.More}
	if got.More {
		out.NextStartTime = timestamppb.New(got.Next.CreatedAt)
	}
	return out, nil
}

func namedDelivery(ctx context.Context, name string) (tenancy.Scope, string, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return scope, "", err
	}
	id, err := resource.ChildID(scope, name, deliveriesKind)
	return scope, id, err
}

// backendOf returns the call's scope once name is found to be its backend.
func backendOf(ctx context.Context, name string) (tenancy.Scope, error) {
	scope, err := tenancy.From(ctx)
	if err == nil && name != scope.Name()+"/backend" {
		err = resource.NotFound()
	}
	return scope, err
}

func backendDelivery(scope tenancy.Scope, d store.BackendDelivery) *adminv1.BackendDelivery {
	out := &adminv1.BackendDelivery{
		Name: scope.Name() + "/" + deliveriesKind + "/" + d.ID, Conversation: scope.Name() + "/" + kind + "/" + d.ConversationID, Sequence: d.Sequence,
		State: d.State, Attempts: int32(d.Attempts), InFlight: d.InFlight, LastStatus: int32(d.LastStatus), LastReason: d.LastReason,
		AgentOutcome: d.Outcome, ExpectsReply: d.ExpectsReply, CreateTime: timestamppb.New(d.CreatedAt),
	}
	for to, at := range map[**timestamppb.Timestamp]time.Time{&out.NextAttemptTime: d.NextAttemptAt, &out.ReplyByTime: d.ReplyBy, &out.DoneTime: d.DoneAt} {
		if !at.IsZero() {
			*to = timestamppb.New(at)
		}
	}
	return out
}
