package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// ApiKey is a Company's key to the admin API, known by the hash of its secret.
type ApiKey struct{ ent.Schema }

// Mixin of the entity.
func (ApiKey) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (ApiKey) Fields() []ent.Field {
	return append([]ent.Field{field.JSON("scopes", []string{}).Immutable()}, keyFields()...)
}

// Indexes of the entity.
func (ApiKey) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "created_at", "id"), index.Fields("hash").Unique()}
}

// OperatorKey is an operator's key to the admin API of the whole installation.
type OperatorKey struct{ ent.Schema }

// Fields of the entity.
func (OperatorKey) Fields() []ent.Field { return keyFields() }

// Indexes of the entity.
func (OperatorKey) Indexes() []ent.Index { return []ent.Index{index.Fields("hash").Unique()} }

func keyFields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("display_name").Default(""),
		field.String("hash").NotEmpty().Immutable().Sensitive(),
		field.String("prefix").Default("").Immutable(),
		field.Time("expires_at").Optional().Nillable(),
		field.Time("revoked_at").Optional().Nillable(),
		field.Time("last_used_at").Optional().Nillable(),
		field.Time("created_at").Default(now).Immutable(),
		field.String("creator").Default(""),
	}
}

// AnsweredRequest is the first answer to an admin call with a request_id, kept
// for a day so that a repeat gets it again. It belongs to the key that called.
type AnsweredRequest struct{ ent.Schema }

// Fields of the entity.
func (AnsweredRequest) Fields() []ent.Field {
	return []ent.Field{
		// id is the caller's key and the request_id.
		identifier(),
		field.String("method").Immutable(),
		field.Bytes("request_hash").Immutable(),
		// response is sealed: it may hold a secret that is shown once.
		field.Bytes("response").Optional().Nillable().Sensitive(),
		field.Time("created_at").Default(now).Immutable(),
	}
}

// Indexes of the entity.
func (AnsweredRequest) Indexes() []ent.Index { return []ent.Index{index.Fields("created_at")} }
