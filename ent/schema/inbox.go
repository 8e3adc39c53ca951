package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Note is what people at the Company write beside a conversation, for each other only.
type Note struct{ ent.Schema }

// Mixin of the entity.
func (Note) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (Note) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("conversation_id").NotEmpty().Immutable(),
		field.String("author").NotEmpty().Immutable(),
		field.Text("text").NotEmpty(),
	}
}

// Indexes of the entity.
func (Note) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "conversation_id", "created_at")}
}

// Presence is a person at the Company who is, or was, there to take conversations.
type Presence struct{ ent.Schema }

// Mixin of the entity.
func (Presence) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (Presence) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		// person is the name the Company knows them by, as in conversations' person.
		field.String("person").NotEmpty().Immutable(),
		field.String("display_name").Default(""),
		// until is when they count as gone unless they say again that they are there.
		field.Time("until"),
	}
}

// Indexes of the entity.
func (Presence) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "person").Unique()}
}

// InboxSettings are how a Company's people work: opening hours, deadlines, words.
type InboxSettings struct{ ent.Schema }

// Mixin of the entity.
func (InboxSettings) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (InboxSettings) Fields() []ent.Field {
	return []ent.Field{identifier(), field.JSON("settings", json.RawMessage{})}
}

// Indexes of the entity.
func (InboxSettings) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id").Unique()}
}
