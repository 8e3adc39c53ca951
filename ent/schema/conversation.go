package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/google/uuid"
)

// Conversation is the head of an ordered list of events (Poppy 7). Its row lock
// orders them: who holds it may take the next sequence.
type Conversation struct{ ent.Schema }

// Mixin of the entity.
func (Conversation) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (Conversation) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("client_id").NotEmpty().Immutable(),
		field.String("agent_name").Default(""),
		field.String("user_id").NotEmpty().Immutable(),
		field.String("account").Default(""),
		field.String("session_id").NotEmpty().Immutable(),
		field.Enum("status").Values("working", "idle", "queued", "closed").Default("idle"),
		field.Enum("responder").Values("agent", "human").Default("agent"),
		field.JSON("context", json.RawMessage{}).Optional(),
		// cursor_key makes this conversation's event ids unguessable.
		field.Bytes("cursor_key").Sensitive().Immutable(),
		field.Int64("last_sequence").Default(0),
		// oldest_sequence is the first event still kept.
		field.Int64("oldest_sequence").Default(1),
		// answer_due_at is when the agent is told that no answer came; set while one is awaited.
		field.Time("answer_due_at").Optional().Nillable(),
		field.Time("last_event_at").Default(now),
		field.String("closed_by").Default(""),
		// parent_id is set on a Direct Conversation, child_id on the parent of an open one (Poppy 7.10).
		field.String("parent_id").Default("").Immutable(),
		field.String("child_id").Default(""),
		// person handles the Company's side while responder is human; assignee is who should.
		field.String("person").Default(""),
		field.String("assignee").Default(""),
		// waiting_since is since when a person is awaited, or owes an answer.
		field.Time("waiting_since").Optional().Nillable(),
		// handoff_reason is why a person was asked for, in the backend's words.
		field.String("handoff_reason").Default(""),
		// moment is the Session of the agent's newest message: what the backend, or a person, may do for it.
		field.JSON("moment", json.RawMessage{}).Optional(),
		// had_handoff stays true once a person was asked for.
		field.Bool("had_handoff").Default(false),
	}
}

// Indexes of the entity.
func (Conversation) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("company_id", "last_event_at", "id"),
		index.Fields("answer_due_at").Annotations(entsql.IndexWhere("answer_due_at IS NOT NULL")),
		index.Fields("status", "last_event_at"),
		// The inbox: who waits longest.
		index.Fields("company_id", "waiting_since", "id").Annotations(entsql.IndexWhere("waiting_since IS NOT NULL")),
		index.Fields("company_id", "person").Annotations(entsql.IndexWhere("person <> ''")),
	}
}

// Event is one entry of a conversation. An agent's message also carries what its
// retries are recognised by (Poppy 7.3), which outlives the pruned payload.
type Event struct{ ent.Schema }

// Mixin of the entity.
func (Event) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (Event) Fields() []ent.Field {
	return []ent.Field{
		// id is the writer's own: an insert needs no answer.
		field.UUID("id", uuid.UUID{}),
		field.String("conversation_id").NotEmpty().Immutable(),
		field.Int64("sequence").Immutable(),
		field.String("type").NotEmpty().Immutable(),
		// payload is the event's wire JSON without id; empty once pruned.
		field.Bytes("payload").Optional(),
		// owner is the hash of client_id and User ID, message_id is unique within it.
		field.String("owner").Optional().Nillable().Immutable(),
		field.String("message_id").Optional().Nillable().Immutable(),
		field.Bytes("content_hash").Optional().Nillable().Immutable(),
		// first is set on the message that started the conversation.
		field.Bool("first").Default(false).Immutable(),
		field.Time("created_at").Default(now).Immutable(),
	}
}

// Indexes of the entity.
func (Event) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("company_id", "conversation_id", "sequence").Unique(),
		index.Fields("company_id", "owner", "message_id").Unique(),
		index.Fields("created_at"),
	}
}

// Delivery is a message on its way to the Company's backend. It is committed
// with the message, and gone from the queue only with the recorded outcome.
type Delivery struct{ ent.Schema }

// Mixin of the entity.
func (Delivery) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (Delivery) Fields() []ent.Field {
	return []ent.Field{
		// id is the webhook-id.
		identifier(),
		field.String("conversation_id").NotEmpty().Immutable(),
		field.Int64("sequence").Immutable(),
		// round is above 0 where a message is given to the backend again, after a person handed it back.
		field.Int("round").Default(0).Immutable(),
		field.Enum("state").Values("pending", "delivered", "expired", "failed").Default("pending"),
		field.Int("attempts").Default(0),
		field.Time("next_attempt_at").Default(now),
		// lease_owner is the process that is delivering, while lease_until is in the future.
		field.String("lease_owner").Default(""),
		field.Time("lease_until").Optional().Nillable(),
		field.Bool("expects_reply").Immutable(),
		field.Time("reply_by").Optional().Nillable().Immutable(),
		// session is what the webhook says of the Session, as it was when the message came.
		field.JSON("session", json.RawMessage{}).Immutable(),
		// context is the merged context as of the message.
		field.JSON("context", json.RawMessage{}).Optional().Immutable(),
		field.String("traceparent").Default("").Immutable(),
		field.Int("last_status").Default(0),
		field.String("last_reason").Default(""),
		// agent_outcome is what the agent saw of it: "answered", "silent", "deadline", "refused", "handed_off".
		field.String("agent_outcome").Default(""),
		field.Time("created_at").Default(now).Immutable(),
		// done_at stays while it is sent again by hand.
		field.Time("done_at").Optional().Nillable(),
	}
}

// Indexes of the entity.
func (Delivery) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("company_id", "conversation_id", "sequence", "round").Unique(),
		index.Fields("next_attempt_at").Annotations(entsql.IndexWhere("state = 'pending'")),
		index.Fields("company_id", "created_at", "id"),
		// The few of a long conversation that are not done, or whose turn is open.
		index.Fields("company_id", "conversation_id", "sequence").StorageKey("delivery_live").
			Annotations(entsql.IndexWhere("(state = 'pending' OR (expects_reply AND agent_outcome = ''))")),
	}
}
