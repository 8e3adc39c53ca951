package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Company is a tenant. It is the one entity that is looked up across tenants: by
// the host of a public request.
type Company struct{ ent.Schema }

// Mixin of the entity.
func (Company) Mixin() []ent.Mixin { return []ent.Mixin{Stamps{}} }

// Fields of the entity.
func (Company) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("organization").Default(""),
		field.String("slug").NotEmpty().Immutable().Unique(),
		field.String("display_name").Default(""),
		field.Enum("kind").Values("live", "test").Default("live"),
		field.Enum("state").Values("setting_up", "active", "disabled").Default("setting_up"),
		// issuer never changes once published_at is set.
		field.String("issuer").NotEmpty().Unique(),
		field.String("issuer_host").NotEmpty(),
		field.String("issuer_path").Default(""),
		// browser_host is the host name of the browser session endpoint that we answer at (Poppy 5).
		field.String("browser_host").Default(""),
		field.Time("published_at").Optional().Nillable(),
		field.JSON("settings", json.RawMessage{}).Optional(),
		field.Time("settings_updated_at").Default(now),
		field.JSON("limits", json.RawMessage{}).Optional(),
		field.Time("limits_updated_at").Default(now),
		field.String("creator").Default(""),
	}
}

// Indexes of the entity.
func (Company) Indexes() []ent.Index {
	return []ent.Index{
		// A port doesn't select a Company, so two issuers may not differ by it alone.
		index.Fields("issuer_host", "issuer_path").Unique(),
		index.Fields("browser_host"),
		index.Fields("created_at", "id"),
	}
}
