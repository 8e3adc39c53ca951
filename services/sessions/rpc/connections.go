package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/tenancy"
	sessionsv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/sessions/v1"
	"github.com/poppyfield/poppyfield/services/sessions/app"
)

type connectionsServer struct {
	sessionsv1.UnimplementedConnectionsServiceServer
	app *app.App
}

// ListConnections implements sessionsv1.ConnectionsServiceServer.
func (s *connectionsServer) ListConnections(ctx context.Context, r *sessionsv1.ListConnectionsRequest) (*sessionsv1.ListConnectionsResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.app.Connections(ctx, scope, r.GetAccountId())
	if err != nil {
		return nil, err
	}
	out := &sessionsv1.ListConnectionsResponse{}
	for _, g := range list {
		out.Connections = append(out.Connections, &sessionsv1.Connection{
			GrantId: g.ID, ClientId: g.ClientID, AgentName: g.AgentName, Scope: g.Scope,
			CreateTime: timestamppb.New(g.CreatedAt), LastUsedTime: timestamppb.New(g.LastUsedAt), ExpireTime: timeOf(g.ExpiresAt),
		})
	}
	return out, nil
}

// Disconnect implements sessionsv1.ConnectionsServiceServer.
func (s *connectionsServer) Disconnect(ctx context.Context, r *sessionsv1.DisconnectRequest) (*sessionsv1.DisconnectResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	n, err := s.app.Disconnect(ctx, scope, r.GetAccountId(), r.GetGrantId())
	if err != nil {
		return nil, err
	}
	return &sessionsv1.DisconnectResponse{Ended: count(n)}, nil
}
