package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Usage is how much of one kind a Company used on one day.
type Usage struct{ ent.Schema }

// Mixin of the entity.
func (Usage) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (Usage) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		// day is a date of UTC, such as 2027-01-31: as text it sorts and compares alike in every database.
		field.String("day").NotEmpty().Immutable().MaxLen(10),
		field.Enum("kind").Values("sessions", "messages_from_agents", "messages_to_agents", "deliveries", "verifications").Immutable(),
		field.Int64("count").NonNegative(),
	}
}

// Indexes of the entity.
func (Usage) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "day", "kind").Unique()}
}

// Quota is the most that a Company may use in a month of UTC. 0 is no limit.
type Quota struct{ ent.Schema }

// Mixin of the entity.
func (Quota) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}, Stamps{}} }

// Fields of the entity.
func (Quota) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.Int64("sessions").Default(0).NonNegative(),
		field.Int64("messages").Default(0).NonNegative(),
		field.Int64("deliveries").Default(0).NonNegative(),
		field.Int64("verifications").Default(0).NonNegative(),
	}
}

// Indexes of the entity.
func (Quota) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id").Unique()}
}
