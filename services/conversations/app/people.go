package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// deskTimes are how long a person is waited for.
type deskTimes struct {
	queue  time.Duration // until somebody joins
	answer time.Duration // until who joined answers
}

func (u *unit) deskTimes(context.Context) (deskTimes, error) {
	return deskTimes{queue: 5 * time.Minute, answer: 10 * time.Minute}, nil
}

// staffing is what a handoff of c would find; it is looked for only where one is asked for.
func (u *unit) staffing(_ context.Context, _ *store.Conversation, asked bool) (conversation.Staffing, error) {
	if !asked {
		return conversation.Staffing{}, nil
	}
	return conversation.Staffing{Nobody: true, Notice: notice(nobodyNotice)}, nil
}

const (
	nobodyNotice = "No person is available at the company right now."
	queueNotice  = "No person at the company could join."
	personNotice = "The person at the company has not answered yet."
)

func notice(text string) conversation.MessagePayload {
	return conversation.MessagePayload{ID: newMessageID(), Role: conversation.RoleCompany, Sender: conversation.SenderAgent, Text: text}
}

// expirePerson ends the wait for a person who didn't join, or didn't answer.
func (u *unit) expirePerson(ctx context.Context, c *store.Conversation) error {
	in := conversation.NobodyJoined(notice(queueNotice))
	if c.Responder == conversation.ResponderHuman {
		in = conversation.DeadlinePassed(notice(personNotice), false)
	}
	_, err := u.happen(ctx, c, in, effects{person: c.Person})
	return err
}
