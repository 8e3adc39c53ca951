package rpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/sessions/app"
)

const accessTable = "/accessTable"

// GetAccessTable implements adminv1.AccessServiceServer.
func (s *accessServer) GetAccessTable(ctx context.Context, r *adminv1.GetAccessTableRequest) (*adminv1.AccessTable, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	if r.GetName() != scope.Name()+accessTable {
		return nil, resource.NotFound()
	}
	table, err := s.app.AccessTable(ctx, scope)
	if err != nil {
		return nil, err
	}
	out := &adminv1.AccessTable{
		Name: r.GetName(), Issuer: table.Issuer, RequestsPerMinute: int32(table.RequestsPerMinute), NonceRequired: table.NonceRequired,
	}
	for _, api := range table.APIs {
		out.Apis = append(out.Apis, tableEntry(api))
	}
	return out, nil
}

func tableEntry(api access.API) *adminv1.AccessTableApi {
	out := &adminv1.AccessTableApi{Url: api.URL, Mcp: api.MCP, Resource: api.Resource, BaseUrls: api.Bases, ResourceMetadata: api.Metadata}
	for _, r := range api.Rules {
		out.Rules = append(out.Rules, &adminv1.AccessRule{Methods: r.Methods, Path: r.Path, SignIn: r.SignIn, Scopes: r.Scopes})
	}
	return out
}

// sessionWatch is one open watch.
type sessionWatch struct {
	app      *app.App
	scope    tenancy.Scope
	send     func(*adminv1.WatchSessionsResponse) error
	settings app.Settings
	// again is when everything has to be forgotten once more: another process may have
	// answered by settings that it was not told of yet.
	again time.Time
}

// WatchSessions implements adminv1.AccessServiceServer.
func (s *accessServer) WatchSessions(r *adminv1.WatchSessionsRequest, stream adminv1.AccessService_WatchSessionsServer) error {
	ctx := stream.Context()
	scope, err := scopeOf(ctx, r.GetParent())
	if err != nil {
		return err
	}
	w := &sessionWatch{app: s.app, scope: scope, send: stream.Send}
	if w.settings, err = s.app.Settings(ctx, scope); err != nil {
		return err
	}
	told, since, cancel := s.hub.Open(scope)
	defer cancel()
	// What was asked before, of whichever process, may be by older settings than these.
	w.again = since.Add(directory.MaxAge)
	if err := w.send(&adminv1.WatchSessionsResponse{Frame: &adminv1.WatchSessionsResponse_Synced{Synced: timestamppb.New(since)}}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.hub.Stopping():
			return nil // whoever watches opens it again, at another process
		case <-told.Wake():
		}
		news := told.Take()
		all, err := w.settingsChanged(ctx)
		if err != nil {
			return err
		}
		news.All = news.All || all
		if err := w.tell(news.Sessions, news.All); err != nil {
			return err
		}
		if news.Checked.IsZero() {
			continue // they went with the news before
		}
		if err := w.send(&adminv1.WatchSessionsResponse{Frame: &adminv1.WatchSessionsResponse_Heartbeat{Heartbeat: timestamppb.New(news.Checked)}}); err != nil {
			return err
		}
	}
}

// settingsChanged reports whether what was answered by the settings has to be forgotten.
func (w *sessionWatch) settingsChanged(ctx context.Context) (bool, error) {
	now := w.app.Now()
	settings, err := w.app.Settings(ctx, w.scope)
	if err != nil {
		return false, err
	}
	if !settings.Equal(w.settings) {
		w.settings, w.again = settings, now.Add(directory.MaxAge)
		return true, nil
	}
	if w.again.IsZero() || now.Before(w.again) {
		return false, nil
	}
	w.again = time.Time{}
	return true, nil
}

func (w *sessionWatch) tell(sessions []string, all bool) error {
	if all {
		return w.send(&adminv1.WatchSessionsResponse{Frame: &adminv1.WatchSessionsResponse_All{All: true}})
	}
	for _, id := range sessions {
		frame := &adminv1.WatchSessionsResponse_Session{Session: w.scope.Name() + "/" + sessionsPrefix + id}
		if err := w.send(&adminv1.WatchSessionsResponse{Frame: frame}); err != nil {
			return err
		}
	}
	return nil
}
