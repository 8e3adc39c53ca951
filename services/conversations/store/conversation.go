package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	entconversation "github.com/poppyfield/poppyfield/ent/conversation"
	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
)

// Conversation is the head of a list of events.
type Conversation struct {
	ID        string
	ClientID  string
	AgentName string
	UserID    string
	// Account it belongs to since a message came with a signed-in token (Poppy 7.2); empty before.
	Account string
	// SessionID is the Session that started it.
	SessionID string
	Status    conversation.Status
	Responder conversation.Responder
	// Context is what the agent said of the User's situation, merged; nil for nothing.
	Context   json.RawMessage
	CursorKey conversation.CursorKey
	// LastSequence is that of the newest event, OldestSequence of the first one kept.
	LastSequence, OldestSequence int64
	// AnswerDueAt is when the agent is told that no answer came; zero while none is awaited.
	AnswerDueAt time.Time
	LastEventAt time.Time
	// ClosedBy is "agent", "company", "inactivity" or "parent" once closed.
	ClosedBy string
	// ParentID is set on a Direct Conversation, ChildID on the parent of an open one (Poppy 7.10).
	ParentID, ChildID string
	// Person handles the Company's side while Responder is human; Assignee is who should.
	Person, Assignee string
	// WaitingSince is since when a person is awaited or owes an answer; zero otherwise.
	WaitingSince time.Time
	// Moment is the Session of the agent's newest message; its status and responder say nothing.
	Moment Moment
	// HandoffReason is why a person was last asked for; HadHandoff, that one ever was.
	HandoffReason        string
	HadHandoff           bool
	CreatedAt, UpdatedAt time.Time
	Version              int64
}

// State is what the protocol's rules need to know of c.
func (c *Conversation) State() conversation.State {
	return conversation.State{
		Status: c.Status, Responder: c.Responder, AccountBound: c.Account != "", Direct: c.ParentID != "", Child: c.ChildID,
	}
}

// Owner is whose conversation it is (Poppy 7.2).
func (c *Conversation) Owner() conversation.Owner {
	return conversation.Owner{ClientID: c.ClientID, UserID: c.UserID, AccountID: c.Account}
}

// Conversation reads the conversation with the given id. One that isn't there is conversation_not_found.
func (t Tx) Conversation(ctx context.Context, id string) (*Conversation, error) {
	return t.conversation(ctx, id, false)
}

// Lock reads the conversation and holds it until the end of the transaction: who
// holds it may add events.
func (t Tx) Lock(ctx context.Context, id string) (*Conversation, error) {
	return t.conversation(ctx, id, true)
}

func (t Tx) conversation(ctx context.Context, id string, lock bool) (*Conversation, error) {
	q := t.tx.Conversation.Query().Where(entconversation.ID(id))
	if lock && t.postgres { // SQLite has one writer, who holds everything
		q.ForUpdate()
	}
	row, err := q.Only(ctx)
	if ent.IsNotFound(err) {
		return nil, conversation.NotFound("poppy-0.1/7.13#3")
	}
	if err != nil {
		return nil, err
	}
	return fromRow(row)
}

// Create inserts c as it stands.
func (t Tx) Create(ctx context.Context, c *Conversation) error {
	kept, err := packContext(c.Context)
	if err != nil {
		return err
	}
	create := t.tx.Conversation.Create().
		SetID(c.ID).SetClientID(c.ClientID).SetAgentName(c.AgentName).SetUserID(c.UserID).SetAccount(c.Account).SetSessionID(c.SessionID).
		SetStatus(entconversation.Status(c.Status)).SetResponder(entconversation.Responder(c.Responder)).
		SetCursorKey(c.CursorKey[:]).SetLastSequence(c.LastSequence).SetOldestSequence(c.OldestSequence).
		SetLastEventAt(c.LastEventAt).SetClosedBy(c.ClosedBy).SetCreatedAt(c.CreatedAt).SetUpdatedAt(c.UpdatedAt).SetVersion(c.Version).
		SetParentID(c.ParentID)
	moment, err := json.Marshal(c.Moment)
	if err != nil {
		return err
	}
	create.SetMoment(moment)
	if kept != nil {
		create.SetContext(kept)
	}
	if !c.AnswerDueAt.IsZero() {
		create.SetAnswerDueAt(c.AnswerDueAt)
	}
	return create.Exec(db.Later(ctx))
}

