package rpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/sessions/app"
	"github.com/poppyfield/poppyfield/services/sessions/store"
)

const sessionsPrefix = "sessions/"

type sessionServer struct {
	adminv1.UnimplementedSessionServiceServer
	app *app.App
}

// GetSession implements adminv1.SessionServiceServer.
func (s *sessionServer) GetSession(ctx context.Context, r *adminv1.GetSessionRequest) (*adminv1.Session, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	id, err := below(scope, r.GetName(), sessionsPrefix)
	if err != nil {
		return nil, err
	}
	found, err := s.app.Session(ctx, scope, id)
	if err != nil {
		return nil, err
	}
	return sessionOf(scope, s.app.Now(), found), nil
}

// ListSessions implements adminv1.SessionServiceServer.
func (s *sessionServer) ListSessions(ctx context.Context, r *adminv1.ListSessionsRequest) (*adminv1.ListSessionsResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkParent(scope, r.GetParent()); err != nil {
		return nil, err
	}
	after, err := placeOf(s.app.Now(), r.GetPageToken(), "sessions", r.GetParent())
	if err != nil {
		return nil, err
	}
	size := resource.Size(r.GetPageSize())
	list, err := s.app.Sessions(ctx, scope, after, size+1)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListSessionsResponse{}
	if len(list) > size {
		list = list[:size]
		last := list[size-1]
		out.NextPageToken = tokenOf(s.app.Now(), store.Place{CreatedAt: last.CreatedAt, ID: last.ID}, "sessions", r.GetParent())
	}
	for _, found := range list {
		out.Sessions = append(out.Sessions, sessionOf(scope, s.app.Now(), found))
	}
	return out, nil
}

// EndSession implements adminv1.SessionServiceServer.
func (s *sessionServer) EndSession(ctx context.Context, r *adminv1.EndSessionRequest) (*adminv1.Session, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	id, err := below(scope, r.GetName(), sessionsPrefix)
	if err != nil {
		return nil, err
	}
	ended, err := s.app.EndSession(ctx, scope, id)
	if err != nil {
		return nil, err
	}
	return sessionOf(scope, s.app.Now(), ended), nil
}

func sessionOf(scope tenancy.Scope, now time.Time, s store.SessionView) *adminv1.Session {
	out := &adminv1.Session{
		Name: scope.Name() + "/" + sessionsPrefix + s.ID, Uid: s.ID, State: adminv1.SessionState_SESSION_STATE_ACTIVE,
		ClientId: s.ClientID, AgentName: s.AgentName, User: s.UserID, SignedIn: s.Grant.InForce(now), Account: s.Account,
		CreateTime: timestamppb.New(s.CreatedAt), LastUsedTime: timestamppb.New(s.LastUsedAt), EndTime: timeOf(s.EndedAt),
	}
	if !s.EndedAt.IsZero() {
		out.State = adminv1.SessionState_SESSION_STATE_ENDED
		out.SignedIn = false
	}
	return out
}

func timeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
