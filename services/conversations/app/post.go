package app

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Response is what the Company's agent says by the API, and whether more will follow.
type Response struct {
	conversation.Reply
	More bool
	// Delivery is the webhook-id that it answers; "" answers the turns that the backend
	// took over with a 202, or else the oldest one.
	Delivery string
}

// Respond adds what the Company's agent says and does, and settles the turns that it
// answers. With more it settles none, the conversation stays in working, and the
// deadline starts anew. A closed conversation refuses it, and so does one that a person
// handles. A delivery is answered once: its agent_outcome says that it was, and a second
// answer to it changes nothing and gets the conversation as it is, without events.
func (a *App) Respond(ctx context.Context, scope tenancy.Scope, id string, r Response) (*store.Conversation, []store.Event, error) {
	co, err := a.companies.Get(ctx, scope)
	if err != nil {
		return nil, nil, err
	}
	if err := r.Check(); err != nil {
		return nil, nil, err
	}
	if err := checkOffered(co, r.Authorization); err != nil {
		return nil, nil, err
	}
	var x *responding
	err = a.write(ctx, scope, func(ctx context.Context, u *unit) error {
		x = &responding{unit: u, company: co, response: r}
		return x.respond(ctx, id)
	})
	if err != nil {
		return nil, nil, err
	}
	for _, t := range x.took {
		a.meter.Answered(ctx, t)
	}
	if x.ended {
		a.meter.Delivered(ctx, Answered.String())
	}
	return x.conversation, x.events, nil
}

// responding is one transaction of Respond.
type responding struct {
	*unit
	company  *directory.Company
	response Response

	conversation *store.Conversation
	events       []store.Event
	took         []time.Duration // of the turns that were answered
	ended        bool            // the delivery, which was pending
}

func (x *responding) respond(ctx context.Context, id string) error {
	c, parent, err := x.lockWithParent(ctx, id)
	if err != nil {
		return err
	}
	x.conversation = c
	live, err := x.Live(ctx, c.ID)
	if err != nil {
		return err
	}
	mine, err := x.named(ctx, c, live)
	if err != nil {
		return err
	}
	if mine != nil && wasAnswered(mine.Outcome) {
		return nil
	}
	if err := x.act(ctx, c, mine, open(live)); err != nil {
		return err
	}
	if mine != nil && !x.response.More {
		if err := x.end(ctx, *mine, live); err != nil {
			return err
		}
	}
	return x.tellParent(ctx, c, parent)
}

// named finds the delivery that the response names; nil where it names none.
func (x *responding) named(ctx context.Context, c *store.Conversation, live []store.Live) (*store.Live, error) {
	id := x.response.Delivery
	if id == "" {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	mine, found, err := x.FindDelivery(ctx, c.ID, id)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, resource.Invalid("delivery", "is no delivery of this conversation")
	}
	for _, l := range live {
		if l.Pending && l.ID != id && mine.Pending {
			// They are sent and done in order, so the backend doesn't have it yet.
			return nil, resource.Invalid("delivery", "waits for an earlier delivery of this conversation")
		}
		if l.ID == id {
			break
		}
	}
	return &mine, nil
}

// act applies the response to c. mine is the delivery that it names, nil for none.
func (x *responding) act(ctx context.Context, c *store.Conversation, mine *store.Live, turns []store.Live) error {
	r := x.response
	var settled []store.Live
	switch {
	case r.More:
	case mine != nil:
		settled, turns = only(turns, mine.ID)
	default:
		settled, turns = answered(turns)
	}
	staffing, err := x.staffing(ctx, c, r.HandOff)
	if err != nil {
		return err
	}
	e := effects{due: firstDue(turns), by: byCompany, reason: r.HandOffReason}
	if r.More && len(turns) > 0 {
		e.due = x.now.Add(deadlineOf(x.company))
	}
	acts := asking(r.Acts(newMessageID))
	if x.events, err = x.happen(ctx, c, conversation.CompanyActs(acts, staffing, len(turns) > 0), e); err != nil {
		return err
	}
	ids := make([]string, 0, len(settled))
	for _, l := range settled {
		x.took, ids = append(x.took, x.now.Sub(l.CreatedAt)), append(ids, l.ID)
	}
	return x.SettleTurns(ctx, outcomeOf(r.Reply), ids...)
}

// end ends the delivery that was answered by name: it isn't sent again, and what its
// webhook may still be answered with is a second answer.
func (x *responding) end(ctx context.Context, mine store.Live, live []store.Live) error {
	outcome := outcomeOf(x.response.Reply)
	if mine.ExpectsReply && !mine.Open() {
		outcome = store.OutcomeLate
	}
	if !mine.Pending {
		return x.SettleTurns(ctx, outcome, mine.ID)
	}
	x.ended = true
	kept := store.Attempt{Count: mine.Attempts, Reason: respondedReason}
	if err := x.Finish(ctx, mine.ID, store.Delivered, outcome, kept, x.now); err != nil {
		return err
	}
	_, others := split(live, mine.ID)
	return releaseFirst(ctx, x.Tx, others, x.now)
}

const respondedReason = "answered by the API"

// outcomeOf is what the agent sees of an answer in time.
func outcomeOf(r conversation.Reply) string {
	if r.Empty() {
		return store.OutcomeSilent
	}
	return store.OutcomeAnswered
}

// wasAnswered reports whether a delivery with the outcome has had its answer.
func wasAnswered(outcome string) bool {
	return outcome == store.OutcomeAnswered || outcome == store.OutcomeSilent || outcome == store.OutcomeLate
}

func newMessageID() string { return ids.New(ids.Message) }

func openTurns(ctx context.Context, tx store.Tx, id string) ([]store.Live, error) {
	live, err := tx.Live(ctx, id)
	return open(live), err
}

func open(live []store.Live) []store.Live {
	var turns []store.Live
	for _, l := range live {
		if l.Open() {
			turns = append(turns, l)
		}
	}
	return turns
}

// only splits open turns into the one of a delivery, if it is among them, and the rest.
func only(turns []store.Live, id string) (settled, rest []store.Live) {
	for _, l := range turns {
		if l.ID == id {
			settled = append(settled, l)
		} else {
			rest = append(rest, l)
		}
	}
	return settled, rest
}

// answered splits open turns into those that a message of the Company settles and the rest.
func answered(turns []store.Live) (settled, rest []store.Live) {
	for _, l := range turns {
		if l.Pending {
			rest = append(rest, l)
		} else {
			settled = append(settled, l)
		}
	}
	if len(settled) == 0 && len(rest) > 0 {
		// The answer may be faster than the record of the 202, or staff answer for a backend that is down.
		settled, rest = rest[:1], rest[1:]
	}
	return settled, rest
}
