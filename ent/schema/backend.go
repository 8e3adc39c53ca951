package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Backend is a Company's own agent, reached by webhook.
type Backend struct{ ent.Schema }

// Mixin of the entity.
func (Backend) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (Backend) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("url").Default(""),
		field.Bool("enabled").Default(true),
		field.String("disable_reason").Default(""),
		field.Int64("attempt_timeout_ms").Default(0),
		field.Bool("deliver_late").Default(true),
	}
}

// Indexes of the entity.
func (Backend) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id").Unique()}
}

// WebhookSecret signs the webhooks of a Company. The secret is sealed.
type WebhookSecret struct{ ent.Schema }

// Mixin of the entity.
func (WebhookSecret) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (WebhookSecret) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.Enum("kind").Values("hmac", "ed25519").Immutable(),
		field.Bytes("sealed").Sensitive().Immutable(),
		field.String("public_key").Default("").Immutable(),
		field.String("prefix").Default("").Immutable(),
		field.Time("created_at").Default(now).Immutable(),
		field.Time("expires_at").Optional().Nillable(),
	}
}

// Indexes of the entity.
func (WebhookSecret) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "created_at")}
}
