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
	// NoStream waits for the answer in the request, also where the Company has streams.
	NoStream bool
}

// A Reply is what came back on a message.
type Reply struct {
	ConversationID string
	Messages       []Message // of the Company, after the User's message
	Status         string
	Responder      string
	Missing        bool   // events before these are kept by the Company no longer
	SignIn         string // the command to run where the Company needs the User's account (7.11)
	Direct         string // the command to run where the Company asks for the User themselves (7.10)
	Reason         string // why it asks for them
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
	case m.Sender != senderAgent && m.Sender != senderHuman:
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
	noStream bool
	direct   bool // starts a Direct Conversation below the User's conversation (7.10)
	reply    Reply
	accepted bool
	ownSeen  bool // the message's own event came by: what follows is later than it
	moved    bool // a state event came after it
	person   bool // a person at the Company answered it
}

// Talk sends a message to the Company that speaks for domain, in the User's open
// conversation or a new one, and returns when the Company has answered and waits for
// the next message. While the User talks in a Direct Conversation it goes there.
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
		v.rel.Conversation, v.rel.Direct = nil, nil
	}
	t := &turn{visit: v, message: m, noStream: opts.NoStream}
	err = t.run(ctx)
	return t.reply, t.outcome(ctx, err)
}

// outcome is err in the words of a message that was accepted.
func (t *turn) outcome(ctx context.Context, err error) error {
	if err == nil || !t.accepted || ctx.Err() == nil {
		return err
	}
	what := t.company.name + " took the message but has not answered yet"
	if words := whoHandles(t.reply.Status, t.reply.Responder); words != "" {
		what += ", and " + words
	}
	return fail(ExitNoAnswer, "7.5", "%s; see: poppyfield agent events %s", what, t.company.asked).because(ctx.Err())
}

func (t *turn) run(ctx context.Context) error {
	p, err := t.post(ctx)
	if err != nil {
		return err
	}
	if err := t.handle(p, t.note); err != nil {
		return err
	}
	r := &reading{visit: t.visit, ask: !t.noStream, each: t.note, over: t.over}
	err = r.run(ctx, p)
	t.reply.Missing = t.reply.Missing || r.missing
	if err != nil {
		return err
	}
	return t.noticeClosed(t.reply.Status)
}

// note collects what belongs to this turn.
func (t *turn) note(ev event) {
	if ev.Type == "message" && ev.Message.ID == t.message.ID && ev.Message.Role != roleCompany {
		t.ownSeen = true
		return
	}
	if !t.ownSeen {
		return
	}
	switch ev.Type {
	case "message":
		if ev.Message.Role == roleCompany {
			t.reply.Messages = append(t.reply.Messages, ev.Message)
			t.person = t.person || ev.Message.Sender == senderHuman
		}
	case "state":
		t.moved = true
	case "authorization":
		t.reply.SignIn = t.remedy(ev)
	case "user_requested":
		t.reply.Direct, t.reply.Reason = t.company.directCommand(), ev.Reason
	}
}

// over decides whether there is anything to wait for. A Company may have nothing to
// say: then its state changes back to idle without a message. A person who is awaited,
// or there, is waited for (7.9).
func (t *turn) over(p page) bool {
	t.reply.Status, t.reply.Responder = p.Status, p.Responder
	switch {
	case p.Status == statusClosed && !p.HasMore: // what was said before is still to be read
		return t.ownSeen || p.quiet
	case p.HasMore || p.Status == statusWorking || p.streamed && !t.ownSeen && !p.quiet:
		return false
	case t.message.Text == "" && t.message.Data == nil: // context alone asks for no answer
		return true
	case p.Status == statusQueued:
		return false
	case p.Responder == senderHuman:
		return t.person
	}
	return p.Status != statusIdle || len(t.reply.Messages) > 0 || t.moved || p.quiet
}

// post sends the message; a conversation that takes none any more is replaced by the
// one before it, or by a new one.
func (t *turn) post(ctx context.Context) (page, error) {
	for {
		t.message.ID = "msg_" + randomText(18) // unique for the User: poppy-0.1/7.3#6
		if t.rel.Direct != nil && t.message.Sender != senderHuman {
			return page{}, fail(ExitUsage, "7.10", "the Direct Conversation takes your own words only; to go on without it, run: poppyfield agent close %s", t.company.asked)
		}
		in, err := t.postOnce(ctx)
		if err != nil {
			return page{}, err
		}
		code := errorCode(in)
		gone := code == "conversation_closed" || code == "conversation_not_found"
		switch {
		case in.status >= 200 && in.status < 300:
			return t.accept(in)
		case code == "direct_conversation_open" && t.rel.Direct == nil:
			if err := t.adoptDirect(ctx, in); err != nil {
				return page{}, err
			}
			t.direct = false
		case gone && t.direct:
			t.rel.Conversation = nil // there is nothing that the User could be brought into
			return page{}, errors.Join(t.refused("7.10", "the conversation is over, start one with talk", in), t.save())
		case gone && t.rel.Direct != nil:
			if err := t.leaveDirect(); err != nil {
				return page{}, err
			}
		case gone && t.rel.Conversation != nil:
			t.agent.report(Step{Section: "7.12", Title: "Start a new conversation instead", OK: true, Detail: code})
			t.rel.Conversation = nil
		default:
			return page{}, t.refused("7.13", "the message was not accepted", in)
		}
	}
}

// target is where the message goes.
func (t *turn) target() (title, base, cursor string) {
	conv := t.rel.conversation()
	switch {
	case t.direct:
		return "Start a Direct Conversation", t.conversationURL(), ""
	case conv == nil:
		return "Start a conversation", t.conversationURL(), ""
	}
	return "Send a message in the conversation", t.conversationURL(conv.ID, "messages"), conv.Cursor
}

// postOnce sends the message under its ID until there is an answer; tries after the
// first are retries to the Company (poppy-0.1/7.3#7). The answer is waited for in the
// request only where there is to be no stream, which shows more.
func (t *turn) postOnce(ctx context.Context) (incoming, error) {
	content := map[string]any{"message": t.message}
	if t.direct {
		content["parent_conversation_id"] = t.rel.Conversation.ID
	}
	body, err := json.Marshal(content)
	if err != nil {
		return incoming{}, fmt.Errorf("encoding the message: %w", err)
	}
	for {
		title, base, cursor := t.target()
		wait := 0
		if t.noStream {
			wait = t.waitFor(ctx)
		}
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
	begins := t.direct || t.rel.Conversation == nil
	if err == nil && begins && p.ConversationID == "" {
		err = errors.New("conversation_id is missing")
	}
	if err != nil {
		return page{}, fail(ExitRefused, "7.3", "the answer to the message").because(err)
	}
	switch {
	case t.direct:
		t.rel.Direct = &conversation{ID: p.ConversationID}
	case begins:
		t.rel.Conversation = &conversation{ID: p.ConversationID}
	}
	t.direct, t.accepted = false, true
	t.reply.ConversationID = t.rel.conversation().ID
	if err := t.save(); err != nil {
		return page{}, err
	}
	t.agent.report(Step{
		Section: "7.3", Title: "The Company took the message", OK: true,
		Detail: t.reply.ConversationID + ", " + inWords(p.Status, p.Responder),
	})
	if t.noStream && p.Events == nil {
		// Without wait the status may be older than the turn: the first read decides.
		p.HasMore = true
	}
	return p, nil
}
