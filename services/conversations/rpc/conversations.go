package rpc

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations/app"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

const kind = "conversations"

// Conversations implements adminv1.ConversationServiceServer.
type Conversations struct {
	adminv1.UnimplementedConversationServiceServer
	App   *app.App
	Store *store.Store
	Now   clock.Clock
}

// named returns the scope of the call and the conversation that name is of.
func named(ctx context.Context, name string) (tenancy.Scope, string, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return scope, "", err
	}
	id, err := resource.ChildID(scope, name, kind)
	return scope, id, err
}

// missing turns the protocol's answer for no such conversation into the admin API's.
func missing(err error) error {
	if problem.Is(err, problem.ConversationNotFound) {
		return resource.NotFound()
	}
	return err
}

// GetConversation implements the service.
func (s *Conversations) GetConversation(ctx context.Context, req *adminv1.GetConversationRequest) (*adminv1.Conversation, error) {
	scope, id, err := named(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	var c *store.Conversation
	err = s.Store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		var err error
		c, err = tx.Conversation(ctx, id)
		return err
	})
	if err != nil {
		return nil, missing(err)
	}
	return toProto(scope, c)
}

// ListConversations implements the service.
func (s *Conversations) ListConversations(ctx context.Context, req *adminv1.ListConversationsRequest) (*adminv1.ListConversationsResponse, error) {
	scope, err := tenancy.From(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetParent() != scope.Name() {
		return nil, resource.NotFound()
	}
	filter, err := parseFilter(req.GetFilter())
	if err != nil {
		return nil, err
	}
	now := s.Now()
	after, err := position(now, req)
	if err != nil {
		return nil, err
	}
	size := resource.Size(req.GetPageSize())
	var page []*store.Conversation
	out := &adminv1.ListConversationsResponse{}
	err = s.Store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		// The watch starts before the page: what changes in between is seen twice rather than never.
		newest, err := tx.Newest(ctx)
		if err != nil {
			return err
		}
		out.WatchToken = strconv.FormatInt(max(newest.UnixMicro(), 0), 10)
		if page, err = tx.List(ctx, filter, after, size+1); err != nil {
			return err
		}
		n, exact, err := tx.Count(ctx, filter)
		out.Count = &adminv1.Count{Value: int64(n), Exact: exact}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(page) > size {
		page = page[:size]
		last := page[size-1]
		out.NextPageToken = resource.Token(now, []string{strconv.FormatInt(last.LastEventAt.UnixMicro(), 10), last.ID}, req.GetParent(), req.GetFilter())
	}
	for _, c := range page {
		p, err := toProto(scope, c)
		if err != nil {
			return nil, err
		}
		out.Conversations = append(out.Conversations, p)
	}
	return out, nil
}

func position(now time.Time, req *adminv1.ListConversationsRequest) (store.Position, error) {
	key, err := resource.After(now, req.GetPageToken(), 2, req.GetParent(), req.GetFilter())
	if err != nil || key == nil {
		return store.Position{}, err
	}
	micros, err := strconv.ParseInt(key[0], 10, 64)
	if err != nil || key[1] == "" {
		return store.Position{}, resource.Invalid("page_token", "not a page token of this list")
	}
	return store.Position{LastEventAt: time.UnixMicro(micros).UTC(), ID: key[1]}, nil
}

// ListConversationEvents implements the service.
func (s *Conversations) ListConversationEvents(ctx context.Context, req *adminv1.ListConversationEventsRequest) (*adminv1.ListConversationEventsResponse, error) {
	scope, id, err := named(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	now := s.Now()
	bound := []string{req.GetParent(), strconv.FormatInt(req.GetAfterSequence(), 10)}
	after := req.GetAfterSequence()
	key, err := resource.After(now, req.GetPageToken(), 1, bound...)
	if err != nil {
		return nil, err
	}
	if key != nil {
		if after, err = strconv.ParseInt(key[0], 10, 64); err != nil {
			return nil, resource.Invalid("page_token", "not a page token of this list")
		}
	}
	size := resource.Size(req.GetPageSize())
	var c *store.Conversation
	var events []store.Event
	err = s.Store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		var err error
		if c, err = tx.Conversation(ctx, id); err != nil {
			return err
		}
		events, err = tx.Events(ctx, c, after, size)
		return err
	})
	if err != nil {
		return nil, missing(err)
	}
	out := &adminv1.ListConversationEventsResponse{}
	if n := len(events); n > 0 && events[n-1].Sequence < c.LastSequence {
		out.NextPageToken = resource.Token(now, []string{strconv.FormatInt(events[n-1].Sequence, 10)}, bound...)
	}
	for _, e := range events {
		p, err := eventToProto(c, e)
		if err != nil {
			return nil, err
		}
		out.Events = append(out.Events, p)
	}
	return out, nil
}

// CloseConversation implements the service.
func (s *Conversations) CloseConversation(ctx context.Context, req *adminv1.CloseConversationRequest) (*adminv1.Conversation, error) {
	scope, id, err := named(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	c, err := s.App.CloseForCompany(ctx, scope, id)
	if err != nil {
		return nil, missing(err)
	}
	return toProto(scope, c)
}

func structOf(raw []byte) (*structpb.Struct, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	s := &structpb.Struct{}
	return s, s.UnmarshalJSON(raw)
}
