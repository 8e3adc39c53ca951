package rpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// watchPage is how many items a watch reads at once.
const watchPage = 100

// inboxWatch is one open watch.
type inboxWatch struct {
	inbox *Inbox
	scope tenancy.Scope
	send  func(*adminv1.WatchInboxResponse) error
	shown map[string]string // etag by conversation: what the caller has
}

// WatchInbox implements the service.
func (s *Inbox) WatchInbox(req *adminv1.WatchInboxRequest, stream adminv1.InboxService_WatchInboxServer) error {
	ctx := stream.Context()
	scope, err := inboxOf(ctx, req.GetParent(), "/inbox")
	if err != nil {
		return err
	}
	// Before anything is read, or a change in between is missed.
	told, cancel := s.Changes.Open(scope)
	defer cancel()
	w := &inboxWatch{inbox: s, scope: scope, send: stream.Send, shown: map[string]string{}}
	if err := w.list(ctx); err != nil {
		return err
	}
	if err := w.send(&adminv1.WatchInboxResponse{Frame: &adminv1.WatchInboxResponse_Listed{Listed: true}}); err != nil {
		return err
	}
	tick := time.NewTicker(s.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.Stopping:
			return nil // whoever watches opens it again, at another process
		case <-told.Wake():
			ids, all := told.Take()
			if all {
				err = w.list(ctx)
			} else {
				err = w.tell(ctx, ids)
			}
		case <-tick.C:
			err = w.beat(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (w *inboxWatch) beat(ctx context.Context) error {
	if !w.inbox.Connected() { // no doorbell would ring
		if err := w.list(ctx); err != nil {
			return err
		}
	}
	return w.send(&adminv1.WatchInboxResponse{Frame: &adminv1.WatchInboxResponse_Heartbeat{Heartbeat: timestamppb.New(w.inbox.Now())}})
}

// list sends what the caller hasn't seen of the whole inbox, and what has gone from it.
func (w *inboxWatch) list(ctx context.Context) error {
	there := map[string]bool{}
	for after := (store.InboxPosition{}); ; {
		var page []*store.Conversation
		var items []*adminv1.InboxItem
		err := w.inbox.Store.Read(ctx, w.scope, func(ctx context.Context, tx store.Tx) error {
			items = nil
			var err error
			if page, err = tx.InboxItems(ctx, store.InboxFilter{}, after, watchPage); err != nil {
				return err
			}
			for _, c := range page {
				i, err := item(ctx, tx, w.scope, c)
				if err != nil {
					return err
				}
				items = append(items, i)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, i := range items {
			there[i.GetConversation().GetUid()] = true
			if err := w.show(i); err != nil {
				return err
			}
		}
		if len(page) < watchPage {
			break
		}
		after = store.PositionOf(page[len(page)-1])
	}
	for id := range w.shown {
		if !there[id] {
			// It may only have moved behind the reader's back.
			if err := w.tell(ctx, []string{id}); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell looks at the conversations that the doorbells named.
func (w *inboxWatch) tell(ctx context.Context, ids []string) error {
	slices.Sort(ids) // ids are as old as they sort
	for _, id := range ids {
		var i *adminv1.InboxItem
		err := w.inbox.Store.Read(ctx, w.scope, func(ctx context.Context, tx store.Tx) error {
			i = nil
			c, err := tx.Conversation(ctx, id)
			if err != nil || !c.InInbox() {
				return err
			}
			i, err = item(ctx, tx, w.scope, c)
			return err
		})
		if err != nil && !problem.Is(err, problem.ConversationNotFound) {
			return err
		}
		if i == nil {
			err = w.remove(id)
		} else {
			err = w.show(i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *inboxWatch) show(i *adminv1.InboxItem) error {
	c := i.GetConversation()
	if w.shown[c.GetUid()] == c.GetEtag() {
		return nil
	}
	w.shown[c.GetUid()] = c.GetEtag()
	return w.send(&adminv1.WatchInboxResponse{Frame: &adminv1.WatchInboxResponse_Item{Item: i}})
}

func (w *inboxWatch) remove(id string) error {
	if _, ok := w.shown[id]; !ok {
		return nil
	}
	delete(w.shown, id)
	return w.send(&adminv1.WatchInboxResponse{Frame: &adminv1.WatchInboxResponse_Removed{Removed: w.scope.Name() + "/" + kind + "/" + id}})
}
