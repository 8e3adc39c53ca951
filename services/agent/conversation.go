package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// call makes an authorised request (4.3) and renews the token when the Company says
// that it is no good any more (section 6), or takes a signed-in one for signed out, as
// it does once the User has disconnected the agent (4.9).
func (v *visit) call(ctx context.Context, section, title string, out outgoing) (incoming, error) {
	for renewed := false; ; renewed = true {
		if v.agent.clock.Now().Add(expiryMargin).After(v.rel.Session.Expires) && !renewed {
			if err := v.renew(ctx); err != nil {
				return incoming{}, err
			}
		}
		in, err := v.agent.send(ctx, section, title, out, v.sign)
		if err != nil {
			return incoming{}, err
		}
		code := errorCode(in)
		over := in.status == http.StatusUnauthorized && code == "invalid_token"
		over = over || code == "sign_in_required" && v.rel.Session.SignedIn
		if !over || renewed {
			return in, nil
		}
		if err := v.renew(ctx); err != nil {
			return incoming{}, err
		}
	}
}

// sign puts token and proof into the headers, never into the URL (poppy-0.1/4.3#1, #2, #44).
func (v *visit) sign(out *outgoing) error {
	token := v.rel.Session.Token
	proof, err := v.proof(out, token)
	if err != nil {
		return err
	}
	out.header = http.Header{"Accept": {jsonType}, "Authorization": {"DPoP " + token}, "Dpop": {proof}}
	if out.stream {
		out.header.Set("Accept", streamType) // poppy-0.1/7.6#2
	}
	if out.lastEventID != "" {
		out.header.Set("Last-Event-ID", out.lastEventID)
	}
	if out.method == http.MethodPost {
		out.header.Set("Content-Type", jsonType)
	}
	out.known = []string{token, proof}
	return nil
}

// refused is the failure of a request that the Company refused, with what to run where
// it is about the User's account (section 6, 4.4).
func (v *visit) refused(section, what string, in incoming) error {
	r := parseRefusal(in, v.agent.clock.Now())
	if r.code == "sign_in_required" || r.code == "insufficient_scope" {
		what += "; run: " + v.company.signInCommand(r.scope)
	}
	return fail(ExitRefused, section, "%s", what).because(r)
}

// conversationURL is {endpoint}, or below it for a conversation (7.2).
func (v *visit) conversationURL(parts ...string) string {
	if len(parts) == 0 {
		return v.company.conversations
	}
	return strings.TrimSuffix(v.company.conversations, "/") + "/" + strings.Join(parts, "/")
}

// waitFor is how many seconds to ask the Company to hold a request, within the time the command has.
func (v *visit) waitFor(ctx context.Context) int {
	wait := waitSeconds
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, int(deadline.Sub(v.agent.clock.Now())/time.Second)-1)
	}
	return max(wait, 0)
}

func withQuery(base, cursor string, wait int) string {
	q := url.Values{}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	if wait > 0 {
		q.Set("wait", strconv.Itoa(wait))
	}
	if len(q) == 0 {
		return base
	}
	return base + "?" + q.Encode()
}

// dropCursor tells the User that a part may be missing (poppy-0.1/7.5#30, #31).
func (v *visit) dropCursor(code string) {
	v.rel.conversation().Cursor = ""
	v.agent.report(Step{
		Section: "7.5", Title: "Read from the beginning; part of the conversation is missing", OK: true, Detail: code,
	})
}

// handle takes the events of a page in their order, skips those it has handled and
// those it doesn't know, then saves the cursor (poppy-0.1/7.5#15, #26, #27).
func (v *visit) handle(p page, each func(event)) error {
	conv := v.rel.conversation()
	last := ""
	for _, raw := range p.Events {
		ev, known, err := parseEvent(raw)
		if err != nil {
			return fail(ExitRefused, "7.5", "the Company's events").because(err)
		}
		last = ev.ID
		switch {
		case conv.seen(ev.ID):
			v.agent.report(Step{Section: "7.5", Title: "Skip an event handled before", OK: true, Detail: ev.ID})
			continue
		case !known:
			v.agent.report(Step{Section: "7.5", Title: "Skip an event type this agent doesn't know", OK: true, Detail: clip(ev.Type)})
		default:
			v.show(ev)
			each(ev)
		}
		conv.remember(ev.ID)
	}
	switch {
	case p.Cursor != "":
		conv.Cursor = p.Cursor
	case last != "":
		conv.Cursor = last // each event's id is also a cursor
	}
	return v.save()
}

