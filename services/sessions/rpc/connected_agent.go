package rpc

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/sessions/app"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

const connectionsPrefix = "connectedAgents/"

type connectedAgentServer struct {
	adminv1.UnimplementedConnectedAgentServiceServer
	app *app.App
}

// GetConnectedAgent implements adminv1.ConnectedAgentServiceServer.
func (s *connectedAgentServer) GetConnectedAgent(ctx context.Context, r *adminv1.GetConnectedAgentRequest) (*adminv1.ConnectedAgent, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	id, err := below(scope, r.GetName(), connectionsPrefix)
	if err != nil {
		return nil, err
	}
	g, err := s.app.Connection(ctx, scope, id)
	if err != nil {
		return nil, err
	}
	return connectionOf(scope, s.app.Now(), g), nil
}

// ListConnectedAgents implements adminv1.ConnectedAgentServiceServer.
func (s *connectedAgentServer) ListConnectedAgents(ctx context.Context, r *adminv1.ListConnectedAgentsRequest) (*adminv1.ListConnectedAgentsResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkParent(scope, r.GetParent()); err != nil {
		return nil, err
	}
	filter := store.GrantFilter{Account: r.GetAccount(), ClientID: r.GetClientId()}
	if strings.ContainsRune(filter.Account+filter.ClientID, 0) {
		return &adminv1.ListConnectedAgentsResponse{}, nil // no such row can be
	}
	list := []string{"connectedAgents", r.GetParent(), filter.Account, filter.ClientID, strconv.FormatBool(r.GetShowEnded())}
	after, err := placeOf(s.app.Now(), r.GetPageToken(), list...)
	if err != nil {
		return nil, err
	}
	size := resource.Size(r.GetPageSize())
	found, err := s.app.AllConnections(ctx, scope, filter, r.GetShowEnded(), after, size+1)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListConnectedAgentsResponse{}
	if len(found) > size {
		found = found[:size]
		last := found[size-1]
		out.NextPageToken = tokenOf(s.app.Now(), store.Place{CreatedAt: last.CreatedAt, ID: last.ID}, list...)
	}
	for _, g := range found {
		out.ConnectedAgents = append(out.ConnectedAgents, connectionOf(scope, s.app.Now(), g))
	}
	return out, nil
}

// DisconnectAgent implements adminv1.ConnectedAgentServiceServer.
func (s *connectedAgentServer) DisconnectAgent(ctx context.Context, r *adminv1.DisconnectAgentRequest) (*adminv1.ConnectedAgent, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	id, err := below(scope, r.GetName(), connectionsPrefix)
	if err != nil {
		return nil, err
	}
	g, err := s.app.DisconnectOne(ctx, scope, id)
	if err != nil {
		return nil, err
	}
	return connectionOf(scope, s.app.Now(), g), nil
}

// DisconnectAccount implements adminv1.ConnectedAgentServiceServer.
func (s *connectedAgentServer) DisconnectAccount(ctx context.Context, r *adminv1.DisconnectAccountRequest) (*adminv1.DisconnectAccountResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkParent(scope, r.GetParent()); err != nil {
		return nil, err
	}
	n, err := s.app.DisconnectAccount(ctx, scope, r.GetAccount(), r.GetClientId())
	if err != nil {
		return nil, err
	}
	return &adminv1.DisconnectAccountResponse{Ended: count(n)}, nil
}

// RevokeAgent implements adminv1.ConnectedAgentServiceServer.
func (s *connectedAgentServer) RevokeAgent(ctx context.Context, r *adminv1.RevokeAgentRequest) (*adminv1.RevokeAgentResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkParent(scope, r.GetParent()); err != nil {
		return nil, err
	}
	grants, sessions, err := s.app.RevokeAgent(ctx, scope, r.GetClientId(), r.GetReason())
	if err != nil {
		return nil, err
	}
	return &adminv1.RevokeAgentResponse{ConnectionsEnded: count(grants), SessionsEnded: count(sessions)}, nil
}

func connectionOf(scope tenancy.Scope, now time.Time, g store.Grant) *adminv1.ConnectedAgent {
	out := &adminv1.ConnectedAgent{
		Name: scope.Name() + "/" + connectionsPrefix + g.ID, Uid: g.ID, State: adminv1.ConnectionState_CONNECTION_STATE_ACTIVE,
		ClientId: g.ClientID, AgentName: g.AgentName, User: g.UserID, Account: g.Account, AccountLabel: g.AccountLabel,
		Scopes: strings.Fields(g.Scope), SignIn: string(g.SignIn), CreateTime: timestamppb.New(g.CreatedAt),
		LastUsedTime: timestamppb.New(g.LastUsedAt), ExpireTime: timeOf(g.ExpiresAt), EndTime: timeOf(g.EndedAt), EndReason: string(g.EndReason),
	}
	switch {
	case !g.EndedAt.IsZero():
		out.State = adminv1.ConnectionState_CONNECTION_STATE_ENDED
	case !g.InForce(now):
		out.State = adminv1.ConnectionState_CONNECTION_STATE_EXPIRED
	}
	return out
}

func count(n int) int32 { return int32(min(n, math.MaxInt32)) }
