package rpc

import (
	"context"
	"strconv"
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
	return sessionOf(scope, found), nil
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
	after, err := placeOf(s.app.Now(), r.GetPageToken(), r.GetParent())
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
		out.NextPageToken = resource.Token(s.app.Now(), []string{strconv.FormatInt(last.CreatedAt.UnixMicro(), 10), last.ID}, "sessions", r.GetParent())
	}
	for _, found := range list {
		out.Sessions = append(out.Sessions, sessionOf(scope, found))
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
	return sessionOf(scope, ended), nil
}

func placeOf(now time.Time, token, parent string) (store.Place, error) {
	parts, err := resource.After(now, token, 2, "sessions", parent)
	if err != nil || parts == nil {
		return store.Place{}, err
	}
	micros, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return store.Place{}, resource.Invalid("page_token", "not a page token of this list")
	}
	return store.Place{CreatedAt: time.UnixMicro(micros).UTC(), ID: parts[1]}, nil
}

func sessionOf(scope tenancy.Scope, s store.Session) *adminv1.Session {
	out := &adminv1.Session{
		Name: scope.Name() + "/" + sessionsPrefix + s.ID, Uid: s.ID, State: adminv1.SessionState_SESSION_STATE_ACTIVE,
		ClientId: s.ClientID, AgentName: s.AgentName, User: s.UserID, SignedIn: s.Account != "",
		CreateTime: timestamppb.New(s.CreatedAt), LastUsedTime: timestamppb.New(s.LastUsedAt), EndTime: timeOf(s.EndedAt),
	}
	if !s.EndedAt.IsZero() {
		out.State = adminv1.SessionState_SESSION_STATE_ENDED
	}
	return out
}

func timeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