// show reports one event to the User.
func (v *visit) show(ev event) {
	step := Step{Section: "7.5", OK: true}
	switch ev.Type {
	case "message":
		m := ev.Message
		step.Title, step.Detail, step.Message = "Message from the Company", v.company.name, &m
		if m.Role != roleCompany {
			step.Title = "Message from this side"
		}
	case "state":
		step.Section, step.Title, step.Detail = "7.7", "State", inWords(ev.Status, ev.Responder)
	case "authorization":
		step.Section, step.Title = "7.11", "The Company needs the User's account"
		step.Detail = strings.TrimSpace(ev.Error+" "+ev.Scope) + "; run: " + v.remedy(ev)
	case "user_requested":
		step.Section, step.Title = "7.10", "The Company asks to talk with you yourself"
		step.Detail = clip(ev.Reason) + "; if you agree, run: " + v.company.directCommand()
	case "direct_opened", "direct_closed":
		step.Section, step.Title, step.Detail = "7.10", "Direct Conversation "+strings.TrimPrefix(ev.Type, "direct_"), ev.ConversationID
	}
	v.agent.report(step)
}

// EventsOptions says what Events shows.
type EventsOptions struct {
	All    bool // from the beginning, also what was shown before
	Follow bool // wait for more until the conversation is closed or the context ends
	// NoStream follows by reads that wait, also where the Company has streams.
	NoStream bool
}

// Events shows what happened in the User's conversation with the Company.
func (a *Agent) Events(ctx context.Context, domain string, opts EventsOptions) error {
	v, err := a.visitConversation(ctx, domain)
	if err != nil {
		return err
	}
	if opts.All {
		conv := v.rel.conversation()
		conv.Cursor, conv.Handled = "", nil
	}
	err = v.readOn(ctx, opts)
	if opts.Follow && ctx.Err() != nil {
		err = nil // the time to follow is over, which is how following ends
	}
	return err
}

// readOn reads what there is, and with Follow goes on until the conversation is closed.
func (v *visit) readOn(ctx context.Context, opts EventsOptions) error {
	var last page
	r := &reading{visit: v, ask: opts.Follow && !opts.NoStream, each: func(event) {}}
	r.over = func(p page) bool {
		last = p
		return !p.HasMore && (!opts.Follow || p.Status == statusClosed) // poppy-0.1/7.5#25
	}
	if err := r.run(ctx, page{HasMore: true}); err != nil {
		return err
	}
	v.agent.report(Step{Section: "7.7", Title: "The conversation is", OK: true, Detail: inWords(last.Status, last.Responder)})
	return v.noticeClosed(last.Status)
}

// CloseConversation closes the conversation that the User is in (7.12): a Direct
// Conversation, which leads back to the one before it, or the conversation itself; the
// next message starts a new one then.
func (a *Agent) CloseConversation(ctx context.Context, domain string) error {
	v, err := a.visitConversation(ctx, domain)
	if err != nil {
		return err
	}
	id := v.rel.conversation().ID
	in, err := v.call(ctx, "7.12", "Close the conversation", outgoing{
		method: http.MethodPost, url: v.conversationURL(id, "close"), body: "{}", limit: documentLimit, repeatable: true,
	})
	if err != nil {
		return err
	}
	if in.status != http.StatusOK && errorCode(in) != "conversation_not_found" {
		return v.refused("7.12", "not closed", in)
	}
	a.report(Step{Section: "7.12", Title: "The conversation is closed", OK: true, Detail: id})
	if v.rel.Direct != nil {
		return v.leaveDirect()
	}
	v.rel.Conversation = nil
	return v.save()
}

func (a *Agent) visitConversation(ctx context.Context, domain string) (*visit, error) {
	c, err := a.discoverConversations(ctx, domain)
	if err != nil {
		return nil, err
	}
	v, err := a.visit(ctx, c, SessionOptions{})
	if err != nil {
		return nil, err
	}
	if v.rel.conversation() == nil {
		return nil, fail(ExitUsage, "7.3", "there is no conversation with %s yet; start one with: poppyfield agent talk", c.name)
	}
	return v, nil
}

func (a *Agent) discoverConversations(ctx context.Context, domain string) (Company, error) {
	c, err := a.Discover(ctx, domain)
	if err != nil {
		return Company{}, err
	}
	if c.conversations == "" {
		return Company{}, fail(ExitDiscovery, "7.1", "%s offers no conversation protocol that this agent knows", c.name)
	}
	return c, nil
}

// objectOrNil reads a JSON object given on the command line.
func objectOrNil(name, s string) (json.RawMessage, error) {
	if s == "" {
		return nil, nil
	}
	var m map[string]json.RawMessage
	if err := parseObject([]byte(s), &m); err != nil {
		return nil, fail(ExitUsage, "7.4", "%s must be a JSON object", name).because(fmt.Errorf("%.80q: %w", s, err))
	}
	return json.RawMessage(s), nil
}
