package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/google/uuid"
)

// Session is one User, at one Company, through one Personal Agent.
type Session struct{ ent.Schema }

// Mixin of the entity.
func (Session) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (Session) Fields() []ent.Field {
	return []ent.Field{
		identifier(),
		field.String("client_id").NotEmpty().Immutable(),
		field.String("agent_name").Default(""),
		field.String("user_id").NotEmpty().Immutable(),
		// account the Session is signed in to; it never switches to another (Poppy 4.4).
		field.String("account").Default(""),
		// grant_id is the Grant that last signed it in.
		field.String("grant_id").Default(""),
		// extensions are the names of those that the agent's document listed when it last
		// got a token, space-separated (Poppy 3.3).
		field.String("extensions").Default(""),
		field.Time("created_at").Default(now).Immutable(),
		// last_used_at is exact to the minute: it only judges idleness.
		field.Time("last_used_at").Default(now),
		field.Time("ended_at").Optional().Nillable(),
	}
}

// Indexes of the entity.
func (Session) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("company_id", "created_at", "id"), index.Fields("last_used_at"),
		index.Fields("company_id", "grant_id"), index.Fields("company_id", "client_id"),
	}
}

// SessionToken is an issued Session Token, known by the hash that is its id.
type SessionToken struct{ ent.Schema }

// Mixin of the entity.
func (SessionToken) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (SessionToken) Fields() []ent.Field {
	return []ent.Field{
		// id is the base64url SHA-256 of the Company's id and the token.
		identifier(),
		field.String("session_id").NotEmpty().Immutable(),
		// jkt is the thumbprint of the bound key (RFC 9449 6.1); empty for a Bearer token.
		field.String("jkt").Default("").Immutable(),
		field.String("resource").Default("").Immutable(),
		field.String("scope").Default("").Immutable(),
		field.Bool("signed_in").Default(false).Immutable(),
		// grant_id is the Grant that a signed-in token is judged by on every request.
		field.String("grant_id").Default("").Immutable(),
		field.Time("created_at").Default(now).Immutable(),
		field.Time("expires_at").Immutable(),
		field.Time("revoked_at").Optional().Nillable(),
	}
}

// Indexes of the entity.
func (SessionToken) Indexes() []ent.Index {
	return []ent.Index{index.Fields("company_id", "session_id"), index.Fields("expires_at"), index.Fields("company_id", "grant_id")}
}

// BrowserCookie is the cookie of a Session's browser (Poppy 5), known by the hash that is its id.
type BrowserCookie struct{ ent.Schema }

// Mixin of the entity.
func (BrowserCookie) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (BrowserCookie) Fields() []ent.Field {
	return []ent.Field{
		// id is the base64url SHA-256 of the Company's id and the cookie's value.
		identifier(),
		field.String("session_id").NotEmpty().Immutable(),
		field.Time("created_at").Default(now).Immutable(),
		field.Time("expires_at").Immutable(),
	}
}

// Indexes of the entity.
func (BrowserCookie) Indexes() []ent.Index {
	// A Session has one: the next replaces it.
	return []ent.Index{index.Fields("company_id", "session_id").Unique(), index.Fields("expires_at")}
}

// SessionChange says that what is known of a Session's tokens has to be forgotten. It is
// written with the change itself, and is there for as long as somebody may not have seen it.
type SessionChange struct{ ent.Schema }

// Mixin of the entity.
func (SessionChange) Mixin() []ent.Mixin { return []ent.Mixin{Tenant{}} }

// Fields of the entity.
func (SessionChange) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", uuid.UUID{}),
		// session_id is empty where the change is about all of the Company's.
		field.String("session_id").Default(""),
		field.Time("created_at").Immutable(),
	}
}

// Indexes of the entity.
func (SessionChange) Indexes() []ent.Index { return []ent.Index{index.Fields("created_at")} }
