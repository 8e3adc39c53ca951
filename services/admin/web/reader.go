package web

import (
	"context"
	"slices"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

const (
	// readPage and maxPages bound what a client that comes back is told one by one.
	readPage = 200
	maxPages = 10
)

// reader reads the conversations of a watch from their owner.
type reader struct {
	api    adminv1.ConversationServiceClient
	people adminv1.InboxServiceClient
	scope  tenancy.Scope
	all    bool
	ids    []string
	inbox  bool
}

// change is a conversation that changed, or is gone.
type change struct {
	name    string
	etag    string
	at      int64 // update time in microseconds
	removed bool
	inInbox bool // a person is awaited, or handles it
}

// check fails when a conversation that is asked for isn't there.
func (r *reader) check(ctx context.Context) error {
	for _, id := range r.ids {
		c, err := r.one(ctx, id)
		if err != nil {
			return err
		}
		if c.removed {
			return problem.New(problem.NotFound, problem.NotFoundReason, "", "not found")
		}
	}
	return nil
}

// wants reports whether the watch is about a conversation.
func (r *reader) wants(id string) bool { return r.all || r.inbox || slices.Contains(r.ids, id) }

// talks reports whether the watch is about a conversation beside the inbox.
func (r *reader) talks(name string) bool {
	return r.all || slices.Contains(r.ids, strings.TrimPrefix(name, r.scope.Name()+"/conversations/"))
}

// waiting returns what is in the inbox. whole is false when that is too much to tell.
func (r *reader) waiting(ctx context.Context) (out []change, whole bool, err error) {
	req := &adminv1.ListInboxItemsRequest{Parent: r.scope.Name() + "/inbox", PageSize: readPage}
	for range maxPages {
		got, err := r.people.ListInboxItems(ctx, req)
		if err != nil {
			return nil, false, err
		}
		for _, i := range got.GetItems() {
			out = append(out, changeOf(i.GetConversation()))
		}
		if got.GetNextPageToken() == "" {
			return out, true, nil
		}
		req.PageToken = got.GetNextPageToken()
	}
	return out, false, nil
}

// one reads one conversation.
func (r *reader) one(ctx context.Context, id string) (change, error) {
	name := r.scope.Name() + "/conversations/" + id
	c, err := r.api.GetConversation(ctx, &adminv1.GetConversationRequest{Name: name})
	if err != nil {
		if problem.As(err).Kind == problem.NotFound {
			return change{name: name, removed: true}, nil
		}
		return change{}, err
	}
	return changeOf(c), nil
}

// since returns what changed at or after a time in microseconds, oldest first. whole
// is false when that is too much to tell.
func (r *reader) since(ctx context.Context, from int64) (out []change, whole bool, err error) {
	if !r.all && !r.inbox {
		for _, id := range r.ids {
			c, err := r.one(ctx, id)
			if err != nil {
				return nil, false, err
			}
			if c.removed || c.at >= from {
				out = append(out, c)
			}
		}
		order(out)
		return out, true, nil
	}
	if r.inbox {
		// An assignment is no event, so that the list below may not come to it.
		waiting, whole, err := r.waiting(ctx)
		if err != nil || !whole {
			return nil, false, err
		}
		for _, c := range waiting {
			if c.at >= from {
				out = append(out, c)
			}
		}
	}
	req := &adminv1.ListConversationsRequest{Parent: r.scope.Name(), PageSize: readPage}
	for range maxPages {
		got, err := r.api.ListConversations(ctx, req)
		if err != nil {
			return nil, false, err
		}
		for _, c := range got.GetConversations() {
			// The list begins with the newest event, and every change has one.
			if c.GetLastEventTime().AsTime().UnixMicro() < from && c.GetUpdateTime().AsTime().UnixMicro() < from {
				order(out)
				return out, true, nil
			}
			out = append(out, changeOf(c))
		}
		if got.GetNextPageToken() == "" {
			order(out)
			return out, true, nil
		}
		req.PageToken = got.GetNextPageToken()
	}
	return nil, false, nil
}

func changeOf(c *adminv1.Conversation) change {
	return change{
		name: c.GetName(), etag: c.GetEtag(), at: c.GetUpdateTime().AsTime().UnixMicro(),
		inInbox: c.GetStatus() == "queued" || c.GetResponder() == "human" && c.GetStatus() != "closed",
	}
}

// order puts the oldest change first: a client that leaves in the middle comes back
// with the token of the last one it saw.
func order(changes []change) {
	slices.SortStableFunc(changes, func(a, b change) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
}
