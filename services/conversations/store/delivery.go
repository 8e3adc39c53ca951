package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"entgo.io/ent/dialect/sql"

	"github.com/poppyfield/poppyfield/ent"
	entconversation "github.com/poppyfield/poppyfield/ent/conversation"
	entdelivery "github.com/poppyfield/poppyfield/ent/delivery"
	entevent "github.com/poppyfield/poppyfield/ent/event"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/tenancy"
)

// Outcomes of a turn as the agent saw it.
const (
	OutcomeOpen     = "" // still awaited, or no answer is asked for
	OutcomeAnswered = "answered"
	OutcomeSilent   = "silent"
	OutcomeDeadline = "deadline"
	// OutcomeLate is an answer that came after the agent was told that none did, or after a person was asked for.
	OutcomeLate    = "late"
	OutcomeRefused = "refused"
	// OutcomeHandedOff is a turn that a person took over, or is awaited for.
	OutcomeHandedOff = "handed_off"
)

// Moment is what a webhook says of the moment its message was accepted in.
type Moment struct {
	SessionID string                 `json:"session_id"`
	SignedIn  bool                   `json:"signed_in"`
	Account   string                 `json:"account,omitempty"`
	Scopes    []string               `json:"scopes"`
	Status    conversation.Status    `json:"status"`
	Responder conversation.Responder `json:"responder"`
	// Note is what the person wrote who handed the message back to the backend.
	Note string `json:"note,omitempty"`
}

// Delivery is a message on its way to the backend.
type Delivery struct {
	ID             string // the webhook-id
	ConversationID string
	Sequence       int64 // of the message
	// Round is above 0 where a person handed the message back to the backend.
	Round        int
	Attempts     int
	ExpectsReply bool
	ReplyBy      time.Time // zero when no reply is expected
	Moment       Moment
	Context      json.RawMessage // merged, as of the message
	Traceparent  string
	CreatedAt    time.Time
}

// Lease is a process's right to deliver until a point in time; the zero Lease is none.
type Lease struct {
	Owner string
	Until time.Time
}

// Claim is a delivery that is leased to this process, with all that its webhook says.
type Claim struct {
	Scope     tenancy.Scope
	Delivery  Delivery
	Message   conversation.MessagePayload
	ClientID  string
	AgentName string
	UserID    string
	// ParentID is set where the conversation is a Direct one.
	ParentID string
	// Late says that the agent was told already that no answer came.
	Late bool
	// Tell, if there is one, hears of the events that the delivery's answer became, after
	// their commit. It must not block.
	Tell func(c *Conversation, events []Event)
}

// parked is the due time of a delivery that waits for an earlier one of its
// conversation: whoever finishes that one makes it due, so that the sweep's index
// holds only what can go out.
var parked = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

// pending is written out so that the planner sees that the partial index fits.
func pending(s *sql.Selector) { s.Where(sql.ExprP("state = 'pending'")) }

// live is written out for the same reason: a conversation may have had thousands of deliveries.
func live(s *sql.Selector) {
	s.Where(sql.ExprP("(state = 'pending' OR (expects_reply AND agent_outcome = ''))"))
}

// HasPending reports whether a delivery of a locked conversation is not done yet.
// Any may be: an old one that is sent again, too.
func (t Tx) HasPending(ctx context.Context, conversationID string) (bool, error) {
	return t.tx.Delivery.Query().Where(entdelivery.ConversationID(conversationID), live, pending).Exist(ctx)
}

// Enqueue inserts a delivery of a locked conversation. behind says that an earlier one is pending; lease takes it at once.
func (t Tx) Enqueue(ctx context.Context, d Delivery, behind bool, lease Lease) error {
	moment, err := json.Marshal(d.Moment)
	if err != nil {
		return err
	}
	create := t.tx.Delivery.Create().SetID(d.ID).SetConversationID(d.ConversationID).SetSequence(d.Sequence).SetRound(d.Round).
		SetExpectsReply(d.ExpectsReply).SetSession(moment).SetTraceparent(d.Traceparent).SetCreatedAt(d.CreatedAt)
	kept, err := packContext(d.Context)
	if err != nil {
		return err
	}
	if kept != nil {
		create.SetContext(kept)
	}
	if !d.ReplyBy.IsZero() {
		create.SetReplyBy(d.ReplyBy)
	}
	switch {
	case behind:
		create.SetNextAttemptAt(parked)
	case lease.Owner != "":
		// Due again when the lease ends unrenewed: a single index finds the retries and the orphans.
		create.SetLeaseOwner(lease.Owner).SetLeaseUntil(lease.Until).SetNextAttemptAt(lease.Until)
	default:
		create.SetNextAttemptAt(d.CreatedAt)
	}
	return create.Exec(db.Later(ctx))
}

