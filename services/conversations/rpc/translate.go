package rpc

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

func toProto(scope tenancy.Scope, c *store.Conversation) (*adminv1.Conversation, error) {
	out := &adminv1.Conversation{
		Name: scope.Name() + "/" + kind + "/" + c.ID, Uid: c.ID, Status: string(c.Status), Responder: string(c.Responder),
		ClientId: c.ClientID, AgentName: c.AgentName, User: c.UserID, Account: c.Account, Session: c.SessionID,
		LastEventTime: timestamppb.New(c.LastEventAt), CreateTime: timestamppb.New(c.CreatedAt), UpdateTime: timestamppb.New(c.UpdatedAt),
		Etag: resource.ETag(c.Version), ClosedBy: c.ClosedBy,
		Person: c.Person, Assignee: c.Assignee, HandoffReason: c.HandoffReason, HadHandoff: c.HadHandoff,
		Parent: c.ParentID, DirectConversation: c.ChildID, SignedIn: c.Moment.SignedIn, Scopes: c.Moment.Scopes,
		ViewerActions: actionsOf(c),
	}
	if !c.WaitingSince.IsZero() {
		out.WaitingTime = timestamppb.New(c.WaitingSince)
	}
	if !c.AnswerDueAt.IsZero() {
		out.AnswerDueTime = timestamppb.New(c.AnswerDueAt)
	}
	var err error
	out.Context, err = structOf(c.Context)
	return out, err
}

// actionsOf is what the Company may do with a conversation in its state: what the
// rules of section 7, and one owner at a time, leave it.
func actionsOf(c *store.Conversation) []string {
	switch {
	case c.Status == conversation.Closed:
		return nil
	case c.Responder == conversation.ResponderHuman:
		return []string{"transfer", "hand_back", "close"}
	case c.Status == conversation.Queued:
		return []string{"post_message", "respond", "join", "assign", "decline_handoff", "close"}
	}
	return []string{"post_message", "respond", "join", "assign", "close"}
}

func eventToProto(c *store.Conversation, e store.Event) (*adminv1.ConversationEvent, error) {
	out := &adminv1.ConversationEvent{
		Uid: conversation.EventID(c.CursorKey, c.ID, e.Sequence), Sequence: e.Sequence, Type: string(e.Payload.Type()),
		CreateTime: timestamppb.New(e.CreatedAt),
	}
	var err error
	switch p := e.Payload.(type) {
	case conversation.MessagePayload:
		out.Sections = []string{"7.3", "7.4"}
		if p.Role == conversation.RoleCompany {
			out.Sections = []string{"7.4", "7.7"}
		}
		out.Message = &adminv1.Message{Id: p.ID, Role: string(p.Role), Sender: string(p.Sender), Text: p.Text}
		out.Message.Data, err = structOf(p.Data)
	case conversation.StatePayload:
		out.Sections = []string{"7.7"}
		switch {
		case p.Status == conversation.Closed:
			out.Sections = []string{"7.7", "7.12"}
		case p.Status == conversation.Queued || p.Responder == conversation.ResponderHuman:
			out.Sections = []string{"7.7", "7.9"}
		}
		out.Status, out.Responder = string(p.Status), string(p.Responder)
	case conversation.AuthorizationPayload:
		out.Sections = []string{"7.11"}
		out.Authorization = &adminv1.Authorization{Error: p.Error, Scope: p.Scope}
	case conversation.UserRequestedPayload:
		out.Sections, out.Reason = []string{"7.10"}, p.Reason
	case conversation.DirectOpenedPayload:
		out.Sections, out.Conversation = []string{"7.10"}, p.ConversationID
	case conversation.DirectClosedPayload:
		out.Sections, out.Conversation = []string{"7.10"}, p.ConversationID
	}
	return out, err
}
