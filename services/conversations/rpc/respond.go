package rpc

import (
	"context"
	"fmt"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations/app"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// PostMessage implements the service.
func (s *Conversations) PostMessage(ctx context.Context, req *adminv1.PostMessageRequest) (*adminv1.PostMessageResponse, error) {
	scope, id, err := named(ctx, req.GetConversation())
	if err != nil {
		return nil, err
	}
	m, err := parseMessage("message", req.GetMessage())
	if err != nil {
		return nil, err
	}
	c, events, err := s.App.Respond(ctx, scope, id, app.Response{Reply: conversation.Reply{Messages: []conversation.CompanyMessage{m}}, More: req.GetMore()})
	if err != nil {
		return nil, missing(err)
	}
	out := &adminv1.PostMessageResponse{}
	if out.Conversation, err = toProto(scope, c); err != nil {
		return nil, err
	}
	out.Event, err = eventToProto(c, events[0])
	return out, err
}

// Respond implements the service.
func (s *Conversations) Respond(ctx context.Context, req *adminv1.RespondRequest) (*adminv1.RespondResponse, error) {
	scope, id, err := named(ctx, req.GetConversation())
	if err != nil {
		return nil, err
	}
	reply, err := parseReply(req)
	if err != nil {
		return nil, err
	}
	c, events, err := s.App.Respond(ctx, scope, id, app.Response{Reply: reply, More: req.GetMore(), Delivery: req.GetDelivery()})
	if err != nil {
		return nil, missing(err)
	}
	return responded(scope, c, events)
}

func responded(scope tenancy.Scope, c *store.Conversation, events []store.Event) (*adminv1.RespondResponse, error) {
	out := &adminv1.RespondResponse{}
	var err error
	if out.Conversation, err = toProto(scope, c); err != nil {
		return nil, err
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

// parseReply checks what the Company's agent says and does. That it is the agent is
// ours to say: a person is named where they join.
func parseReply(req *adminv1.RespondRequest) (conversation.Reply, error) {
	if req.GetClose() && req.GetMore() {
		return conversation.Reply{}, resource.Invalid("more", "nothing follows a close")
	}
	r, err := parseSaid("", req)
	if err != nil {
		return r, err
	}
	if h := req.GetHandOff(); h != nil {
		r.HandOff, r.HandOffReason = true, h.GetReason()
		if err := conversation.CheckReason("hand_off.reason", h.GetReason()); err != nil {
			return r, err
		}
	}
	return r, r.Check()
}

// said is what the Company's agent and a person can both say and do.
type said interface {
	GetMessages() []*adminv1.Message
	GetAuthorization() *adminv1.Authorization
	GetRequestUser() string
	GetClose() bool
}

func parseSaid(sender string, req said) (conversation.Reply, error) {
	r := conversation.Reply{Close: req.GetClose()}
	for i, m := range req.GetMessages() {
		parsed, err := parseMessage(fmt.Sprintf("messages[%d]", i), &adminv1.Message{Sender: sender, Text: m.GetText(), Data: m.GetData()})
		if err != nil {
			return r, err
		}
		r.Messages = append(r.Messages, parsed)
	}
	var err error
	if a := req.GetAuthorization(); a != nil {
		if r.Authorization, err = conversation.NewAuthorization(a.GetError(), a.GetScope()); err != nil {
			return r, err
		}
	}
	if reason := req.GetRequestUser(); reason != "" {
		if r.UserRequested, err = conversation.NewUserRequest(reason); err != nil {
			return r, renamed(err, func(string) string { return "request_user" })
		}
	}
	return r, nil
}

// parseMessage checks what the Company wrote. id and role are ours to set: what the
// request says of them is ignored (Poppy 7.4, 7.7). path is where the request has it.
func parseMessage(path string, m *adminv1.Message) (conversation.CompanyMessage, error) {
	var data []byte
	if m.GetData() != nil {
		var err error
		if data, err = m.GetData().MarshalJSON(); err != nil {
			return conversation.CompanyMessage{}, resource.Invalid(path+".data", "is no object")
		}
	}
	parsed, err := conversation.ParseCompanyMessage(m.GetSender(), m.GetText(), data)
	return parsed, renamed(err, func(field string) string {
		if field == "message" {
			return path
		}
		return path + "." + field
	})
}

// renamed gives the fields that err names the names that they have in the request.
func renamed(err error, name func(string) string) error {
	if err == nil {
		return nil
	}
	p := *problem.As(err)
	fields := p.Fields
	p.Fields = nil
	for _, f := range fields {
		p.Fields = append(p.Fields, problem.Field{Path: name(f.Path), Detail: f.Detail})
	}
	return &p
}