// Live is a delivery that is not done, or whose turn is open.
type Live struct {
	ID           string
	Sequence     int64
	Pending      bool
	LeaseOwner   string
	Attempts     int
	ExpectsReply bool
	ReplyBy      time.Time
	CreatedAt    time.Time
	Outcome      string
}

// Open reports whether the agent still waits for the answer of this turn.
func (l Live) Open() bool { return l.ExpectsReply && l.Outcome == OutcomeOpen }

// Live returns the deliveries of a locked conversation that are pending or whose turn is open, in order, and holds them.
func (t Tx) Live(ctx context.Context, conversationID string) ([]Live, error) {
	q := t.tx.Delivery.Query().Where(entdelivery.ConversationID(conversationID), live).Order(entdelivery.BySequence())
	if t.postgres {
		q.ForUpdate()
	}
	rows, err := q.Select(
		entdelivery.FieldSequence, entdelivery.FieldState, entdelivery.FieldLeaseOwner, entdelivery.FieldAttempts,
		entdelivery.FieldExpectsReply, entdelivery.FieldReplyBy, entdelivery.FieldAgentOutcome, entdelivery.FieldCreatedAt,
	).All(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Live, 0, len(rows))
	for _, row := range rows {
		out = append(out, liveOf(row))
	}
	return out, nil
}

func liveOf(row *ent.Delivery) Live {
	l := Live{
		ID: row.ID, Sequence: row.Sequence, Pending: row.State == entdelivery.StatePending, LeaseOwner: row.LeaseOwner,
		Attempts: row.Attempts, ExpectsReply: row.ExpectsReply, Outcome: row.AgentOutcome, CreatedAt: row.CreatedAt.UTC(),
	}
	if row.ReplyBy != nil {
		l.ReplyBy = row.ReplyBy.UTC()
	}
	return l
}

// Attempt is what a delivery keeps of its last attempt.
type Attempt struct {
	Status int // HTTP status, 0 where there was none
	Reason string
	Count  int // attempts that count against the schedule so far
}

// End is how a delivery ended.
type End string

// The ends.
const (
	Delivered End = "delivered" // the backend has it
	Failed    End = "failed"    // the schedule is over
	Expired   End = "expired"   // late, and the Company wants no late ones
)

// Finish ends a delivery, with what the agent saw of its turn.
func (t Tx) Finish(ctx context.Context, id string, end End, outcome string, a Attempt, now time.Time) error {
	return t.tx.Delivery.Update().Where(entdelivery.ID(id)).SetState(entdelivery.State(end)).SetDoneAt(now).SetAgentOutcome(outcome).
		SetLeaseOwner("").ClearLeaseUntil().SetAttempts(a.Count).SetLastStatus(a.Status).SetLastReason(a.Reason).Exec(db.Later(ctx))
}

// Postpone ends an attempt that has to be made again at a later time.
func (t Tx) Postpone(ctx context.Context, id string, at time.Time, a Attempt) error {
	return t.tx.Delivery.Update().Where(entdelivery.ID(id)).SetNextAttemptAt(at).SetLeaseOwner("").ClearLeaseUntil().
		SetAttempts(a.Count).SetLastStatus(a.Status).SetLastReason(a.Reason).Exec(ctx)
}

// SettleTurns records what the agent saw of turns.
func (t Tx) SettleTurns(ctx context.Context, outcome string, deliveryIDs ...string) error {
	if len(deliveryIDs) == 0 {
		return nil
	}
	return t.tx.Delivery.Update().Where(entdelivery.IDIn(deliveryIDs...)).SetAgentOutcome(outcome).Exec(ctx)
}

// Release makes a delivery due now, for any process.
func (t Tx) Release(ctx context.Context, id string, now time.Time) error {
	return t.tx.Delivery.Update().Where(entdelivery.ID(id)).SetNextAttemptAt(now).SetLeaseOwner("").ClearLeaseUntil().Exec(ctx)
}

