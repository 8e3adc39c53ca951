package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"
)

const textLimit = 32000 // characters; what Companies are known to take

// TalkOptions go with a message.
type TalkOptions struct {
	// Sender is "human" for the User's own words, "agent" for anything else (7.8).
	Sender string
	// Data is a JSON object of structured details, or nil.
	Data json.RawMessage
	// Locale, TimeZone and UserAvailable are facts of 7.4; empty and nil share nothing.
	Locale        string
	TimeZone      string
	UserAvailable *bool
	// New begins a new conversation even when there is an open one.
	New bool
	// SignedOut leaves the Account Token alone.
	SignedOut bool
}

// A Reply is what came back on a message.
type Reply struct {
	ConversationID string
	Messages       []Message // of the Company, after the User's message
	Status         string
	Responder      string
	Missing        bool   // events before these are kept by the Company no longer
	SignIn         string // the command to run where the Company needs the User's account (7.11)
}

type sentMessage struct {
	ID      string          `json:"id"`
	Sender  string          `json:"sender"`
	Text    string          `json:"text,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
	Context map[string]any  `json:"context,omitempty"`
}

func newMessage(text string, opts TalkOptions) (sentMessage, error) {
	m := sentMessage{Sender: opts.Sender, Text: text, Data: opts.Data}
	facts := map[string]any{}
	if opts.Locale != "" {
		facts["locale"] = opts.Locale
	}
	if opts.TimeZone != "" {
		facts["time_zone"] = opts.TimeZone
	}
	if opts.UserAvailable != nil {
		facts["user_available"] = *opts.UserAvailable
	}
	if len(facts) > 0 {
		m.Context = facts
	}
	switch {
	case m.Sender != "agent" && m.Sender != "human":
		return m, fail(ExitUsage, "7.8", "sender is %q, not agent or human", m.Sender)
	case m.Text == "" && m.Data == nil && m.Context == nil:
		return m, fail(ExitUsage, "7.4", "a message needs text, data or context")
	case !utf8.ValidString(m.Text):
		return m, fail(ExitUsage, "7.4", "the text is not UTF-8")
	case utf8.RuneCountInString(m.Text) > textLimit:
		return m, fail(ExitUsage, "7.4", "the text is longer than %d characters", textLimit)
	}
	return m, nil
}

// A turn is one message with the wait for what comes back.
type turn struct {
	*visit
	message  sentMessage
	reply    Reply
	accepted bool
	ownSeen  bool // the message's own event came by: what follows is later than it
	moved    bool // a state event came after it
	idle     int  // reads that found the conversation idle, with nothing said
}

// Talk sends a message to the Company that speaks for domain, in the User's open
// conversation or a new one, and returns when the Company has answered and waits for
// the next message.
func (a *Agent) Talk(ctx context.Context, domain, text string, opts TalkOptions) (Reply, error) {
	m, err := newMessage(text, opts)
	if err != nil {
		return Reply{}, err
	}
	c, err := a.discoverConversations(ctx, domain)
	if err != nil {
		return Reply{}, err
	}
	v, err := a.visit(ctx, c, SessionOptions{SignedOut: opts.SignedOut})
	if err != nil {
		return Reply{}, err
	}
	if opts.New {
		v.rel.Conversation = nil
	}
	t := &turn{visit: v, message: m}
	err = t.run(ctx)
	if err != nil && t.accepted && ctx.Err() != nil {
		err = fail(ExitNoAnswer, "7.5", "%s took the message but has not answered yet; see: poppyfield agent events %s", c.name, domain).because(ctx.Err())
	}
	return t.reply, err
}

func (t *turn) run(ctx context.Context) error {
	p, err := t.post(ctx)
	if err != nil {
		return err
	}
	for {
		if err := t.handle(p, t.note); err != nil {
			return err
		}
		t.reply.Status, t.reply.Responder = p.Status, p.Responder
		if t.over(p) {
			return nil
		}
		wait := 0
		if !p.HasMore {
			wait = t.waitFor(ctx)
		}
		before := t.agent.clock.Now()
		next, missing, err := t.read(ctx, wait)
		if err != nil {
			return err
		}
		t.reply.Missing = t.reply.Missing || missing
		if len(next.Events) == 0 && next.Status == statusIdle {
			t.idle++
		}
		// A Company that doesn't hold reads must not be asked in a tight loop.
		if len(next.Events) == 0 && t.agent.clock.Now().Sub(before) < time.Second {
			if err := t.agent.clock.Wait(ctx, time.Second); err != nil {
				return err
			}
		}
		p = next
	}
}

// note collects what belongs to this turn.
func (t *turn) note(ev event) {
	switch {
	case ev.Type == "message" && ev.Message.ID == t.message.ID && ev.Message.Role != roleCompany:
		t.ownSeen = true
	case ev.Type == "message" && ev.Message.Role == roleCompany && t.ownSeen:
		t.reply.Messages = append(t.reply.Messages, ev.Message)
	case ev.Type == "state" && t.ownSeen:
		t.moved = true
	case ev.Type == "authorization" && t.ownSeen:
		t.reply.SignIn = t.company.signInCommand(ev.Scope)
	}
}

// over decides whether there is anything to wait for. A Company may have nothing to
// say: then its state changes back to idle without a message.
func (t *turn) over(p page) bool {
	if p.HasMore || p.Status == statusWorking {
		return false
	}
	contextOnly := t.message.Text == "" && t.message.Data == nil
	return p.Status != statusIdle || len(t.reply.Messages) > 0 || t.moved || contextOnly || t.idle > 0
}

// post sends the message; a conversation that takes none any more is replaced by a new one.
func (t *turn) post(ctx context.Context) (page, error) {
	for {
		t.message.ID = "msg_" + randomText(18) // unique for the User: poppy-0.1/7.3#6
		in, err := t.postOnce(ctx)
		if err != nil {
			return page{}, err
		}
		code := errorCode(in)
		switch {
		case in.status >= 200 && in.status < 300:
			return t.accept(in)
		case t.rel.Conversation != nil && (code == "conversation_closed" || code == "conversation_not_found"):
			t.agent.report(Step{Section: "7.12", Title: "Start a new conversation instead", OK: true, Detail: code})
			t.rel.Conversation = nil
		default:
			return page{}, t.refused("7.13", "the message was not accepted", in)
		}
	}
}

// postOnce sends the message under its ID until there is an answer; tries after the
// first are retries to the Company (poppy-0.1/7.3#7).
func (t *turn) postOnce(ctx context.Context) (incoming, error) {
	body, err := json.Marshal(map[string]any{"message": t.message})
	if err != nil {
		return incoming{}, fmt.Errorf("encoding the message: %w", err)
	}
	for {
		title, base, cursor := "Start a conversation", t.conversationURL(), ""
		if conv := t.rel.Conversation; conv != nil {
			title, base, cursor = "Send a message in the conversation", t.conversationURL(conv.ID, "messages"), conv.Cursor
		}
		wait := t.waitFor(ctx)
		if wait == 0 {
			cursor = ""
		}
		in, err := t.call(ctx, "7.3", title, outgoing{
			method: http.MethodPost, url: withQuery(base, cursor, wait), body: string(body),
			limit: eventsLimit, timeout: requestTimeout + time.Duration(wait)*time.Second, repeatable: true,
		})
		if err != nil {
			return incoming{}, err
		}
		code := errorCode(in)
		if cursor != "" && (code == "cursor_expired" || code == "invalid_cursor") {
			t.dropCursor(code)
			t.reply.Missing = true
			continue
		}
		return in, nil
	}
}

// accept reads the answer to the POST, which holds events when the Company honoured wait.
func (t *turn) accept(in incoming) (page, error) {
	p, err := parsePage(in.body)
	if err == nil && t.rel.Conversation == nil && p.ConversationID == "" {
		err = errors.New("conversation_id is missing")
	}
	if err != nil {
		return page{}, fail(ExitRefused, "7.3", "the answer to the message").because(err)
	}
	if t.rel.Conversation == nil {
		t.rel.Conversation = &conversation{ID: p.ConversationID}
	}
	t.accepted = true
	t.reply.ConversationID = t.rel.Conversation.ID
	if err := t.save(); err != nil {
		return page{}, err
	}
	t.agent.report(Step{
		Section: "7.3", Title: "The Company took the message", OK: true,
		Detail: fmt.Sprintf("%s, %s, %s", t.reply.ConversationID, p.Status, p.Responder),
	})
	if p.Events == nil && p.Status == statusIdle {
		// Without wait the status may be older than the turn: the first read decides.
		p.HasMore = true
	}
	return p, nil
}
