package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
)

// Direct starts a Direct Conversation below the User's open conversation, with the
// User's own words (7.10); from then on Talk goes there, until it is closed. Where one
// is open already the words go into it.
func (a *Agent) Direct(ctx context.Context, domain, text string, opts TalkOptions) (Reply, error) {
	opts.Sender = senderHuman // poppy-0.1/7.10#3
	m, err := newMessage(text, opts)
	if err != nil {
		return Reply{}, err
	}
	v, err := a.visitConversation(ctx, domain)
	if err != nil {
		return Reply{}, err
	}
	t := &turn{visit: v, message: m, noStream: opts.NoStream, direct: v.rel.Direct == nil}
	if !t.direct {
		a.report(Step{Section: "7.10", Title: "The Direct Conversation is open already", OK: true, Detail: v.rel.Direct.ID})
	}
	err = t.run(ctx)
	return t.reply, t.outcome(ctx, err)
}

// HandOff asks for a person at the Company (7.9), and returns the conversation's status.
func (a *Agent) HandOff(ctx context.Context, domain string) (Reply, error) {
	v, err := a.visitConversation(ctx, domain)
	if err != nil {
		return Reply{}, err
	}
	id := v.rel.conversation().ID
	in, err := v.call(ctx, "7.9", "Ask for a person at the Company", outgoing{
		method: http.MethodPost, url: v.conversationURL(id, "handoff"), body: "{}", limit: documentLimit, repeatable: true,
	})
	if err != nil {
		return Reply{}, err
	}
	if in.status != http.StatusAccepted {
		return Reply{}, v.refused("7.9", "the Company was not asked", in)
	}
	p, err := parsePage(in.body)
	if err != nil {
		return Reply{}, fail(ExitRefused, "7.9", "the answer to the handoff").because(err)
	}
	a.report(Step{Section: "7.9", Title: "The conversation is", OK: true, Detail: inWords(p.Status, p.Responder)})
	return Reply{ConversationID: id, Status: p.Status, Responder: p.Responder}, nil
}

// adoptDirect goes on in the Direct Conversation that the Company says is open, if it
// is the User's: one that another run started, and whose answer was lost.
func (v *visit) adoptDirect(ctx context.Context, in incoming) error {
	var body struct {
		ConversationID string `json:"conversation_id"`
	}
	if json.Unmarshal(in.body, &body) != nil || !validID(body.ConversationID) {
		return v.refused("7.10", "a Direct Conversation is open, and the Company doesn't say which", in)
	}
	read, err := v.call(ctx, "7.10", "See whether the open Direct Conversation is the User's", outgoing{
		method: http.MethodGet, url: v.conversationURL(body.ConversationID, "events"), limit: eventsLimit, repeatable: true,
	})
	if err != nil {
		return err
	}
	if read.status != http.StatusOK {
		return v.refused("7.10", "a Direct Conversation is open that is not the User's", read)
	}
	v.rel.Direct = &conversation{ID: body.ConversationID}
	v.agent.report(Step{Section: "7.10", Title: "Go on in the open Direct Conversation", OK: true, Detail: body.ConversationID})
	return v.save()
}

// leaveDirect goes back to the conversation before a Direct Conversation that is over.
func (v *visit) leaveDirect() error {
	v.agent.report(Step{
		Section: "7.10", Title: "The Direct Conversation is over, talk goes on in the conversation before it", OK: true, Detail: v.rel.Conversation.ID,
	})
	v.rel.Direct = nil
	return v.save()
}

// noticeClosed keeps what follows of the status that a reading ended with.
func (v *visit) noticeClosed(status string) error {
	if status != statusClosed || v.rel.Direct == nil {
		return nil // a closed conversation can still be read
	}
	return v.leaveDirect()
}

// directCommand is what the User runs to talk with the Company themselves.
func (c Company) directCommand() string { return "poppyfield agent direct " + c.asked }

// remedy is what to run where the Company needs the User's account (7.11): as for the
// error of that name, with the Account Token where that is enough.
func (v *visit) remedy(ev event) string {
	kept, err := v.account()
	want := oauth.Scope(strings.Fields(ev.Scope))
	switch {
	case err != nil || kept == nil || kept.over(v.agent.clock.Now()) || ev.Error == "insufficient_scope" && !kept.covers(want):
		return v.company.signInCommand(ev.Scope)
	case v.rel.Session.SignedIn && oauth.Scope(strings.Fields(v.rel.Session.Scope)).Covers(want):
		return v.company.signInCommand(ev.Scope) // the token at hand had it all, and didn't do
	}
	return "poppyfield agent refresh " + v.company.asked
}