// Take leases one pending delivery whose conversation is locked and that nobody has.
// One whose rows make no sense is an error that IsDamage knows, and is left as it was.
func (t Tx) Take(ctx context.Context, scope tenancy.Scope, id string, lease Lease) (*Claim, error) {
	row, err := t.tx.Delivery.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	c, err := t.claim(ctx, scope, row)
	if err != nil {
		return nil, err
	}
	return &c, t.lease(ctx, lease, row.ID)
}

var errNoMessage = errors.New("a pending delivery has no message")

// TakeDue leases those of the given deliveries that are still due and that no other
// process has its hands on. Those that can't be delivered are leased as well.
func (t Tx) TakeDue(ctx context.Context, scope tenancy.Scope, ids []string, now time.Time, lease Lease) ([]Claim, []Damaged, error) {
	q := t.tx.Delivery.Query().Where(entdelivery.IDIn(ids...), pending, entdelivery.NextAttemptAtLTE(now)).Order(entdelivery.ByNextAttemptAt())
	if t.postgres {
		q.ForUpdate(sql.WithLockAction(sql.SkipLocked))
	}
	rows, err := q.All(ctx)
	if err != nil || len(rows) == 0 {
		return nil, nil, err
	}
	claims := make([]Claim, 0, len(rows))
	var damaged []Damaged
	taken := make([]string, 0, len(rows))
	for _, row := range rows {
		c, err := t.claim(ctx, scope, row)
		switch {
		case IsDamage(err):
			damaged = append(damaged, Damaged{row.ID, row.ConversationID, err})
		case err != nil:
			return nil, nil, err
		default:
			claims = append(claims, c)
		}
		taken = append(taken, row.ID)
	}
	return claims, damaged, t.lease(ctx, lease, taken...)
}

func (t Tx) lease(ctx context.Context, lease Lease, ids ...string) error {
	return t.tx.Delivery.Update().Where(entdelivery.IDIn(ids...)).
		SetLeaseOwner(lease.Owner).SetLeaseUntil(lease.Until).SetNextAttemptAt(lease.Until).Exec(ctx)
}

// claim reads what a delivery's webhook says. An error that IsDamage knows comes from the rows themselves.
func (t Tx) claim(ctx context.Context, scope tenancy.Scope, row *ent.Delivery) (Claim, error) {
	c := Claim{Scope: scope, Delivery: Delivery{
		ID: row.ID, ConversationID: row.ConversationID, Sequence: row.Sequence, Round: row.Round, Attempts: row.Attempts, ExpectsReply: row.ExpectsReply,
		Traceparent: row.Traceparent, CreatedAt: row.CreatedAt.UTC(),
	}}
	// Not where somebody has it sent again: then it is wanted late.
	c.Late = row.DoneAt == nil && (row.AgentOutcome == OutcomeDeadline || row.AgentOutcome == OutcomeLate)
	if row.ReplyBy != nil {
		c.Delivery.ReplyBy = row.ReplyBy.UTC()
	}
	if err := json.Unmarshal(row.Session, &c.Delivery.Moment); err != nil {
		return Claim{}, damage(err)
	}
	var err error
	if c.Delivery.Context, err = unpackContext(row.Context); err != nil {
		return Claim{}, damage(err)
	}
	head, err := t.tx.Conversation.Query().Where(entconversation.ID(row.ConversationID)).
		Select(entconversation.FieldClientID, entconversation.FieldAgentName, entconversation.FieldUserID, entconversation.FieldParentID).Only(ctx)
	if err != nil {
		return Claim{}, err
	}
	c.ClientID, c.AgentName, c.UserID, c.ParentID = head.ClientID, head.AgentName, head.UserID, head.ParentID
	event, err := t.tx.Event.Query().Where(entevent.ConversationID(row.ConversationID), entevent.Sequence(row.Sequence)).Only(ctx)
	if ent.IsNotFound(err) {
		return Claim{}, damage(errNoMessage)
	}
	if err != nil {
		return Claim{}, err
	}
	p, err := conversation.DecodePayload(conversation.EventType(event.Type), event.Payload)
	if err != nil {
		return Claim{}, damage(err)
	}
	m, ok := p.(conversation.MessagePayload)
	if !ok {
		return Claim{}, damage(errNoMessage)
	}
	c.Message = m
	return c, nil
}
