package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Domain is a host name a Company wants to speak for. Several Companies may try;
// one may have it verified.
type Domain struct{ ent.Schema }

// Mixin of the entity.
func (Domain) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (Domain) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("domain").NotEmpty().Immutable(),
		field.Enum("state").Values("pending", "verified", "taken").Default("pending"),
		field.String("challenge").NotEmpty().Immutable(),
		field.String("proof_method").Default(""),
		field.JSON("observations", json.RawMessage{}).Optional(),
		field.Time("verified_at").Optional().Nillable(),
		field.Time("checked_at").Optional().Nillable(),
		field.Time("next_check_at").Optional().Nillable(),
	}
}

// Indexes of the entity.
func (Domain) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("company_id", "domain").Unique(),
		index.Fields("domain").Unique().Annotations(entsql.IndexWhere("state = 'verified'")),
		index.Fields("next_check_at"),
	}
}
