package rpc

import (
	"strings"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// parseFilter reads the filter of a list: equalities joined by AND, such as
//
//	status = "idle" AND client_id = "https://agent.example/agent.json"
//
// Values are quoted, with \" and \\ as the only escapes. Each field may be named once.
func parseFilter(raw string) (store.Filter, error) {
	var f store.Filter
	fields := map[string]*string{
		"status": &f.Status, "responder": &f.Responder, "client_id": &f.ClientID, "user": &f.UserID, "session": &f.SessionID,
		"parent": &f.ParentID, "person": &f.Person,
	}
	rest := strings.TrimSpace(raw)
	if rest == "" {
		return f, nil
	}
	for {
		name, after, ok := strings.Cut(rest, "=")
		name = strings.TrimSpace(name)
		if !ok {
			return store.Filter{}, badFilter("expected field = \"value\"")
		}
		target, known := fields[name]
		if !known {
			return store.Filter{}, badFilter("no index serves a filter on this field; status, responder, client_id, user, session, parent and person have one")
		}
		if *target != "" {
			return store.Filter{}, badFilter(name + " is named twice")
		}
		value, after, ok := cutQuoted(strings.TrimSpace(after))
		if !ok || value == "" {
			return store.Filter{}, badFilter("the value of " + name + " must be a quoted text")
		}
		*target = value
		rest = strings.TrimSpace(after)
		if rest == "" {
			break
		}
		if rest, ok = strings.CutPrefix(rest, "AND "); !ok {
			return store.Filter{}, badFilter("conditions are joined by AND")
		}
	}
	if f.Status != "" && !oneOf(f.Status, "working", "idle", "queued", "closed") {
		return store.Filter{}, badFilter("status is one of working, idle, queued and closed")
	}
	if f.Responder != "" && !oneOf(f.Responder, "agent", "human") {
		return store.Filter{}, badFilter("responder is agent or human")
	}
	return f, nil
}

func oneOf(s string, all ...string) bool {
	for _, a := range all {
		if s == a {
			return true
		}
	}
	return false
}

func badFilter(detail string) error { return resource.Invalid("filter", detail) }

// cutQuoted takes a quoted text off the front of s.
func cutQuoted(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", "", false
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}
