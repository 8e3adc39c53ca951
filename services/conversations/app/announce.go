package app

import (
	"context"

	"github.com/poppyfield/poppyfield/internal/platform/outbox"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// announce tells the Company's listeners what an input did to a conversation, in the
// order of its events. before is the conversation as it was.
func (u *unit) announce(ctx context.Context, before, c *store.Conversation, events []store.Event, e effects) error {
	if u.Quiet(u.scope) {
		return nil
	}
	n := news{c: c, facts: conversationFacts(c), at: webhook.EventStatus{Status: before.Status, Responder: before.Responder}}
	add := func(name string, data any) {
		n.out = append(n.out, outbox.Event{Type: name, Subject: "conversations/" + c.ID, At: u.now, Data: data})
	}
	if e.create {
		add(webhook.EventStarted, webhook.StartedData{ConversationFacts: n.of(events[0].Sequence)})
	}
	joined := false
	for _, one := range events {
		n.add(one, before, add)
		if s, ok := one.Payload.(conversation.StatePayload); ok {
			joined = joined || s.Responder == conversation.ResponderHuman
		}
	}
	if !joined && c.Person != "" && c.Person != before.Person { // one person after another
		add(webhook.EventPersonJoined, webhook.PersonData{ConversationFacts: n.of(c.LastSequence), Person: c.Person})
	}
	return u.Tell(ctx, u.scope, n.out...)
}

// news are what listeners read of one input.
type news struct {
	c     *store.Conversation
	facts webhook.ConversationFacts
	at    webhook.EventStatus // as of the event before
	out   []outbox.Event
}

func (n *news) of(sequence int64) webhook.ConversationFacts {
	f := n.facts
	f.Sequence = sequence
	return f
}

func (n *news) add(e store.Event, before *store.Conversation, add func(string, any)) {
	f := n.of(e.Sequence)
	switch p := e.Payload.(type) {
	case conversation.MessagePayload:
		add(webhook.EventMessage, webhook.MessageData{ConversationFacts: f, Message: webhook.NewEventMessage(p)})
	case conversation.AuthorizationPayload:
		add(webhook.EventAuthorization, webhook.AuthorizationData{ConversationFacts: f, Authorization: webhook.EventSignIn{Error: p.Error, Scope: p.Scope}})
	case conversation.UserRequestedPayload:
		add(webhook.EventUserRequested, webhook.UserRequestedData{ConversationFacts: f, Reason: p.Reason})
	case conversation.DirectOpenedPayload:
		add(webhook.EventDirectOpened, webhook.DirectData{ConversationFacts: f, DirectConversation: webhook.EventID{ID: p.ConversationID}})
	case conversation.DirectClosedPayload:
		add(webhook.EventDirectClosed, webhook.DirectData{ConversationFacts: f, DirectConversation: webhook.EventID{ID: p.ConversationID}})
	case conversation.StatePayload:
		n.state(f, p, before, add)
	}
}

// state tells of a change of status or responder, and of what it means.
func (n *news) state(f webhook.ConversationFacts, p conversation.StatePayload, before *store.Conversation, add func(string, any)) {
	was := n.at
	n.at = webhook.EventStatus(p)
	// One input may change it twice, as a handoff does that finds nobody.
	f.Conversation.Status, f.Conversation.Responder = p.Status, p.Responder
	add(webhook.EventStatusChanged, webhook.StatusChangedData{ConversationFacts: f, Previous: was})
	switch {
	case p.Status == conversation.Closed:
		add(webhook.EventClosed, webhook.ClosedData{ConversationFacts: f, ClosedBy: n.c.ClosedBy})
	case p.Status == conversation.Queued:
		add(webhook.EventHandoffRequested, webhook.HandoffRequestedData{ConversationFacts: f, Reason: n.c.HandoffReason})
	case p.Responder == was.Responder:
	case p.Responder == conversation.ResponderHuman:
		add(webhook.EventPersonJoined, webhook.PersonData{ConversationFacts: f, Person: n.c.Person})
	default:
		add(webhook.EventHandedBack, webhook.PersonData{ConversationFacts: f, Person: before.Person})
	}
}

func conversationFacts(c *store.Conversation) webhook.ConversationFacts {
	f := webhook.ConversationFacts{
		Conversation: webhook.DeliveryConversation{ID: c.ID, Status: c.Status, Responder: c.Responder, Direct: c.ParentID != ""},
		Agent:        webhook.DeliveryAgent{ClientID: c.ClientID, Name: c.AgentName},
		User:         webhook.EventUser{ID: c.UserID},
		Session:      webhook.NewDeliverySession(c.Moment.SessionID, c.Moment.SignedIn, c.Moment.Account, c.Moment.Scopes),
	}
	if c.ParentID != "" {
		f.Conversation.Parent = &c.ParentID
	}
	return f
}
