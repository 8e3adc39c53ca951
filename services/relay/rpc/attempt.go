package rpc

import (
	"context"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

// Attempts implements adminv1.AttemptServiceServer.
type Attempts struct {
	adminv1.UnimplementedAttemptServiceServer
	App *app.App
	Now clock.Clock
}

// ListAttempts implements the service.
func (s *Attempts) ListAttempts(ctx context.Context, req *adminv1.ListAttemptsRequest) (*adminv1.ListAttemptsResponse, error) {
	scope, err := companyOf(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	q, err := attemptQuery(scope, req)
	if err != nil {
		return nil, err
	}
	now := s.Now()
	bound := []string{"attempts", req.GetParent(), req.GetDelivery(), req.GetEndpoint()}
	if q.BeforeTime, q.BeforeID, err = place(now, req.GetPageToken(), bound...); err != nil {
		return nil, err
	}
	size := resource.Size(req.GetPageSize())
	q.Limit = size + 1
	got, err := s.App.Attempts(ctx, scope, q)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListAttemptsResponse{}
	if len(got) > size {
		got = got[:size]
		out.NextPageToken = placeToken(now, got[size-1].At, got[size-1].ID, bound...)
	}
	for _, one := range got {
		out.Attempts = append(out.Attempts, loggedAttempt(scope, one))
	}
	return out, nil
}

// attemptQuery reads whose attempts are asked for. Where both are given, the delivery has to be the endpoint's.
func attemptQuery(scope tenancy.Scope, req *adminv1.ListAttemptsRequest) (app.AttemptQuery, error) {
	var q app.AttemptQuery
	if req.GetDelivery() == "" && req.GetEndpoint() == "" {
		return q, resource.Invalid("delivery", "one of delivery and endpoint has to be given")
	}
	if name := req.GetEndpoint(); name != "" {
		ids, err := resource.Child(scope, name, "backend")
		if q.OfBackend = err == nil && len(ids) == 0; !q.OfBackend {
			if q.EndpointID, err = resource.ChildID(scope, name, endpointsKind); err != nil {
				return q, err
			}
		}
	}
	name := req.GetDelivery()
	if name == "" {
		return q, nil
	}
	if id, err := resource.ChildID(scope, name, "backend/deliveries"); err == nil {
		if q.EndpointID != "" {
			return q, resource.NotFound()
		}
		q.DeliveryID, q.OfBackend = id, true
		return q, nil
	}
	ids, err := resource.Child(scope, name, endpointsKind, "deliveries")
	if err != nil {
		return q, err
	}
	if len(ids) != 2 || q.OfBackend || q.EndpointID != "" && q.EndpointID != ids[0] {
		return q, resource.NotFound()
	}
	q.EndpointID, q.DeliveryID = ids[0], ids[1]
	return q, nil
}

func loggedAttempt(scope tenancy.Scope, l app.Logged) *adminv1.Attempt {
	e := l.Evidence
	return &adminv1.Attempt{
		Delivery: scope.Name() + "/" + l.DeliveryName(), StartTime: stamp(l.At), Duration: lasting(l.Duration), Status: int32(l.Status),
		Outcome: l.Outcome, Reason: l.Reason, Address: e.Address, Dns: lasting(e.DNS), Connect: lasting(e.Connect), Tls: lasting(e.TLS),
		FirstByte: lasting(e.FirstByte), RequestHeaders: e.Headers, ResponseBody: e.Body,
	}
}
