package app

import (
	"context"

	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
)

// HandOff asks for a person at the Company for the agent (Poppy 7.9). While one is
// awaited or there it changes nothing and gets the same answer; where nobody is there,
// the agent is told so, and an open turn goes on.
func (a *App) HandOff(ctx context.Context, caller Caller, id string) (conversation.PostResponse, error) {
	if err := checkID(id); err != nil {
		return conversation.PostResponse{}, err
	}
	var out conversation.PostResponse
	err := a.write(ctx, caller.Scope, func(ctx context.Context, u *unit) error {
		c, err := lockOwn(ctx, u.Tx, caller, id)
		if err != nil {
			return err
		}
		turns, err := openTurns(ctx, u.Tx, c.ID)
		if err != nil {
			return err
		}
		staffing, err := u.staffing(ctx, c, true)
		if err != nil {
			return err
		}
		if _, err := u.happen(ctx, c, conversation.AgentAsksForPerson(staffing, len(turns) > 0), effects{due: firstDue(turns)}); err != nil {
			return err
		}
		out = conversation.PostResponse{ConversationID: c.ID, Status: c.Status, Responder: c.Responder}
		return nil
	})
	return out, err
}
