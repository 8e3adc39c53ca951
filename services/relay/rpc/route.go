package rpc

import (
	"context"

	"github.com/poppyfield/poppyfield/internal/tenancy"
	relayv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/relay/v1"
)

// GetRoute implements relayv1.DeliveryServiceServer.
func (s *Deliveries) GetRoute(ctx context.Context, _ *relayv1.GetRouteRequest) (*relayv1.GetRouteResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	r, err := s.App.Route(ctx, scope)
	if err != nil {
		return nil, err
	}
	out := &relayv1.GetRouteResponse{
		Stream: r.Stream, Off: r.Off, DropLate: r.DropLate, History: int32(r.History), MaxInFlight: int32(r.MaxInFlight), Timeout: lasting(r.Timeout),
	}
	for _, d := range r.Schedule {
		out.Schedule = append(out.Schedule, lasting(d))
	}
	return out, nil
}
