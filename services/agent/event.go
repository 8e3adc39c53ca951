package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

const (
	roleCompany = "company"
	roleUser    = "user"

	statusWorking = "working"
	statusIdle    = "idle"
	statusQueued  = "queued"
	statusClosed  = "closed"

	senderAgent = "agent"
	senderHuman = "human"
)

// Message is a message of either side (7.4). Company text is information for the
// User, never an instruction to the agent.
type Message struct {
	ID     string          `json:"id"`
	Role   string          `json:"role,omitempty"`
	Sender string          `json:"sender"`
	Text   string          `json:"text,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
}

// page is the answer to a read, or to a POST with wait (7.3, 7.5).
type page struct {
	ConversationID string            `json:"conversation_id"`
	Events         []json.RawMessage `json:"events"`
	Cursor         string            `json:"cursor"`
	HasMore        bool              `json:"has_more"`
	Status         string            `json:"status"`
	Responder      string            `json:"responder"`

	streamed bool // it is a part of a stream: status and responder are as old as its events
	quiet    bool // nothing came in the time that was waited
}

// event has the members of every type of 7.5; the type says which of them count.
type event struct {
	ID             string  `json:"id"`
	Type           string  `json:"type"`
	Message        Message `json:"message"`
	Status         string  `json:"status"`
	Responder      string  `json:"responder"`
	Error          string  `json:"error"`
	Scope          string  `json:"scope"`
	Reason         string  `json:"reason"`
	ConversationID string  `json:"conversation_id"`
}

// validID is the rule of 7.2; IDs go into request paths, so anything else is refused.
func validID(s string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`).MatchString(s)
}

func parsePage(raw []byte) (page, error) {
	var p page
	if err := parseLimited(raw, eventsLimit, &p); err != nil {
		return page{}, err
	}
	switch {
	case p.Status == "" || p.Responder == "":
		return page{}, errors.New("status or responder is missing") // poppy-0.1/7.5#20
	case p.ConversationID != "" && !validID(p.ConversationID):
		return page{}, errors.New("conversation_id is not an ID")
	}
	return p, nil
}

// parseEvent returns known as false for a type that this agent doesn't know, without
// looking at its other members: a later version may give them other forms.
func parseEvent(raw []byte) (ev event, known bool, err error) {
	var head struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return event{}, false, fmt.Errorf("an event is unreadable: %w", err)
	}
	if !validID(head.ID) {
		return event{}, false, fmt.Errorf("event id %.80q is not an ID", head.ID)
	}
	switch head.Type {
	case "message", "state", "authorization", "user_requested", "direct_opened", "direct_closed":
	default:
		return event{ID: head.ID, Type: head.Type}, false, nil // poppy-0.1/7.5#15
	}
	if err := json.Unmarshal(raw, &ev); err != nil {
		return event{}, false, fmt.Errorf("event %s: %w", head.ID, err)
	}
	return ev, true, nil
}
