package schema

import (
	"time"

	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/mixin"
)

// now is the default of time columns, at the microsecond that PostgreSQL keeps.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// Tenant is embedded by every entity that belongs to a Company: the column that
// says so is never empty and never changes.
type Tenant struct{ mixin.Schema }

// Fields of the mixin.
func (Tenant) Fields() []ent.Field {
	return []ent.Field{field.String("company_id").NotEmpty().Immutable().MaxLen(64)}
}

// Stamps is embedded by every mutable entity: when it was made and last changed,
// and the version that its etag is made from.
type Stamps struct{ mixin.Schema }

// Fields of the mixin.
func (Stamps) Fields() []ent.Field {
	return []ent.Field{
		field.Time("created_at").Default(now).Immutable(),
		field.Time("updated_at").Default(now),
		field.Int64("version").Default(1),
	}
}

// identifier is the primary key of every entity with an id of ours: a short
// prefix and a UUIDv7 in base 32.
func identifier() ent.Field { return field.String("id").NotEmpty().Immutable().MaxLen(128) }
