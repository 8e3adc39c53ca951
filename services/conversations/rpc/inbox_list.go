package rpc

import (
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// cutText is how much of a message's text the inbox shows, in characters.
const cutText = 200

// ListInboxItems implements the service.
func (s *Inbox) ListInboxItems(ctx context.Context, req *adminv1.ListInboxItemsRequest) (*adminv1.ListInboxItemsResponse, error) {
	scope, err := inboxOf(ctx, req.GetParent(), "/inbox")
	if err != nil {
		return nil, err
	}
	filter, err := parseInboxFilter(req.GetFilter())
	if err != nil {
		return nil, err
	}
	now, size := s.Now(), resource.Size(req.GetPageSize())
	after, err := inboxPosition(now, req)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListInboxItemsResponse{}
	err = s.Store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		out.Reset()
		page, err := tx.InboxItems(ctx, filter, after, size+1)
		if err != nil {
			return err
		}
		if len(page) > size {
			page = page[:size]
			p := store.PositionOf(page[size-1])
			out.NextPageToken = resource.Token(now, []string{strconv.FormatBool(p.Resting), micros(p.At), p.ID}, req.GetParent(), req.GetFilter())
		}
		for _, c := range page {
			i, err := item(ctx, tx, scope, c)
			if err != nil {
				return err
			}
			out.Items = append(out.Items, i)
		}
		queued, withPeople, err := tx.InboxCounts(ctx)
		out.Queued, out.WithPeople = count(queued), count(withPeople)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func count(n int) int32 {
	return int32(min(n, 1<<30))
}

// item is a conversation as the inbox shows it.
func item(ctx context.Context, tx store.Tx, scope tenancy.Scope, c *store.Conversation) (*adminv1.InboxItem, error) {
	out := &adminv1.InboxItem{}
	var err error
	if out.Conversation, err = toProto(scope, c); err != nil {
		return nil, err
	}
	e, found, err := tx.LastMessage(ctx, c)
	if err != nil || !found {
		return out, err
	}
	shown, err := eventToProto(c, e)
	if err != nil {
		return nil, err
	}
	out.LastMessage, out.LastMessageTime = shown.GetMessage(), timestamppb.New(e.CreatedAt)
	if text := []rune(out.GetLastMessage().GetText()); len(text) > cutText {
		out.LastMessage.Text = string(text[:cutText])
	}
	return out, nil
}

func micros(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }

// timeKey reads a page token of a list that is ordered by a time and an id.
func timeKey(now time.Time, token string, bound ...string) (time.Time, string, error) {
	key, err := resource.After(now, token, 2, bound...)
	if err != nil || key == nil {
		return time.Time{}, "", err
	}
	at, err := strconv.ParseInt(key[0], 10, 64)
	if err != nil || key[1] == "" {
		return time.Time{}, "", resource.Invalid("page_token", "not a page token of this list")
	}
	return time.UnixMicro(at).UTC(), key[1], nil
}

func inboxPosition(now time.Time, req *adminv1.ListInboxItemsRequest) (store.InboxPosition, error) {
	key, err := resource.After(now, req.GetPageToken(), 3, req.GetParent(), req.GetFilter())
	if err != nil || key == nil {
		return store.InboxPosition{}, err
	}
	resting, bad := strconv.ParseBool(key[0])
	at, worse := strconv.ParseInt(key[1], 10, 64)
	if bad != nil || worse != nil || key[2] == "" {
		return store.InboxPosition{}, resource.Invalid("page_token", "not a page token of this list")
	}
	return store.InboxPosition{Resting: resting, At: time.UnixMicro(at).UTC(), ID: key[2]}, nil
}

// parseInboxFilter reads the filter of an inbox. The value of person and assignee may be empty.
func parseInboxFilter(raw string) (store.InboxFilter, error) {
	var f store.InboxFilter
	err := resource.Conditions(raw, func(name, value string) error {
		switch name {
		case "status":
			if !slices.Contains([]string{"working", "idle", "queued"}, value) {
				return resource.Invalid("filter", "status is one of working, idle and queued")
			}
			f.Status = value
		case "person":
			f.Person = &value
		case "assignee":
			f.Assignee = &value
		default:
			return resource.NoIndex("status", "person", "assignee")
		}
		return nil
	})
	if err != nil {
		return store.InboxFilter{}, err
	}
	return f, nil
}
