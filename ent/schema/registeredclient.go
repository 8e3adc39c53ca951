package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// RegisteredClient is an MCP client that registered itself at a Company (RFC 7591).
type RegisteredClient struct{ ent.Schema }

// Mixin of the entity.
func (RegisteredClient) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (RegisteredClient) Fields() []ent.Field {
	return []ent.Field{
		// id is the client_id.
		identifier(),
		field.String("name").Default("").Immutable(),
		field.Strings("redirect_uris").Immutable(),
		field.Time("created_at").Default(now).Immutable(),
		// expires_at moves with every sign-in and renewal.
		field.Time("expires_at"),
	}
}

// Indexes of the entity.
func (RegisteredClient) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "expires_at"), index.Fields("expires_at")}
}
