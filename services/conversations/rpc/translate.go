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
	}
	if !c.AnswerDueAt.IsZero() {
		out.AnswerDueTime = timestamppb.New(c.AnswerDueAt)
	}
	if c.Status != conversation.Closed {
		out.ViewerActions = []string{"post_message", "close"}
	}
	var err error
	out.Context, err = structOf(c.Context)
	return out, err
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
		if p.Status == conversation.Closed {
			out.Sections = []string{"7.7", "7.12"}
		}
		out.Status, out.Responder = string(p.Status), string(p.Responder)
	}
	return out, err
}
