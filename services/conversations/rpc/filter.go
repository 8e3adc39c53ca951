package rpc

import (
	"cmp"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// parseFilter reads the filter of a list of conversations.
func parseFilter(raw string) (store.Filter, error) {
	var f store.Filter
	err := resource.ParseFilter(raw, map[string]*string{
		"status": &f.Status, "responder": &f.Responder, "client_id": &f.ClientID, "user": &f.UserID, "session": &f.SessionID,
		"parent": &f.ParentID, "person": &f.Person,
	})
	if err == nil {
		err = cmp.Or(resource.OneOf("status", f.Status, "working", "idle", "queued", "closed"), resource.OneOf("responder", f.Responder, "agent", "human"))
	}
	if err != nil {
		return store.Filter{}, err
	}
	return f, nil
}
