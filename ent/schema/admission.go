package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Admission is a Company's policy for Personal Agents.
type Admission struct{ ent.Schema }

// Mixin of the entity.
func (Admission) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (Admission) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.Enum("mode").Values("open", "allowlist", "blocklist", "registration_required").Default("open"),
		field.Bool("require_dpop_nonce").Default(false),
	}
}

// Indexes of the entity.
func (Admission) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id").Unique()}
}

// AdmissionRule is what a Company decided about one Personal Agent.
type AdmissionRule struct{ ent.Schema }

// Mixin of the entity.
func (AdmissionRule) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (AdmissionRule) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("client_id").NotEmpty().Immutable(),
		field.Enum("effect").Values("allow", "block", "register"),
		field.String("reason").Default(""),
		field.Time("expires_at").Optional().Nillable(),
		field.Time("created_at").Default(now).Immutable(),
	}
}

// Indexes of the entity.
func (AdmissionRule) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "client_id").Unique()}
}