// Save writes back what may change of a locked conversation, and counts its version up.
func (t Tx) Save(ctx context.Context, c *Conversation, now time.Time) error {
	c.Version++
	c.UpdatedAt = now
	kept, err := packContext(c.Context)
	if err != nil {
		return err
	}
	moment, err := json.Marshal(c.Moment)
	if err != nil {
		return err
	}
	update := t.tx.Conversation.Update().Where(entconversation.ID(c.ID)).
		SetAccount(c.Account).
		SetStatus(entconversation.Status(c.Status)).SetResponder(entconversation.Responder(c.Responder)).
		SetLastSequence(c.LastSequence).SetOldestSequence(c.OldestSequence).
		SetLastEventAt(c.LastEventAt).SetClosedBy(c.ClosedBy).SetUpdatedAt(c.UpdatedAt).SetVersion(c.Version).
		SetChildID(c.ChildID).SetPerson(c.Person).SetAssignee(c.Assignee).SetHandoffReason(c.HandoffReason).SetHadHandoff(c.HadHandoff).SetMoment(moment)
	if kept != nil {
		update.SetContext(kept)
	} else {
		update.ClearContext()
	}
	if c.AnswerDueAt.IsZero() {
		update.ClearAnswerDueAt()
	} else {
		update.SetAnswerDueAt(c.AnswerDueAt)
	}
	if c.WaitingSince.IsZero() {
		update.ClearWaitingSince()
	} else {
		update.SetWaitingSince(c.WaitingSince)
	}
	return update.Exec(db.Later(ctx))
}

func fromRow(row *ent.Conversation) (*Conversation, error) {
	c := &Conversation{
		ID: row.ID, ClientID: row.ClientID, AgentName: row.AgentName, UserID: row.UserID, Account: row.Account, SessionID: row.SessionID,
		Status: conversation.Status(row.Status), Responder: conversation.Responder(row.Responder),
		LastSequence: row.LastSequence, OldestSequence: row.OldestSequence,
		LastEventAt: row.LastEventAt.UTC(), ClosedBy: row.ClosedBy,
		ParentID: row.ParentID, ChildID: row.ChildID, Person: row.Person, Assignee: row.Assignee,
		HandoffReason: row.HandoffReason, HadHandoff: row.HadHandoff,
		CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(), Version: row.Version,
	}
	if row.WaitingSince != nil {
		c.WaitingSince = row.WaitingSince.UTC()
	}
	copy(c.CursorKey[:], row.CursorKey)
	if row.AnswerDueAt != nil {
		c.AnswerDueAt = row.AnswerDueAt.UTC()
	}
	if len(row.Moment) > 0 {
		if err := json.Unmarshal(row.Moment, &c.Moment); err != nil {
			return nil, damage(err)
		}
	}
	var err error
	c.Context, err = unpackContext(row.Context)
	return c, damage(err)
}

// packContext writes a context as a JSON string that holds the object. PostgreSQL's
// jsonb would reorder the members of an object and respell its numbers, and every
// attempt of a delivery has to send the bytes of the first.
func packContext(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	return json.Marshal(string(raw))
}

func unpackContext(kept json.RawMessage) (json.RawMessage, error) {
	if len(kept) == 0 {
		return nil, nil
	}
	var s string
	if err := json.Unmarshal(kept, &s); err != nil {
		return nil, err
	}
	return json.RawMessage(s), nil
}
